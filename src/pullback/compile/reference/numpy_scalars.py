"""The scalar vocabulary of kernels in NumPy, on arrays of scalars: what each word means, in one line where possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.dtypes import FLOAT8_LARGEST
from ..vocabulary import is_float8

#: What a fold by a word does, and its identity; of booleans, sums are "or" and products "and".
FOLDS: dict[str, tuple[np.ufunc, float]] = {
    "add": (np.add, 0), "multiply": (np.multiply, 1), "maximum": (np.maximum, -np.inf), "minimum": (np.minimum, np.inf),
    "logical_or": (np.logical_or, 0), "logical_and": (np.logical_and, 1),
}  # fmt: skip
#: Functions of NumPy under the same name and under another.
_SAME = (
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "logaddexp", "power", "cbrt", "hypot",
)  # fmt: skip
_OTHER = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh",
}  # fmt: skip
#: Words that NumPy computes in the dtype itself.
_EXACT = {
    **{w: w for w in (
        "subtract", "negative", "square", "remainder", "floor_divide", "fmod", "fmax", "fmin", "heaviside", "nextafter",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "add", "multiply", "maximum", "minimum", "abs",
    )},
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
}  # fmt: skip
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def identity(word: str, dtype: np.dtype[Any]) -> Any:
    """What a fold starts from in a dtype."""
    number = FOLDS[word][1]
    if dtype.kind == "b":  # the infinities are the ends of this order too
        return np.asarray(number > 0)
    if dtype.kind in "iu" and not math.isfinite(number):
        number = np.iinfo(dtype).min if number < 0 else np.iinfo(dtype).max
    return np.asarray(number).astype(dtype)


def to_dtype(x: Any, dtype: np.dtype[Any]) -> Any:
    """A cast. A float out of an integer's range saturates, and NaN becomes zero: NumPy leaves that undefined. In eight
    bits, what is too large becomes the largest number.
    """
    if is_float8(dtype):
        most = FLOAT8_LARGEST[dtype.name]
        return np.clip(x.astype(np.float32), -most, most).astype(dtype)
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        with np.errstate(over="ignore"):  # native code does not warn
            return x.astype(dtype)
    limits = np.iinfo(dtype)
    inside = np.where(x > limits.min, np.where(x < float(limits.max), x, 0), 0).astype(dtype)
    return np.where(x >= float(limits.max), limits.max, np.where(x <= limits.min, limits.min, inside)).astype(dtype)


class NumpyScalars:
    """The words of one line, which computes in a dtype; scalars of other dtypes are converted first."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def constant(self, number: Any) -> Any:
        return np.asarray(number).astype(self.dtype)

    def coerce(self, x: Any) -> Any:
        return to_dtype(x, self.dtype)

    def positive(self, x: Any) -> Any:
        return self.coerce(x)

    conj = real = stop_gradient = positive

    def imag(self, x: Any) -> Any:
        return self.constant(0)

    def divide(self, x: Any, y: Any) -> Any:
        """The quotient; of integers, cut off towards zero, and zero by zero."""
        x, y = self.coerce(x), self.coerce(y)
        if self.dtype.kind == "f":
            return np.divide(x, y)
        whole = np.floor_divide(x, y)
        short = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))
        return np.where(y == 0, 0, whole + short.astype(self.dtype)).astype(self.dtype)

    def copysign(self, x: Any, y: Any) -> Any:
        return np.copysign(self.coerce(x), self.coerce(y)) if self.dtype.kind == "f" else self.coerce(x)

    def signbit(self, x: Any) -> Any:
        return np.signbit(x) if x.dtype.kind == "f" else x < 0

    def sign(self, x: Any) -> Any:
        return np.sign(self.coerce(x)).astype(self.dtype)

    def relu(self, x: Any) -> Any:
        return np.maximum(self.coerce(x), self.constant(0))

    def sigmoid(self, x: Any) -> Any:
        x = self.coerce(x).astype(np.float64)
        return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x))).astype(self.dtype)

    def erf(self, x: Any) -> Any:
        return _map_scalars(math.erf, self.coerce(x))

    def erfc(self, x: Any) -> Any:
        return _map_scalars(math.erfc, self.coerce(x))

    def rotate_left(self, x: Any, y: Any) -> Any:
        bits = 8 * self.dtype.itemsize
        whole = np.dtype(f"u{self.dtype.itemsize}")
        x, y = self.coerce(x).astype(whole), self.coerce(y).astype(whole) % whole.type(bits)
        rest = (whole.type(bits) - y) % whole.type(bits)
        return ((x << y) | (x >> rest)).astype(self.dtype)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition != 0, self.coerce(x), self.coerce(y))

    def isnan(self, x: Any) -> Any:
        return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)

    def isinf(self, x: Any) -> Any:
        return np.isinf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)

    def isfinite(self, x: Any) -> Any:
        return np.isfinite(x) if x.dtype.kind == "f" else np.ones(x.shape, bool)

    def logical_not(self, x: Any) -> Any:
        return x == 0

    def logical_and(self, x: Any, y: Any) -> Any:
        return (x != 0) & (y != 0)

    def logical_or(self, x: Any, y: Any) -> Any:
        return (x != 0) | (y != 0)

    def logical_xor(self, x: Any, y: Any) -> Any:
        return (x != 0) != (y != 0)

    def _round_floats(self, x: Any, function: Any) -> Any:
        return function(self.coerce(x)) if self.dtype.kind == "f" else self.coerce(x)

    def floor(self, x: Any) -> Any:
        return self._round_floats(x, np.floor)

    def ceil(self, x: Any) -> Any:
        return self._round_floats(x, np.ceil)

    def trunc(self, x: Any) -> Any:
        return self._round_floats(x, np.trunc)

    def rint(self, x: Any) -> Any:
        return self._round_floats(x, np.rint)

    round = rint

    def __getattr__(self, word: str) -> Callable[..., Any]:
        """The words that are one function of NumPy."""
        if word in _COMPARISONS:
            return lambda x, y: getattr(np, word)(self.coerce(x), self.coerce(y))
        if word in _EXACT:
            return lambda *xs: getattr(np, _EXACT[word])(*map(self.coerce, xs)).astype(self.dtype)
        if word in _SAME or word in _OTHER:  # in float64, rounded once: what float32 should be
            function = getattr(np, _OTHER.get(word, word))
            return lambda *xs: function(*(self.coerce(x).astype(np.float64) for x in xs)).astype(self.dtype)
        raise AttributeError(word)


def _map_scalars(function: Callable[[float], float], x: Any) -> Any:
    flat = [function(float(number)) for number in x.reshape(-1)]
    return np.array(flat, np.float64).reshape(x.shape).astype(x.dtype)

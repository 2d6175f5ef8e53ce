"""The scalar vocabulary as CUDA C: each word appends at most one statement, and names a value.

Mathematics is CUDA's own, but for `tanh`: a float32 result is never computed in float64, which most GPUs are slow at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..vocabulary import is_narrow, value_dtype

C_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned", "uint64": "unsigned long long",
    "float32": "float", "float64": "double", "float16": "float16_", "bfloat16": "bfloat16_",
    "float8_e4m3fn": "float8_e4m3fn_", "float8_e5m2": "float8_e5m2_",
}  # fmt: skip
FLOAT: np.dtype[Any] = np.dtype(np.float32)
BOOL: np.dtype[Any] = np.dtype(bool)
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*"}
_COMPARE = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_LOGICAL = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_EXTREME = {"maximum": ">", "minimum": "<"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "round": "rint"}
#: Functions of CUDA; with an f behind the name for float32.
_FUNCTIONS = frozenset((
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc", "cbrt", "atan2", "hypot", "nextafter",
))  # fmt: skip
#: Functions of the preamble, for integers and for floats where these differ.
_OWN = {
    "divide": ("divide_", ""), "fmod": ("fmod_", "fmod_"), "remainder": ("remainder_", "real_remainder_"),
    "floor_divide": ("floor_divide_", "real_floor_divide_"), "bitwise_left_shift": ("left_shift_", ""),
    "bitwise_right_shift": ("right_shift_", ""), "logaddexp": ("", "logaddexp_"), "sigmoid": ("", "sigmoid_"),
    "tanh": ("", "tanh_"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CudaValue:
    """The name of a scalar, or the text of a number."""

    name: str
    dtype: np.dtype[Any]


def c_type(dtype: np.dtype[Any]) -> str:
    """The type of an element in memory."""
    return C_TYPES[dtype.name]


def number_text(number: Any, dtype: np.dtype[Any]) -> str:
    """A number of a dtype as C text, exactly."""
    rounded, dtype = np.asarray(number).astype(dtype), value_dtype(dtype)
    value = rounded.astype(dtype)[()]
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind != "f":
        whole = int(value)
        # the lowest integers have no literal of their own
        text = f"{whole}ull" if dtype.kind == "u" else f"{whole}ll" if whole > -(2**63) else f"({whole + 1}ll - 1)"
        return f"({c_type(dtype)}){text}" if whole >= 0 or text[0] == "(" else f"({c_type(dtype)})({text})"
    if np.isfinite(value):
        # the shortest decimals that are read back as this number
        text = str(value) + ("f" if dtype.itemsize == 4 else "")
        return f"({text})" if text[0] == "-" else text
    bits = int(value.view(f"u{dtype.itemsize}"))
    return f"__int_as_float(0x{bits:x})" if dtype.itemsize == 4 else f"__longlong_as_double(0x{bits:x}ll)"


class CudaWords:
    """Appends statements to `lines`; the names it assigns are unique over all that share a `counter`."""

    def __init__(self, counter: Any = None) -> None:
        self.lines: list[str] = []
        self.counter = counter or itertools.count()
        self.dtype = FLOAT

    def assign(self, text: str, dtype: np.dtype[Any]) -> CudaValue:
        name, dtype = f"v{next(self.counter)}", value_dtype(dtype)
        self.lines.append(f"const {c_type(dtype)} {name} = {text};")
        return CudaValue(name, dtype)

    # Numbers, and values of other dtypes

    def number(self, number: Any, dtype: np.dtype[Any]) -> CudaValue:
        return CudaValue(number_text(number, dtype), value_dtype(dtype))

    def constant(self, number: Any) -> CudaValue:
        return self.number(number, self.dtype)

    def cast(self, x: CudaValue, dtype: np.dtype[Any]) -> CudaValue:
        """NumPy's `astype` of one element; out of an integer's range, a float saturates."""
        if x.dtype == dtype:
            return x
        if is_narrow(dtype):
            x = x if x.dtype.kind == "f" else self.cast(x, FLOAT)
            return self.assign(f"({c_type(dtype)}){x.name}", FLOAT)
        if dtype.kind == "b":
            return self.to_bool(x)
        if x.dtype.kind == "f" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            ends = ", ".join(number_text(n, dtype) for n in (limits.min, limits.max))
            return self.assign(f"saturate_<{c_type(dtype)}>({x.name}, {ends})", dtype)
        return self.assign(f"({c_type(dtype)}){x.name}", dtype)

    def to_store(self, x: CudaValue, dtype: np.dtype[Any]) -> CudaValue:
        """A value that memory of a dtype may be assigned: that rounds to narrow types."""
        return x if is_narrow(dtype) and x.dtype.kind == "f" else self.cast(x, value_dtype(dtype))

    def to_bool(self, x: CudaValue) -> CudaValue:
        return x if x.dtype.kind == "b" else self.assign(f"{x.name} != 0", BOOL)

    def coerce(self, x: CudaValue) -> CudaValue:
        return self.cast(x, self.dtype)

    # Words

    def positive(self, x: CudaValue) -> CudaValue:
        return self.coerce(x)

    conj = real = stop_gradient = positive

    def imag(self, x: CudaValue) -> CudaValue:
        return self.constant(0)

    def negative(self, x: CudaValue) -> CudaValue:
        x = self.coerce(x)
        return self.assign(f"-{x.name}" if x.dtype.kind == "f" else f"negative_({x.name})", x.dtype)

    def square(self, x: CudaValue) -> CudaValue:
        return self.multiply(x, x)

    def abs(self, x: CudaValue) -> CudaValue:
        x = self.coerce(x)
        if x.dtype.kind in "bu":
            return x
        if x.dtype.kind == "f":
            return self.assign(_call_text("fabs", x), x.dtype)
        return self.assign(f"{x.name} < 0 ? negative_({x.name}) : {x.name}", x.dtype)

    def select(self, condition: CudaValue, x: CudaValue, y: CudaValue) -> CudaValue:
        c, x, y = self.to_bool(condition), self.coerce(x), self.coerce(y)
        return self.assign(f"{c.name} ? {x.name} : {y.name}", self.dtype)

    def sign(self, x: CudaValue) -> CudaValue:
        x = self.coerce(x)
        rest = f"{x.name} == 0 ? 0 : {x.name}" if x.dtype.kind == "f" else "0"
        down = "" if x.dtype.kind == "u" else f"{x.name} < 0 ? -1 : "
        return self.assign(f"{x.name} > 0 ? 1 : {down}{rest}", x.dtype)

    def heaviside(self, x: CudaValue, y: CudaValue) -> CudaValue:
        x, y = self.coerce(x), self.coerce(y)
        return self.assign(f"{x.name} > 0 ? 1 : {x.name} < 0 ? 0 : {x.name} == 0 ? {y.name} : {x.name}", x.dtype)

    def relu(self, x: CudaValue) -> CudaValue:
        return self.maximum(x, self.constant(0))

    def fmax(self, x: CudaValue, y: CudaValue) -> CudaValue:
        """The larger one; of a number and NaN, the number."""
        x, y = self.coerce(x), self.coerce(y)
        return self.assign(f"{x.name} >= {y.name} || {y.name} != {y.name} ? {x.name} : {y.name}", x.dtype)

    def fmin(self, x: CudaValue, y: CudaValue) -> CudaValue:
        x, y = self.coerce(x), self.coerce(y)
        return self.assign(f"{x.name} <= {y.name} || {y.name} != {y.name} ? {x.name} : {y.name}", x.dtype)

    def copysign(self, x: CudaValue, y: CudaValue) -> CudaValue:
        x, y = self.coerce(x), self.coerce(y)
        return self.assign(_call_text("copysign", x, y), x.dtype) if x.dtype.kind == "f" else x

    def power(self, x: CudaValue, y: CudaValue) -> CudaValue:
        """x^y; a few constant exponents need no logarithm."""
        x, y = self.coerce(x), self.coerce(y)
        if y.name == self.constant(1).name:
            return x
        if y.name == self.constant(2).name:
            return self.multiply(x, x)
        if y.name == self.constant(3).name:
            return self.multiply(self.multiply(x, x), x)
        if y.name == self.constant(-1).name:
            return self.divide(self.constant(1), x)
        if y.name == self.constant(0.5).name:  # unlike sqrt, 0 for -0 and infinity for minus infinity
            found = self.sqrt(self.add(x, self.constant(0)))
            return self.select(self.equal(x, self.constant(-np.inf)), self.constant(np.inf), found)
        return self.assign(_call_text("pow", x, y), x.dtype)

    def isnan(self, x: CudaValue) -> CudaValue:
        return self.assign(f"{x.name} != {x.name}", BOOL) if x.dtype.kind == "f" else self.number(False, BOOL)

    def isinf(self, x: CudaValue) -> CudaValue:
        return self._compare_magnitude(x, "==") if x.dtype.kind == "f" else self.number(False, BOOL)

    def isfinite(self, x: CudaValue) -> CudaValue:
        return self._compare_magnitude(x, "<") if x.dtype.kind == "f" else self.number(True, BOOL)

    def _compare_magnitude(self, x: CudaValue, relation: str) -> CudaValue:
        return self.assign(f"{_call_text('fabs', x)} {relation} {number_text(np.inf, x.dtype)}", BOOL)

    def signbit(self, x: CudaValue) -> CudaValue:
        if x.dtype.kind == "f":
            bits = "__float_as_int" if x.dtype.itemsize == 4 else "__double_as_longlong"
            return self.assign(f"{bits}({x.name}) < 0", BOOL)
        return self.assign(f"{x.name} < 0", BOOL) if x.dtype.kind == "i" else self.number(False, BOOL)

    def logical_not(self, x: CudaValue) -> CudaValue:
        return self.assign(f"!{self.to_bool(x).name}", BOOL)

    def bitwise_invert(self, x: CudaValue) -> CudaValue:
        x = self.coerce(x)
        return self.assign(f"!{x.name}" if x.dtype.kind == "b" else f"~{x.name}", x.dtype)

    def rotate_left(self, x: CudaValue, y: CudaValue) -> CudaValue:
        x, y = self.coerce(x), self.coerce(y)
        unsigned = c_type(np.dtype(f"u{x.dtype.itemsize}"))
        return self.assign(f"({c_type(x.dtype)})rotate_left_(({unsigned}){x.name}, ({unsigned}){y.name})", x.dtype)

    def __getattr__(self, word: str) -> Callable[..., CudaValue]:
        """The words that are one operator, or one call."""
        if word in _ARITHMETIC:
            return lambda x, y: self._arithmetic(word, self.coerce(x), self.coerce(y))
        if word in _EXTREME:
            return lambda x, y: self._extreme(word, self.coerce(x), self.coerce(y))
        if word in _COMPARE:
            return lambda x, y: self.assign(f"{self.coerce(x).name} {_COMPARE[word]} {self.coerce(y).name}", BOOL)
        if word in _LOGICAL:
            return lambda x, y: self.assign(f"{self.to_bool(x).name} {_LOGICAL[word]} {self.to_bool(y).name}", BOOL)
        if word in _BITS:
            return lambda x, y: self.assign(f"{self.coerce(x).name} {_BITS[word]} {self.coerce(y).name}", self.dtype)
        if word in _ROUND:
            return lambda x: self._round(_ROUND[word], self.coerce(x))
        if word in _OWN:
            return lambda x, *ys: self._call_own(word, self.coerce(x), *map(self.coerce, ys))
        if word in _FUNCTIONS:
            return lambda *xs: self.assign(_call_text(word, *map(self.coerce, xs)), self.dtype)
        raise AttributeError(word)

    def _arithmetic(self, word: str, x: CudaValue, y: CudaValue) -> CudaValue:
        kind, sign = x.dtype.kind, _ARITHMETIC[word]
        if kind == "b":
            return self.logical_or(x, y) if word == "add" else self.logical_and(x, y)
        if kind == "f":
            return self.assign(f"{x.name} {sign} {y.name}", x.dtype)
        # C leaves an overflow of signed integers undefined: those without a sign wrap as NumPy's do
        wraps = "unsigned long long" if x.dtype.itemsize == 8 else "unsigned"
        return self.assign(f"({c_type(x.dtype)})(({wraps}){x.name} {sign} ({wraps}){y.name})", x.dtype)

    def _extreme(self, word: str, x: CudaValue, y: CudaValue) -> CudaValue:
        if x.dtype.kind == "b":
            return self.logical_or(x, y) if word == "maximum" else self.logical_and(x, y)
        # NaN comes through
        nan = f" || {x.name} != {x.name}" if x.dtype.kind == "f" else ""
        return self.assign(f"{x.name} {_EXTREME[word]} {y.name}{nan} ? {x.name} : {y.name}", x.dtype)

    def _round(self, function: str, x: CudaValue) -> CudaValue:
        return self.assign(_call_text(function, x), x.dtype) if x.dtype.kind == "f" else x

    def _call_own(self, word: str, x: CudaValue, *ys: CudaValue) -> CudaValue:
        function = _OWN[word][x.dtype.kind == "f"]
        if not function:
            return self.assign(f"{x.name} / {ys[0].name}", x.dtype)
        return self.assign(f"{function}({', '.join(v.name for v in (x, *ys))})", x.dtype)


def _call_text(function: str, *scalars: CudaValue) -> str:
    suffix = "f" if scalars[0].dtype.itemsize == 4 else ""
    return f"{function}{suffix}({', '.join(x.name for x in scalars)})"

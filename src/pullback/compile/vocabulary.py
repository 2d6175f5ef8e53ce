"""The scalar vocabulary of op kernels: its words, the kinds of dtype they are defined for, and what they weigh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype
from ..arrays.spec import FLOAT8_CODES, Spec
from ..ops.families import result_dtype
from ..ops.op import Op

#: What a value may weigh to be computed again rather than stored.
MAX_RECOMPUTE_WEIGHT = 3
#: The identity of each fold.
IDENTITY: dict[str, float | bool] = {
    "add": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "logical_or": False, "logical_and": True,
}  # fmt: skip
_LIGHT = frozenset((
    "add", "subtract", "multiply", "negative", "positive", "abs", "square", "maximum", "minimum", "relu", "sign",
    "heaviside", "select", "conj", "real", "imag", "constant", "stop_gradient", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not", "isnan", "isinf", "isfinite",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift",
    "rotate_left",
))  # fmt: skip

#: Dtypes that are loaded and stored; between that, values are float32, and rounded once where they are stored.
HALF_DTYPES = frozenset(("float16", "bfloat16"))
#: So are those of eight bits, which are computed with in no other way.
FLOAT8_DTYPES = frozenset(("float8_e4m3fn", "float8_e5m2"))
_FLOAT32 = np.dtype(np.float32)

#: Every word, with the kinds of dtype it is defined for; an op whose kernel needs more falls back to NumPy.
VOCABULARY: dict[str, str] = {
    **dict.fromkeys((
        "add", "multiply", "positive", "abs", "maximum", "minimum", "select", "conj", "real", "imag", "stop_gradient",
        "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
        "logical_xor", "logical_not", "isnan", "isinf", "isfinite", "floor", "ceil", "trunc", "rint", "round", "relu",
    ), "biuf"),
    **dict.fromkeys((
        "subtract", "negative", "square", "sign", "divide", "fmod", "remainder", "floor_divide", "copysign", "fmax",
        "fmin",
    ), "iuf"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"), "biu"),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift", "rotate_left"), "iu"),
    **dict.fromkeys((
        "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
        "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "logaddexp", "power",
        "cbrt", "hypot", "heaviside", "nextafter", "signbit",
    ), "f"),
}  # fmt: skip


class Weigher:
    """A vocabulary that computes nothing: it collects the words of a kernel and what they cost, in additions."""

    def __init__(self) -> None:
        self.weight = 0
        self.words: set[str] = set()

    def constant(self, number: Any) -> None:
        return None

    def __getattr__(self, word: str) -> Callable[..., None]:
        def count(*scalars: Any) -> None:
            self.words.add(word)
            self.weight += 0 if word in ("positive", "stop_gradient", "real", "conj") else 1 if word in _LIGHT else 4
            self.weight += 0 if word in _LIGHT or word in ("divide", "sqrt") else 12

        return count

    @staticmethod
    def weigh(op: Op, count: int) -> int:
        return _weigh_kernel(op, count).weight


@functools.lru_cache(maxsize=4096)
def _weigh_kernel(op: Op, count: int) -> Weigher:
    """The words and weight of an op's kernel; cached, since it is asked several times for each equation."""
    k = Weigher()
    if op.kernel is not None:
        op.kernel(k, *[None] * count)
    return k


def words_of(op: Op, count: int) -> set[str]:
    """The words that an op's kernel uses."""
    return _weigh_kernel(op, count).words


@functools.lru_cache(maxsize=256)
def is_half(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.name in HALF_DTYPES


def is_float8(dtype: np.dtype[Any]) -> bool:
    return dtype.char in FLOAT8_CODES


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether values are float32 between memory and memory."""
    return is_half(dtype) or is_float8(dtype)


def half_dtype(name: str) -> np.dtype[Any]:
    """A dtype of sixteen or eight bits by its name."""
    found: np.dtype[Any] = as_dtype(name)
    return found


def value_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that values of a dtype have between memory and memory."""
    return _FLOAT32 if is_narrow(dtype) else dtype


def computation_dtype(specs: Sequence[Spec], out: Spec) -> np.dtype[Any]:
    """The dtype an elementwise op computes in: that of values of its `operation_dtype`."""
    return value_dtype(operation_dtype(specs, out))


def operation_dtype(specs: Sequence[Spec], out: Spec) -> np.dtype[Any]:
    """The dtype of an elementwise op: its result's, or where that is boolean, its arguments' common one."""
    found: np.dtype[Any] = out.dtype
    if found.kind == "b" and any(is_half(s.dtype) for s in specs):
        found = result_dtype(specs)  # which knows how Python scalars meet bfloat16
    elif found.kind == "b":
        strong: list[Any] = [s.dtype for s in specs if s.weak is None]
        weak = [s.weak(0) for s in specs if s.weak is not None] if strong else [s.dtype for s in specs]
        found = np.result_type(*strong, *weak)
    return found


def fold_identity(word: str, dtype: np.dtype[Any]) -> Any:
    """What a fold starts from in a dtype: of integers and booleans the least or greatest stands for an infinity."""
    number = IDENTITY[word]
    if dtype.kind == "b":
        return number > 0
    if dtype.kind in "iu" and isinstance(number, float):
        return np.iinfo(dtype).min if number < 0 else np.iinfo(dtype).max
    return number

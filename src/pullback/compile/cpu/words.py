"""The scalar vocabulary as LLVM text: each word appends instructions on one scalar, or on a vector of lanes of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .lanes import BOOL, Lane, conversion, element_type, number_text, short_type, type_of

__all__ = ["MATHEMATICS", "WRITTEN_OUT", "Words"]

_ARITHMETIC = {"add": ("fadd", "add"), "subtract": ("fsub", "sub"), "multiply": ("fmul", "mul")}
_COMPARE = {
    "equal": ("oeq", "eq", "eq"), "not_equal": ("une", "ne", "ne"), "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"), "greater": ("ogt", "sgt", "ugt"), "greater_equal": ("oge", "sge", "uge"),
}  # fmt: skip
_EXTREME = {"maximum": ("greater", "smax", "umax"), "minimum": ("less", "smin", "umin")}
_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven", "round": "roundeven"}
#: Words that are functions of the module itself, filled in by `math`.
MATHEMATICS: dict[str, Any] = {}
#: Words of several instructions, filled in by `written_out`.
WRITTEN_OUT: dict[str, Callable[..., Lane]] = {}


class Words:
    """Appends lines to `lines`; the names it gives are unique over all Words that share a `counter`."""

    def __init__(
        self,
        lanes: int,
        counter: Any = None,
        declared: set[str] | None = None,
        functions: dict[str, str] | None = None,
        vector_bytes: int = 0,
    ) -> None:
        self.lines: list[str] = []
        self.lanes = lanes
        #: The width of the machine's vectors; a value of more lanes than fit is several of them. 0: no width is known.
        self.vector_bytes = vector_bytes
        self.counter = counter or itertools.count()
        self.declared = declared if declared is not None else set()
        self.functions = functions if functions is not None else {}
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.narrow = False  # whether a result of float32 is computed in float64

    def emit(self, text: str) -> str:
        name = f"%v{next(self.counter)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def say(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def made(self, text: str, dtype: np.dtype[Any]) -> Lane:
        return Lane(self.emit(text), dtype, self.lanes)

    def call(
        self, function: str, result: np.dtype[Any], *args: Lane, flags: str = "", lanes: int | None = None
    ) -> Lane:
        """A call of an intrinsic whose arguments and result have the same number of lanes."""
        count = self.lanes if lanes is None else lanes
        kind = type_of(result, count)
        kinds = ", ".join(type_of(a.dtype, a.lanes) for a in args)
        self.declared.add(f"declare {kind} @{function}({kinds})")
        given = ", ".join(f"{type_of(a.dtype, a.lanes)} {a.name}" for a in args)
        return Lane(self.emit(f"call {flags + ' ' if flags else ''}{kind} @{function}({given})"), result, count)

    def suffix(self, dtype: np.dtype[Any]) -> str:
        """How an intrinsic's name ends for this many lanes of a dtype."""
        element = short_type(element_type(dtype))
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    # Numbers, and values of other dtypes or other widths

    def constant(self, number: Any) -> Lane:
        return self.number(number, self.dtype)

    def number(self, number: Any, dtype: np.dtype[Any]) -> Lane:
        text = number_text(number, dtype)
        if self.lanes > 1:
            text = f"splat ({element_type(dtype)} {text})"
        return Lane(text, dtype, self.lanes)

    def splat(self, x: Lane) -> Lane:
        """One scalar in every lane."""
        if x.lanes == self.lanes:
            return x
        kind = type_of(x.dtype, self.lanes)
        first = self.emit(f"insertelement {kind} poison, {element_type(x.dtype)} {x.name}, i32 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.made(f"shufflevector {kind} {first}, {kind} poison, {mask}", x.dtype)

    def cast(self, x: Lane, dtype: np.dtype[Any]) -> Lane:
        """NumPy's `astype` of one element."""
        if x.dtype == dtype:
            return x
        if dtype.kind == "b":
            return self.holds(x)
        source, target = type_of(x.dtype, x.lanes), type_of(dtype, x.lanes)
        word = conversion(x.dtype, dtype)
        if word is None:
            return Lane(x.name, dtype, x.lanes)
        if word in ("fptosi", "fptoui"):  # out of range is undefined in LLVM: let it saturate
            return self._saturating(x, dtype, word)
        return Lane(self.emit(f"{word} {source} {x.name} to {target}"), dtype, x.lanes)

    def _saturating(self, x: Lane, dtype: np.dtype[Any], word: str) -> Lane:
        shape = "" if x.lanes == 1 else f"v{x.lanes}"
        of = f"{shape}{element_type(dtype)}.{shape}{short_type(element_type(x.dtype))}"
        return self.call(f"llvm.{word}.sat.{of}", dtype, x, lanes=x.lanes)

    def holds(self, x: Lane) -> Lane:
        if x.dtype.kind == "b":
            return x
        word = "fcmp une" if x.dtype.kind == "f" else "icmp ne"
        zero = Words.number(self, 0, x.dtype)
        return self.made(f"{word} {type_of(x.dtype, self.lanes)} {x.name}, {zero.name}", BOOL)

    def as_own(self, x: Lane) -> Lane:
        return self.cast(x, self.dtype)

    # Words

    def negative(self, x: Lane) -> Lane:
        x = self.as_own(x)
        if x.dtype.kind == "f":
            return self.made(f"fneg {type_of(x.dtype, self.lanes)} {x.name}", x.dtype)
        return self.subtract(self.constant(0), x)

    def positive(self, x: Lane) -> Lane:
        return self.as_own(x)

    conj = real = stop_gradient = positive

    def imag(self, x: Lane) -> Lane:
        return self.constant(0)

    def square(self, x: Lane) -> Lane:
        return self.multiply(x, x)

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        """x * y + z, rounded once."""
        return self.call(f"llvm.fma.{self.suffix(x.dtype)}", x.dtype, x, y, z)

    def sqrt(self, x: Lane) -> Lane:
        x = self.as_own(x)
        return self.call(f"llvm.sqrt.{self.suffix(x.dtype)}", x.dtype, x)

    def abs(self, x: Lane) -> Lane:
        x = self.as_own(x)
        if x.dtype.kind == "f":
            return self.call(f"llvm.fabs.{self.suffix(x.dtype)}", x.dtype, x)
        return x if x.dtype.kind == "u" else self.select(self.less(x, self.constant(0)), self.negative(x), x)

    def select(self, condition: Lane, x: Lane, y: Lane) -> Lane:
        c, x, y = self.holds(condition), self.as_own(x), self.as_own(y)
        kind = type_of(self.dtype, self.lanes)
        return self.made(f"select {type_of(BOOL, self.lanes)} {c.name}, {kind} {x.name}, {kind} {y.name}", self.dtype)

    def isnan(self, x: Lane) -> Lane:
        if x.dtype.kind != "f":
            return self.number(False, BOOL)
        return self.made(f"fcmp uno {type_of(x.dtype, self.lanes)} {x.name}, {x.name}", BOOL)

    def isinf(self, x: Lane) -> Lane:
        return self._size(x, "oeq") if x.dtype.kind == "f" else self.number(False, BOOL)

    def isfinite(self, x: Lane) -> Lane:
        return self._size(x, "olt") if x.dtype.kind == "f" else self.number(True, BOOL)

    def _size(self, x: Lane, relation: str) -> Lane:
        size = self.call(f"llvm.fabs.{self.suffix(x.dtype)}", x.dtype, x)
        infinite = self.number(np.inf, x.dtype)
        return self.made(f"fcmp {relation} {type_of(x.dtype, self.lanes)} {size.name}, {infinite.name}", BOOL)

    def logical_not(self, x: Lane) -> Lane:
        return self.made(f"xor {type_of(BOOL, self.lanes)} {self.holds(x).name}, {self.number(True, BOOL).name}", BOOL)

    def logical_and(self, x: Lane, y: Lane) -> Lane:
        return self.made(f"and {type_of(BOOL, self.lanes)} {self.holds(x).name}, {self.holds(y).name}", BOOL)

    def logical_or(self, x: Lane, y: Lane) -> Lane:
        return self.made(f"or {type_of(BOOL, self.lanes)} {self.holds(x).name}, {self.holds(y).name}", BOOL)

    def logical_xor(self, x: Lane, y: Lane) -> Lane:
        return self.made(f"xor {type_of(BOOL, self.lanes)} {self.holds(x).name}, {self.holds(y).name}", BOOL)

    def bitwise_invert(self, x: Lane) -> Lane:
        x = self.as_own(x)
        ones = self.number(True, BOOL) if x.dtype.kind == "b" else self.number(-1, np.dtype(f"i{x.dtype.itemsize}"))
        return self.made(f"xor {type_of(x.dtype, self.lanes)} {x.name}, {ones.name}", x.dtype)

    def __getattr__(self, word: str) -> Callable[..., Lane]:
        """The words that are one instruction, or one call."""
        if word in _ARITHMETIC:
            return lambda x, y: self._arithmetic(word, x, y)
        if word in _COMPARE:
            return lambda x, y: self._compared(word, x, y)
        if word in _EXTREME:
            return lambda x, y: self._extreme(word, x, y)
        if word in _BITS:
            return lambda x, y: self._bits(_BITS[word], x, y)
        if word in WRITTEN_OUT:
            return functools.partial(WRITTEN_OUT[word], self)
        if word in _ROUND:
            return lambda x: self._rounded(_ROUND[word], x)
        if word in MATHEMATICS:
            return lambda *scalars: self.function(word, *(self.as_own(x) for x in scalars))
        raise AttributeError(word)

    def function(self, word: str, *scalars: Lane) -> Lane:
        dtype = scalars[0].dtype
        name = MATHEMATICS[word].text(word, dtype, self)
        kind = type_of(dtype, self.lanes)
        return self.made(f"call {kind} @{name}({', '.join(f'{kind} {x.name}' for x in scalars)})", dtype)

    def _rounded(self, intrinsic: str, x: Lane) -> Lane:
        x = self.as_own(x)
        return self.call(f"llvm.{intrinsic}.{self.suffix(x.dtype)}", x.dtype, x) if x.dtype.kind == "f" else x

    def _arithmetic(self, word: str, x: Lane, y: Lane) -> Lane:
        x, y = self.as_own(x), self.as_own(y)
        if x.dtype.kind == "b":
            return self.logical_or(x, y) if word == "add" else self.logical_and(x, y)
        instruction = _ARITHMETIC[word][x.dtype.kind != "f"]
        return self.made(f"{instruction} {type_of(x.dtype, self.lanes)} {x.name}, {y.name}", x.dtype)

    def _compared(self, word: str, x: Lane, y: Lane) -> Lane:
        x, y = self.as_own(x), self.as_own(y)
        of_floats, signed, unsigned = _COMPARE[word]
        relation = f"fcmp {of_floats}" if x.dtype.kind == "f" else f"icmp {signed if x.dtype.kind == 'i' else unsigned}"
        return self.made(f"{relation} {type_of(x.dtype, self.lanes)} {x.name}, {y.name}", BOOL)

    def _extreme(self, word: str, x: Lane, y: Lane) -> Lane:
        x, y = self.as_own(x), self.as_own(y)
        of_floats, signed, unsigned = _EXTREME[word]
        if x.dtype.kind == "b":
            return self.logical_or(x, y) if word == "maximum" else self.logical_and(x, y)
        if (
            x.dtype.kind == "f"
        ):  # what is no number stays; of two zeros either one, which LLVM's own word would not allow
            found = self.select(self._compared(of_floats, x, y), x, y)
            return self.select(self.isnan(x), x, found)
        name = f"llvm.{signed if x.dtype.kind == 'i' else unsigned}"
        return self.call(f"{name}.{self.suffix(x.dtype)}", x.dtype, x, y)

    def _bits(self, instruction: str, x: Lane, y: Lane) -> Lane:
        x, y = self.as_own(x), self.as_own(y)
        return self.made(f"{instruction} {type_of(x.dtype, self.lanes)} {x.name}, {y.name}", x.dtype)

"""The scalar vocabulary as LLVM text: each word appends instructions on one scalar, or on a vector of lanes of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .vector_types import (
    BOOL,
    IRValue,
    conversion_instruction,
    format_number,
    llvm_element_type,
    llvm_type,
    type_suffix,
)

_ARITHMETIC = {"add": ("fadd", "add"), "subtract": ("fsub", "sub"), "multiply": ("fmul", "mul")}
_COMPARE = {
    "equal": ("oeq", "eq", "eq"), "not_equal": ("une", "ne", "ne"), "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"), "greater": ("ogt", "sgt", "ugt"), "greater_equal": ("oge", "sge", "uge"),
}  # fmt: skip
_EXTREME = {"maximum": ("greater", "smax", "umax"), "minimum": ("less", "smin", "umin")}
_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_ROUND = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven", "round": "roundeven"}
#: Words that are functions of the module itself, filled in by `math.functions`.
MATH_FUNCTIONS: dict[str, Any] = {}
#: Words of several instructions, filled in by `expansions`.
EXPANSIONS: dict[str, Callable[..., IRValue]] = {}


class IRBuilder:
    """Appends lines to `lines`; the names it assigns are unique over all builders that share a `counter`."""

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
        #: The width of the machine's vectors; a value of more lanes takes several. 0: unknown.
        self.vector_bytes = vector_bytes
        self.counter = counter or itertools.count()
        self.declared = declared if declared is not None else set()
        self.functions = functions if functions is not None else {}
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.is_paired = False  # whether lanes are even places of a row, then odd ones (see `half_types`)
        self.has_long_nans = True  # whether a NaN may have bits that bfloat16 has not
        self.is_widened = False  # whether a result of float32 is computed in float64

    def assign(self, text: str) -> str:
        name = f"%v{next(self.counter)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def emit(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def assign_value(self, text: str, dtype: np.dtype[Any]) -> IRValue:
        return IRValue(self.assign(text), dtype, self.lanes)

    def call(
        self, function: str, result: np.dtype[Any], *args: IRValue, flags: str = "", lanes: int | None = None
    ) -> IRValue:
        """A call of an intrinsic whose arguments and result have the same number of lanes."""
        count = self.lanes if lanes is None else lanes
        kind = llvm_type(result, count)
        kinds = ", ".join(llvm_type(a.dtype, a.lanes) for a in args)
        self.declared.add(f"declare {kind} @{function}({kinds})")
        given = ", ".join(f"{llvm_type(a.dtype, a.lanes)} {a.name}" for a in args)
        return IRValue(self.assign(f"call {flags + ' ' if flags else ''}{kind} @{function}({given})"), result, count)

    def suffix(self, dtype: np.dtype[Any]) -> str:
        """The suffix of an intrinsic's name for this many lanes of a dtype."""
        element = type_suffix(llvm_element_type(dtype))
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    # Numbers, and values of other dtypes or other widths

    def constant(self, number: Any) -> IRValue:
        return self.number(number, self.dtype)

    def number(self, number: Any, dtype: np.dtype[Any]) -> IRValue:
        return IRValue(format_number(number, dtype, self.lanes), dtype, self.lanes)

    def splat(self, x: IRValue) -> IRValue:
        """One scalar in every lane."""
        # it is as wide already
        if x.lanes == self.lanes:
            return x
        kind = llvm_type(x.dtype, self.lanes)
        first = self.assign(f"insertelement {kind} poison, {llvm_element_type(x.dtype)} {x.name}, i32 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.assign_value(f"shufflevector {kind} {first}, {kind} poison, {mask}", x.dtype)

    def cast(self, x: IRValue, dtype: np.dtype[Any]) -> IRValue:
        """NumPy's `astype` of one element."""
        if x.dtype == dtype:
            return x
        if dtype.kind == "b":
            return self.to_bool(x)
        source, target = llvm_type(x.dtype, x.lanes), llvm_type(dtype, x.lanes)
        word = conversion_instruction(x.dtype, dtype)
        # signed and unsigned integers of one width have the same bits
        if word is None:
            return IRValue(x.name, dtype, x.lanes)
        if word in ("fptosi", "fptoui"):  # out of range is undefined in LLVM: saturate
            return self._cast_saturating(x, dtype, word)
        return IRValue(self.assign(f"{word} {source} {x.name} to {target}"), dtype, x.lanes)

    def _cast_saturating(self, x: IRValue, dtype: np.dtype[Any], word: str) -> IRValue:
        """To an integer: a float out of its range becomes the nearest one, NaN becomes zero."""
        if x.lanes == 1:
            of = f"{llvm_element_type(dtype)}.{type_suffix(llvm_element_type(x.dtype))}"
            return self.call(f"llvm.{word}.sat.{of}", dtype, x, lanes=1)
        # LLVM computes its intrinsic on vectors lane by lane: convert all, then select where that was out of range
        found = self._cast_in_range(x, dtype, word)
        source, target = llvm_type(x.dtype, x.lanes), llvm_type(dtype, x.lanes)
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max + 1)
        for relation, bound, result in (("ole", low, low), ("oge", high, np.iinfo(dtype).max), ("uno", 0.0, 0)):
            limit, number = format_number(bound, x.dtype, x.lanes), format_number(int(result), dtype, x.lanes)
            is_out = self.assign(f"fcmp {relation} {source} {x.name}, {limit}")
            mask = llvm_type(BOOL, x.lanes)
            found = self.assign(f"select {mask} {is_out}, {target} {number}, {target} {found}")
        return IRValue(found, dtype, x.lanes)

    def _cast_in_range(self, x: IRValue, dtype: np.dtype[Any], word: str) -> str:
        """The instruction that converts floats to integers; there is none to bytes and shorts."""
        source, target = llvm_type(x.dtype, x.lanes), llvm_type(dtype, x.lanes)
        if dtype.itemsize >= 4:
            return self.assign(f"{word} {source} {x.name} to {target}")
        words = llvm_type(np.dtype(np.int32), x.lanes)
        wide = self.assign(f"fptosi {source} {x.name} to {words}")
        return self.assign(f"trunc {words} {wide} to {target}")

    def to_bool(self, x: IRValue) -> IRValue:
        if x.dtype.kind == "b":
            return x
        word = "fcmp une" if x.dtype.kind == "f" else "icmp ne"
        zero = IRBuilder.number(self, 0, x.dtype)
        return self.assign_value(f"{word} {llvm_type(x.dtype, self.lanes)} {x.name}, {zero.name}", BOOL)

    def coerce(self, x: IRValue) -> IRValue:
        return self.cast(x, self.dtype)

    # Words

    def negative(self, x: IRValue) -> IRValue:
        x = self.coerce(x)
        if x.dtype.kind == "f":
            return self.assign_value(f"fneg {llvm_type(x.dtype, self.lanes)} {x.name}", x.dtype)
        return self.subtract(self.constant(0), x)

    def positive(self, x: IRValue) -> IRValue:
        return self.coerce(x)

    conj = real = stop_gradient = positive

    def imag(self, x: IRValue) -> IRValue:
        return self.constant(0)

    def square(self, x: IRValue) -> IRValue:
        return self.multiply(x, x)

    def fma(self, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
        """x * y + z, rounded once."""
        return self.call(f"llvm.fma.{self.suffix(x.dtype)}", x.dtype, x, y, z)

    def sqrt(self, x: IRValue) -> IRValue:
        x = self.coerce(x)
        return self.call(f"llvm.sqrt.{self.suffix(x.dtype)}", x.dtype, x)

    def abs(self, x: IRValue) -> IRValue:
        x = self.coerce(x)
        if x.dtype.kind == "f":
            return self.call(f"llvm.fabs.{self.suffix(x.dtype)}", x.dtype, x)
        return x if x.dtype.kind == "u" else self.select(self.less(x, self.constant(0)), self.negative(x), x)

    def select(self, condition: IRValue, x: IRValue, y: IRValue) -> IRValue:
        c, x, y = self.to_bool(condition), self.coerce(x), self.coerce(y)
        kind = llvm_type(self.dtype, self.lanes)
        return self.assign_value(
            f"select {llvm_type(BOOL, self.lanes)} {c.name}, {kind} {x.name}, {kind} {y.name}", self.dtype
        )

    def isnan(self, x: IRValue) -> IRValue:
        if x.dtype.kind != "f":
            return self.number(False, BOOL)
        return self.assign_value(f"fcmp uno {llvm_type(x.dtype, self.lanes)} {x.name}, {x.name}", BOOL)

    def isinf(self, x: IRValue) -> IRValue:
        return self._compare_magnitude(x, "oeq") if x.dtype.kind == "f" else self.number(False, BOOL)

    def isfinite(self, x: IRValue) -> IRValue:
        return self._compare_magnitude(x, "olt") if x.dtype.kind == "f" else self.number(True, BOOL)

    def _compare_magnitude(self, x: IRValue, relation: str) -> IRValue:
        size = self.call(f"llvm.fabs.{self.suffix(x.dtype)}", x.dtype, x)
        infinite = self.number(np.inf, x.dtype)
        return self.assign_value(f"fcmp {relation} {llvm_type(x.dtype, self.lanes)} {size.name}, {infinite.name}", BOOL)

    def logical_not(self, x: IRValue) -> IRValue:
        return self._instruction("xor", self.to_bool(x), self.number(True, BOOL))

    def bitwise_invert(self, x: IRValue) -> IRValue:
        x = self.coerce(x)
        ones = self.number(True, BOOL) if x.dtype.kind == "b" else self.number(-1, np.dtype(f"i{x.dtype.itemsize}"))
        return self._instruction("xor", x, ones)

    def __getattr__(self, word: str) -> Callable[..., IRValue]:
        """The words that are one instruction, or one call."""
        if word in _ARITHMETIC:
            return lambda x, y: self._arithmetic(word, x, y)
        if word in _COMPARE:
            return lambda x, y: self._compare(word, x, y)
        if word in _EXTREME:
            return lambda x, y: self._select_extreme(word, x, y)
        if word in _BITS:
            return lambda x, y: self._instruction(_BITS[word], self.coerce(x), self.coerce(y))
        if word in _LOGICAL:
            return lambda x, y: self._instruction(_LOGICAL[word], self.to_bool(x), self.to_bool(y))
        if word in EXPANSIONS:
            return functools.partial(EXPANSIONS[word], self)
        if word in _ROUND:
            return lambda x: self._round(_ROUND[word], x)
        if word in MATH_FUNCTIONS:
            return lambda *scalars: self.call_math(word, *(self.coerce(x) for x in scalars))
        raise AttributeError(word)

    def call_math(self, word: str, *scalars: IRValue) -> IRValue:
        dtype = scalars[0].dtype
        name = MATH_FUNCTIONS[word].define(word, dtype, self)
        kind = llvm_type(dtype, self.lanes)
        return self.assign_value(f"call {kind} @{name}({', '.join(f'{kind} {x.name}' for x in scalars)})", dtype)

    def _round(self, intrinsic: str, x: IRValue) -> IRValue:
        x = self.coerce(x)
        return self.call(f"llvm.{intrinsic}.{self.suffix(x.dtype)}", x.dtype, x) if x.dtype.kind == "f" else x

    def _arithmetic(self, word: str, x: IRValue, y: IRValue) -> IRValue:
        x, y = self.coerce(x), self.coerce(y)
        if x.dtype.kind == "b":
            return self.logical_or(x, y) if word == "add" else self.logical_and(x, y)
        return self._instruction(_ARITHMETIC[word][x.dtype.kind != "f"], x, y)

    def _compare(self, word: str, x: IRValue, y: IRValue) -> IRValue:
        x, y = self.coerce(x), self.coerce(y)
        of_floats, signed, unsigned = _COMPARE[word]
        relation = f"fcmp {of_floats}" if x.dtype.kind == "f" else f"icmp {signed if x.dtype.kind == 'i' else unsigned}"
        return self.assign_value(f"{relation} {llvm_type(x.dtype, self.lanes)} {x.name}, {y.name}", BOOL)

    def _select_extreme(self, word: str, x: IRValue, y: IRValue) -> IRValue:
        x, y = self.coerce(x), self.coerce(y)
        of_floats, signed, unsigned = _EXTREME[word]
        if x.dtype.kind == "b":
            return self.logical_or(x, y) if word == "maximum" else self.logical_and(x, y)
        if x.dtype.kind == "f":  # NaN propagates; of two zeros either one, which LLVM's own intrinsic does not allow
            found = self.select(self._compare(of_floats, x, y), x, y)
            return self.select(self.isnan(x), x, found)
        name = f"llvm.{signed if x.dtype.kind == 'i' else unsigned}"
        return self.call(f"{name}.{self.suffix(x.dtype)}", x.dtype, x, y)

    def _instruction(self, instruction: str, x: IRValue, y: IRValue) -> IRValue:
        """An instruction on two values of one dtype, which is its result's too."""
        return self.assign_value(f"{instruction} {llvm_type(x.dtype, self.lanes)} {x.name}, {y.name}", x.dtype)

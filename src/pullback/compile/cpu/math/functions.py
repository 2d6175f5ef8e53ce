"""Elementary functions as straight lines of vector arithmetic, in the vocabulary itself.

LLVM vectorises calls of its own intrinsics only to scalarize them again, so each function is emitted inline: the
argument is reduced to a small interval, a polynomial (fitted at Chebyshev points) does the rest, and powers of two are
built from bits. Where an argument is too large for that, the C library's function is called for the whole vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder import expansions
from ..builder.ir_builder import MATH_FUNCTIONS, IRBuilder
from ..builder.vector_types import BOOL, IRValue, llvm_element_type, llvm_type
from . import exponentials as e
from . import logarithms as l
from . import special as s
from . import trigonometry as t

__all__ = ["FUNCTIONS", "expansions"]

_DOUBLE = np.dtype(np.float64)


class _MathFunction:
    """How a word becomes a function of the module: its lines, whether float32 is computed in float64 (`wide`), and the
    arguments it is valid for; for others the C library is called.
    """

    def __init__(
        self,
        write: Callable[..., IRValue],
        count: int = 1,
        *,
        wide: bool = False,
        near: Callable[..., IRValue] | None = None,
    ) -> None:
        self.write = write
        self.count = count
        self.wide = wide
        self.near = near

    def define(self, word: str, dtype: np.dtype[Any], caller: IRBuilder) -> str:
        """Define the function for the caller's lanes, once; returns its name."""
        lanes, shared = caller.lanes, caller.functions
        name = f"pb_{word}_{llvm_element_type(dtype)}_{lanes}"
        if name not in shared:
            shared[name] = ""  # reserved before it is rendered: functions may call each other
            k = IRBuilder(lanes, None, caller.declared, shared, caller.vector_bytes)
            k.dtype = dtype
            given = [IRValue(f"%x{i}", dtype, lanes) for i in range(self.count)]
            lines = [] if self.near is None else self._emit_guard(k, word, given)
            result = self._emit_body(k, given, dtype)
            kind = llvm_type(dtype, lanes)
            body = "\n".join([*lines, *k.lines, f"  ret {kind} {result.name}"])
            parameters = ", ".join(f"{kind} {x.name}" for x in given)
            shared[name] = f"define internal {kind} @{name}({parameters}) alwaysinline #0 {{\nentry:\n{body}\n}}"
        return name

    def _emit_body(self, k: IRBuilder, given: list[IRValue], dtype: np.dtype[Any]) -> IRValue:
        if not self.wide or dtype == _DOUBLE:
            return self.write(k, *given)
        k.dtype, k.is_widened = _DOUBLE, True
        return k.cast(self.write(k, *(k.cast(x, _DOUBLE) for x in given)), dtype)

    def _emit_guard(self, k: IRBuilder, word: str, given: list[IRValue]) -> list[str]:
        """If any lane is too large (or NaN), the whole vector goes to the C library."""
        assert self.near is not None
        near = self.near(k, *given)
        kind = llvm_type(k.dtype, k.lanes)
        if k.lanes > 1:
            near = k.call(f"llvm.vector.reduce.and.v{k.lanes}i1", BOOL, near, lanes=1)
        # one branch for the whole vector: large arguments are rare
        head = [*k.lines, f"  br i1 {near.name}, label %near, label %far", "far:"]
        k.lines = []
        slow = _call_libm(k, word, *given)
        lines = [*head, *k.lines, f"  ret {kind} {slow.name}", "near:"]
        k.lines = []
        return lines


def _call_libm(k: IRBuilder, word: str, *scalars: IRValue) -> IRValue:
    """The C library's function of this name, lane by lane; out of line, since it is rarely called."""
    scalars = tuple(k.coerce(x) for x in scalars)
    dtype = scalars[0].dtype
    name = word if dtype.itemsize == 8 else word + "f"
    if k.lanes == 1:
        return k.call(name, dtype, *scalars)
    far = f"pb_far_{word}_{llvm_element_type(dtype)}_{k.lanes}"
    if far not in k.functions:
        k.functions[far] = _render_lane_loop(k, far, name, dtype, len(scalars))
    kind = llvm_type(dtype, k.lanes)
    given = ", ".join(f"{kind} {x.name}" for x in scalars)
    return k.assign_value(f"call {kind} @{far}({given})", dtype)


def _render_lane_loop(k: IRBuilder, function: str, of_lane: str, dtype: np.dtype[Any], count: int) -> str:
    """The text of a function of vectors that calls a function of scalars for each lane."""
    kind, element, each = llvm_type(dtype, k.lanes), llvm_element_type(dtype), range(count)
    k.declared.add(f"declare {element} @{of_lane}({', '.join([element] * count)})")
    lines = [line for i in each for line in (f"%s{i} = alloca {kind}", f"store {kind} %x{i}, ptr %s{i}")]
    lines += ["br label %each"]
    loop = ["%i = phi i64 [ 0, %entry ], [ %n, %each ]"]
    for i in each:
        loop += [f"%p{i} = getelementptr {element}, ptr %s{i}, i64 %i", f"%v{i} = load {element}, ptr %p{i}"]
    given = ", ".join(f"{element} %v{i}" for i in each)
    loop += [
        f"%r = call {element} @{of_lane}({given})", f"store {element} %r, ptr %p0",
        "%n = add nuw nsw i64 %i, 1", f"%m = icmp ult i64 %n, {k.lanes}", "br i1 %m, label %each, label %done",
    ]  # fmt: skip
    body = "\n  ".join(["entry:", *lines]) + "\n" + "\n  ".join(["each:", *loop])
    head = f"define internal {kind} @{function}({', '.join(f'{kind} %x{i}' for i in each)}) noinline cold #0"
    return f"{head} {{\n{body}\ndone:\n  %all = load {kind}, ptr %s0\n  ret {kind} %all\n}}"


def _is_reducible(k: IRBuilder, x: IRValue) -> IRValue:
    return k.less(k.abs(x), k.constant(t.MAX_REDUCIBLE[x.dtype.itemsize]))


def _is_reducible_wide(k: IRBuilder, x: IRValue) -> IRValue:
    return k.less(k.abs(x), k.constant(t.MAX_REDUCIBLE[8]))


def _has_short_quotient(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """Whether the quotient is a whole number of few digits."""
    return k.less(k.divide(k.abs(x), k.abs(y)), k.constant(2.0**50 if x.dtype.itemsize == 8 else 2.0**22))


FUNCTIONS: dict[str, _MathFunction] = {
    "exp": _MathFunction(e.exp), "expm1": _MathFunction(e.expm1), "exp2": _MathFunction(e.exp2, wide=True),
    "tanh": _MathFunction(e.tanh), "sigmoid": _MathFunction(e.sigmoid), "sinh": _MathFunction(e.sinh, wide=True),
    "cosh": _MathFunction(e.cosh, wide=True),
    "log": _MathFunction(l.log), "log1p": _MathFunction(l.log1p), "log2": _MathFunction(l.log2, wide=True),
    "log10": _MathFunction(l.log10, wide=True), "asinh": _MathFunction(l.asinh, wide=True),
    "acosh": _MathFunction(l.acosh, wide=True), "atanh": _MathFunction(l.atanh, wide=True),
    "logaddexp": _MathFunction(l.logaddexp, 2, wide=True), "power": _MathFunction(l.power, 2, wide=True),
    "sin": _MathFunction(t.sin, near=_is_reducible), "cos": _MathFunction(t.cos, near=_is_reducible),
    "tan": _MathFunction(t.tan, wide=True, near=_is_reducible_wide), "asin": _MathFunction(t.asin, wide=True),
    "acos": _MathFunction(t.acos, wide=True), "atan": _MathFunction(t.atan, wide=True),
    "atan2": _MathFunction(t.atan2, 2, wide=True),
    "erf": _MathFunction(s.erf), "erfc": _MathFunction(s.erfc, wide=True),
    "cbrt": _MathFunction(s.cbrt, wide=True),
    "hypot": _MathFunction(s.hypot, 2, wide=True), "fmod": _MathFunction(s.fmod, 2, near=_has_short_quotient),
}  # fmt: skip
MATH_FUNCTIONS.update(FUNCTIONS)

"""Elementary functions as straight lines of vector arithmetic, in the vocabulary itself.

LLVM vectorises calls of its own intrinsics only to take them apart again, so each function is written out: the argument
is brought into a small interval, a polynomial (fitted at Chebyshev points) does the rest, and powers of two are put
together from bits. Where an argument is too large for that, the C library's function is called for the whole vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import exponentials as e
from . import logarithms as l
from . import special as s
from . import trigonometry as t
from . import written_out
from .lanes import BOOL, Lane, element_type, type_of
from .words import MATHEMATICS, Words

__all__ = ["FUNCTIONS", "written_out"]

_DOUBLE = np.dtype(np.float64)


class _Function:
    """How a word becomes a function of its own in the module: its lines, whether float32 is computed in float64
    (`wide`), and when the arguments are near enough for it; where they are not, the C library must help.
    """

    def __init__(
        self, write: Callable[..., Lane], count: int = 1, *, wide: bool = False, near: Callable[..., Lane] | None = None
    ) -> None:
        self.write = write
        self.count = count
        self.wide = wide
        self.near = near

    def text(self, word: str, dtype: np.dtype[Any], caller: Words) -> str:
        """Define the function for the caller's lanes, once; returns its name."""
        lanes, shared = caller.lanes, caller.functions
        name = f"pb_{word}_{element_type(dtype)}_{lanes}"
        if name not in shared:
            shared[name] = ""  # known before it is written: functions may use each other
            k = Words(lanes, None, caller.declared, shared, caller.vector_bytes)
            k.dtype = dtype
            given = [Lane(f"%x{i}", dtype, lanes) for i in range(self.count)]
            lines = [] if self.near is None else self._guard(k, word, given)
            result = self._written(k, given, dtype)
            kind = type_of(dtype, lanes)
            body = "\n".join([*lines, *k.lines, f"  ret {kind} {result.name}"])
            parameters = ", ".join(f"{kind} {x.name}" for x in given)
            shared[name] = f"define internal {kind} @{name}({parameters}) alwaysinline #0 {{\nentry:\n{body}\n}}"
        return name

    def _written(self, k: Words, given: list[Lane], dtype: np.dtype[Any]) -> Lane:
        if not self.wide or dtype == _DOUBLE:
            return self.write(k, *given)
        k.dtype, k.narrow = _DOUBLE, True
        return k.cast(self.write(k, *(k.cast(x, _DOUBLE) for x in given)), dtype)

    def _guard(self, k: Words, word: str, given: list[Lane]) -> list[str]:
        """If any lane is too large (or not a number), the whole vector goes to the C library."""
        assert self.near is not None
        near = self.near(k, *given)
        kind = type_of(k.dtype, k.lanes)
        if k.lanes > 1:
            near = k.call(f"llvm.vector.reduce.and.v{k.lanes}i1", BOOL, near, lanes=1)
        head = [*k.lines, f"  br i1 {near.name}, label %near, label %far", "far:"]
        k.lines = []
        slow = _by_library(k, word, *given)
        lines = [*head, *k.lines, f"  ret {kind} {slow.name}", "near:"]
        k.lines = []
        return lines


def _by_library(k: Words, word: str, *scalars: Lane) -> Lane:
    """The C library's function of this name, lane by lane; out of line, since it is rarely gone through."""
    scalars = tuple(k.as_own(x) for x in scalars)
    dtype = scalars[0].dtype
    name = word if dtype.itemsize == 8 else word + "f"
    if k.lanes == 1:
        return k.call(name, dtype, *scalars)
    far = f"pb_far_{word}_{element_type(dtype)}_{k.lanes}"
    if far not in k.functions:
        k.functions[far] = _lane_by_lane(k, far, name, dtype, len(scalars))
    kind = type_of(dtype, k.lanes)
    given = ", ".join(f"{kind} {x.name}" for x in scalars)
    return k.made(f"call {kind} @{far}({given})", dtype)


def _lane_by_lane(k: Words, function: str, of_lane: str, dtype: np.dtype[Any], count: int) -> str:
    """The text of a function of vectors that calls a function of scalars for each lane."""
    kind, element, each = type_of(dtype, k.lanes), element_type(dtype), range(count)
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


def _within(k: Words, x: Lane) -> Lane:
    return k.less(k.abs(x), k.constant(t.FAR[x.dtype.itemsize]))


def _within_wide(k: Words, x: Lane) -> Lane:
    return k.less(k.abs(x), k.constant(t.FAR[8]))


def _few_times(k: Words, x: Lane, y: Lane) -> Lane:
    """Whether the quotient is a whole number of few digits."""
    return k.less(k.divide(k.abs(x), k.abs(y)), k.constant(2.0**50 if x.dtype.itemsize == 8 else 2.0**22))


FUNCTIONS: dict[str, _Function] = {
    "exp": _Function(e.exp), "expm1": _Function(e.expm1), "exp2": _Function(e.exp2, wide=True),
    "tanh": _Function(e.tanh), "sigmoid": _Function(e.sigmoid), "sinh": _Function(e.sinh, wide=True),
    "cosh": _Function(e.cosh, wide=True),
    "log": _Function(l.log), "log1p": _Function(l.log1p), "log2": _Function(l.log2, wide=True),
    "log10": _Function(l.log10, wide=True), "asinh": _Function(l.asinh, wide=True),
    "acosh": _Function(l.acosh, wide=True), "atanh": _Function(l.atanh, wide=True),
    "logaddexp": _Function(l.logaddexp, 2, wide=True), "power": _Function(l.power, 2, wide=True),
    "sin": _Function(t.sin, near=_within), "cos": _Function(t.cos, near=_within),
    "tan": _Function(t.tan, wide=True, near=_within_wide), "asin": _Function(t.asin, wide=True),
    "acos": _Function(t.acos, wide=True), "atan": _Function(t.atan, wide=True),
    "atan2": _Function(t.atan2, 2, wide=True),
    "erf": _Function(s.erf, wide=True), "erfc": _Function(s.erfc, wide=True), "cbrt": _Function(s.cbrt, wide=True),
    "hypot": _Function(s.hypot, 2, wide=True), "fmod": _Function(s.fmod, 2, near=_few_times),
}  # fmt: skip
MATHEMATICS.update(FUNCTIONS)

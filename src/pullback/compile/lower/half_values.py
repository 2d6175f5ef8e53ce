"""Values of half dtypes in kernels: where float32 lines are rounded before they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...program.ir import Equation
from ..loop_ir import KernelLine, phase_after
from ..target import Target
from ..vocabulary import half_dtype, is_half, value_dtype, words_of

#: Words that return one of their arguments, up to its sign.
SELECTING = frozenset((
    "maximum", "minimum", "fmax", "fmin", "select", "relu", "positive", "negative", "abs", "stop_gradient",
))  # fmt: skip


def rounded_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """A line rounded to a half dtype, unless it has such a number already."""
    is_exact = line.kind in ("cast", "number") if line.buffer is None else line.buffer.dtype == dtype
    is_rounded = line.narrow == dtype.name and is_exact
    return line if is_rounded else KernelLine("cast", dtype, line.axes, phase_after((line,)), (line,), label="round")


def unrounded_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """A line to store in a dtype: the store rounds, so that a cast to that dtype need not."""
    is_cast = line.kind == "cast" and line.narrow == dtype.name
    return line.args[0] if is_cast and line.args[0].dtype == line.dtype else line


def as_stored(line: KernelLine) -> KernelLine:
    """A line as memory would hold it: rounded, if it has a half dtype or is a cast of one."""
    if line.narrow:
        return rounded_line(line, half_dtype(line.narrow))
    if line.kind != "cast" or (source := as_stored(line.args[0])) is line.args[0]:
        return line
    return KernelLine("cast", line.dtype, line.axes, phase_after((source,)), (source,), label=line.label)


def cast_as_stored(line: KernelLine) -> KernelLine:
    """A line; a cast of a half value as memory would hold it, if it is stored or selected: what is compared later, with
    what was widened after it was stored, is the same number. Selecting half values needs no rounding before, since that
    keeps their order.
    """
    return as_stored(line) if line.kind == "cast" else line


def selects(e: Equation) -> bool:
    """Whether an elementwise op returns one of its arguments, up to a sign."""
    return e.op.kernel is not None and words_of(e.op, len(e.args)) <= SELECTING


def round_number(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """An argument of an op of a half dtype: a Python number takes that dtype."""
    if line.kind == "number" and line.dtype.kind in "fiu" and line.narrow != dtype.name:
        number = float(np.asarray(line.number).astype(dtype))
        return KernelLine("number", dtype, frozenset(), number=number, weight=0)
    return line


def is_discrete(e: Equation) -> bool:
    """Whether an elementwise op returns truths or whole numbers, or steps from one number to another. Its arguments are
    as stored, so that a value equals itself wherever it was stored in between, as a maximum equals one of its elements,
    and no step depends on what shares a kernel.
    """
    made = e.results[0].spec.dtype
    return made.kind in "biu" or (e.op.family == "elementwise" and not any(e.op.pulls.values()))


def wide_spec(spec: Spec) -> Spec:
    """The spec of memory in which values are summed up: float32 for a half dtype."""
    return make_spec(spec.shape, value_dtype(spec.dtype), spec.device) if is_half(spec.dtype) else spec


def product_dtype(dtype: np.dtype[Any], target: Target | None) -> np.dtype[Any]:
    """The dtype of the matrices of a product: float32 for a half dtype that the target does not multiply."""
    return dtype if target is not None and target.has_half_products else value_dtype(dtype)

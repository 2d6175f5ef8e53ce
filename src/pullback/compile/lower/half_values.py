"""Values of half dtypes in kernels: where float32 lines are rounded before they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...ops.op import Op
from ..loop_ir import KernelLine, phase_after
from ..target import Target
from ..vocabulary import half_dtype, is_half, value_dtype, words_of

#: Words that return one of their arguments, up to its sign.
SELECTING = frozenset((
    "maximum", "minimum", "fmax", "fmin", "select", "relu", "positive", "negative", "abs", "stop_gradient", "constant",
))  # fmt: skip


def rounded_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """A line rounded to a half dtype, unless it has such a number already."""
    is_exact = line.kind in ("cast", "number") if line.buffer is None else line.buffer.dtype == dtype
    is_rounded = line.narrow == dtype.name and is_exact
    return line if is_rounded else KernelLine("cast", dtype, line.axes, phase_after((line,)), (line,), label="round")


def round_widened(line: KernelLine) -> KernelLine:
    """Of a half value that was widened, the number that it has in memory; any other line as it is.

    Such numbers are stored, selected and compared: a value equals itself whether it was widened before or after it was
    stored, and a maximum one of its elements.
    """
    if line.kind != "cast" or line.narrow or not line.args[0].narrow:
        return line
    source = rounded_line(line.args[0], half_dtype(line.args[0].narrow))
    if source is line.args[0]:
        return line
    return KernelLine("cast", line.dtype, line.axes, phase_after((source,)), (source,), label=line.label)


def selects(op: Op, out: Spec, count: int) -> bool:
    """Whether an elementwise op compares its arguments, or returns one of them."""
    return op.kernel is not None and (out.dtype.kind == "b" or words_of(op, count) <= SELECTING)


def line_to_store(line: KernelLine, dtype: np.dtype[Any], word: str = "") -> KernelLine:
    """A line to store in a dtype, or to be folded there. The store rounds, so that a cast to that dtype need not."""
    is_cast = line.kind == "cast" and line.narrow == dtype.name
    if is_cast and line.args[0].dtype == line.dtype:
        return line.args[0]
    return line if word in ("add", "multiply") else round_widened(line)


def round_argument(line: KernelLine, dtype: np.dtype[Any], out: Spec) -> KernelLine:
    """An argument of an op of a half dtype. A Python number takes that dtype. What is compared is rounded, so that a
    value equals itself wherever it was stored in between, as a maximum equals one of its elements.
    """
    if line.kind == "number" and line.dtype.kind in "fiu" and line.narrow != dtype.name:
        number = float(np.asarray(line.number).astype(dtype))
        return KernelLine("number", dtype, frozenset(), number=number, weight=0)
    is_compared = out.dtype.kind == "b" and line.dtype == np.dtype(np.float32)
    return rounded_line(line, dtype) if is_compared else line


def wide_spec(spec: Spec) -> Spec:
    """The spec of memory in which values are summed up: float32 for a half dtype."""
    return make_spec(spec.shape, value_dtype(spec.dtype), spec.device) if is_half(spec.dtype) else spec


def product_dtype(dtype: np.dtype[Any], target: Target | None) -> np.dtype[Any]:
    """The dtype of the matrices of a product: float32 for a half dtype that the target does not multiply."""
    return dtype if target is not None and target.has_half_products else value_dtype(dtype)

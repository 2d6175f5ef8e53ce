"""Values of half dtypes in kernels: where float32 lines are rounded before they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ..loop_ir import KernelLine, phase_after
from ..target import Target
from ..vocabulary import is_half, value_dtype


def rounded_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """A line rounded to a half dtype, unless it has such a number already."""
    is_exact = line.kind in ("cast", "number") if line.buffer is None else line.buffer.dtype == dtype
    is_rounded = line.narrow == dtype.name and is_exact
    return line if is_rounded else KernelLine("cast", dtype, line.axes, phase_after((line,)), (line,), label="round")


def unrounded_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    """A line to store in a dtype: the store rounds, so that a cast to that dtype need not."""
    is_cast = line.kind == "cast" and line.narrow == dtype.name
    return line.args[0] if is_cast and line.args[0].dtype == line.dtype else line


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

"""What the methods share: where a state is, memory of the last steps, and dense systems without derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import make_spec, spec_of, zeros
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply
from ...ops.forms import Matrix
from ...ops.op import Op
from ...ops.reduce.reductions import sum as total
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import expand_dims, squeeze
from ...transforms.custom.rules import make_custom_record
from .method_loop import State


def current_point(state: State) -> Any:
    """The solution so far."""
    return state["x"]


def dot(a: Any, b: Any) -> Any:
    """The inner product of two vectors."""
    return total(a * b)


def empty_rows(x: Any, rows: int) -> Any:
    """Zeros for so many vectors like x."""
    spec = spec_of(x)
    return zeros(make_spec((rows, *spec.shape), spec.dtype, spec.device))


def append_row(rows: Any, row: Any) -> Any:
    """Rows without the oldest, which is the first, and with a new one at the end."""
    return concat([rows[1:], expand_dims(row, 0)])


def fit_dense(matrix: Any, right: Any) -> Any:
    """What a matrix takes closest to a vector, or to the columns of a matrix; the shortest of the best ones where it is
    singular. It has no derivative: solvers run on untracked values.
    """
    if spec_of(right).ndim == 2:
        return apply(_dense_fit_op, matrix, right)
    return squeeze(apply(_dense_fit_op, matrix, expand_dims(right, 1)), 1)


def _fit_bare(xp: Any, matrix: Any, right: Any) -> Any:
    rows, columns = matrix.shape[-2:]
    if rows < columns:
        matrix = xp.where(xp.isfinite(matrix).all((-2, -1), keepdims=True), matrix, 0)
        return xp.linalg.pinv(matrix) @ right
    if rows == columns:
        return _solve_or_fit(xp, matrix, right)
    q, r = xp.linalg.qr(matrix)
    return _solve_or_fit(xp, r, q.swapaxes(-1, -2) @ right)


def _solve_or_fit(xp: Any, matrix: Any, right: Any) -> Any:
    """For square matrices, or stacks of them: one singular matrix says nothing about the others."""
    try:
        found = xp.linalg.solve(matrix, right)
        if xp is not np and not xp.isfinite(found).all():  # CuPy does not raise for a singular matrix
            found = xp.where(xp.isfinite(found).all((-2, -1), keepdims=True), found, _solve_by_pinv(xp, matrix, right))
        return found
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return _solve_by_pinv(xp, matrix, right)
        return xp.stack([_solve_or_fit(xp, a, b) for a, b in zip(matrix, right, strict=True)])


def _solve_by_pinv(xp: Any, matrix: Any, right: Any) -> Any:
    try:
        return xp.linalg.pinv(matrix) @ right
    except np.linalg.LinAlgError:  # it holds something that is not finite
        return xp.full_like(right, np.nan)


def _batch_fit(size: int, axes: tuple[int | None, ...], matrix: Any, right: Any) -> tuple[Any, int]:
    return apply(_dense_fit_op, move_batch_first(matrix, axes[0], size), move_batch_first(right, axes[1], size)), 0


_dense_fit_op: Op = make_custom_record(
    "dense_fit", ("matrix", "right"), _fit_bare, None, None, _batch_fit,
    lambda matrix, right: make_spec((*matrix.shape[:-2], matrix.shape[-1], right.shape[-1]), right.dtype, right.device),
    form=Matrix("solve", fits=True),
)  # fmt: skip

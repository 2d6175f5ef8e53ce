"""The solution of a sparse linear system, as an op of the matrix's numbers, their rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.backends import to_host
from ...arrays.spec import Spec, make_spec
from ...errors import ShapeError
from .. import statics
from ..batching import move_batch_first
from ..dispatch import apply, shape
from ..elementwise.pointwise import multiply, negative
from ..families import common_device, conjugate_if_complex, general, result_dtype
from ..index import indexing
from ..op import Op
from ..reduce import reductions
from ..shape import reshaping
from ..shape.arrange import stack
from .common import add_optional
from .sparse_factors import solve_sparse


def _value(xp: Any, data: Any, rows: Any, cols: Any, b: Any, adjoint: bool) -> Any:
    if xp is np:
        return solve_sparse(data, rows, cols, b, adjoint)
    # CuPy's own factorization is SciPy's too, on the host
    return xp.asarray(solve_sparse(to_host(data), to_host(rows), to_host(cols), to_host(b), adjoint))


def _spec(data: Spec, rows: Spec, cols: Spec, b: Spec, adjoint: bool) -> Spec:
    if b.ndim != 2 or any(s.ndim != 1 or s.shape != data.shape for s in (data, rows, cols)):
        raise ShapeError(
            f"sparse_solve: wants a number, a row and a column for each entry, and right sides as the columns of a "
            f"matrix; got shapes {data.shape}, {rows.shape}, {cols.shape} and {b.shape}."
        )
    return make_spec(b.shape, result_dtype((data, b)), common_device("sparse_solve", (data, b)))


# A x = b  =>  A x' = b' - A' x. With A^H y = bar, the cotangent of b is y, and that of the entry (i, j) of A is
# -y[i] conj(x[j]), summed over right sides. Where the adjoint was solved with, conj(A[i, j]) is its entry (j, i), so
# x and y change places.
def _pull(
    bar: Any, out: Any, data: Any, rows: Any, cols: Any, position: tuple[int, ...], adjoint: bool
) -> tuple[Any, ...]:
    y = solve_entries(data, rows, cols, bar, not adjoint)
    if 0 not in position:
        return None, None, None, y
    left, right = (out, y) if adjoint else (y, out)
    met = multiply(indexing.take(left, rows, axis=0), conjugate_if_complex(indexing.take(right, cols, axis=0)))
    return negative(reductions.sum(met, axis=1)), None, None, y


def _push(tangents: Sequence[Any], out: Any, primals: Sequence[Any], static: dict[str, Any]) -> Any:
    (data_dot, _, _, b_dot), (data, rows, cols, b), adjoint = tangents, primals, static["adjoint"]
    moved = None
    if data_dot is not None:
        to, at = (cols, rows) if adjoint else (rows, cols)
        numbers = reshaping.expand_dims(conjugate_if_complex(data_dot) if adjoint else data_dot, 1)
        met = multiply(numbers, indexing.take(out, at, axis=0))
        moved = negative(indexing.scatter_at(met, (to,), shape(b)))
    return solve_entries(data, rows, cols, add_optional(b_dot, moved), adjoint)


def _batch(op: Op, size: int, args: Sequence[Any], axes: Sequence[int | None], static: Any) -> tuple[Any, int]:
    """Many right sides are more columns; each matrix has its own factors."""
    *matrix, b = args
    b = move_batch_first(b, axes[3], size)
    _, n, columns = shape(b)
    if all(axis is None for axis in axes[:3]):
        wide = reshaping.reshape(reshaping.permute_dims(b, (1, 0, 2)), (n, size * columns))
        found = reshaping.reshape(apply(op, *matrix, wide, **static), (n, size, columns))
        return reshaping.permute_dims(found, (1, 0, 2)), 0
    moved = [x if axis is None else move_batch_first(x, axis) for x, axis in zip(matrix, axes, strict=False)]
    parts = [[x if axes[k] is None else x[i] for k, x in enumerate(moved)] for i in range(size)]
    return stack([apply(op, *part, b[i], **static) for i, part in enumerate(parts)]), 0


def _samples(rng: Any) -> Any:
    rows, cols = np.array([0, 0, 1, 2, 2, 1]), np.array([0, 2, 1, 0, 2, 1])
    data = np.array([3.0, 0.5, 1.5, -0.7, 2.5, 1.0]) + 0.1 * rng.normal(size=6)
    empty = np.zeros(0, int)
    return [
        ((data, rows, cols, rng.normal(size=(3, 2))), {"adjoint": False}),
        ((data, rows, cols, rng.normal(size=(3, 1))), {"adjoint": True}),
        ((data, rows, cols, rng.normal(size=(3, 0))), {"adjoint": False}),
        ((np.zeros(0), empty, empty, np.zeros((0, 2))), {"adjoint": True}),
    ]


_solve: Op = general(
    "sparse_solve",
    statics={"adjoint": statics.flag},
    value=_value,
    spec=_spec,
    joint=_pull,
    push=_push,
    batch=_batch,
    samples=_samples,
    family="matrix",
)


def solve_entries(data: Any, rows: Any, cols: Any, b: Any, adjoint: bool = False) -> Any:
    """x with A x = b for the columns of b, A having these numbers at these places; or with its adjoint."""
    return apply(_solve, data, rows, cols, b, adjoint=adjoint)

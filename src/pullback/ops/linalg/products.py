"""Products of vectors and matrices, with the signatures of the array API's `linalg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ..axes import normalize_axis
from ..contract import dot_products, matrix_products
from ..dispatch import as_value, ndim, shape
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_array, of_sequence, of_two_arrays
from .common import as_matrix


@of_two_arrays
@attributed_to_caller
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of conj(x1) * x2 along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.vecdot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x1, x2 = as_value(x1), as_value(x2)
    if not ndim(x1) or not ndim(x2):
        raise ShapeError(f"vecdot: wants arrays of one axis or more, got shapes {shape(x1)} and {shape(x2)}.")
    if shape(x1)[normalize_axis(axis, ndim(x1), "vecdot")] != shape(x2)[normalize_axis(axis, ndim(x2), "vecdot")]:
        raise ShapeError(f"vecdot: shapes {shape(x1)} and {shape(x2)} differ along axis {axis}.")
    if axis >= 0 and ndim(x1) != ndim(x2):
        raise ArgumentError("vecdot: with arrays of different rank, count the axis from the end.")
    return dot_products.vecdot(x1, x2, axis=axis)


@of_two_arrays
@attributed_to_caller
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The cross product of vectors with three elements along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    array([0., 0., 1.])
    """
    x1, x2 = as_value(x1), as_value(x2)
    places = [normalize_axis(axis, ndim(x), "cross") for x in (x1, x2)]
    if shape(x1)[places[0]] != 3 or shape(x2)[places[1]] != 3:
        raise ShapeError(f"cross: wants three elements along axis {axis}, got shapes {shape(x1)} and {shape(x2)}.")
    return dot_products.cross(x1, x2, axis=axis)


@of_two_arrays
@attributed_to_caller
def outer(x1: Any, x2: Any, /) -> Any:
    """The product of each element of one vector with each of another.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    x1, x2 = as_value(x1), as_value(x2)
    if ndim(x1) != 1 or ndim(x2) != 1:
        raise ShapeError(f"outer: wants vectors, got shapes {shape(x1)} and {shape(x2)}.\n  pb.outer flattens them.")
    return matrix_products.outer(x1, x2)


@of_array
@attributed_to_caller
def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal over the last two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.diagonal(np.arange(9.0).reshape(3, 3), offset=1)
    array([1., 5.])
    """
    return arrange.diagonal(as_matrix(x, "diagonal"), offset=offset, axis1=-2, axis2=-1)


@of_array
@attributed_to_caller
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of the diagonal over the last two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.trace(np.eye(3))
    array(3.)
    """
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@of_sequence
@attributed_to_caller
def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of many matrices in the cheapest order; the first and the last may be vectors.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.multi_dot([np.ones((2, 50)), np.ones((50, 50)), np.ones(50)])
    array([2500., 2500.])
    """
    values = [as_value(x) for x in arrays]
    if len(values) < 2:
        raise ArgumentError(f"multi_dot: wants two arrays or more, got {len(values)}.")
    row, one_column = ndim(values[0]) == 1, ndim(values[-1]) == 1
    values[0] = reshaping.expand_dims(values[0], 0) if row else values[0]
    values[-1] = reshaping.expand_dims(values[-1], 1) if one_column else values[-1]
    if any(ndim(x) != 2 for x in values):
        raise ShapeError("multi_dot: wants matrices; only the first and the last may be vectors.")
    out = _multiply_chain(
        values, _cheapest_splits([shape(values[0])[0], *(shape(x)[1] for x in values)]), 0, len(values) - 1
    )
    return reshaping.squeeze(out, ((0,) if row else ()) + ((1,) if one_column else ())) if row or one_column else out


def _cheapest_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """For each subchain, after which factor to split it for the fewest multiplications."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            work = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            best[i, j] = min(work, key=lambda k: work[k])
            cost[i, j] = work[best[i, j]]
    return best


def _multiply_chain(values: Sequence[Any], splits: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return values[i]
    k = splits[i, j]
    return matrix_products.matmul(_multiply_chain(values, splits, i, k), _multiply_chain(values, splits, k + 1, j))

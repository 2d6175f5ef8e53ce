"""Diagonals: extracting, embedding, filling and summing them, and block diagonals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ..axes import as_integer, normalize_axis
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..families import result_dtype
from ..index import indexing
from ..index.normalize import namespace_for
from ..reduce import reductions
from ..signatures import of_array, of_many_arrays, of_mixed_arrays
from . import arrange, reshaping
from .stack_split import ravel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@attributed_to_caller
def tri(rows: int, columns: int | None = None, k: int = 0, dtype: Any = np.float64) -> NDArray[Any]:
    """Ones on and below the k-th diagonal, zeros above.

    >>> import pullback as pb
    >>> pb.tri(2)
    array([[1., 0.],
           [1., 1.]])
    """
    return np.tri(rows, columns, k, dtype)


@of_array
@attributed_to_caller
def diag(x: Any, /, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or a matrix with a vector on its k-th diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.diag(np.array([1, 2]))
    array([[1, 0],
           [0, 2]])
    """
    x = as_value(x)
    if ndim(x) == 2:
        return arrange.diagonal(x, offset=k)
    if ndim(x) != 1:
        raise ShapeError(f"diag: wants a vector or a matrix, got shape {shape(x)}.")
    return diag_embed(x, k)


@of_array
def diagflat(x: Any, /, k: int = 0) -> Any:
    """A matrix with the flattened x on its k-th diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.diagflat(np.array([[1, 2]]))
    array([[1, 0],
           [0, 2]])
    """
    return diag_embed(ravel(x), k)


@of_array
@attributed_to_caller
def diag_embed(x: Any, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Matrices with the last axis of x on a diagonal over two new axes.

    >>> import numpy as np, pullback as pb
    >>> pb.diag_embed(np.ones((3, 2))).shape
    (3, 2, 2)
    """
    x = as_value(x)
    if not ndim(x):
        raise ShapeError("diag_embed: wants one axis or more, got a 0-d array.")
    offset, rank = as_integer(offset, "diag_embed: offset"), ndim(x) + 1
    count = shape(x)[-1]
    size = count + abs(offset)
    steps = np.arange(count)
    square = indexing.scatter_at_end(x, (steps + max(-offset, 0), steps + max(offset, 0)), (*shape(x)[:-1], size, size))
    first, second = normalize_axis(axis1, rank, "diag_embed"), normalize_axis(axis2, rank, "diag_embed")
    if first == second:
        raise ArgumentError(f"diag_embed: axes {axis1} and {axis2} are the same axis.")
    return reshaping.moveaxis(square, (rank - 2, rank - 1), (first, second))


@of_mixed_arrays
@attributed_to_caller
def fill_diagonal(x: Any, value: Any, /, wrap: bool = False) -> Any:
    """A new array: x with a number, or numbers in order, on its main diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.fill_diagonal(np.zeros((2, 2)), 5.0)
    array([[5., 0.],
           [0., 5.]])
    """
    x, value = as_value(x), ravel(value)
    sizes = shape(x)
    if len(sizes) < 2 or (len(sizes) > 2 and len(set(sizes)) > 1):
        raise ShapeError(f"fill_diagonal: wants two axes, or more of one size, got shape {sizes}.")
    step = sizes[1] + 1 if len(sizes) == 2 else 1 + sum(math.prod(sizes[1:][i:]) for i in range(len(sizes) - 1))
    end = sizes[1] * sizes[1] if len(sizes) == 2 and not wrap else math.prod(sizes)
    places = np.arange(0, min(end, math.prod(sizes)), step)
    values = indexing.take(value, np.arange(len(places)) % shape(value)[0])
    return reshaping.reshape(indexing.set_at(ravel(x), (places,), values), sizes)


@of_array
@attributed_to_caller
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of a diagonal over two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.trace(np.eye(3))
    array(3.)
    """
    return reductions.sum(arrange.diagonal(x, offset=offset, axis1=axis1, axis2=axis2), -1, dtype)


@of_many_arrays
@attributed_to_caller
def block_diag(*arrays: Any) -> Any:
    """Matrices along the diagonal of one, zeros elsewhere; a vector is a row.

    >>> import numpy as np, pullback as pb
    >>> pb.block_diag(np.array([[1]]), np.array([[2, 3]]))
    array([[1, 0, 0],
           [0, 2, 3]])
    """
    xs = [reshaping.reshape(x, (1,) * (2 - ndim(x)) + shape(x)) for x in map(as_value, arrays)]
    if not xs or any(ndim(x) != 2 for x in xs):
        raise ShapeError(f"block_diag: wants matrices, got shapes {[shape(x) for x in xs]}.")
    rows, columns = (sum(shape(x)[i] for x in xs) for i in (0, 1))
    total: Any = namespace_for(xs[0]).zeros((rows, columns), result_dtype([spec_of(x) for x in xs]))
    row = column = 0
    for x in xs:
        down, across = shape(x)
        total = pointwise.add(total, arrange.pad(x, [(row, rows - row - down), (column, columns - column - across)]))
        row, column = row + down, column + across
    return total

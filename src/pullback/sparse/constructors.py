"""Sparse arrays from numbers and places, from SciPy's matrices and from dense arrays; arguments are checked here."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.argument_checks import explains_arguments
from ..arrays.backends import to_host
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.concrete import as_bare_array
from ..ops.dispatch import as_value, ndim, shape
from ..ops.index import indexing
from .array import SparseArray
from .checks import check_block, check_lengths, check_numbers, check_places, check_shape, expand_starts
from .conversions import from_library, is_library_matrix
from .pattern import Pattern


@explains_arguments("sparse.coo")
def coo(data: Any, rows: Any, cols: Any, shape: tuple[int, int]) -> SparseArray:
    """A sparse matrix from numbers and the row and column of each, in any order; where a place is listed twice, the
    numbers add up.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.coo(np.array([1.0, 2.0, 4.0]), [0, 1, 1], [1, 0, 0], (2, 2)).todense()
    array([[0., 1.],
           [6., 0.]])
    """
    shape = check_shape(shape, "coo")
    data = check_numbers(data, 1, "coo")
    rows, cols = check_places(rows, shape[0], "coo: rows"), check_places(cols, shape[1], "coo: columns")
    check_lengths(data, rows, cols, "coo")
    return SparseArray(data, Pattern("coo", shape, rows, cols))


@explains_arguments("sparse.csr")
def csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> SparseArray:
    """A sparse matrix by rows, as SciPy stores it: row i has the numbers `data[indptr[i]:indptr[i + 1]]` in the columns
    `indices` of the same stretch.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.csr(np.array([1.0, 2.0]), [1, 0], [0, 1, 2], (2, 2)).todense()
    array([[0., 1.],
           [2., 0.]])
    """
    shape = check_shape(shape, "csr")
    data = check_numbers(data, 1, "csr")
    cols = check_places(indices, shape[1], "csr: indices")
    rows = expand_starts(indptr, shape[0], cols.size, "csr")
    check_lengths(data, rows, cols, "csr")
    return SparseArray(data, Pattern("csr", shape, rows, cols))


@explains_arguments("sparse.csc")
def csc(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> SparseArray:
    """A sparse matrix by columns, as SciPy stores it.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.csc(np.array([1.0, 2.0]), [1, 0], [0, 1, 2], (2, 2)).todense()
    array([[0., 2.],
           [1., 0.]])
    """
    shape = check_shape(shape, "csc")
    data = check_numbers(data, 1, "csc")
    rows = check_places(indices, shape[0], "csc: indices")
    cols = expand_starts(indptr, shape[1], rows.size, "csc")
    check_lengths(data, rows, cols, "csc")
    return SparseArray(data, Pattern("csc", shape, rows, cols))


@explains_arguments("sparse.bsr")
def bsr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> SparseArray:
    """A sparse matrix of dense blocks, as SciPy stores it: `data` has the shape (blocks, rows of one, columns of one),
    and `indices` and `indptr` are those of "csr", counting blocks.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.bsr(np.ones((1, 1, 2)), [1], [0, 0, 1], (2, 4)).todense()
    array([[0., 0., 0., 0.],
           [0., 0., 1., 1.]])
    """
    shape = check_shape(shape, "bsr")
    data = check_numbers(data, 3, "bsr")
    r, c = check_block(spec_of(data).shape[1:], shape, "bsr")
    cols = check_places(indices, shape[1] // c, "bsr: indices")
    rows = expand_starts(indptr, shape[0] // r, cols.size, "bsr")
    check_lengths(data, rows, cols, "bsr")
    return SparseArray(data, Pattern("bsr", shape, rows, cols, (r, c)))


@explains_arguments("sparse.from_scipy")
def from_scipy(matrix: Any) -> SparseArray:
    """A sparse matrix of SciPy (or CuPy) in the same format; formats other than coo, csr, csc and bsr become csr. The
    places are copied, the numbers are shared.

    >>> import numpy as np, pullback as pb, scipy.sparse
    >>> pb.sparse.from_scipy(scipy.sparse.csr_array(np.eye(2)))
    <sparse 2 x 2, 2 entries of float64, csr>
    """
    if isinstance(matrix, SparseArray):
        return matrix
    if not is_library_matrix(matrix):
        raise ArgumentError(
            f"from_scipy: wants a sparse matrix of SciPy, got a {type(matrix).__name__}.\n  Use from_dense."
        )
    return SparseArray(*from_library(matrix))


def from_dense(x: Any, pattern: Any = None) -> SparseArray:
    """The elements of a dense matrix at the places of a pattern: a `Pattern`, a sparse matrix, or a boolean matrix.
    Without one, at its nonzeros, which must then be known numbers. What is off the pattern is dropped.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.from_dense(np.array([[0.0, 2.0], [3.0, 0.0]])).data
    array([2., 3.])
    """
    x = as_value(x)
    if ndim(x) != 2:
        raise ShapeError(f"from_dense: wants a matrix, got shape {shape(x)}.")
    found = _as_pattern(x, pattern)
    if found.shape != shape(x):
        raise ShapeError(f"from_dense: the matrix has shape {shape(x)}, the pattern {found.shape}.")
    if found.has_duplicates:
        raise ArgumentError("from_dense: the pattern lists a place twice.\n  Use A.sum_duplicates().")
    places = found.entries.places_for(x)
    data = indexing.getitem(x, places)
    if found.format == "bsr":
        data = data.reshape((-1, *found.block))
    return SparseArray(data, found)


def diagonal(x: Any) -> SparseArray:
    """The square matrix with a vector on its diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.sparse.diagonal(np.array([1.0, 2.0])) @ np.array([3.0, 3.0])
    array([3., 6.])
    """
    x = check_numbers(x, 1, "diagonal")
    n = shape(x)[0]
    return SparseArray(x, Pattern("csr", (n, n), np.arange(n), np.arange(n)))


def _as_pattern(x: Any, pattern: Any) -> Pattern:
    if isinstance(pattern, Pattern):
        return pattern
    if isinstance(pattern, SparseArray) or is_library_matrix(pattern):
        return from_scipy(pattern).pattern
    mask = to_host(as_bare_array(x if pattern is None else pattern, "from_dense"))
    if mask.ndim != 2:
        raise ShapeError(f"from_dense: the pattern is a matrix, got shape {mask.shape}.")
    rows, cols = np.nonzero(mask)
    return Pattern("csr", mask.shape, rows, cols)

"""SciPy's sparse matrices (CuPy's on a GPU) from entries, and entries from them."""

from __future__ import annotations

import sys
from typing import Any

from ..arrays.backends import is_array
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..errors import ConversionError, DtypeError, ShapeError
from .checks import check_lengths, check_numbers, check_places, check_shape, expand_starts
from .entries import Entries
from .pattern import Pattern
from .structure import list_entries


def to_library(entries: Entries) -> Any:
    """A sparse matrix of SciPy or CuPy with the numbers of a matrix that carries no derivatives."""
    data, pattern = _bare_numbers(entries.data), entries.pattern
    if data.dtype.char not in "?bBhHiIlLqQfdFDgG":
        raise DtypeError(
            f"to_scipy: SciPy's sparse matrices hold no {data.dtype}.\n  Convert it: A.astype(pb.float32)."
        )
    rows, cols = pattern.places_for(data)
    if spec_of(data).device != "cpu":
        return _to_cupyx(Entries(data, pattern))
    from scipy import sparse

    if pattern.format == "coo":
        return sparse.coo_array((data, (rows.copy(), cols.copy())), shape=pattern.shape)
    make = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}[pattern.format]
    return make((data, pattern.indices.copy(), pattern.indptr.copy()), shape=pattern.shape)


def _bare_numbers(data: Any) -> Any:
    if isinstance(data, Tensor):
        if data.is_tracked:
            raise ConversionError(
                "to_scipy: the numbers carry derivatives, which SciPy's matrices cannot hold.\n  Use A.detach()."
            )
        data = data.numpy() if spec_of(data).device == "cpu" else data.cupy()
    if not is_array(data):
        raise ConversionError(f"to_scipy: the numbers are {data!r}, no array.")
    return data


def _to_cupyx(entries: Entries) -> Any:
    from cupyx.scipy import sparse

    if entries.pattern.format == "bsr":  # CuPy has no such format
        entries = list_entries(entries)
    data, pattern = entries
    rows, cols = pattern.places_for(data)
    if pattern.format == "coo":
        return sparse.coo_matrix((data, (rows, cols)), shape=pattern.shape)
    make = sparse.csr_matrix if pattern.format == "csr" else sparse.csc_matrix
    xp = sys.modules["cupy"]
    return make((data, xp.asarray(pattern.indices), xp.asarray(pattern.indptr)), shape=pattern.shape)


def is_library_matrix(x: Any) -> bool:
    """Whether this is a sparse matrix of SciPy or CuPy."""
    return type(x).__module__.startswith(("scipy.sparse", "cupyx.scipy.sparse")) and hasattr(x, "tocsr")


def from_library(matrix: Any) -> Entries:
    """The entries of a sparse matrix of SciPy or CuPy: places are checked and copied, numbers are shared."""
    if len(matrix.shape) != 2:
        raise ShapeError(f"from_scipy: wants a matrix, got shape {matrix.shape}.")
    if matrix.format not in ("coo", "csr", "csc", "bsr"):
        matrix = matrix.tocsr()
    sizes, format = check_shape(matrix.shape, "from_scipy"), matrix.format
    data, block = matrix.data, matrix.data.shape[1:] or (1, 1)
    check_numbers(data, 3 if format == "bsr" else 1, "from_scipy")
    grid = sizes[0] // block[0], sizes[1] // block[1]
    if format == "coo":
        rows, cols = check_places(matrix.row, sizes[0], "from_scipy"), check_places(matrix.col, sizes[1], "from_scipy")
    else:
        by_columns = format == "csc"
        minor = check_places(matrix.indices, grid[0 if by_columns else 1], "from_scipy: indices")
        major = expand_starts(matrix.indptr, grid[1 if by_columns else 0], minor.size, "from_scipy")
        rows, cols = (minor, major) if by_columns else (major, minor)
    check_lengths(data, rows, cols, "from_scipy")
    return Entries(data, Pattern(format, sizes, rows, cols, block))

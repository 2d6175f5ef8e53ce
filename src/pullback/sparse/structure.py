"""The same numbers in other places or another order: transposes, formats, slices, sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import to_host
from ..arrays.spec import spec_of
from ..errors import ArgumentError, IndexingError, ShapeError
from ..ops.axes import normalize_axes
from ..ops.concrete import as_bare_array
from ..ops.index import indexing
from ..ops.reduce import reductions
from ..ops.reduce.scans import sum_dtype
from ..ops.shape.reshaping import astype, permute_dims, reshape
from .checks import check_block
from .entries import Entries
from .pattern import Format, Merge, Pattern, expand_stretches
from .products import add_rows


def _merge(entries: Entries, merge: Merge) -> Entries:
    """The numbers in another order, or added up where places are listed twice."""
    if merge.order is not None:
        return Entries(indexing.take(entries.data, merge.order, axis=0), merge.pattern)
    return Entries(add_rows(entries.data, merge.targets, merge.pattern.rows.size), merge.pattern)


def transpose(entries: Entries) -> Entries:
    """The transpose; blocks are transposed too, and brought into the order of rows again."""
    data, pattern = entries
    if pattern.format != "bsr":
        return Entries(data, pattern.transposed)
    return _merge(Entries(permute_dims(data, (0, 2, 1)), pattern.transposed), pattern.transposed.by_rows)


def list_entries(entries: Entries) -> Entries:
    """Single numbers in any order."""
    return Entries(reshape(entries.data, (-1,)), entries.pattern.entries.as_coo())


def sort_entries(entries: Entries, wanted: Format) -> Entries:
    """Single numbers by rows ("csr") or columns ("csc"), one for each place."""
    if entries.pattern.format == "bsr":
        entries = list_entries(entries)
    pattern = entries.pattern
    merge = pattern.by_rows if wanted == "csr" else pattern.by_columns
    return entries if merge.pattern == pattern else _merge(entries, merge)


def sum_duplicates(entries: Entries) -> Entries:
    """One number for each place; where that is so, the numbers stay as they are."""
    pattern = entries.pattern
    if not pattern.has_duplicates:
        return entries
    merge = pattern.by_columns if pattern.format == "csc" else pattern.by_rows
    data, merged = _merge(entries, merge)
    return Entries(data, merged.as_coo() if pattern.format == "coo" else merged)


def gather_blocks(entries: Entries, blocksize: Any) -> Entries:
    """Dense blocks: each that holds an entry, filled up with zeros."""
    r, c = check_block(blocksize, entries.pattern.shape, "tobsr")
    data, pattern = list_entries(entries)
    merge = Pattern("bsr", pattern.shape, pattern.rows // r, pattern.cols // c, (r, c)).by_rows
    places = (merge.targets * r + pattern.rows % r) * c + pattern.cols % c
    count = merge.pattern.rows.size
    return Entries(reshape(add_rows(data, places, count * r * c), (count, r, c)), merge.pattern)


def to_dense(entries: Entries) -> Any:
    """The dense matrix."""
    data, pattern = list_entries(entries)
    return indexing.scatter_at(data, pattern.places_for(data), pattern.shape)


def sum_entries(entries: Entries, axis: Any, keepdims: bool) -> Any:
    """The sum of all numbers, or of each column (axis 0) or row (axis 1)."""
    axes = normalize_axes(axis, 2, "sum")
    data, pattern = list_entries(entries)
    if len(axes) == 2:
        found = reductions.sum(data)
    elif axes:
        kept = 1 - axes[0]
        data = astype(data, sum_dtype(spec_of(data).dtype))  # as sums of dense arrays: integers in wide ones
        found = add_rows(data, pattern.places_for(data)[kept], pattern.shape[kept])
    else:
        raise ArgumentError("sum: axis=() sums nothing; wants 0, 1 or None.")
    return reshape(found, tuple(1 if k in axes else n for k, n in enumerate(pattern.shape))) if keepdims else found


def take_diagonal(entries: Entries) -> Any:
    """The main diagonal as a dense vector."""
    data, pattern = list_entries(entries)
    (kept,) = np.nonzero(pattern.rows == pattern.cols)
    return add_rows(indexing.take(data, kept, axis=0), pattern.rows[kept], min(pattern.shape))


def take_items(entries: Entries, index: Any) -> Any:
    """The elements at an index. `Entries` where rows or columns are a slice and neither is a number; else dense ones,
    as NumPy pairs numbers and lists.
    """
    rows, cols = _split_index(index, entries.pattern.shape)
    if not isinstance(rows, range) and not isinstance(cols, range):
        return _take_elements(sort_entries(entries, "csr"), *_broadcast_places(rows, cols))
    if max(np.ndim(rows), np.ndim(cols)) > 1:
        raise IndexingError(
            "A[index]: an array of two axes or more beside a slice; a sparse matrix has two axes.\n"
            "  Use A[places.ravel()], or index both axes by arrays."
        )
    is_vector = (
        np.ndim(rows) == 0 if not isinstance(rows, range) else np.ndim(cols) == 0 and not isinstance(cols, range)
    )
    found = _take_submatrix(sort_entries(entries, "csr"), _as_list(rows), _as_list(cols))
    if is_vector:
        return reshape(to_dense(found), (-1,))
    if entries.pattern.format == "coo":
        return list_entries(found)
    return sort_entries(found, "csc") if entries.pattern.format == "csc" else found


def _split_index(index: Any, sizes: tuple[int, int]) -> tuple[Any, Any]:
    """The index of rows and that of columns: each a range, a number or an array of numbers, counted from the front."""
    given = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [i for i in given if not hasattr(i, "shape")]:
        at = next(n for n, i in enumerate(given) if i is Ellipsis)
        given = (*given[:at], *[slice(None)] * (3 - len(given)), *given[at + 1 :])
    if len(given) > 2 or any(i is None or i is Ellipsis for i in given):
        raise IndexingError(f"A[index]: a sparse matrix has two axes, got the index {index!r}.")
    given = (*given, *[slice(None)] * (2 - len(given)))
    return _normalize_entry(given[0], sizes[0]), _normalize_entry(given[1], sizes[1])


def _normalize_entry(entry: Any, size: int) -> Any:
    if isinstance(entry, slice):
        return range(*entry.indices(size))
    places = to_host(as_bare_array(entry, "A[index]"))
    if places.dtype.kind == "b" and places.ndim == 1:
        if places.size != size:
            raise IndexingError(f"A[index]: a mask of {places.size} elements for an axis of {size}.")
        return np.flatnonzero(places)
    if places.dtype.kind not in "iu" and places.size:
        raise IndexingError(
            f"A[index]: wants numbers, slices, lists of numbers or masks of an axis, got {places.dtype} of shape "
            f"{places.shape}."
        )
    places = places.astype(np.int64)
    if places.size and (places.min() < -size or places.max() >= size):
        raise IndexingError(f"A[index]: an index is out of range for an axis of {size}.")
    return places % size if size else places


def _broadcast_places(rows: Any, cols: Any) -> tuple[Any, Any]:
    try:
        left, right = np.broadcast_arrays(rows, cols)
    except ValueError:
        raise ShapeError(
            f"A[rows, columns]: lists of shapes {np.shape(rows)} and {np.shape(cols)} do not broadcast together.\n"
            "  A[rows][:, columns] is the submatrix."
        ) from None
    return left, right


def _take_elements(entries: Entries, rows: Any, cols: Any) -> Any:
    """Single elements of a matrix sorted by rows, those that are not stored being zero."""
    data, pattern = entries
    wanted = (rows * pattern.shape[1] + cols).reshape(-1)
    places = np.searchsorted(pattern.keys, wanted)
    stored = np.flatnonzero(np.append(pattern.keys, -1)[places] == wanted)
    found = add_rows(indexing.take(data, places[stored], axis=0), stored, wanted.size)
    return reshape(found, rows.shape)


def _take_submatrix(entries: Entries, rows: Any, cols: Any) -> Entries:
    """Rows and columns of a matrix sorted by rows, in the order they are listed, which may repeat."""
    # found for the numbers of the entries, so that the entries themselves move once
    order, pattern = _take_rows(Entries(np.arange(entries.pattern.rows.size), entries.pattern), rows)
    if not np.array_equal(cols, np.arange(pattern.shape[1])):
        order, pattern = _take_rows(sort_entries(transpose(Entries(order, pattern)), "csr"), cols)
        order, pattern = sort_entries(transpose(Entries(order, pattern)), "csr")
    return Entries(indexing.take(entries.data, order, axis=0), pattern)


def _take_rows(entries: Entries, rows: Any) -> Entries:
    data, pattern = entries
    counts = np.diff(pattern.indptr)[rows]
    order = expand_stretches(pattern.indptr[:-1][rows], counts)
    found = Pattern("csr", (rows.size, pattern.shape[1]), np.repeat(np.arange(rows.size), counts), pattern.cols[order])
    return Entries(data[order], found)


def _as_list(places: Any) -> Any:
    return np.asarray(places, np.int64).reshape(-1)

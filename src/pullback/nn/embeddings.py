"""Embeddings and bags of embeddings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..arrays.call_site import attributed_to_caller
from ..arrays.spec import spec_of
from ..errors import ArgumentError, DtypeError, ShapeError
from ..ops.concrete import as_bare_array, is_concrete
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import divide, equal, greater, maximum, multiply, not_equal, where
from ..ops.fusion import fuse
from ..ops.index import indexing
from ..ops.index.lookup import lookup_rows
from ..ops.index.normalize import namespace_for
from ..ops.index.segments import segment_max, segment_sum
from ..ops.linalg import vector_norm
from ..ops.order.sorting import searchsorted
from ..ops.reduce import reductions
from ..ops.reduce.reductions import as_constant
from ..ops.shape import reshaping
from ..ops.signatures import of_mixed_arrays
from .arguments import validate_labels

F = TypeVar("F", bound=Callable[..., Any])


def _padding_row(padding_idx: int | None, rows: int, what: str) -> int | None:
    if padding_idx is None or -rows <= padding_idx < rows:
        return None if padding_idx is None else padding_idx % rows
    raise ArgumentError(f"{what}: padding_idx {padding_idx} is no row of a table of {rows}.")


def _lookup_rows(
    indices: Any, weight: Any, max_norm: float | None, norm_type: float, what: str, sparse: bool = False
) -> tuple[Any, Any]:
    """The checked indices, and the row of the table for each, scaled down to `max_norm` if it is longer."""
    weight = as_value(weight)
    if ndim(weight) != 2:
        raise ShapeError(f"{what}: the table has shape {shape(weight)}, wants (rows, features).")
    indices, _ = validate_labels(indices, shape(weight)[0], what)
    rows = lookup_rows(weight, indices) if sparse else indexing.take(weight, indices, axis=0)
    if max_norm is None:
        return indices, rows
    size = vector_norm(rows, axis=-1, keepdims=True, ord=norm_type)
    long = greater(size, max_norm)
    return indices, where(long, rows * (max_norm / where(long, size, 1.0)), rows)


def unless_sparse(fused: F) -> F:
    """A fused function; asked for sparse gradients it runs op by op, since a fused one computes its gradient whole."""

    @functools.wraps(fused)
    def call(*args: Any, **kwargs: Any) -> Any:
        function = fused.fusion.function if kwargs.get("sparse") else fused  # type: ignore[attr-defined]
        return function(*args, **kwargs)

    found: Any = call
    return found  # type: ignore[no-any-return]


@of_mixed_arrays
@unless_sparse
@fuse(autocast="promote")
@attributed_to_caller
def embedding(
    indices: Any,
    /,
    weight: Any,
    *,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
) -> Any:
    """The row of a table for each index. The row `padding_idx` gets no gradient; rows longer than `max_norm`
    are scaled to that norm in the result; the table is not changed.

    `sparse=True` leaves in `.grad` of a table the rows that were looked up and nothing else, a `pb.sparse.RowSparse`,
    for `pb.optim.SparseAdam`. Gradients by `pb.grad`, or of a table that was computed, are dense.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.embedding(np.array([2, 0]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    array([[5., 6.],
           [1., 2.]])
    """
    indices, rows = _lookup_rows(indices, weight, max_norm, norm_type, "embedding", sparse)
    padding = _padding_row(padding_idx, shape(as_value(weight))[0], "embedding")
    if padding is None:
        return rows
    return where(reshaping.expand_dims(equal(indices, padding), -1), as_constant(rows), rows)


@of_mixed_arrays
@attributed_to_caller
def embedding_bag(
    indices: Any,
    /,
    weight: Any,
    offsets: Any = None,
    *,
    mode: str = "mean",
    per_sample_weights: Any = None,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    include_last_offset: bool = False,
    sparse: bool = False,
) -> Any:
    """The sum, mean or maximum of the rows in each bag. Bags are the rows of a matrix of indices, or the stretches of a
    vector that start at `offsets`. An empty bag is zero, and `padding_idx` is in no bag. `sparse` is as in
    `embedding`.

    >>> import numpy as np, pullback as pb
    >>> table = np.array([[1.0], [3.0], [5.0]])
    >>> pb.nn.embedding_bag(np.array([0, 1, 2]), table, np.array([0, 2]))
    array([[2.],
           [5.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: mode must be sum, mean or max, got {mode!r}.")
    indices = as_value(indices)
    segments, bags = _assign_bags(indices, offsets, include_last_offset)
    flat = reshaping.reshape(indices, (-1,))
    flat, rows = _lookup_rows(flat, weight, max_norm, norm_type, "embedding_bag", sparse)
    padding = _padding_row(padding_idx, shape(as_value(weight))[0], "embedding_bag")
    if per_sample_weights is not None:
        rows = _weight_rows(rows, per_sample_weights, shape(indices), mode)
    counts = None if padding is None else reshaping.expand_dims(not_equal(flat, padding), -1)
    if segments is None:
        counts = None if counts is None else reshaping.reshape(counts, (*shape(indices), 1))
        rows = reshaping.reshape(rows, (*shape(indices), shape(rows)[1]))
    return _reduce_bags(rows, segments, bags, mode, counts)


def _weight_rows(rows: Any, weights: Any, wanted: tuple[int, ...], mode: str) -> Any:
    weights = as_value(weights)
    if mode != "sum":
        raise ArgumentError(f"embedding_bag: per_sample_weights are for mode='sum', got {mode!r}.")
    if shape(weights) != wanted:
        raise ShapeError(f"embedding_bag: per_sample_weights have shape {shape(weights)}, the indices {wanted}.")
    return rows * reshaping.reshape(weights, (-1, 1))


def _assign_bags(indices: Any, offsets: Any, last: bool) -> tuple[Any, int]:
    """The bag of each index of a vector (None for a matrix, whose rows are bags), and how many bags there are."""
    if ndim(indices) == 2 and offsets is None:
        return None, shape(indices)[0]
    if ndim(indices) != 1 or offsets is None:
        raise ShapeError("embedding_bag: wants a matrix of indices without offsets, or a vector with offsets.")
    offsets = as_value(offsets)
    if ndim(offsets) != 1 or spec_of(offsets).dtype.kind not in "iu":
        raise DtypeError(f"embedding_bag: offsets are a vector of integers, got {spec_of(offsets)}.")
    if is_concrete(offsets):
        _check_offsets(as_bare_array(offsets, "embedding_bag"), shape(indices)[0])
    bags = shape(offsets)[0] - bool(last)
    starts = indexing.getitem(offsets, slice(0, bags))
    xp = namespace_for(indices)
    segments = searchsorted(starts, xp.arange(shape(indices)[0]), side="right") - 1
    return segments, bags


def _check_offsets(offsets: Any, count: int) -> None:
    if offsets.size and (offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] > count):
        raise ArgumentError(
            f"embedding_bag: offsets start at 0, never fall and end within the {count} indices, got {offsets.tolist()}."
        )
    if not offsets.size and count:
        raise ArgumentError(f"embedding_bag: {count} indices and no bag to put them in.")


def _mask_rows(rows: Any, counts: Any, neutral: float) -> Any:
    """Rows with those that do not count replaced by the neutral element."""
    return rows if counts is None else where(counts, rows, neutral)


def _reduce_bags(rows: Any, segments: Any, bags: int, mode: str, counts: Any) -> Any:
    """The sum, mean or maximum of each bag: bags of one size along axis 1, or segments of rows."""

    def add_up(x: Any) -> Any:
        return reductions.sum(x, axis=1) if segments is None else segment_sum(x, segments, bags)

    if mode == "max":
        some = _mask_rows(rows, counts, -np.inf)
        of_matrix = segments is None
        top = reductions.max(some, axis=1, initial=-np.inf) if of_matrix else segment_max(some, segments, bags)
        return where(equal(top, -np.inf), 0.0, top)
    total = add_up(_mask_rows(rows, counts, 0.0))
    if mode == "sum":
        return total
    if counts is None and segments is None:
        return multiply(total, 1 / max(shape(rows)[1], 1))
    xp, dtype = namespace_for(rows), spec_of(rows).dtype
    ones = xp.ones((shape(rows)[0], 1), dtype) if counts is None else reshaping.astype(counts, dtype)
    return divide(total, maximum(add_up(ones), 1))

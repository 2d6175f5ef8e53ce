"""Segment reductions: rows with segment ids, reduced to one row per segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ..axes import as_integer
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..fusion import cast_whole
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import of_two_arrays
from . import indexing, scatter_gather
from .normalize import concrete_mask, namespace_for


def _check_segments(x: Any, segments: Any, count: int | None, what: str) -> tuple[Any, Any, int]:
    x, segments = as_value(x), as_value(segments)
    if ndim(segments) != 1 or ndim(x) < 1 or shape(x)[0] != shape(segments)[0]:
        raise ShapeError(f"{what}: {shape(segments)} segments for the rows of an array of shape {shape(x)}.")
    if spec_of(segments).dtype.kind not in "iu" and spec_of(segments).size:
        raise IndexingError(f"{what}: segments must be integers, got {spec_of(segments).dtype}.")
    if count is None:
        known = concrete_mask(segments)
        count = int(known.max()) + 1 if known.size else 0
    if as_integer(count, f"{what}: num_segments") < 0:
        raise ArgumentError(f"{what}: num_segments must not be negative, got {count}.")
    return x, reshaping.astype(segments, np.intp), count


def _fold_segments(x: Any, segments: Any, count: int | None, reduce: str, empty: Any, what: str) -> Any:
    x, segments, count = _check_segments(x, segments, count, what)
    spec = spec_of(x)
    board = namespace_for(x).full((count, *spec.shape[1:]), empty, spec.dtype)
    if not spec.size or not count:
        return indexing.add_at(board, (segments,), x)
    return scatter_gather.index_reduce(board, 0, segments, x, reduce=reduce)


@of_two_arrays
@attributed_to_caller
def segment_sum(x: Any, segments: Any, /, num_segments: int | None = None) -> Any:
    """The sum of the rows of each segment; an empty segment has zeros.

    >>> import numpy as np, pullback as pb
    >>> pb.segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([5., 0., 2.])
    """
    x, segments, count = _check_segments(x, segments, num_segments, "segment_sum")
    return indexing.scatter_at(x, (segments,), (count, *shape(x)[1:]))


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def segment_mean(x: Any, segments: Any, /, num_segments: int | None = None) -> Any:
    """The mean of the rows of each segment; an empty segment has zeros.

    >>> import numpy as np, pullback as pb
    >>> pb.segment_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([2.5, 0. , 2. ])
    """
    x, segments, count = _check_segments(x, segments, num_segments, "segment_mean")
    total = indexing.scatter_at(x, (segments,), (count, *shape(x)[1:]))
    ones = namespace_for(x).ones(shape(segments), spec_of(total).dtype)
    rows = pointwise.maximum(indexing.scatter_at(ones, (segments,), (count,)), 1)
    return pointwise.divide(total, reshaping.reshape(rows, (count, *(1,) * (ndim(x) - 1))))


@of_two_arrays
@attributed_to_caller
def segment_prod(x: Any, segments: Any, /, num_segments: int | None = None) -> Any:
    """The product of the rows of each segment, with correct derivatives at zeros; an empty segment has ones.

    >>> import numpy as np, pullback as pb
    >>> pb.segment_prod(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([4., 1., 2.])
    """
    return _fold_segments(x, segments, num_segments, "prod", 1, "segment_prod")


@of_two_arrays
@attributed_to_caller
def segment_max(x: Any, segments: Any, /, num_segments: int | None = None) -> Any:
    """The greatest of the rows of each segment, ties sharing evenly; an empty segment has -inf.

    >>> import numpy as np, pullback as pb
    >>> pb.segment_max(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]))
    array([4., 2.])
    """
    worst = scatter_gather.extreme_identity(spec_of(as_value(x)).dtype, False)
    return _fold_segments(x, segments, num_segments, "amax", worst, "segment_max")


@of_two_arrays
@attributed_to_caller
def segment_min(x: Any, segments: Any, /, num_segments: int | None = None) -> Any:
    """The least of the rows of each segment, ties sharing evenly; an empty segment has inf.

    >>> import numpy as np, pullback as pb
    >>> pb.segment_min(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]))
    array([1., 2.])
    """
    worst = scatter_gather.extreme_identity(spec_of(as_value(x)).dtype, True)
    return _fold_segments(x, segments, num_segments, "amin", worst, "segment_min")

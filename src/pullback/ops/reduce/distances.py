"""Distances between points by any p-norm; between equal points the derivative is zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..fusion import cast_whole
from ..index import indexing
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import of_array, of_two_arrays
from . import reductions


def _p_norm(differences: Any, p: float, keepdims: bool = False) -> Any:
    """The p-norm along the last axis, with derivative zero at distance zero."""
    if p < 0 or math.isnan(p):
        raise ArgumentError(f"distances: p must not be negative, got {p}.")
    if p == 0:
        return reductions.sum(
            reshaping.astype(pointwise.not_equal(differences, 0), spec_of(differences).dtype),
            axis=-1,
            keepdims=keepdims,
        )
    if p == 2:
        squares = pointwise.square(
            pointwise.abs(differences) if spec_of(differences).dtype.kind == "c" else differences
        )
        return reductions.safe_sqrt(reductions.sum(squares, axis=-1, keepdims=keepdims))
    sizes = pointwise.abs(differences)
    if p == 1:
        return reductions.sum(sizes, axis=-1, keepdims=keepdims)
    if math.isinf(p):
        if not shape(sizes)[-1]:
            return reductions.sum(sizes, axis=-1, keepdims=keepdims)
        return reductions.max(sizes, axis=-1, keepdims=keepdims)
    return _general_p_norm(sizes, p, keepdims)


def _general_p_norm(sizes: Any, p: float, keepdims: bool) -> Any:
    """(sum s^p)^(1/p), scaled by the largest s so that no power over- or underflows; zeros are masked, since
    their slope for p < 1 is infinite.
    """
    if not shape(sizes)[-1]:
        return reductions.sum(sizes, axis=-1, keepdims=keepdims)
    top = pointwise.stop_gradient(reductions.max(sizes, axis=-1, keepdims=True))
    top = pointwise.where(pointwise.logical_and(pointwise.greater(top, 0), pointwise.isfinite(top)), top, 1)
    there = pointwise.greater(sizes, 0)
    parts = pointwise.divide(pointwise.where(there, sizes, 1), top)
    total = reductions.sum(pointwise.where(there, pointwise.power(parts, p), 0), axis=-1, keepdims=True)
    some = pointwise.greater(total, 0)
    out = pointwise.where(some, pointwise.power(pointwise.where(some, total, 1), 1 / p), 0)
    out = pointwise.multiply(out, top)
    return out if keepdims else reshaping.squeeze(out, -1)


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def cdist(x: Any, y: Any, /, p: float = 2.0) -> Any:
    """The distance by a p-norm from each row of x to each row of y; other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[5., 0.]])
    """
    x, y = as_value(x), as_value(y)
    if ndim(x) < 2 or ndim(y) < 2 or shape(x)[-1] != shape(y)[-1]:
        raise ShapeError(f"cdist: wants rows of one length, got shapes {shape(x)} and {shape(y)}.")
    differences = pointwise.subtract(reshaping.expand_dims(x, -2), reshaping.expand_dims(y, -3))
    return _p_norm(differences, float(p))


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def pdist(x: Any, /, p: float = 2.0) -> Any:
    """The distance by a p-norm between each two rows of a matrix, in one vector.

    >>> import numpy as np, pullback as pb
    >>> pb.pdist(np.array([[0.0], [1.0], [3.0]]))
    array([1., 3., 2.])
    """
    x = as_value(x)
    if ndim(x) != 2:
        raise ShapeError(f"pdist: wants a matrix of rows, got shape {shape(x)}.")
    first, second = np.triu_indices(shape(x)[0], 1)
    return _p_norm(pointwise.subtract(indexing.take(x, first, axis=0), indexing.take(x, second, axis=0)), float(p))


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def pairwise_distance(x: Any, y: Any, /, p: float = 2.0, *, eps: float = 0.0, keepdims: bool = False) -> Any:
    """The distance by a p-norm between the rows of x and y one by one; `eps` is added to each difference.

    >>> import numpy as np, pullback as pb
    >>> pb.pairwise_distance(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
    array([5.])
    """
    differences = pointwise.subtract(as_value(x), as_value(y))
    return _p_norm(pointwise.add(differences, eps) if eps else differences, float(p), keepdims)

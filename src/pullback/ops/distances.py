"""Points in, distances between them out, by any norm; between equal points the derivative is zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from . import elementwise as pointwise
from . import indexing, reducing, shaping
from .dispatch import as_value, ndim, shape

__all__ = ["cdist", "pairwise_distance", "pdist"]


def _length(away: Any, p: float, keepdims: bool = False) -> Any:
    """The p-norm along the last axis, with derivative zero where nothing lies between."""
    if p < 0 or math.isnan(p):
        raise ArgumentError(f"distances: p must not be negative, got {p}.")
    if p == 0:
        return reducing.sum(
            shaping.astype(pointwise.not_equal(away, 0), spec_of(away).dtype), axis=-1, keepdims=keepdims
        )
    if p == 2:
        squares = pointwise.square(pointwise.abs(away) if spec_of(away).dtype.kind == "c" else away)
        return reducing.root_of(reducing.sum(squares, axis=-1, keepdims=keepdims))
    sizes = pointwise.abs(away)
    if p == 1:
        return reducing.sum(sizes, axis=-1, keepdims=keepdims)
    if math.isinf(p):
        if not shape(sizes)[-1]:
            return reducing.sum(sizes, axis=-1, keepdims=keepdims)
        return reducing.max(sizes, axis=-1, keepdims=keepdims)
    return _fractional(sizes, p, keepdims)


def _fractional(sizes: Any, p: float, keepdims: bool) -> Any:
    """(sum s^p)^(1/p), over the largest s so that no power over- or underflows; an s of zero is left out, since
    its own slope for p < 1 is infinite.
    """
    if not shape(sizes)[-1]:
        return reducing.sum(sizes, axis=-1, keepdims=keepdims)
    top = pointwise.stop_gradient(reducing.max(sizes, axis=-1, keepdims=True))
    top = pointwise.where(pointwise.logical_and(pointwise.greater(top, 0), pointwise.isfinite(top)), top, 1)
    there = pointwise.greater(sizes, 0)
    parts = pointwise.divide(pointwise.where(there, sizes, 1), top)
    total = reducing.sum(pointwise.where(there, pointwise.power(parts, p), 0), axis=-1, keepdims=True)
    some = pointwise.greater(total, 0)
    out = pointwise.where(some, pointwise.power(pointwise.where(some, total, 1), 1 / p), 0)
    out = pointwise.multiply(out, top)
    return out if keepdims else shaping.squeeze(out, -1)


@signed
def cdist(x: Any, y: Any, /, p: float = 2.0) -> Any:
    """The distance by a p-norm from each row of x to each row of y; other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[5., 0.]])
    """
    x, y = as_value(x), as_value(y)
    if ndim(x) < 2 or ndim(y) < 2 or shape(x)[-1] != shape(y)[-1]:
        raise ShapeError(f"cdist: wants rows of one length, got shapes {shape(x)} and {shape(y)}.")
    away = pointwise.subtract(shaping.expand_dims(x, -2), shaping.expand_dims(y, -3))
    return _length(away, float(p))


@signed
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
    return _length(pointwise.subtract(indexing.take(x, first, axis=0), indexing.take(x, second, axis=0)), float(p))


@signed
def pairwise_distance(x: Any, y: Any, /, p: float = 2.0, *, eps: float = 0.0, keepdims: bool = False) -> Any:
    """The distance by a p-norm between the rows of x and y one by one; `eps` is added to each difference.

    >>> import numpy as np, pullback as pb
    >>> pb.pairwise_distance(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
    array([5.])
    """
    away = pointwise.subtract(as_value(x), as_value(y))
    return _length(pointwise.add(away, eps) if eps else away, float(p), keepdims)

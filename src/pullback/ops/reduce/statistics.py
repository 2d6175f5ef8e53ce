"""Composites over reductions: averages, ranges, counts, reductions that skip NaNs, trapezoidal areas."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, IndexingError, ShapeError
from ..axes import as_integer, normalize_axes, normalize_axis
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..fusion import cast_whole
from ..index import indexing
from ..index.normalize import concrete_mask
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import ArrayFunction, of_array, of_mixed_arrays
from . import reductions, scans


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def average(x: Any, /, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """The weighted mean over some axes, or over all; with `returned`, the sum of the weights too.

    >>> import numpy as np, pullback as pb
    >>> pb.average(np.array([1.0, 3.0]), weights=np.array([3.0, 1.0]))
    array(1.5)
    """
    x = as_value(x)
    axes = normalize_axes(axis, ndim(x), "average")
    if weights is None:
        found = reductions.mean(x, axes, keepdims=keepdims)
        total = reshaping.broadcast_to(
            np.asarray(reductions.count_elements(x, axes, None, "average"), float), shape(found)
        )
        return (found, total) if returned else found
    weights = _broadcast_weights(as_value(weights), x, axes)
    total = reductions.sum(weights, axis=axes, keepdims=keepdims)
    found = pointwise.divide(reductions.sum(pointwise.multiply(x, weights), axis=axes, keepdims=keepdims), total)
    return (found, reshaping.broadcast_to(total, shape(found))) if returned else found


def _broadcast_weights(weights: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """Weights of the shape of x, or of the shape along the axes."""
    if shape(weights) == shape(x):
        return weights
    along = tuple(shape(x)[a] for a in axes)
    if shape(weights) != along:
        raise ShapeError(
            f"average: weights have shape {shape(weights)}, the array {shape(x)}, along axes {axes} {along}."
        )
    return reshaping.broadcast_to(
        reshaping.reshape(weights, tuple(n if i in axes else 1 for i, n in enumerate(shape(x)))), shape(x)
    )


@of_array
@attributed_to_caller
def ptp(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The greatest element less the least one.

    >>> import numpy as np, pullback as pb
    >>> pb.ptp(np.array([1.0, 5.0, 2.0]))
    array(4.)
    """
    return pointwise.subtract(reductions.max(x, axis, keepdims=keepdims), reductions.min(x, axis, keepdims=keepdims))


@of_array
def count_nonzero(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements are not zero.

    >>> import numpy as np, pullback as pb
    >>> pb.count_nonzero(np.array([0.0, 2.0, 3.0]))
    array(2)
    """
    return reductions.sum(pointwise.not_equal(as_value(x), 0), axis=axis, keepdims=keepdims)


def _present_mask(x: Any, where: Any) -> Any:
    """The mask of elements that are not NaN."""
    there = pointwise.logical_not(pointwise.isnan(x))
    return there if where is None else pointwise.logical_and(there, where)


def _make_nan_function(name: str, fold: Any, doc: str, example: str) -> Any:
    @attributed_to_caller
    def function(x: Any, /, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None,
                 **options: Any) -> Any:  # fmt: skip
        x = as_value(x)
        return fold(x, axis, dtype, keepdims=keepdims, where=_present_mask(x, where), **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    >>> import numpy as np, pullback as pb
    >>> pb.{name}(np.array([1.0, np.nan, 3.0]))
    {example}
    """
    return function


nansum: ArrayFunction[...] = _make_nan_function(
    "nansum", reductions.sum, "The sum of the elements that are not NaN; options as of `sum`.", "array(4.)"
)
nanprod: ArrayFunction[...] = _make_nan_function(
    "nanprod", reductions.prod, "The product of the elements that are not NaN; options as of `prod`.", "array(3.)"
)
nanmean: ArrayFunction[...] = _make_nan_function(
    "nanmean", reductions.mean, "The mean of the elements that are not NaN; NaN where there are none.", "array(2.)"
)
nanvar: ArrayFunction[...] = _make_nan_function(
    "nanvar", reductions.var, "The variance of the elements that are not NaN; options as of `var`.", "array(1.)"
)
nanstd: ArrayFunction[...] = _make_nan_function(
    "nanstd",
    reductions.std,
    "The standard deviation of the elements that are not NaN; options as of `std`.",
    "array(1.)",
)


def _nan_extreme(x: Any, axis: Any, keepdims: bool, initial: Any, where: Any, sign: int) -> Any:
    """The extreme of the elements that are not NaN; NaN where there are none."""
    x = as_value(x)
    there = _present_mask(x, where)
    fold, worst = (reductions.max, -np.inf) if sign > 0 else (reductions.min, np.inf)
    if initial is not None:
        return fold(x, axis, keepdims=keepdims, initial=initial, where=there)
    if not spec_of(x).inexact:
        return fold(x, axis, keepdims=keepdims)
    found = fold(pointwise.where(there, x, worst), axis, keepdims=keepdims)
    return pointwise.where(reductions.any(there, axis, keepdims=keepdims), found, np.nan)


@of_array
@attributed_to_caller
def nanmax(x: Any, /, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The greatest element that is not NaN; NaN where there is none.

    >>> import numpy as np, pullback as pb
    >>> pb.nanmax(np.array([1.0, np.nan, 3.0]))
    array(3.)
    """
    return _nan_extreme(x, axis, keepdims, initial, where, 1)


@of_array
@attributed_to_caller
def nanmin(x: Any, /, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The least element that is not NaN; NaN where there is none.

    >>> import numpy as np, pullback as pb
    >>> pb.nanmin(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    return _nan_extreme(x, axis, keepdims, initial, where, -1)


@of_array
def nanargmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The index of the greatest element that is not NaN.

    >>> import numpy as np, pullback as pb
    >>> int(pb.nanargmax(np.array([1.0, np.nan, 3.0])))
    2
    """
    x = as_value(x)
    return reductions.argmax(pointwise.where(pointwise.isnan(x), -np.inf, x), axis, keepdims=keepdims)


@of_array
def nanargmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """The index of the least element that is not NaN.

    >>> import numpy as np, pullback as pb
    >>> int(pb.nanargmin(np.array([np.nan, 4.0, 3.0])))
    2
    """
    x = as_value(x)
    return reductions.argmin(pointwise.where(pointwise.isnan(x), np.inf, x), axis, keepdims=keepdims)


def _trapezoid_areas(y: Any, x: Any, dx: Any, axis: int) -> tuple[Any, int]:
    """The area under each segment by the trapezoidal rule."""
    y = as_value(y)
    axis = normalize_axis(axis, ndim(y), "trapezoid")

    if x is None:
        width = as_value(dx)
    else:
        x = as_value(x)
        at = axis if ndim(x) > 1 else 0
        width = pointwise.subtract(indexing.slice_along(x, at, 1, None), indexing.slice_along(x, at, None, -1))
        if ndim(x) == 1:
            width = reshaping.reshape(width, (-1, *(1,) * (ndim(y) - axis - 1)))
    heights = pointwise.add(indexing.slice_along(y, axis, 1, None), indexing.slice_along(y, axis, None, -1))
    return pointwise.divide(pointwise.multiply(width, heights), 2.0), axis


@of_mixed_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def trapezoid(y: Any, /, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The area under y along an axis by the trapezoidal rule, with coordinates x or steps dx.

    >>> import numpy as np, pullback as pb
    >>> pb.trapezoid(np.array([1.0, 2.0, 3.0]))
    array(4.)
    """
    areas, axis = _trapezoid_areas(y, x, dx, axis)
    return reductions.sum(areas, axis=axis if ndim(areas) == ndim(as_value(y)) else -1)


trapz = trapezoid


@of_mixed_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def cumulative_trapezoid(y: Any, /, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The running area under y along an axis; one element shorter than y.

    >>> import numpy as np, pullback as pb
    >>> pb.cumulative_trapezoid(np.array([1.0, 2.0, 3.0]))
    array([1.5, 4. ])
    """
    areas, axis = _trapezoid_areas(y, x, dx, axis)
    return scans.cumulative_sum(areas, axis=axis)


@of_mixed_arrays
@attributed_to_caller
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    """How often each integer occurs in x, or the sum of the weights of its occurrences.

    >>> import numpy as np, pullback as pb
    >>> pb.bincount(np.array([0, 2, 2]), weights=np.array([1.0, 2.0, 3.0]))
    array([1., 0., 5.])
    """
    known = concrete_mask(as_value(x))
    if known.ndim != 1 or (known.size and known.dtype.kind not in "iu"):
        raise ShapeError(f"bincount: wants integers along one axis, got {known.dtype}{list(known.shape)}.")
    if known.size and known.min() < 0:
        raise IndexingError("bincount: bins are counted from zero, got a negative number.")
    if as_integer(minlength, "bincount: minlength") < 0:
        raise ArgumentError("bincount: minlength must not be negative.")
    count = max(minlength, int(known.max()) + 1 if known.size else 0)
    places = known.astype(np.intp)
    if weights is None:
        weights = np.ones(places.shape, np.intp)
    weights = as_value(weights)
    if shape(weights) != places.shape:
        raise ShapeError(f"bincount: weights have shape {shape(weights)}, the bins {places.shape}.")
    return indexing.scatter_at(weights, (places,), (count,))

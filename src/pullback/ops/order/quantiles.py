"""Medians, quantiles and percentiles: a sort, then interpolation between two neighbors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, is_real_float, make_spec, spec_of
from ...arrays.value import Value
from ...errors import ArgumentError, DtypeError, ShapeError
from .. import batching, statics
from ..axes import normalize_axes
from ..dispatch import apply, as_value, shape
from ..elementwise import pointwise
from ..families import general
from ..index import indexing
from ..placement import move
from ..reduce import reductions
from ..round_once import rounds_once
from ..shape import arrange, reshaping
from ..signatures import of_array
from . import sorting

PlaceFunction = Callable[[Any, Any], Any]


def _place_formula(alpha: float, beta: float) -> PlaceFunction:
    """The position of a quantile among n sorted elements, counted from zero: n q + alpha + q (1 - alpha - beta) - 1."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


#: The position of the quantile q among n sorted elements by each method, counted from zero, before interpolation.
PLACES: dict[str, PlaceFunction] = {
    "linear": lambda n, q: (n - 1) * q,
    "lower": lambda n, q: (n - 1) * q,
    "higher": lambda n, q: (n - 1) * q,
    "midpoint": lambda n, q: (n - 1) * q,
    "nearest": lambda n, q: (n - 1) * q,
    "inverted_cdf": lambda n, q: n * q - 1,
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "closest_observation": lambda n, q: n * q - 1.5,
    "interpolated_inverted_cdf": _place_formula(0, 1),
    "hazen": _place_formula(0.5, 0.5),
    "weibull": _place_formula(0, 0),
    "median_unbiased": _place_formula(1 / 3, 1 / 3),
    "normal_unbiased": _place_formula(3 / 8, 3 / 8),
}


def _neighbors_value(xp: Any, place: Any, method: str) -> Any:
    """The two neighboring indices and the weight of the second, along a new first axis."""
    low = xp.floor(place)
    part = place - low
    if method in _NEAREST:
        near = _NEAREST[method](xp, place, low, part)
        return xp.stack([near, near, xp.zeros_like(part)])
    if method == "midpoint":
        part = xp.where(part == 0, part, part * 0 + 0.5)
    elif method == "averaged_inverted_cdf":
        part = xp.where(part == 0, part + 0.5, part * 0 + 1)
    return xp.stack([low, low + 1, part])


#: Methods that select one element.
_NEAREST: dict[str, Callable[..., Any]] = {
    "lower": lambda xp, place, low, part: low,
    "higher": lambda xp, place, low, part: xp.ceil(place),
    "nearest": lambda xp, place, low, part: xp.rint(place),
    "inverted_cdf": lambda xp, place, low, part: xp.ceil(place),
    "closest_observation": lambda xp, place, low, part: low + 1 - ((part == 0) & (low % 2 == 1)),
}


#: Methods whose weights do not depend on q.
_STEPS = {*_NEAREST, "midpoint", "averaged_inverted_cdf"}


def _batch_neighbors(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    return apply(op, batching.move_batch_first(args[0], axes[0]), **static), 1


def _neighbors_spec(place: Spec, method: str) -> Spec:
    if not is_real_float(place.dtype):
        raise DtypeError(f"quantile: positions must be real, got {place.dtype}.")
    return make_spec((3, *place.shape), place.dtype, place.device)


# The two indices on either side of a fractional one, and the weight of the second, by a method.
_pick = general(
    "quantile_neighbours",
    statics={"method": statics.choice(*PLACES)},
    value=_neighbors_value,
    spec=_neighbors_spec,
    batch=_batch_neighbors,
    samples=lambda rng: [((rng.uniform(0, 9, size=(3,)),), {"method": method}) for method in PLACES],
)


def _locate_quantile(place: Any, count: Any, method: str) -> tuple[Any, Any, Any]:
    """Two indices, and the weight of the second, which depends on q where the method interpolates."""
    top = pointwise.subtract(count, 1)
    place = pointwise.clip_to(place, 0, top) if method not in _STEPS else place
    low, high, share = arrange.split(apply(_pick, place, method=method), 3)
    low, high, share = (reshaping.squeeze(v, 0) for v in (low, high, share))
    first, second = (reshaping.astype(pointwise.clip_to(v, 0, top), np.intp) for v in (low, high))
    return first, second, share if method in _STEPS else pointwise.subtract(place, low)


def _pick_quantiles(x: Any, q: Any, method: str, skip_nan: bool) -> Any:
    """The quantiles q along the last axis of x, as a new last axis."""
    ordered, last = sorting.sort(x, axis=-1), shape(x)[-1]
    count: Any = last
    if skip_nan:
        count = reductions.sum(pointwise.logical_not(pointwise.isnan(x)), axis=-1, keepdims=True)
    present = pointwise.maximum(count, 1) if skip_nan else count
    place = PLACES[method](reshaping.astype(present, np.float64), q)
    first, second, share = _locate_quantile(place, present, method)
    wanted = (*shape(x)[:-1], shape(q)[0])
    below, above = (
        indexing.take_along_axis(ordered, reshaping.broadcast_to(at, wanted), axis=-1) for at in (first, second)
    )
    found = _interpolate(
        below, above, share if spec_of(q).dtype == np.float64 else reshaping.astype(share, spec_of(q).dtype)
    )
    if skip_nan:
        return pointwise.where(pointwise.equal(count, 0), np.nan, found)
    worst = indexing.getitem(ordered, (..., slice(last - 1, last)))  # a NaN sorts last
    return pointwise.where(pointwise.isnan(worst), worst, found)


def _interpolate(below: Any, above: Any, share: Any) -> Any:
    """below + share (above - below), and below itself where the share is zero beside an infinity."""
    step = pointwise.subtract(above, below)
    alone = pointwise.logical_and(pointwise.equal(share, 0), pointwise.logical_not(pointwise.isfinite(step)))
    return pointwise.where(alone, below, pointwise.add(below, pointwise.multiply(step, share)))


def _flatten_folded_axes(x: Any, axes: tuple[int, ...], what: str) -> Any:
    """x with the axes to reduce as one last axis, in floating point."""
    spec = spec_of(x)
    if spec.dtype.kind == "c":
        raise DtypeError(f"{what}: complex numbers have no order.")
    kept = tuple(i for i in range(spec.ndim) if i not in axes)
    moved = reshaping.permute_dims(x, (*kept, *axes))
    flat = reshaping.reshape(moved, (*(spec.shape[a] for a in kept), reductions.count_elements(x, axes, None, what)))
    if not shape(flat)[-1]:
        raise ShapeError(f"{what}: shape {spec.shape} has no elements along axis {axes}, so there is no quantile.")
    return flat if spec.inexact else reshaping.astype(flat, np.float64)


def _check_fractions(q: Any, dtype: Any, top: float, what: str) -> Any:
    """q as floating point, in the dtype of x where it is a Python number; checked where it is concrete."""
    q = as_value(q)
    if is_array(q) or not hasattr(q, "shape"):
        known = np.asarray(q) if not hasattr(q, "shape") else q
        if ((known < 0) | (known > top)).any():
            raise ArgumentError(f"{what}: q must lie between 0 and {top:g}, got {q}.")
    if spec_of(q).weak is not None:
        return np.asarray(q, dtype)
    return q if spec_of(q).inexact else reshaping.astype(q, np.float64)


def _quantile(x: Any, q: Any, axis: Any, method: str, keepdims: bool, what: str, weights: Any = None) -> Any:
    if weights is not None:
        raise ArgumentError(f"{what}: weights= is not supported.\n  Repeat the elements, or use pb.average.")
    if method not in PLACES:
        raise ArgumentError(f"{what}: method {method!r} is not one of {', '.join(PLACES)}.")
    x = as_value(x)
    sizes = shape(x)
    axes = normalize_axes(axis, len(sizes), what)
    flat = _flatten_folded_axes(x, axes, what)
    top = 100.0 if "percentile" in what else 1.0
    q = _check_fractions(q, spec_of(flat).dtype, top, what)
    q = q if isinstance(q, Value) else move(q, spec_of(flat).device)
    part = q if top == 1 else pointwise.divide(q, 100.0)
    found = reshaping.moveaxis(
        _pick_quantiles(flat, reshaping.reshape(part, (-1,)), method, what.startswith("nan")), -1, 0
    )
    inner = tuple(1 if i in axes else n for i, n in enumerate(sizes)) if keepdims else shape(found)[1:]
    return reshaping.reshape(found, (*shape(q), *inner))


@of_array
@attributed_to_caller
@rounds_once
def quantile(
    x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Any:
    """The q-th quantile over some axes, or over all, by any of NumPy's methods; the first axes are those of q.

    The cotangent goes to the elements selected, and to q where the method interpolates.

    >>> import numpy as np, pullback as pb
    >>> pb.quantile(np.array([1.0, 2.0, 4.0]), [0.5, 0.75])
    array([2., 3.])
    """
    return _quantile(x, q, axis, method, keepdims, "quantile", weights)


@of_array
@attributed_to_caller
@rounds_once
def percentile(
    x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Any:
    """The quantile for q in hundredths.

    >>> import numpy as np, pullback as pb
    >>> pb.percentile(np.array([1.0, 2.0, 4.0]), 75)
    array(3.)
    """
    return _quantile(x, q, axis, method, keepdims, "percentile", weights)


@of_array
@attributed_to_caller
@rounds_once
def nanquantile(
    x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Any:
    """The quantile of the elements that are not NaN; NaN where there are none.

    >>> import numpy as np, pullback as pb
    >>> pb.nanquantile(np.array([1.0, np.nan, 3.0]), 0.5)
    array(2.)
    """
    return _quantile(x, q, axis, method, keepdims, "nanquantile", weights)


@of_array
@attributed_to_caller
@rounds_once
def nanpercentile(
    x: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None
) -> Any:
    """The percentile of the elements that are not NaN; NaN where there are none.

    >>> import numpy as np, pullback as pb
    >>> pb.nanpercentile(np.array([1.0, np.nan, 3.0]), 50)
    array(2.)
    """
    return _quantile(x, q, axis, method, keepdims, "nanpercentile", weights)


@of_array
@attributed_to_caller
@rounds_once
def median(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The middle element over some axes, or over all; the mean of the two in the middle of an even number.

    >>> import numpy as np, pullback as pb
    >>> pb.median(np.array([1.0, 4.0, 2.0, 3.0]))
    array(2.5)
    """
    return _quantile(x, 0.5, axis, "linear", keepdims, "median")


@of_array
@attributed_to_caller
@rounds_once
def nanmedian(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The median of the elements that are not NaN; NaN where there are none.

    >>> import numpy as np, pullback as pb
    >>> pb.nanmedian(np.array([1.0, np.nan, 3.0]))
    array(2.)
    """
    return _quantile(x, 0.5, axis, "linear", keepdims, "nanmedian")

"""`interpolate`: resampling to another size, one spatial axis at a time.

Along an axis every method is the same sum, out[i] = sum over k of weights[i, k] x[places[i, k]]; a mode is a
rule for the places and weights, which depend on sizes alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import ndim, shape
from ...ops.fusion import fuse
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.round_once import rounds_once
from ...ops.shape import reshaping
from ...ops.signatures import of_array
from ...settings import modes
from ..arguments import as_floats
from ..geometry import broadcast_to_axes, per_axis

#: Spatial axes each mode takes; None takes any.
_RANKS = {
    "nearest": None, "nearest-exact": None, "area": None, "linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3,
}  # fmt: skip
Taps = tuple[Any, Any]
#: As many taps are read one by one in compiled loops.
_FEW_TAPS = 4


def _sample_centers(size: int, out: int, scale: float, align_corners: bool) -> Any:
    """Where the middle of each new element lies, counted in old ones."""
    at = np.arange(out)
    if align_corners:
        return at * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (at + 0.5) * scale - 0.5


def _nearest_taps(size: int, out: int, scale: float, align_corners: bool, shift: float = 0.0) -> Taps:
    at = np.floor((np.arange(out) + shift) * scale).astype(int)
    return np.minimum(at, size - 1)[:, None], np.ones((out, 1))


def _linear_taps(size: int, out: int, scale: float, align_corners: bool) -> Taps:
    at = np.maximum(_sample_centers(size, out, scale, align_corners), 0.0)
    low = np.minimum(np.floor(at).astype(int), size - 1)
    share = np.clip(at - low, 0.0, 1.0)
    return np.stack([low, np.minimum(low + 1, size - 1)], axis=1), np.stack([1 - share, share], axis=1)


def cubic_near(t: Any, a: float) -> Any:
    """Keys' cubic convolution at a distance t up to 1: (a + 2) t^3 - (a + 3) t^2 + 1."""
    return ((a + 2) * t - (a + 3)) * t * t + 1


def cubic_far(t: Any, a: float) -> Any:
    """The same between 1 and 2: a (t^3 - 5 t^2 + 8 t - 4)."""
    return (((t - 5) * t + 8) * t - 4) * a


def _cubic_weights(t: Any, a: float) -> Any:
    t = np.abs(t)
    return np.where(t <= 1, cubic_near(t, a), np.where(t < 2, cubic_far(t, a), 0.0))


def _cubic_taps(size: int, out: int, scale: float, align_corners: bool) -> Taps:
    at = _sample_centers(size, out, scale, align_corners)
    places = np.floor(at).astype(int)[:, None] + np.arange(-1, 3)
    return np.clip(places, 0, size - 1), _cubic_weights(at[:, None] - places, -0.75)


def area_bounds(size: int, out: int) -> tuple[Any, Any]:
    """Where the old elements begin and end that each new one touches."""
    at = np.arange(out)
    return at * size // out, -(-(at + 1) * size // out)


def area_taps(size: int, out: int, scale: float = 1.0, align_corners: bool = False) -> Taps:
    """The mean of the old elements that a new one touches."""
    begin, end = area_bounds(size, out)
    places = begin[:, None] + np.arange(int((end - begin).max(initial=1)))
    return np.minimum(places, size - 1), (places < end[:, None]) / (end - begin)[:, None]


def _antialiased_taps(
    size: int, out: int, scale: float, align_corners: bool, reach: float, kernel: Callable[[Any], Any]
) -> Taps:
    """A kernel as wide as a new element, so that fine structure is averaged out and not sampled: weights sum to one."""
    stretch = max(scale, 1.0)
    middle = (np.arange(out) + 0.5) * scale
    begin = np.maximum((middle - reach * stretch + 0.5).astype(int), 0)
    end = np.minimum((middle + reach * stretch + 0.5).astype(int), size)
    places = begin[:, None] + np.arange(int((end - begin).max(initial=1)))
    weights = np.where(places < end[:, None], kernel((places - middle[:, None] + 0.5) / stretch), 0.0)
    return np.minimum(places, size - 1), weights / weights.sum(axis=1, keepdims=True)


_METHODS: dict[str, Callable[[int, int, float, bool], Taps]] = {
    "nearest": _nearest_taps,
    "nearest-exact": functools.partial(_nearest_taps, shift=0.5),
    "area": area_taps,
    **dict.fromkeys(("linear", "bilinear", "trilinear"), _linear_taps),
    "bicubic": _cubic_taps,
}
_ANTIALIASED: dict[str, Callable[[int, int, float, bool], Taps]] = {
    "bilinear": functools.partial(_antialiased_taps, reach=1.0, kernel=lambda t: np.maximum(1 - np.abs(t), 0.0)),
    "bicubic": functools.partial(_antialiased_taps, reach=2.0, kernel=lambda t: _cubic_weights(t, -0.5)),
}


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def interpolate(
    x: Any,
    /,
    size: Any = None,
    *,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
) -> Any:
    """(batch, channels, ...) with its spatial axes brought to `size`, or scaled by `scale_factor`.

    Modes are nearest, nearest-exact and area for any axes, linear, bilinear, bicubic and trilinear for one, two and
    three. With `align_corners` the corner elements stay in place, else the outer edges do. `antialias` widens
    bilinear and bicubic where they shrink, so that fine structure is averaged.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.interpolate(np.array([[[0.0, 3.0]]]), 4, mode="linear", align_corners=True)
    array([[[0., 1., 2., 3.]]])
    """
    x = as_floats(x, "interpolate")
    spatial = ndim(x) - 2
    if mode not in _RANKS:
        raise ArgumentError(f"interpolate: mode {mode!r} is none of {', '.join(_RANKS)}.")
    if spatial < 1 or _RANKS[mode] not in (None, spatial):
        wanted = _RANKS[mode] or "some"
        raise ShapeError(f"interpolate: {mode} wants (batch, channels) and {wanted} spatial axes, got {shape(x)}.")
    methods = _ANTIALIASED if antialias else _METHODS
    if mode not in methods or (align_corners and (antialias or methods[mode] not in (_linear_taps, _cubic_taps))):
        raise ArgumentError(
            f"interpolate: {mode} with align_corners={align_corners}, antialias={antialias} is not supported."
        )
    sizes = _output_sizes_and_scales(shape(x)[2:], size, scale_factor)
    # what shrinks most comes first, so that the others have less to do; of equal ones the last, where rows are shorter
    for i in sorted(range(spatial), key=lambda i: (sizes[i][0] / shape(x)[2 + i], -i)):
        (out, scale), n = sizes[i], shape(x)[2 + i]
        if not (n == out and scale == 1.0):
            x = resample_axis(x, 2 + i, *methods[mode](n, out, scale, align_corners))
    return reshaping.pass_through(x)


def _output_sizes_and_scales(sizes: tuple[int, ...], size: Any, factor: Any) -> list[tuple[int, float]]:
    """For each axis its new size, and how many old elements make a new one."""
    if (size is None) == (factor is None):
        raise ArgumentError("interpolate: give either size or scale_factor.")
    if size is not None:
        found = list(per_axis(size, len(sizes), "interpolate: size", 0))
        scales = [n / out if out else 1.0 for n, out in zip(sizes, found, strict=True)]
    else:
        factors = broadcast_to_axes(factor, len(sizes), "interpolate: scale_factor")
        found = [math.floor(n * f) for n, f in zip(sizes, factors, strict=True)]
        scales = [1 / f for f in factors]
    if min(found) < 1 or min(sizes) < 1:
        raise ShapeError(f"interpolate: from spatial sizes {sizes} to {tuple(found)}; there must be an element left.")
    return list(zip(found, scales, strict=True))


def resample_axis(x: Any, axis: int, places: Any, weights: Any) -> Any:
    """The sum over taps; where NumPy runs it, along an axis that is not long as one matrix product, which is quicker
    than it looks. In a program few taps are part of the loop around them.
    """
    xp, dtype, size = namespace_for(x), spec_of(x).dtype, shape(x)[axis]
    out, count = places.shape
    if count == 1:
        return indexing.take(x, xp.asarray(places[:, 0]), axis=axis)
    if size <= 32 * count and (count > _FEW_TAPS or modes().tracing is None):
        matrix = np.zeros((size, out))
        np.add.at(matrix, (places, np.arange(out)[:, None]), weights)
        return _multiply_along(x, axis, xp.asarray(matrix, dtype))
    total = None
    for k in range(count):
        column = xp.asarray(weights[:, k].reshape((-1,) + (1,) * (ndim(x) - axis - 1)), dtype)
        term = indexing.take(x, xp.asarray(places[:, k]), axis=axis) * column
        total = term if total is None else total + term
    return total


def _multiply_along(x: Any, axis: int, matrix: Any) -> Any:
    """Products with a matrix along an axis: from the right along the last, along others from the left of planes."""
    if axis == ndim(x) - 1:
        return matmul(x, matrix)
    sizes = shape(x)
    planes = reshaping.reshape(x, (*sizes[: axis + 1], math.prod(sizes[axis + 1 :])))
    moved = matmul(reshaping.matrix_transpose(matrix), planes)
    return reshaping.reshape(moved, (*sizes[:axis], shape(matrix)[1], *sizes[axis + 1 :]))


@of_array
@attributed_to_caller
def upsample(
    x: Any, /, size: Any = None, *, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False
) -> Any:
    """`interpolate` under the name that layers use.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.upsample(np.array([[[1.0, 2.0]]]), scale_factor=2)
    array([[[1., 1., 2., 2.]]])
    """
    return interpolate(x, size, scale_factor=scale_factor, mode=mode, align_corners=align_corners)

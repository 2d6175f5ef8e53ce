"""`grid_sample` and `affine_grid`: images sampled at given coordinates, differentiable in both."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops import functions
from ...ops.axes import as_shape
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.arithmetic import remainder
from ...ops.elementwise.pointwise import abs, greater, isnan, where
from ...ops.elementwise.rounding import floor, rint
from ...ops.fusion import fuse
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.reduce import reductions
from ...ops.reduce.reductions import as_constant
from ...ops.round_once import rounds_once
from ...ops.shape import arrange, reshaping
from ...ops.signatures import of_array, of_mixed_arrays
from ..arguments import as_floats
from .interpolate import cubic_far, cubic_near

_PADDING = ("zeros", "border", "reflection")


def _unnormalize_coordinate(coordinate: Any, size: int, align_corners: bool) -> Any:
    """From [-1, 1] to indices: between the middles of the first and the last element, or between the outer edges."""
    if align_corners:
        return (coordinate + 1.0) * ((size - 1) / 2)
    return (coordinate + 1.0) * (size / 2) - 0.5


def _reflect_coordinate(at: Any, size: int, align_corners: bool) -> Any:
    """A coordinate reflected at both ends as often as it takes: a wave of period 2 w around the start s."""
    start, width = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if width == 0:
        return at * 0.0
    phase = remainder(abs(at - start), 2 * width)
    return where(greater(phase, width), 2 * width - phase, phase) + start


def _apply_padding_mode(at: Any, size: int, padding: str, align_corners: bool) -> Any:
    if padding == "zeros":
        return at
    at = _reflect_coordinate(at, size, align_corners) if padding == "reflection" else at
    return functions.clip(at, 0.0, size - 1.0)


def _axis_taps(mode: str, at: Any) -> list[tuple[Any, Any]]:
    """The integer positions next to a coordinate along one axis, each with its weight."""
    if mode == "nearest":
        return [(rint(at), None)]
    low = floor(at)
    share = at - low
    if mode == "bilinear":
        return [(low, 1.0 - share), (low + 1.0, share)]
    weights = ((-1.0, cubic_far), (0.0, cubic_near), (1.0, cubic_near), (2.0, cubic_far))
    return [(low + k, weight(abs(share - k), -0.75)) for k, weight in weights]


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def grid_sample(
    x: Any, /, grid: Any, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Any:
    """x, (batch, channels, [depth,] height, width), sampled at the points of a grid (batch, ..., 2 or 3). A point is
    (x, y[, z]) with the image from -1 to 1 along each axis; outside it are zeros, the border or a reflection.

    Modes are bilinear, nearest and bicubic. On the line between two elements the slope is that of the next cell.

    >>> import numpy as np, pullback as pb
    >>> image = np.array([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> pb.nn.grid_sample(image, np.array([[[[0.0, 0.0]]]]), align_corners=True)
    array([[[[1.5]]]])
    """
    x, grid = as_floats(x, "grid_sample"), as_floats(grid, "grid_sample")
    spatial = _check_arguments(x, grid, mode, padding_mode)
    sizes, zeros = shape(x)[2:], padding_mode == "zeros"
    if zeros:  # a rim of zeros, onto which every point outside is clamped
        x = arrange.pad(x, [(0, 0), (0, 0), *[(1, 1)] * spatial])
    index: Any = namespace_for(x).arange(shape(x)[0]).reshape((-1,) + (1,) * spatial)
    weights = []
    for i, size in enumerate(sizes):
        at = _unnormalize_coordinate(indexing.getitem(grid, (..., spatial - 1 - i)), size, align_corners)
        places, weight = _indices_and_weights(at, size, mode, padding_mode, align_corners)
        # the taps of each axis get an axis of their own in front
        lead = (1,) * i + shape(places)[:1] + (1,) * (spatial - i - 1)
        places, weight = (v if v is None else reshaping.reshape(v, lead + shape(v)[1:]) for v in (places, weight))
        index = index * (size + 2 * zeros) + places
        weights.append(weight)
    return _gather_weighted(x, index, weights)


def _check_arguments(x: Any, grid: Any, mode: str, padding_mode: str) -> int:
    spatial = ndim(x) - 2
    if spatial not in (2, 3):
        raise ShapeError(f"grid_sample: wants (batch, channels) and two or three spatial axes, got {shape(x)}.")
    if ndim(grid) != ndim(x) or shape(grid)[-1] != spatial or shape(grid)[0] != shape(x)[0]:
        raise ShapeError(f"grid_sample: a grid of shape {shape(grid)} for images of shape {shape(x)}.")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and spatial == 3):
        raise ArgumentError(f"grid_sample: mode {mode!r} is not supported for {spatial} spatial axes.")
    if padding_mode not in _PADDING:
        raise ArgumentError(f"grid_sample: padding_mode must be one of {', '.join(_PADDING)}, got {padding_mode!r}.")
    if 0 in shape(x)[2:]:
        raise ShapeError(f"grid_sample: no elements to sample in shape {shape(x)}.")
    return spatial


def _indices_and_weights(at: Any, size: int, mode: str, padding: str, align_corners: bool) -> tuple[Any, Any]:
    """For one axis the taps, stacked in front: indices and their weights."""

    def pad_coordinate(place: Any) -> Any:
        return _apply_padding_mode(place, size, padding, align_corners)

    taps = _axis_taps(mode, at if mode == "bicubic" else pad_coordinate(at))
    places = arrange.stack([pad_coordinate(place) if mode == "bicubic" else place for place, _ in taps])
    rim = 1 if padding == "zeros" else 0
    inside = functions.clip(as_constant(places), -rim, size - 1 + rim)
    index = reshaping.astype(where(isnan(inside), 0.0, inside), np.intp) + rim
    return index, None if mode == "nearest" else arrange.stack([weight for _, weight in taps])


def _gather_weighted(x: Any, index: Any, weights: list[Any]) -> Any:
    """Pixels are rows of channels: those at all taps of every point, times their weights, summed over the taps."""
    spatial, channels = len(weights), shape(x)[1]
    pixels = reshaping.reshape(reshaping.moveaxis(x, 1, -1), (-1, channels))
    terms = indexing.take(pixels, index, axis=0)
    for weight in weights:
        terms = terms if weight is None else terms * reshaping.expand_dims(weight, -1)
    return reshaping.moveaxis(reductions.sum(terms, axis=tuple(range(spatial))), -1, 1)


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def affine_grid(theta: Any, /, size: Any, *, align_corners: bool = False) -> Any:
    """The grid for `grid_sample` that samples each point p of an image of a size (batch, channels, ...) through the
    map theta (p, 1): (batch, 2, 3) for two spatial axes, (batch, 3, 4) for three.

    >>> import numpy as np, pullback as pb
    >>> still = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> pb.nn.affine_grid(still, (1, 1, 1, 2), align_corners=True)
    array([[[[-1.,  0.],
             [ 1.,  0.]]]])
    """
    theta, sizes = as_floats(theta, "affine_grid"), as_shape(size, "affine_grid")
    spatial = len(sizes) - 2
    if spatial not in (2, 3) or shape(theta) != (sizes[0], spatial, spatial + 1):
        raise ShapeError(
            f"affine_grid: theta has shape {shape(theta)}, size {sizes} wants (batch, 2, 3) or (batch, 3, 4)."
        )
    xp, dtype = namespace_for(theta), spec_of(as_value(theta)).dtype
    steps = [_normalized_centers(n, align_corners) for n in sizes[2:]]
    mesh = np.meshgrid(*steps, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(sizes[2:])], axis=-1).reshape(-1, spatial + 1)
    moved = matmul(xp.asarray(base, dtype), reshaping.matrix_transpose(theta))
    return reshaping.reshape(moved, (*sizes[:1], *sizes[2:], spatial))


def _normalized_centers(count: int, align_corners: bool) -> Any:
    """Coordinates of the elements between -1 and 1."""
    if align_corners:
        return np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(count)
    return (2 * np.arange(count) + 1) / max(count, 1) - 1

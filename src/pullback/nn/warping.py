"""Images and places in, the images seen at those places out; differentiable in both."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import arranging, functions, indexing, reducing, shaping
from ..ops.arithmetic import remainder
from ..ops.axes import shape_tuple
from ..ops.contracting import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import abs, add, greater, isnan, multiply, subtract, where
from ..ops.index import namespace_for
from ..ops.reducing import held_fixed
from ..ops.rounding import floor, rint
from .arguments import floats

__all__ = ["affine_grid", "grid_sample"]

_PADDING = ("zeros", "border", "reflection")


def _placed(coordinate: Any, size: int, align_corners: bool) -> Any:
    """From [-1, 1] to places: between the middles of the first and the last element, or between the outer edges."""
    if align_corners:
        return multiply(add(coordinate, 1.0), (size - 1) / 2)
    return subtract(multiply(add(coordinate, 1.0), size / 2), 0.5)


def _reflected(at: Any, size: int, align_corners: bool) -> Any:
    """A place thrown back at both ends as often as it takes: a wave of period 2 w around the start s."""
    start, width = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if width == 0:
        return multiply(at, 0.0)
    phase = remainder(abs(subtract(at, start)), 2 * width)
    return add(where(greater(phase, width), subtract(2 * width, phase), phase), start)


def _kept_in(at: Any, size: int, padding: str, align_corners: bool) -> Any:
    if padding == "zeros":
        return at
    at = _reflected(at, size, align_corners) if padding == "reflection" else at
    return functions.clip(at, 0.0, size - 1.0)


def _bases(mode: str, at: Any) -> list[tuple[Any, Any]]:
    """Whole places beside a place along one axis, each with its weight."""
    if mode == "nearest":
        return [(rint(at), None)]
    low = floor(at)
    share = subtract(at, low)
    if mode == "bilinear":
        return [(low, subtract(1.0, share)), (add(low, 1.0), share)]
    return [(add(low, float(k)), _cubic(abs(subtract(share, float(k))), k in (0, 1))) for k in (-1, 0, 1, 2)]


def _cubic(t: Any, near: bool) -> Any:
    """Keys' cubic convolution with a = -3/4, of a distance up to 1 or between 1 and 2."""
    if near:
        return add(multiply(multiply(subtract(multiply(t, 1.25), 2.25), t), t), 1.0)
    return multiply(subtract(multiply(add(multiply(subtract(t, 5.0), t), 8.0), t), 4.0), -0.75)


@signed
def grid_sample(
    x: Any, /, grid: Any, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Any:
    """x, (batch, channels, [depth,] height, width), seen at the places of a grid (batch, ..., 2 or 3). A place is
    (x, y[, z]) with the image from -1 to 1 along each axis; outside it are zeros, the border or a reflection.

    Modes are bilinear, nearest and bicubic. On the line between two elements the slope is that of the next cell.

    >>> import numpy as np, pullback as pb
    >>> image = np.array([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> pb.nn.grid_sample(image, np.array([[[[0.0, 0.0]]]]), align_corners=True)
    array([[[[1.5]]]])
    """
    x, grid = floats(x, "grid_sample"), floats(grid, "grid_sample")
    spatial = _checked(x, grid, mode, padding_mode)
    sizes, zeros = shape(x)[2:], padding_mode == "zeros"
    if zeros:  # a rim of zeros, in which every place outside ends
        x = arranging.pad(x, [(0, 0), (0, 0), *[(1, 1)] * spatial])
    index: Any = namespace_for(x).arange(shape(x)[0]).reshape((-1,) + (1,) * spatial)
    weights = []
    for i, size in enumerate(sizes):
        at = _placed(indexing.getitem(grid, (..., spatial - 1 - i)), size, align_corners)
        places, weight = _along(at, size, mode, padding_mode, align_corners)
        # the taps of each axis get an axis of their own in front
        lead = (1,) * i + shape(places)[:1] + (1,) * (spatial - i - 1)
        places, weight = (v if v is None else shaping.reshape(v, lead + shape(v)[1:]) for v in (places, weight))
        index = add(multiply(index, size + 2 * zeros), places)
        weights.append(weight)
    return _seen(x, index, weights)


def _checked(x: Any, grid: Any, mode: str, padding_mode: str) -> int:
    spatial = ndim(x) - 2
    if spatial not in (2, 3):
        raise ShapeError(f"grid_sample: wants (batch, channels) and two or three spatial axes, got {shape(x)}.")
    if ndim(grid) != ndim(x) or shape(grid)[-1] != spatial or shape(grid)[0] != shape(x)[0]:
        raise ShapeError(f"grid_sample: a grid of shape {shape(grid)} for images of shape {shape(x)}.")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and spatial == 3):
        raise ArgumentError(f"grid_sample: mode {mode!r} is not there for {spatial} spatial axes.")
    if padding_mode not in _PADDING:
        raise ArgumentError(f"grid_sample: padding_mode must be one of {', '.join(_PADDING)}, got {padding_mode!r}.")
    if 0 in shape(x)[2:]:
        raise ShapeError(f"grid_sample: no elements to look at in shape {shape(x)}.")
    return spatial


def _along(at: Any, size: int, mode: str, padding: str, align_corners: bool) -> tuple[Any, Any]:
    """For one axis the taps, stacked in front: whole places as indices, and their weights."""

    def kept_in(place: Any) -> Any:
        return _kept_in(place, size, padding, align_corners)

    taps = _bases(mode, at if mode == "bicubic" else kept_in(at))
    places = arranging.stack([kept_in(place) if mode == "bicubic" else place for place, _ in taps])
    rim = 1 if padding == "zeros" else 0
    inside = functions.clip(held_fixed(places), -rim, size - 1 + rim)
    index = add(shaping.astype(where(isnan(inside), 0.0, inside), np.intp), rim)
    return index, None if mode == "nearest" else arranging.stack([weight for _, weight in taps])


def _seen(x: Any, index: Any, weights: list[Any]) -> Any:
    """Pixels are rows of channels: those at all taps of every place, times their weights, added up over the taps."""
    spatial, channels = len(weights), shape(x)[1]
    pixels = shaping.reshape(shaping.moveaxis(x, 1, -1), (-1, channels))
    terms = indexing.take(pixels, index, axis=0)
    for weight in weights:
        terms = terms if weight is None else multiply(terms, shaping.expand_dims(weight, -1))
    return shaping.moveaxis(reducing.sum(terms, axis=tuple(range(spatial))), -1, 1)


@signed
def affine_grid(theta: Any, /, size: Any, *, align_corners: bool = False) -> Any:
    """The grid for `grid_sample` that looks at each place p of an image of a size (batch, channels, ...) through the
    map theta (p, 1): (batch, 2, 3) for two spatial axes, (batch, 3, 4) for three.

    >>> import numpy as np, pullback as pb
    >>> still = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> pb.nn.affine_grid(still, (1, 1, 1, 2), align_corners=True)
    array([[[[-1.,  0.],
             [ 1.,  0.]]]])
    """
    theta, sizes = floats(theta, "affine_grid"), shape_tuple(size, "affine_grid")
    spatial = len(sizes) - 2
    if spatial not in (2, 3) or shape(theta) != (sizes[0], spatial, spatial + 1):
        raise ShapeError(
            f"affine_grid: theta has shape {shape(theta)}, size {sizes} wants (batch, 2, 3) or (batch, 3, 4)."
        )
    xp, dtype = namespace_for(theta), spec_of(as_value(theta)).dtype
    steps = [_even(n, align_corners) for n in sizes[2:]]
    mesh = np.meshgrid(*steps, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(sizes[2:])], axis=-1).reshape(-1, spatial + 1)
    moved = matmul(xp.asarray(base, dtype), shaping.matrix_transpose(theta))
    return shaping.reshape(moved, (*sizes[:1], *sizes[2:], spatial))


def _even(count: int, align_corners: bool) -> Any:
    """Places of elements between -1 and 1."""
    if align_corners:
        return np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(count)
    return (2 * np.arange(count) + 1) / max(count, 1) - 1

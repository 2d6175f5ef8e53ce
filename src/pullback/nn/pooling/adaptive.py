"""Adaptive and fractional pooling: to a given output size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops.dispatch import as_value, shape
from ...ops.index import indexing
from ...ops.index.normalize import namespace_for
from ...ops.random import uniform
from ...ops.reduce import reductions
from ...ops.round_once import rounds_once
from ...ops.shape import arrange, reshaping
from ...ops.window.patches import Sizes
from ..geometry import broadcast_to_axes, over_axes, per_axis
from ..image.interpolate import area_bounds, area_taps, resample_axis
from .core import avg_pool, max_pool


def _output_sizes(what: str, output_size: Any, sizes: Sizes) -> Sizes:
    if 0 in sizes:
        raise ShapeError(f"{what}: sizes {sizes} have no elements to pool.")
    what, rank = f"{what}: output_size", len(sizes)
    pairs = zip(broadcast_to_axes(output_size, rank, what), sizes, strict=True)
    return per_axis([n if m is None else m for m, n in pairs], rank, what)


def _equal_windows(sizes: Sizes, wanted: Sizes) -> Sizes | None:
    """The windows that cover the sizes side by side; None where they would not be of one size."""
    pairs = list(zip(sizes, wanted, strict=True))
    return tuple(n // m for n, m in pairs) if all(n % m == 0 for n, m in pairs) else None


@rounds_once
def _adaptive_avg_pool(what: str, x: Any, output_size: Any) -> Any:
    wanted = _output_sizes(what, output_size, shape(x)[2:])
    window = _equal_windows(shape(x)[2:], wanted)
    if window is not None:
        return avg_pool(what, x, window)
    x = x if spec_of(x).inexact else reshaping.astype(x, np.float64)
    for axis, m in enumerate(wanted, 2):
        x = resample_axis(x, axis, *area_taps(shape(x)[axis], m))
    return x


def _adaptive_max_pool(what: str, x: Any, output_size: Any, return_indices: bool = False) -> Any:
    sizes = shape(x)[2:]
    wanted = _output_sizes(what, output_size, sizes)
    window = _equal_windows(sizes, wanted)
    if window is not None:
        return max_pool(what, x, window, return_indices=return_indices)
    seen = []
    for n, m in zip(sizes, wanted, strict=True):
        start, end = area_bounds(n, m)
        longest = np.arange((end - start).max())
        # the last element again where a window is shorter: of equal ones the first is chosen
        seen.append(np.minimum(start[:, None] + longest, end[:, None] - 1)[None, None])
    return _max_over_windows(x, [namespace_for(x).asarray(s) for s in seen], return_indices)


def _max_over_windows(x: Any, seen: list[Any], return_indices: bool) -> Any:
    """The greatest element of each window, which are products of places along the axes: `seen` has for each axis an
    array (n or 1, channels or 1, windows, places in a window).
    """
    sizes, rank = shape(x)[2:], len(seen)
    places: Any = None
    for axis, s in enumerate(seen):
        wide = [1] * (2 * rank)
        wide[axis], wide[rank + axis] = shape(s)[2:]
        along = reshaping.reshape(s, (*shape(s)[:2], *wide)) * math.prod(sizes[axis + 1 :])
        places = along if places is None else places + along
    many, inside = shape(places)[2 : 2 + rank], math.prod(shape(places)[2 + rank :])
    front = shape(x)[:2]
    flat = reshaping.reshape(places, (*shape(places)[:2], math.prod(many), inside))
    flat = reshaping.broadcast_to(flat, (*front, math.prod(many), inside))
    plane = reshaping.reshape(x, (*front, math.prod(sizes)))
    elements = indexing.take_along_axis(plane, reshaping.reshape(flat, (*front, math.prod(many) * inside)))
    best = reductions.argmax(reshaping.reshape(elements, shape(flat)), axis=-1, keepdims=True)
    index = reshaping.reshape(indexing.take_along_axis(flat, best), (*front, math.prod(many)))
    found = reshaping.reshape(indexing.take_along_axis(plane, index), (*front, *many))
    return (found, reshaping.reshape(index, (*front, *many))) if return_indices else found


def _fractional_max_pool(
    what: str, x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, *, key: Any = None, samples: Any = None,
) -> Any:  # fmt: skip
    sizes = shape(x)[2:]
    rank = len(sizes)
    window = per_axis(kernel_size, rank, f"{what}: kernel_size")
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{what}: give output_size or output_ratio, one of the two.")
    if output_ratio is None:
        wanted = _output_sizes(what, output_size, sizes)
    else:
        ratios = broadcast_to_axes(output_ratio, rank, f"{what}: output_ratio")
        wanted = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    if any(m < 1 or m + k - 1 > n for n, m, k in zip(sizes, wanted, window, strict=True)):
        raise ShapeError(f"{what}: sizes {sizes} have no room for {wanted} windows of {window}.")
    draws = _random_offsets(what, x, rank, key, samples)
    order = range(rank) if rank == 3 else reversed(range(rank))
    seen = []
    for i, n, m, k in zip(order, sizes, wanted, window, strict=True):
        starts = _window_starts(draws[..., i], n, m, k)
        seen.append(reshaping.expand_dims(starts, -1) + namespace_for(x).arange(k))
    return _max_over_windows(x, seen, return_indices)


def _random_offsets(what: str, x: Any, rank: int, key: Any, samples: Any) -> Any:
    wanted = (*shape(x)[:2], rank)
    if samples is None:
        if key is None:
            raise ArgumentError(
                f"{what}: windows are placed at random.\n  Give key=pb.random.key(seed), or samples of shape {wanted}."
            )
        return uniform(size=wanted, key=key)
    samples = as_value(samples)
    if shape(samples) != wanted:
        raise ShapeError(f"{what}: wants samples of shape {wanted}, got {shape(samples)}.")
    return samples


def _window_starts(u: Any, n: int, m: int, k: int) -> Any:
    """Where m windows of k start over n elements: floor((i + u) a) - floor(u a) with a = (n - k) / (m - 1), the last
    at the end.
    """
    xp = namespace_for(u)
    if m == 1:
        return reshaping.broadcast_to(xp.asarray(n - k), (*shape(u), 1))
    a = (n - k) / (m - 1)
    u = reshaping.expand_dims(u, -1)
    body = reshaping.astype((u + xp.arange(m - 1)) * a, np.int64) - reshaping.astype(u * a, np.int64)
    last = xp.full((*shape(body)[:-1], 1), n - k)
    return arrange.concat([body, last], axis=-1)


@over_axes(1, _adaptive_avg_pool, fused=True)
def adaptive_avg_pool1d() -> None:
    """Averages of x (n, channels, width) over as many windows as wanted; as `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool1d(np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[1.5, 2.5]]])
    """


@over_axes(2, _adaptive_avg_pool, fused=True)
def adaptive_avg_pool2d() -> None:
    """Averages of x (n, channels, height, width) over windows that make a grid of the wanted size.

    Window i of m over n elements goes from floor(i n / m) up to ceil((i + 1) n / m). None keeps an axis as it is.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool2d(np.ones((1, 2, 7, 5)), (3, None)).shape
    (1, 2, 3, 5)
    """


@over_axes(3, _adaptive_avg_pool, fused=True)
def adaptive_avg_pool3d() -> None:
    """Averages of x (n, channels, depth, height, width) over a grid of windows; as `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool3d(np.ones((1, 2, 3, 4, 5)), 2).shape
    (1, 2, 2, 2, 2)
    """


@over_axes(1, _adaptive_max_pool, fused=True)
def adaptive_max_pool1d() -> None:
    """Greatest elements of x (n, channels, width) in as many windows as wanted; as `adaptive_max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool1d(np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[2., 3.]]])
    """


@over_axes(2, _adaptive_max_pool, fused=True)
def adaptive_max_pool2d() -> None:
    """Greatest elements of x (n, channels, height, width) in the windows of `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool2d(np.arange(9.0).reshape(1, 1, 3, 3), 2)[0, 0]
    array([[4., 5.],
           [7., 8.]])
    """


@over_axes(3, _adaptive_max_pool, fused=True)
def adaptive_max_pool3d() -> None:
    """Greatest elements of x (n, channels, depth, height, width) in a grid of windows; as `adaptive_max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 1).item()
    7.0
    """


@over_axes(2, _fractional_max_pool, fused=True)
def fractional_max_pool2d() -> None:
    """Greatest elements of x (n, channels, height, width) in windows placed at random, about evenly.

    The grid has `output_size` windows, or `output_ratio` times the input's sizes. Each channel of each image draws its
    own places from the random key; `samples` of shape (n, channels, 2), between 0 and 1, gives the draws themselves,
    those for the width first.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.fractional_max_pool2d(np.ones((1, 2, 7, 7)), 2, 3, key=pb.random.key(0)).shape
    (1, 2, 3, 3)
    """


@over_axes(3, _fractional_max_pool, fused=True)
def fractional_max_pool3d() -> None:
    """Greatest elements of x (n, channels, depth, height, width) in windows placed at random.

    As `fractional_max_pool2d`, with the samples in the order of the axes.

    >>> import numpy as np, pullback as pb
    >>> x = np.ones((1, 2, 5, 6, 7))
    >>> pb.nn.fractional_max_pool3d(x, 2, output_ratio=0.5, key=pb.random.key(0)).shape
    (1, 2, 2, 3, 3)
    """

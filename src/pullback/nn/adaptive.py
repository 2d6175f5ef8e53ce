"""Grids of any size in, grids of a wanted size out: adaptive averages and maxima, and windows placed at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import arranging, contracting, indexing, reducing, shaping
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value, shape
from ..ops.index import namespace_for
from ..ops.patches import Sizes
from ..ops.random import uniform
from . import pooling
from .geometry import each, on_batches

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
]  # fmt: skip


@signed
def adaptive_avg_pool1d(x: Any, output_size: Any) -> Any:
    """Averages of x (n, channels, width) over as many windows as wanted; as `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool1d(np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[1.5, 2.5]]])
    """
    return _averages(1, x, output_size)


@signed
def adaptive_avg_pool2d(x: Any, output_size: Any) -> Any:
    """Averages of x (n, channels, height, width) over windows that make a grid of the wanted size.

    Window i of m over n elements goes from floor(i n / m) up to ceil((i + 1) n / m). None keeps an axis as it is.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool2d(np.ones((1, 2, 7, 5)), (3, None)).shape
    (1, 2, 3, 5)
    """
    return _averages(2, x, output_size)


@signed
def adaptive_avg_pool3d(x: Any, output_size: Any) -> Any:
    """Averages of x (n, channels, depth, height, width) over a grid of windows; as `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_avg_pool3d(np.ones((1, 2, 3, 4, 5)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _averages(3, x, output_size)


@signed
def adaptive_max_pool1d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Greatest elements of x (n, channels, width) in as many windows as wanted; as `adaptive_max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool1d(np.array([[[1.0, 2.0, 3.0]]]), 2)
    array([[[2., 3.]]])
    """
    return _maxima(1, x, output_size, return_indices)


@signed
def adaptive_max_pool2d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Greatest elements of x (n, channels, height, width) in the windows of `adaptive_avg_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool2d(np.arange(9.0).reshape(1, 1, 3, 3), 2)[0, 0]
    array([[4., 5.],
           [7., 8.]])
    """
    return _maxima(2, x, output_size, return_indices)


@signed
def adaptive_max_pool3d(x: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Greatest elements of x (n, channels, depth, height, width) in a grid of windows; as `adaptive_max_pool2d`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.adaptive_max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), 1).item()
    7.0
    """
    return _maxima(3, x, output_size, return_indices)


@signed
def fractional_max_pool2d(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, *,
    key: Any = None, samples: Any = None,
) -> Any:  # fmt: skip
    """Greatest elements of x (n, channels, height, width) in windows placed at random, about evenly.

    The grid has `output_size` windows, or `output_ratio` times the input's sizes. Each channel of each image draws its
    own places from the random key; `samples` of shape (n, channels, 2), between 0 and 1, gives the draws themselves,
    those for the width first.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.fractional_max_pool2d(np.ones((1, 2, 7, 7)), 2, 3, key=pb.random.key(0)).shape
    (1, 2, 3, 3)
    """
    return _fractional(2, x, kernel_size, output_size, output_ratio, return_indices, key, samples)


@signed
def fractional_max_pool3d(
    x: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, *,
    key: Any = None, samples: Any = None,
) -> Any:  # fmt: skip
    """Greatest elements of x (n, channels, depth, height, width) in windows placed at random.

    As `fractional_max_pool2d`, with the samples in the order of the axes.

    >>> import numpy as np, pullback as pb
    >>> x = np.ones((1, 2, 5, 6, 7))
    >>> pb.nn.fractional_max_pool3d(x, 2, output_ratio=0.5, key=pb.random.key(0)).shape
    (1, 2, 2, 3, 3)
    """
    return _fractional(3, x, kernel_size, output_size, output_ratio, return_indices, key, samples)


def _wanted(what: str, output_size: Any, sizes: Sizes) -> Sizes:
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * len(sizes)
    if len(given) != len(sizes):
        raise ArgumentError(f"{what}: output_size is one number or {len(sizes)} of them, got {output_size!r}.")
    if 0 in sizes:
        raise ShapeError(f"{what}: sizes {sizes} have no elements to pool.")
    return tuple(n if m is None else each(m, 1, f"{what}: output_size")[0] for m, n in zip(given, sizes, strict=True))


def _ends(n: int, m: int) -> tuple[Any, Any]:
    """Where each of m windows over n elements starts and ends."""
    i = np.arange(m)
    return i * n // m, -(-(i + 1) * n // m)


def _averages(rank: int, x: Any, output_size: Any) -> Any:
    what = f"adaptive_avg_pool{rank}d"

    def on_batch(x: Any) -> Any:
        sizes = shape(x)[2:]
        wanted = _wanted(what, output_size, sizes)
        if all(n % m == 0 for n, m in zip(sizes, wanted, strict=True)):
            window = tuple(n // m for n, m in zip(sizes, wanted, strict=True))
            return pooling.averages(rank, x, window, None, 0, False, True, None)
        dtype = spec_of(x).dtype if spec_of(x).dtype.kind in "fc" else np.dtype(float)
        for axis, (n, m) in enumerate(zip(sizes, wanted, strict=True), 2):
            start, end = _ends(n, m)
            at = np.arange(n)
            inside = (at >= start[:, None]) & (at < end[:, None])
            weights = namespace_for(x).asarray((inside / (end - start)[:, None]).astype(dtype))
            x = shaping.moveaxis(contracting.tensordot(x, weights, ((axis,), (1,))), -1, axis)
        return x

    return on_batches(x, rank, what, on_batch)


def _maxima(rank: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    what = f"adaptive_max_pool{rank}d"

    def on_batch(x: Any) -> Any:
        sizes = shape(x)[2:]
        wanted = _wanted(what, output_size, sizes)
        if all(n % m == 0 for n, m in zip(sizes, wanted, strict=True)):
            window = tuple(n // m for n, m in zip(sizes, wanted, strict=True))
            return pooling.maxima(rank, x, window, None, 0, 1, False, return_indices)
        seen = []
        for n, m in zip(sizes, wanted, strict=True):
            start, end = _ends(n, m)
            longest = np.arange((end - start).max())
            # the last element again where a window is shorter: of equal ones the first is chosen
            seen.append(np.minimum(start[:, None] + longest, end[:, None] - 1)[None, None])
        return _greatest(x, [namespace_for(x).asarray(s) for s in seen], return_indices)

    return on_batches(x, rank, what, on_batch)


def _greatest(x: Any, seen: list[Any], return_indices: bool) -> Any:
    """The greatest element of each window, which are products of places along the axes: `seen` has for each axis an
    array (n or 1, channels or 1, windows, places in a window).
    """
    sizes, rank = shape(x)[2:], len(seen)
    places: Any = None
    for axis, s in enumerate(seen):
        wide = [1] * (2 * rank)
        wide[axis], wide[rank + axis] = shape(s)[2:]
        along = pointwise.multiply(shaping.reshape(s, (*shape(s)[:2], *wide)), math.prod(sizes[axis + 1 :]))
        places = along if places is None else pointwise.add(places, along)
    many, inside = shape(places)[2 : 2 + rank], math.prod(shape(places)[2 + rank :])
    front = shape(x)[:2]
    flat = shaping.broadcast_to(
        shaping.reshape(places, (*shape(places)[:2], math.prod(many), inside)), (*front, math.prod(many), inside)
    )
    plane = shaping.reshape(x, (*front, math.prod(sizes)))
    elements = indexing.take_along_axis(plane, shaping.reshape(flat, (*front, math.prod(many) * inside)))
    best = reducing.argmax(shaping.reshape(elements, shape(flat)), axis=-1, keepdims=True)
    index = shaping.reshape(indexing.take_along_axis(flat, best), (*front, math.prod(many)))
    found = shaping.reshape(indexing.take_along_axis(plane, index), (*front, *many))
    return (found, shaping.reshape(index, (*front, *many))) if return_indices else found


def _fractional(
    rank: int, x: Any, kernel_size: Any, output_size: Any, ratio: Any, return_indices: bool, key: Any, samples: Any
) -> Any:
    what = f"fractional_max_pool{rank}d"
    window = each(kernel_size, rank, f"{what}: kernel_size")
    if (output_size is None) == (ratio is None):
        raise ArgumentError(f"{what}: give output_size or output_ratio, one of the two.")

    def on_batch(x: Any) -> Any:
        sizes = shape(x)[2:]
        if ratio is None:
            wanted = _wanted(what, output_size, sizes)
        else:
            ratios = tuple(ratio) if isinstance(ratio, (tuple, list)) else (ratio,) * rank
            wanted = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
        for n, m, k in zip(sizes, wanted, window, strict=True):
            if m < 1 or m + k - 1 > n:
                raise ShapeError(f"{what}: sizes {sizes} have no room for {wanted} windows of {window}.")
        draws = _draws(what, x, rank, key, samples)
        order = range(rank) if rank == 3 else reversed(range(rank))
        starts = [_starts(draws[..., i], n, m, k) for i, n, m, k in zip(order, sizes, wanted, window, strict=True)]
        xp = namespace_for(x)
        seen = [pointwise.add(shaping.expand_dims(s, -1), xp.arange(k)) for s, k in zip(starts, window, strict=True)]
        return _greatest(x, seen, return_indices)

    return on_batches(x, rank, what, on_batch)


def _draws(what: str, x: Any, rank: int, key: Any, samples: Any) -> Any:
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


def _starts(u: Any, n: int, m: int, k: int) -> Any:
    """Where m windows of k start over n elements: floor((i + u) a) - floor(u a) with a = (n - k) / (m - 1), the last
    at the end.
    """
    xp = namespace_for(u)
    if m == 1:
        return shaping.broadcast_to(xp.asarray(n - k), (*shape(u), 1))
    a = (n - k) / (m - 1)
    u = shaping.expand_dims(u, -1)
    steps = pointwise.multiply(pointwise.add(u, xp.arange(m - 1)), a)
    whole_steps = shaping.astype(steps, np.int64)
    first = shaping.astype(pointwise.multiply(u, a), np.int64)
    body = pointwise.subtract(whole_steps, first)
    last = xp.full((*shape(body)[:-1], 1), n - k)
    return arranging.concat([body, last], axis=-1)

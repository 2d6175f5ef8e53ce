"""Windows and patches of a grid: shared by convolutions and pooling.

Arrays are (n, channels, *sizes). A window has a size, a stride, a dilation and two paddings for each of the sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import ShapeError

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def without_sizes(static: dict[str, Any]) -> dict[str, Any]:
    """The static parameters of an op that reads a grid, from those of its transpose, which is told the sizes."""
    return {name: value for name, value in static.items() if name != "sizes"}


def window_counts(name: str, sizes: Sizes, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> Sizes:
    """How many windows there are along each axis, or an error where they do not fit."""
    ranks = {len(x) for x in (sizes, window, stride, padding, dilation)}
    if len(ranks) > 1:
        raise ShapeError(
            f"{name}: sizes {sizes}, window {window}, stride {stride}, padding {padding} and dilation {dilation} "
            "differ in length."
        )
    found = []
    for n, k, s, (low, high), d in zip(sizes, window, stride, padding, dilation, strict=True):
        reach = (k - 1) * d + 1
        if n + low + high < reach:
            raise ShapeError(
                f"{name}: a window of {window} (dilation {dilation}) reaches over {reach} elements, but sizes {sizes} "
                f"with padding {padding} have {n + low + high} there; the result would have a negative size."
            )
        found.append((n + low + high - reach) // s + 1)
    return tuple(found)


def pad_grid(xp: Any, x: Any, padding: Pairs, number: Any = 0) -> Any:
    """x inside a larger array that is filled with a number; x itself where nothing is added."""
    if not any(map(any, padding)):
        return x
    sizes = [n + low + high for n, (low, high) in zip(x.shape[2:], padding, strict=True)]
    out = xp.full((*x.shape[:2], *sizes), number, x.dtype)
    out[inner_slices(x.shape[2:], padding)] = x
    return out


def inner_slices(sizes: Sizes, padding: Pairs) -> Any:
    """Where an array lies inside its padding."""
    return (..., *(slice(low, low + n) for n, (low, _) in zip(sizes, padding, strict=True)))


def patch_view(xp: Any, x: Any, window: Sizes, stride: Sizes, dilation: Sizes, many: Sizes) -> Any:
    """A view (n, channels, *window, *counts) of a padded array."""
    steps = x.strides[2:]
    inside = [s * d for s, d in zip(steps, dilation, strict=True)]
    between = [s * t for s, t in zip(steps, stride, strict=True)]
    strides = (*x.strides[:2], *inside, *between)
    return strided_view(xp, x, (*x.shape[:2], *window, *many), strides)


def strided_view(xp: Any, x: Any, shape: Sizes, strides: Sizes) -> Any:
    """A view by strides. Its elements may overlap, so nothing is written through it."""
    view = xp.lib.stride_tricks.as_strided(x, shape, strides)
    if xp is np:
        view.flags.writeable = False
    return view


def window_slices(window: Sizes, stride: Sizes, dilation: Sizes, many: Sizes) -> Iterator[tuple[Sizes, Any]]:
    """Each window element, row by row, with the index into a padded array that selects it for all windows."""
    for place in itertools.product(*map(range, window)):
        starts = [k * d for k, d in zip(place, dilation, strict=True)]
        along = [slice(a, a + (n - 1) * s + 1, s) for a, s, n in zip(starts, stride, many, strict=True)]
        yield place, (..., *along)


def first_unpadded_place(xp: Any, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, many: Sizes) -> Any:
    """For every window its first element that is not padding, counted row by row."""
    total = xp.zeros(many, "int32")
    for axis, (k, s, (low, _), d, n) in enumerate(zip(window, stride, padding, dilation, many, strict=True)):
        first = xp.clip(-((xp.arange(n) * s - low) // d), 0, k - 1)
        weight = math.prod(window[axis + 1 :])
        total += (first * weight).astype("int32").reshape([n if i == axis else 1 for i in range(len(many))])
    return total


def find_empty_windows(sizes: Sizes, many: Sizes, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> Any:
    """Which windows have no element: places further apart than a grid is wide may all be padding. None if all have."""
    if all(d == 1 or d <= n for n, d in zip(sizes, dilation, strict=True)):
        return None
    empty = np.zeros(many, bool)
    for axis, (n, m, k, s, (low, _), d) in enumerate(zip(sizes, many, window, stride, padding, dilation, strict=True)):
        places = np.arange(m)[:, None] * s - low + np.arange(k) * d
        inside = ((places >= 0) & (places < n)).any(axis=1)
        empty |= ~inside.reshape([m if i == axis else 1 for i in range(len(many))])
    return empty if empty.any() else None


def are_windows_disjoint(window: Sizes, stride: Sizes, dilation: Sizes) -> bool:
    """Whether no two windows share an element."""
    return all((k - 1) * d < s for k, s, d in zip(window, stride, dilation, strict=True))

"""Scatter-add: `np.add.at` by the fastest method that applies.

Where no index repeats, adding is assigning. Otherwise single elements go through `bincount`, and whole
slices are sorted by index and summed run by run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: Below this many values `np.add.at` itself is faster than choosing.
_FEW = 256
#: Single elements sparser than this are added one by one: going over every bin would cost more.
_SPARSE = 8
#: Types of integer entries of an index; a row of an integer array may be a NumPy scalar.
_PLACES = (int, np.integer, np.ndarray)


def add_into_zeros(wanted: tuple[int, ...], values: Any, index: tuple[Any, ...]) -> Any:
    """Zeros of a shape with the values added at an index of integers, slices, Nones and integer arrays."""
    out = np.zeros(wanted, values.dtype)
    if values.size < _FEW or values.dtype.kind not in "fc":
        np.add.at(out, index, values)
        return out
    axes, arrays = _advanced_axes(index)
    sizes = tuple(wanted[a] for a in axes)
    places = _flat_places(arrays, sizes)
    if places is None:  # out of range: NumPy raises
        np.add.at(out, index, values)
    elif len(axes) == len(wanted) and places.size < out.size // _SPARSE:
        np.add.at(out.reshape(-1), places, values.reshape(-1))  # fast along one axis
    elif _are_distinct(places, math.prod(sizes)):
        _assign(out, index, values, places, axes)
    elif len(axes) == len(wanted):
        _add_by_bincount(out, values, places, arrays)
    elif _are_whole_slices(index, axes):
        _sum_runs(out, values, places, axes)
    else:
        np.add.at(out, index, values)
    return out


def _advanced_axes(index: tuple[Any, ...]) -> tuple[list[int], list[Any]]:
    """The axes that arrays, and integers beside them, stand for."""
    axes, arrays, axis = [], [], 0
    for entry in index:
        if entry is None:
            continue
        if isinstance(entry, _PLACES):
            axes.append(axis)
            arrays.append(np.asarray(entry, np.intp))  # small integers would overflow
        axis += 1
    return axes, arrays


def _flat_places(arrays: list[Any], sizes: tuple[int, ...]) -> Any:
    """Flat indices over the advanced axes; None if one is out of range."""
    total: Any = None
    for array, size in zip(arrays, sizes, strict=True):
        if array.size:
            low, high = array.min(), array.max()
            if low < -size or high >= size:
                return None
            array = np.where(array < 0, array + size, array) if low < 0 else array
        total = array if total is None else total * size + array
    return total.reshape(-1)


def _are_distinct(places: Any, size: int) -> bool:
    if places.size > size:
        return False
    seen = np.zeros(size, bool)
    seen[places] = True
    return bool(np.count_nonzero(seen) == places.size)


def _assign(out: Any, index: tuple[Any, ...], values: Any, places: Any, axes: list[int]) -> None:
    if len(axes) == out.ndim > 1:  # one flat index is faster than several
        out.reshape(-1)[places] = values.reshape(-1)
    else:
        out[index] = values


def _add_by_bincount(out: Any, values: Any, places: Any, arrays: list[Any]) -> None:
    """Single elements by `bincount`: bins of doubles, so float32 sums gain precision."""
    flat, bins = out.reshape(-1), values.reshape(-1)
    if out.dtype.kind == "c":
        flat.real = np.bincount(places, bins.real, out.size)
        flat.imag = np.bincount(places, bins.imag, out.size)
    else:
        flat[:] = np.bincount(places, bins, out.size)


def _are_whole_slices(index: tuple[Any, ...], axes: list[int]) -> bool:
    """Whether the advanced axes are adjacent and every other entry is a full slice."""
    rest = [e for e in index if not isinstance(e, _PLACES)]
    return axes == list(range(axes[0], axes[-1] + 1)) and all(e == slice(None) for e in rest)


def _sum_runs(out: Any, values: Any, places: Any, axes: list[int]) -> None:
    """Slices sorted by index: each run of equal indices is one sum."""
    before = math.prod(out.shape[: axes[0]])
    after = math.prod(out.shape[axes[-1] + 1 :])
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]]))
    sorted_slices = values.reshape(before, places.size, after)[:, order]
    out.reshape(before, -1, after)[:, sorted_places[starts]] = np.add.reduceat(sorted_slices, starts, axis=1)

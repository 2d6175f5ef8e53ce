"""Scatters at one place of each row, as comparisons: such a value can join the loop of what uses it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backends import is_array, move_array, to_host
from ..arrays.spec import spec_of
from ..ops.elementwise.pointwise import equal, logical_and, where
from ..ops.index.indexing import getitem
from ..ops.index.normalize import SLOT
from ..ops.shape.reshaping import reshape
from .ir import Equation, Symbol

#: A longer axis is scattered into: the numbers that places are compared with would leave the second cache.
_LONGEST_AXIS = 1 << 17


def counted_axis(x: Any) -> int | None:
    """The axis along which an array of integers counts 0, 1, 2, ...; None if there is none."""
    if not is_array(x) or x.dtype.kind not in "iu" or x.size < 2 or max(x.shape) != x.size:
        return None
    return x.shape.index(x.size) if np.array_equal(to_host(x).reshape(-1), np.arange(x.size)) else None


def compare_for_scatter(e: Equation) -> Callable[..., Any] | None:
    """A function that computes zeros with a value added at one place along an axis, for each point of the others: the
    value where the axis counts to its index. None for any other scatter.
    """
    values, *indices = e.args
    wanted = e.results[0].spec.shape
    if not all(entry is SLOT for entry in e.static["index"]) or len(indices) != len(wanted):
        return None
    axis = next((i for i, x in enumerate(indices) if counted_axis(x) is None), 0)
    # the other indices count along their own axes, in order, so each point has its own row
    others = [i for i in range(len(wanted)) if i != axis]
    shape = spec_of(values).shape
    own = [k for k, n in enumerate(shape) if n != 1]
    lined_up = len(own) == len(others) and all(
        _counts_along(indices[i], k - len(shape), wanted[i]) for i, k in zip(others, own, strict=True)
    )
    if not lined_up or not 1 < wanted[axis] <= _LONGEST_AXIS or not isinstance(indices[axis], Symbol):
        return None
    if spec_of(indices[axis]).size != spec_of(values).size:
        return None
    row = (*wanted[:axis], 1, *wanted[axis + 1 :])
    along = tuple(n if i == axis else 1 for i, n in enumerate(wanted))

    def compute(values: Any, *indices: Any) -> Any:
        # reading the counted numbers checks the index, and counts a negative one from the end
        device = spec_of(values).device
        places = reshape(getitem(_count_along((wanted[axis],), device), indices[axis]), row)
        there, found = equal(_count_along(along, device), places), reshape(values, row)
        if spec_of(values).dtype.kind == "b":
            return logical_and(there, found)
        return where(there, found, np.zeros((), spec_of(values).dtype))

    return compute


@functools.lru_cache(maxsize=64)
def _count_along(shape: tuple[int, ...], device: str) -> Any:
    """The same array for the same shape, so that equal reads of it are merged."""
    numbers = np.arange(max(shape), dtype=np.int32).reshape(shape).copy()
    numbers.flags.writeable = False
    return move_array(numbers, device)


def _counts_along(index: Any, axis: int, size: int) -> bool:
    found = counted_axis(index)
    return found is not None and found - index.ndim == axis and index.size == size

"""Scatters to places that are known, as sums over taps: what arrives at each place.

Interpolation reads by such places, and its transpose scatters to them. The elements of a row of the sum are
independent, and it joins the loop of what uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backends import is_array, move_array, to_host
from ..ops.elementwise.pointwise import add, where
from ..ops.forms import ScatterAdd
from ..ops.index.indexing import take
from ..ops.index.normalize import SLOT
from .ir import Equation

#: More taps are read element by element more slowly than a scatter runs.
_MOST_TAPS = 4
#: Of fewer elements any way is quick; more places would take long to inspect.
_LEAST_SIZE, _MOST_PLACES = 1 << 12, 1 << 20


def has_taps(x: Any) -> bool:
    """Whether an array that no call changes may be places along an axis."""
    return is_array(x) and x.dtype.kind in "iu" and x.ndim == 1 and 1 < x.size <= _MOST_PLACES


def find_taps(e: Equation) -> Callable[..., Any] | None:
    """A function that computes zeros with slices of a value added at known places along one axis; None where an
    equation is no such scatter.
    """
    if not isinstance(e.op.form, ScatterAdd):
        return None
    index, indices = e.static["index"], e.args[1:]
    slots = [i for i, entry in enumerate(index) if entry is SLOT]
    plain = all(entry is SLOT or entry == slice(None) for entry in index)
    if len(slots) != 1 or not plain or not is_array(indices[0]) or indices[0].ndim != 1:
        return None
    axis, out = slots[0], e.results[0].spec
    size, places = out.shape[axis], to_host(indices[0])
    if out.size < _LEAST_SIZE or not places.size or places.min() < 0 or places.max() >= size:
        return None
    counts = np.bincount(places, minlength=size)
    taps = int(counts.max())
    if taps > _MOST_TAPS or taps * size > 2 * places.size:
        return None
    order, first = np.argsort(places, kind="stable"), np.cumsum(counts) - counts
    column = (-1,) + (1,) * (out.ndim - axis - 1)

    def compute_sum(values: Any, *indices: Any) -> Any:
        total = None
        for k in range(taps):
            term = take(values, move_array(order[np.minimum(first + k, places.size - 1)], out.device), axis=axis)
            if (counts <= k).any():
                arrives = move_array((counts > k).reshape(column), out.device)
                term = where(arrives, term, np.zeros((), out.dtype))
            total = term if total is None else add(total, term)
        return total

    return compute_sum

"""Sums over taps: products with a constant matrix of few nonzeros, and scatters to places that are known.

Interpolation is such a product, and its transpose another. A tap is a place along an axis, with a weight, for each
element of the result: the elements of a row are independent, and the sum joins the loop of what uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..ops.elementwise.pointwise import add, multiply, where
from ..ops.forms import Contract, ScatterAdd
from ..ops.index.indexing import take
from ..ops.index.normalize import SLOT
from .ir import Equation, Symbol

#: More taps are read element by element more slowly than a matrix product or a scatter runs.
_MOST_TAPS = 4
#: A product is replaced where it has so many times as many multiplications.
_LEAST_GAIN = 8
#: Of fewer elements any way is quick; a longer constant would take long to inspect.
_LEAST_SIZE, _LARGEST_MATRIX = 1 << 12, 1 << 20


def has_taps(x: Any) -> bool:
    """Whether an array that no call changes may be taps: places along an axis, or a matrix of few nonzeros."""
    if not isinstance(x, np.ndarray) or not 1 < x.size <= _LARGEST_MATRIX:
        return False
    if x.dtype.kind in "iu":
        return x.ndim == 1
    return x.ndim == 2 and x.dtype.kind in "fc" and (_tap_table(x) is not None or _tap_table(x.T) is not None)


def find_taps(e: Equation) -> Callable[..., Any] | None:
    """A function that computes an equation as a sum over taps; None where it is no such sum."""
    if isinstance(e.op.form, Contract):
        return _taps_of_product(e, e.op.form)
    return _taps_of_scatter(e) if isinstance(e.op.form, ScatterAdd) else None


def _taps_of_product(e: Equation, form: Contract) -> Callable[..., Any] | None:
    out = e.results[0].spec
    if len(e.args) != 2 or out.size < _LEAST_SIZE:
        return None
    labels, result = form.equation([spec_of(a) for a in e.args], e.static)
    for at in (0, 1):
        matrix, x, pair, own = e.args[at], e.args[1 - at], labels[at], labels[1 - at]
        if not isinstance(x, Symbol) or not isinstance(matrix, np.ndarray) or not 1 < matrix.size <= _LARGEST_MATRIX:
            continue
        if matrix.ndim != 2 or not matrix.dtype == x.spec.dtype == out.dtype:
            continue
        free, summed = (pair[0], pair[1]) if pair[0] in result else (pair[1], pair[0])
        # the same axes, with another size along one
        if summed in result or own.count(summed) != 1 or own.replace(summed, free) != result:
            continue
        table = _tap_table(matrix if pair[0] == free else matrix.T)
        if table is not None:
            return _weighted_sum(1 - at, own.index(summed), *table)
    return None


def _tap_table(matrix: Any) -> tuple[Any, Any] | None:
    """For each row the places of its nonzeros, and these, filled up with zeros; None if they are not few."""
    counts = np.count_nonzero(matrix, axis=1)
    taps = int(counts.max(initial=0))
    if not 0 < taps <= _MOST_TAPS or taps * _LEAST_GAIN > matrix.shape[1]:
        return None
    # a row with fewer takes its first place again, so that nothing foreign meets a weight of zero
    places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]
    places = np.where(np.arange(taps) < counts[:, None], places, places[:, :1])
    weights = np.take_along_axis(matrix, places, axis=1)
    return places, np.where(np.arange(taps) < np.maximum(counts, 1)[:, None], weights, 0)


def _weighted_sum(number: int, axis: int, places: Any, weights: Any) -> Callable[..., Any]:
    def compute_sum(*args: Any) -> Any:
        x, total = args[number], None
        column = (-1,) + (1,) * (spec_of(x).ndim - axis - 1)
        for k in range(places.shape[1]):
            weight = np.ascontiguousarray(weights[:, k], spec_of(x).dtype).reshape(column)
            term = multiply(take(x, places[:, k].copy(), axis=axis), weight)
            total = term if total is None else add(total, term)
        return total

    return compute_sum


def _taps_of_scatter(e: Equation) -> Callable[..., Any] | None:
    """Zeros with slices of a value added at known places along one axis, as what arrives at each place."""
    index, indices = e.static["index"], e.args[1:]
    slots = [i for i, entry in enumerate(index) if entry is SLOT]
    plain = all(entry is SLOT or entry == slice(None) for entry in index)
    if len(slots) != 1 or not plain or not isinstance(indices[0], np.ndarray) or indices[0].ndim != 1:
        return None
    axis, out = slots[0], e.results[0].spec
    size, places = out.shape[axis], indices[0]
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
            term = take(values, order[np.minimum(first + k, places.size - 1)], axis=axis)
            if (counts <= k).any():
                term = where((counts > k).reshape(column), term, np.zeros((), out.dtype))
            total = term if total is None else add(total, term)
        return total

    return compute_sum

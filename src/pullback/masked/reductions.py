"""Reductions that leave masked entries out, of data whose masked entries are harmless numbers, and of its mask.

Each returns a value and its mask, which holds where nothing was left. There the value is that of harmless numbers, so
that no rule meets an empty mean or an infinite maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..ops.elementwise import pointwise
from ..ops.placement import move
from ..ops.reduce import reductions, scans
from ..ops.round_once import rounds_once
from ..ops.shape import reshaping


def _fill(x: Any, mask: Any, value: Any) -> Any:
    return pointwise.where(mask, move(np.asarray(value, spec_of(x).dtype), spec_of(x).device), x)


def _empty(mask: Any, axis: Any, keepdims: bool) -> Any:
    return reductions.all(mask, axis=axis, keepdims=keepdims)


def count(mask: Any, axis: Any, keepdims: bool) -> Any:
    return reductions.sum(pointwise.logical_not(mask), axis=axis, keepdims=keepdims)


def sum(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    total = reductions.sum(_fill(x, mask, 0), axis=axis, keepdims=keepdims)
    return total, _empty(mask, axis, keepdims)


def prod(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return reductions.prod(_fill(x, mask, 1), axis=axis, keepdims=keepdims), _empty(mask, axis, keepdims)


@rounds_once
def mean(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    total, empty = sum(x, mask, axis, keepdims)
    return total / _divisor(count(mask, axis, keepdims), empty, total), empty


def _divisor(left: Any, empty: Any, like: Any) -> Any:
    """A count as a number to divide by, in the dtype of what is divided."""
    safe = pointwise.where(empty, 1, left)
    return reshaping.astype(safe, spec_of(like).dtype) if spec_of(like).inexact else safe


@rounds_once
def var(x: Any, mask: Any, axis: Any, keepdims: bool, ddof: float) -> tuple[Any, Any]:
    away = _fill(x, mask, 0) - mean(x, mask, axis, True)[0]
    squares = pointwise.square(away) if spec_of(away).dtype.kind != "c" else pointwise.real(away * pointwise.conj(away))
    total = reductions.sum(_fill(squares, mask, 0), axis=axis, keepdims=keepdims)
    left = count(mask, axis, keepdims) - ddof
    too_few = pointwise.less_equal(left, 0)
    return total / _divisor(left, too_few, total), too_few


@rounds_once
def std(x: Any, mask: Any, axis: Any, keepdims: bool, ddof: float) -> tuple[Any, Any]:
    """The root of the variance; where it is zero, its derivative is zero."""
    spread, empty = var(x, mask, axis, keepdims, ddof)
    none = pointwise.equal(spread, 0)
    return pointwise.where(none, 0, pointwise.sqrt(pointwise.where(none, 1, spread))), empty


def max(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return reductions.max(_fill_beyond(x, mask, -1), axis=axis, keepdims=keepdims), _empty(mask, axis, keepdims)


def min(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return reductions.min(_fill_beyond(x, mask, 1), axis=axis, keepdims=keepdims), _empty(mask, axis, keepdims)


def argmax(x: Any, mask: Any, axis: Any) -> Any:
    return reductions.argmax(_fill_beyond(x, mask, -1), axis=axis)


def argmin(x: Any, mask: Any, axis: Any) -> Any:
    return reductions.argmin(_fill_beyond(x, mask, 1), axis=axis)


def _fill_beyond(x: Any, mask: Any, sign: int) -> Any:
    """The data with the greatest number of its dtype (or the least) where it is masked."""
    dtype = spec_of(x).dtype
    if dtype.kind in "iu":
        return _fill(x, mask, np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min)
    return _fill(x, mask, sign > 0 if dtype.kind == "b" else sign * np.inf)


def all(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return reductions.all(_fill(x, mask, 1), axis=axis, keepdims=keepdims), _empty(mask, axis, keepdims)


def any(x: Any, mask: Any, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    return reductions.any(_fill(x, mask, 0), axis=axis, keepdims=keepdims), _empty(mask, axis, keepdims)


def cumsum(x: Any, mask: Any, axis: Any) -> tuple[Any, Any]:
    return scans.cumulative_sum(_fill(x, mask, 0), axis=axis), _scanned_mask(mask, axis)


def cumprod(x: Any, mask: Any, axis: Any) -> tuple[Any, Any]:
    return scans.cumulative_prod(_fill(x, mask, 1), axis=axis), _scanned_mask(mask, axis)


def _scanned_mask(mask: Any, axis: Any) -> Any:
    return reshaping.reshape(mask, -1) if axis is None else mask

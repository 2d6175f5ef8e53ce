"""NumPy's reductions by NumPy's signatures: sums, means, extremes, quantiles, running totals, with and without NaNs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError
from .. import arranging, joining, reducing, shaping
from .. import elementwise as pointwise
from ..axes import all_axes
from ..dispatch import as_value, ndim, shape
from ..elementwise import add, divide, isnan, multiply, subtract
from .refusing import NOT_GIVEN, library, refuse


def _is_given(x: Any) -> bool:
    return x is not NOT_GIVEN and x is not None


def _keeps(keepdims: Any) -> bool:
    return False if keepdims is NOT_GIVEN else bool(keepdims)


def _masked(x: Any, where: Any, neutral: Any) -> Any:
    """x with what does not count replaced by what changes nothing."""
    return pointwise.where(where, x, neutral) if _is_given(where) and where is not True else x


def _converted(a: Any, dtype: Any) -> Any:
    x = as_value(a)
    return x if dtype is None else shaping.astype(x, dtype)


def _floating(a: Any, dtype: Any) -> Any:
    """The dtype in which NumPy takes a mean."""
    x = _converted(a, dtype)
    return x if spec_of(x).inexact else shaping.astype(x, "float64")


def sum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
        initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    total = reducing.sum(_masked(_converted(a, dtype), where, 0), axis=axis, keepdims=_keeps(keepdims))
    return add(total, initial) if _is_given(initial) else total


def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
         initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    total = reducing.prod(_masked(_converted(a, dtype), where, 1), axis=axis, keepdims=_keeps(keepdims))
    return multiply(total, initial) if _is_given(initial) else total


def _extreme(name: str, reduce: Any, between: Any) -> Any:
    def extreme(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, initial: Any = NOT_GIVEN,
                where: Any = NOT_GIVEN) -> Any:  # fmt: skip
        x = as_value(a)
        if _is_given(where) and where is not True and not _is_given(initial):
            raise ArgumentError(f"np.{name}: where= wants initial=, since there is no neutral element.")
        if not _is_given(initial):
            return reduce(x, axis=axis, keepdims=_keeps(keepdims))
        x = _masked(x, where, initial)
        if 0 in shape(x):
            return shaping.broadcast_to(as_value(initial), shape(reducing.sum(x, axis=axis, keepdims=_keeps(keepdims))))
        return between(reduce(x, axis=axis, keepdims=_keeps(keepdims)), initial)

    extreme.__name__ = name
    return extreme


max = amax = _extreme("max", reducing.max, pointwise.maximum)
min = amin = _extreme("min", reducing.min, pointwise.minimum)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN) -> Any:
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, *, where: Any = NOT_GIVEN) -> Any:
    return reducing.any(_masked(as_value(a), where, False), axis=axis, keepdims=_keeps(keepdims))


def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, *, where: Any = NOT_GIVEN) -> Any:
    return reducing.all(_masked(as_value(a), where, True), axis=axis, keepdims=_keeps(keepdims))


def _size(x: Any, axis: Any) -> int:
    return math.prod(shape(x)[n] for n in all_axes(axis, ndim(x), "mean"))


def _count(x: Any, axis: Any, where: Any) -> Any:
    """How many elements count, for each result, with the axes kept."""
    if not _is_given(where) or where is True:
        return _size(x, axis)
    counted = shaping.broadcast_to(as_value(where), np.broadcast_shapes(shape(x), shape(as_value(where))))
    return shaping.astype(reducing.sum(counted, axis=axis, keepdims=True), _real_dtype(x))


def _real_dtype(x: Any) -> Any:
    """The dtype of |x|, in which a count does not widen a result."""
    return np.empty(0, spec_of(x).dtype).real.dtype


def _shaped(x: Any, like: Any, axis: Any, keepdims: bool) -> Any:
    """A result with its axes kept, in the shape that was asked for."""
    return x if keepdims else shaping.reshape(x, shape(reducing.sum(np.empty(shape(like), bool), axis=axis)))


def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, *,
         where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    x = _floating(a, dtype)
    if not _is_given(where) or where is True:
        return reducing.mean(x, axis=axis, keepdims=_keeps(keepdims))
    total = divide(reducing.sum(_masked(x, where, 0), axis=axis, keepdims=True), _count(x, axis, where))
    return _shaped(total, x, axis, _keeps(keepdims))


def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN, *,
        where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    x = _floating(a, dtype)
    ddof = _correction(ddof, correction)
    if not _is_given(where) and not _is_given(mean):
        return reducing.var(x, axis=axis, correction=ddof, keepdims=_keeps(keepdims))
    middle = mean if _is_given(mean) else _mean(x, axis, where=where)
    away = _masked(subtract(x, middle), where, 0)
    squares = pointwise.square(pointwise.abs(away) if spec_of(away).dtype.kind == "c" else away)
    count = shaping.astype(pointwise.maximum(subtract(_count(x, axis, where), ddof), 0), _real_dtype(x))
    return _shaped(divide(reducing.sum(squares, axis=axis, keepdims=True), count), x, axis, _keeps(keepdims))


def _mean(x: Any, axis: Any, where: Any) -> Any:
    return mean(x, axis, keepdims=True, where=where)


def _correction(ddof: Any, correction: Any) -> Any:
    if correction is NOT_GIVEN:
        return ddof
    if ddof != 0:
        raise ArgumentError("std/var: ddof and correction say the same thing; give one of them.")
    return correction


def _root(variance: Any) -> Any:
    """The square root, with the derivative zero at zero, as `pb.std` has it."""
    none = pointwise.equal(variance, 0)
    return pointwise.where(none, 0.0, pointwise.sqrt(pointwise.where(none, 1.0, variance)))


def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN, *,
        where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return _root(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
            keepdims: Any = NOT_GIVEN) -> Any:  # fmt: skip
    x = _floating(a, None)
    keeps = _keeps(keepdims)
    if weights is None:
        found = reducing.mean(x, axis=axis, keepdims=keeps)
        total: Any = np.full(shape(found), _size(x, axis), spec_of(found).dtype)
        return (found, total) if returned else found
    w = as_value(weights)
    if shape(w) != shape(x):  # along the axes that are averaged, in the order they were named
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        order = np.argsort([n % ndim(x) for n in axes])
        w = shaping.permute_dims(w, tuple(int(n) for n in order))
        named = {n % ndim(x) for n in axes}
        w = shaping.reshape(w, tuple(n if i in named else 1 for i, n in enumerate(shape(x))))
    total = reducing.sum(shaping.broadcast_to(w, shape(x)), axis=axis, keepdims=keeps)
    found = divide(reducing.sum(multiply(x, w), axis=axis, keepdims=keeps), total)
    return (found, total) if returned else found


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return reducing.sum(pointwise.not_equal(as_value(a), 0), axis=axis, keepdims=keepdims)


def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return reducing.argmax(as_value(a), axis=axis, keepdims=_keeps(keepdims))


def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return reducing.argmin(as_value(a), axis=axis, keepdims=_keeps(keepdims))


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return reducing.cumulative_sum(as_value(a), axis=axis, dtype=dtype)


def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None,
                   include_initial: bool = False) -> Any:  # fmt: skip
    return reducing.cumulative_sum(as_value(x), axis=axis, dtype=dtype, include_initial=include_initial)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    x = _converted(a, dtype)
    x, axis = (shaping.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    return library("cumulative_prod", "cumprod")(x, axis=axis)


def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None,
                    include_initial: bool = False) -> Any:  # fmt: skip
    return library("cumulative_prod", "cumulative_prod")(
        _converted(x, dtype), axis=axis, include_initial=include_initial
    )


def _numbers_only(a: Any, dtype: Any, neutral: Any) -> Any:
    x = _converted(a, dtype)
    return pointwise.where(isnan(x), neutral, x) if spec_of(x).inexact else x


def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
           initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return sum(_numbers_only(a, dtype, 0), axis, None, None, keepdims, initial, where)


def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN,
            initial: Any = NOT_GIVEN, where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return prod(_numbers_only(a, dtype, 1), axis, None, None, keepdims, initial, where)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumsum(_numbers_only(a, dtype, 0), axis)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumprod(_numbers_only(a, dtype, 1), axis)


def _counting(a: Any, where: Any) -> Any:
    """Where an element is a number, and counts."""
    numbers = pointwise.logical_not(isnan(a))
    return numbers if not _is_given(where) or where is True else pointwise.logical_and(numbers, where)


def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, *,
            where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    x = _floating(a, dtype)
    return mean(x, axis, None, None, keepdims, where=_counting(x, where))


def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN, *,
           where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    x = _floating(a, dtype)
    return var(x, axis, None, None, ddof, keepdims, where=_counting(x, where), mean=mean, correction=correction)


def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOT_GIVEN, *,
           where: Any = NOT_GIVEN, mean: Any = NOT_GIVEN, correction: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return _root(nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, initial: Any = NOT_GIVEN,
           where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return _nan_extreme(max, -np.inf, a, axis, keepdims, initial, where)


def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOT_GIVEN, initial: Any = NOT_GIVEN,
           where: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return _nan_extreme(min, np.inf, a, axis, keepdims, initial, where)


def _nan_extreme(extreme: Any, never: float, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    """NaN only where there is nothing but NaN."""
    x = as_value(a)
    if not spec_of(x).inexact:
        return extreme(x, axis, None, keepdims, initial, where)
    found = extreme(_numbers_only(x, None, never), axis, None, keepdims, initial, where)
    empty = reducing.all(_masked(isnan(x), where, True), axis=axis, keepdims=_keeps(keepdims))
    return found if _is_given(initial) else pointwise.where(empty, np.nan, found)


def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return argmax(_numbers_only(a, None, -np.inf), axis, keepdims=keepdims)


def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return argmin(_numbers_only(a, None, np.inf), axis, keepdims=keepdims)


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    return library("median", "median")(a, axis=axis, keepdims=keepdims)


def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
              keepdims: Any = NOT_GIVEN) -> Any:  # fmt: skip
    return library("nanmedian", "nanmedian")(a, axis=axis, keepdims=_keeps(keepdims))


def quantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights: Any = None) -> Any:  # fmt: skip
    refuse("quantile", weights=weights)
    return library("quantile", "quantile")(a, q, axis=axis, keepdims=keepdims, method=method)


def nanquantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: Any = NOT_GIVEN, *, weights: Any = None) -> Any:  # fmt: skip
    refuse("nanquantile", weights=weights)
    return library("nanquantile", "nanquantile")(a, q, axis=axis, keepdims=_keeps(keepdims), method=method)


def percentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:  # fmt: skip
    refuse("percentile", weights=weights)
    return quantile(a, divide(as_value(q), 100), axis, None, False, method, keepdims)


def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: Any = NOT_GIVEN, *, weights: Any = None) -> Any:  # fmt: skip
    refuse("nanpercentile", weights=weights)
    return nanquantile(a, divide(as_value(q), 100), axis, None, False, method, keepdims)


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:  # fmt: skip
    x = _rows(m, rowvar, dtype)
    if y is not None:
        x = arranging.concat([x, _rows(y, rowvar, dtype)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None if fweights is None else shaping.astype(as_value(fweights), "float64")
    if aweights is not None:
        weights = as_value(aweights) if weights is None else multiply(weights, aweights)
    if weights is None:
        total: Any = shape(x)[1]
        middle, left = reducing.mean(x, axis=1, keepdims=True), total - ddof
    else:
        total = reducing.sum(weights)
        middle = divide(reducing.sum(multiply(x, weights), axis=1, keepdims=True), total)
        lost = ddof if aweights is None else divide(reducing.sum(multiply(weights, aweights)) * ddof, total)
        left = subtract(total, lost)
    away = subtract(x, middle)
    weighed = away if weights is None else multiply(away, weights)
    return shaping.squeeze(divide(weighed @ shaping.matrix_transpose(pointwise.conj(away)), left))


def _rows(m: Any, rowvar: bool, dtype: Any) -> Any:
    """Variables as rows, observations as columns."""
    flat = ndim(as_value(m)) < 2
    wanted = np.result_type(spec_of(as_value(m)).dtype, np.float64) if dtype is None else dtype
    x = joining.atleast_2d(shaping.astype(as_value(m), wanted))
    return x if rowvar or flat else shaping.matrix_transpose(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = cov(x, y, rowvar, dtype=dtype)
    if not ndim(c):
        return divide(c, c)
    spread = pointwise.sqrt(pointwise.real(arranging.diagonal(c)))
    c = divide(divide(c, shaping.expand_dims(spread, 1)), shaping.expand_dims(spread, 0))
    return c if spec_of(c).dtype.kind == "c" else pointwise.clip_to(c, -1, 1)

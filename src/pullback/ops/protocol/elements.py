"""NumPy's functions on elements (choice, counts, sets, spread) with NumPy's signatures, where ours differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError
from .. import functions
from ..concrete import as_bare_array
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise, rounding
from ..elementwise.pointwise import divide, multiply, subtract
from ..index import indexing
from ..reduce import calculus, reductions
from ..shape import arrange, reshaping
from .inplace import write_in_place
from .unsupported import NOT_GIVEN, package_function, refuse


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return package_function("nonzero", "where")(condition)
    if x is None or y is None:
        raise ArgumentError("where: wants both x and y, or neither.")
    return pointwise.where(as_value(condition), x, y)


def clip(a: Any, a_min: Any = NOT_GIVEN, a_max: Any = NOT_GIVEN, out: Any = None, *, min: Any = NOT_GIVEN,
         max: Any = NOT_GIVEN, **kwargs: Any) -> Any:  # fmt: skip
    refuse("clip", **kwargs)
    low, high = (min if a_min is NOT_GIVEN else a_min), (max if a_max is NOT_GIVEN else a_max)
    return functions.clip(a, None if low is NOT_GIVEN else low, None if high is NOT_GIVEN else high)


def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return rounding.round(a, decimals)


around = round


def real_if_close(a: Any, tol: float = 100) -> Any:
    x = as_value(a)
    if spec_of(x).dtype.kind != "c":
        return x
    bound = np.finfo(spec_of(x).dtype).eps * tol if tol > 1 else tol
    return pointwise.real(x) if (np.abs(as_bare_array(pointwise.imag(x), "real_if_close")) < bound).all() else x


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    found = rounding.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    return found if copy else write_in_place(x, found, "nan_to_num")


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> bool:
    return bool(np.all(as_bare_array(rounding.isclose(a, b, rtol, atol, equal_nan), "allclose")))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    return np.array_equal(as_bare_array(a1, "array_equal"), as_bare_array(a2, "array_equal"), equal_nan=equal_nan)


def array_equiv(a1: Any, a2: Any) -> bool:
    return np.array_equiv(as_bare_array(a1, "array_equiv"), as_bare_array(a2, "array_equiv"))


def isposinf(x: Any, out: Any = None) -> Any:
    return rounding.isposinf(x)


def isneginf(x: Any, out: Any = None) -> Any:
    return rounding.isneginf(x)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NOT_GIVEN, append: Any = NOT_GIVEN) -> Any:
    edges = [None if e is NOT_GIVEN else e for e in (prepend, append)]
    return calculus.diff(a, n=n, axis=axis, prepend=edges[0], append=edges[1])


def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = as_value(a)
    for axis in np.atleast_1d(axes):
        found = func(x, int(axis))
        x = reshaping.expand_dims(found, int(axis) % ndim(x)) if ndim(found) < ndim(x) else found
    return x


def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return reductions.argmax(as_value(a), axis=axis, keepdims=keepdims is not NOT_GIVEN and bool(keepdims))


def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOT_GIVEN) -> Any:
    return reductions.argmin(as_value(a), axis=axis, keepdims=keepdims is not NOT_GIVEN and bool(keepdims))


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    return np.digitize(as_bare_array(x, "digitize"), as_bare_array(bins, "digitize"), right=right)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    what = "histogram_bin_edges"
    edges = bins if isinstance(bins, (int, str)) else as_bare_array(bins, what)
    return np.histogram_bin_edges(
        as_bare_array(a, what), edges, range, None if weights is None else as_bare_array(weights, what)
    )


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Counts have no derivative; with weights, their sums have one in the weights."""
    edges = histogram_bin_edges(a, bins, range, weights)
    if weights is None:
        return np.histogram(as_bare_array(a, "histogram"), edges, density=density)
    numbers = as_bare_array(a, "histogram").ravel()
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    w = reshaping.reshape(as_value(weights), (-1,))
    sums = package_function("bincount", "histogram")(places[inside], indexing.getitem(w, inside), len(edges) - 1)
    if density:
        sums = pointwise.divide(pointwise.divide(sums, np.diff(edges)), reductions.sum(sums))
    elif spec_of(w).inexact:
        sums = reshaping.astype(sums, spec_of(w).dtype)
    return sums, edges


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    refuse("histogram2d", weights=weights)
    return np.histogram2d(
        as_bare_array(x, "histogram2d"), as_bare_array(y, "histogram2d"), _bare_bins(bins), range, density
    )


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    refuse("histogramdd", weights=weights)
    return np.histogramdd(as_bare_array(sample, "histogramdd"), _bare_bins(bins), range, density)


def _bare_bins(bins: Any) -> Any:
    if isinstance(bins, (list, tuple)):
        return [_bare_bins(b) for b in bins]
    return bins if isinstance(bins, (int, float, str)) else as_bare_array(bins, "histogram")


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         kind: Any = None) -> Any:  # fmt: skip
    return np.isin(
        as_bare_array(element, "isin"), as_bare_array(test_elements, "isin"), assume_unique, invert, kind=kind
    )


def union1d(ar1: Any, ar2: Any) -> Any:
    return package_function("unique", "unique")(arrange.concat([ar1, ar2], axis=None))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    first, second = as_bare_array(ar1, "intersect1d"), as_bare_array(ar2, "intersect1d")
    _, of_first, of_second = np.intersect1d(first, second, assume_unique, return_indices=True)
    chosen = indexing.take(as_value(ar1), of_first)
    return (chosen, of_first, of_second) if return_indices else chosen


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    x = reshaping.reshape(as_value(ar1), (-1,)) if assume_unique else package_function("unique", "unique")(ar1)
    kept = ~np.isin(as_bare_array(x, "setdiff1d"), as_bare_array(ar2, "setdiff1d"))
    return indexing.getitem(x, kept)


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    return package_function("unique", "unique")(
        arrange.concat([setdiff1d(ar1, ar2, assume_unique), setdiff1d(ar2, ar1, assume_unique)])
    )


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:  # fmt: skip
    x = _variables_as_rows(m, rowvar, dtype)
    if y is not None:
        x = arrange.concat([x, _variables_as_rows(y, rowvar, dtype)], axis=0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None if fweights is None else reshaping.astype(as_value(fweights), "float64")
    if aweights is not None:
        weights = as_value(aweights) if weights is None else multiply(weights, aweights)
    if weights is None:
        total: Any = shape(x)[1]
        middle, left = reductions.mean(x, axis=1, keepdims=True), total - ddof
    else:
        total = reductions.sum(weights)
        middle = divide(reductions.sum(multiply(x, weights), axis=1, keepdims=True), total)
        lost = ddof if aweights is None else divide(reductions.sum(multiply(weights, aweights)) * ddof, total)
        left = subtract(total, lost)
    deviations = subtract(x, middle)
    weighted_deviations = deviations if weights is None else multiply(deviations, weights)
    return reshaping.squeeze(divide(weighted_deviations @ reshaping.matrix_transpose(pointwise.conj(deviations)), left))


def _variables_as_rows(m: Any, rowvar: bool, dtype: Any) -> Any:
    """Variables as rows, observations as columns."""
    flat = ndim(as_value(m)) < 2
    wanted = np.result_type(spec_of(as_value(m)).dtype, np.float64) if dtype is None else dtype
    x = package_function("atleast_2d", "cov")(reshaping.astype(as_value(m), wanted))
    return x if rowvar or flat else reshaping.matrix_transpose(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = cov(x, y, rowvar, dtype=dtype)
    if not ndim(c):
        return divide(c, c)
    spread = pointwise.sqrt(pointwise.real(arrange.diagonal(c)))
    c = divide(divide(c, reshaping.expand_dims(spread, 1)), reshaping.expand_dims(spread, 0))
    return c if spec_of(c).dtype.kind == "c" else pointwise.clip_to(c, -1, 1)

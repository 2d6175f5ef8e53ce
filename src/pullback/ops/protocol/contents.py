"""NumPy's functions that look at or change elements one by one, by NumPy's signatures: choice, order, places, sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import make_spec, spec_of, zeros
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from .. import arranging, calculus, curves, functions, indexing, picking, reducing, rounding, sets, shaping
from .. import elementwise as pointwise
from ..dispatch import as_value, ndim, shape
from ..known import bare
from .refusing import NOT_GIVEN, library, refuse, unknown


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return nonzero(condition)
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


def fix(x: Any, out: Any = None) -> Any:
    return rounding.trunc(x)


def sinc(x: Any) -> Any:
    return curves.sinc(x)


def i0(x: Any) -> Any:
    return library("special.i0", "i0")(x)


def real(val: Any) -> Any:
    return pointwise.real(val)


def imag(val: Any) -> Any:
    return pointwise.imag(val)


def angle(z: Any, deg: bool = False) -> Any:
    return curves.angle(z, deg=deg)


def real_if_close(a: Any, tol: float = 100) -> Any:
    x = as_value(a)
    if spec_of(x).dtype.kind != "c":
        return x
    bound = np.finfo(spec_of(x).dtype).eps * tol if tol > 1 else tol
    return pointwise.real(x) if (np.abs(bare(pointwise.imag(x), "real_if_close")) < bound).all() else x


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    found = rounding.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    return found if copy else _written(x, found, "nan_to_num")


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    return rounding.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> bool:
    return bool(np.all(bare(isclose(a, b, rtol, atol, equal_nan), "allclose")))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    return np.array_equal(bare(a1, "array_equal"), bare(a2, "array_equal"), equal_nan=equal_nan)


def array_equiv(a1: Any, a2: Any) -> bool:
    return np.array_equiv(bare(a1, "array_equiv"), bare(a2, "array_equiv"))


def isreal(x: Any) -> Any:
    return rounding.isreal(x)


def iscomplex(x: Any) -> Any:
    return rounding.iscomplex(x)


def isposinf(x: Any, out: Any = None) -> Any:
    return rounding.isposinf(x)


def isneginf(x: Any, out: Any = None) -> Any:
    return rounding.isneginf(x)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NOT_GIVEN, append: Any = NOT_GIVEN) -> Any:
    edges = [None if e is NOT_GIVEN else e for e in (prepend, append)]
    return calculus.diff(a, n=n, axis=axis, prepend=edges[0], append=edges[1])


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    return picking.choose(a, choices, mode)


def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    return picking.compress(condition, a, axis)


def extract(condition: Any, arr: Any) -> Any:
    return picking.extract(condition, arr)


def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = as_value(a)
    for axis in np.atleast_1d(axes):
        found = func(x, int(axis))
        x = shaping.expand_dims(found, int(axis) % ndim(x)) if ndim(found) < ndim(x) else found
    return x


def _written(target: Any, found: Any, name: str) -> Any:
    """A function that NumPy lets work in place: on a tensor it points the tensor at the result."""
    if not isinstance(target, Tensor):
        raise unknown(f"{name} into a bare array")
    return target.rebind(found, f"np.{name}")


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    found = shaping.broadcast_to(as_value(src), shape(dst))
    if not np.can_cast(spec_of(found).dtype, spec_of(dst).dtype, casting=casting):
        raise ArgumentError(f"copyto: {spec_of(found).dtype} does not become {spec_of(dst).dtype} by {casting!r}.")
    _written(dst, found if where is True else pointwise.where(where, found, dst), "copyto")


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    size = spec_of(as_value(a)).size
    places = bare(ind, "put").ravel()
    places = places % size if mode == "wrap" else np.clip(places, 0, size - 1) if mode == "clip" else places
    if not places.size:
        return
    flat = shaping.reshape(as_value(v), (-1,))
    values = indexing.take(flat, np.arange(places.size) % shape(flat)[0])
    found = indexing.set_at(shaping.reshape(as_value(a), (-1,)), places, values)
    _written(a, shaping.reshape(found, shape(a)), "put")


def place(arr: Any, mask: Any, vals: Any) -> None:
    chosen = np.flatnonzero(bare(mask, "place"))
    put(arr, chosen, vals)


def putmask(a: Any, /, mask: Any, values: Any) -> None:
    flat = shaping.reshape(as_value(values), (-1,))
    repeated = indexing.take(flat, np.arange(spec_of(a).size) % shape(flat)[0])
    _written(a, pointwise.where(mask, shaping.reshape(repeated, shape(a)), a), "putmask")


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if axis is None:
        flat = indexing.put_along_axis(shaping.reshape(arr, (-1,)), indices, values, axis=0)
        _written(arr, shaping.reshape(flat, shape(arr)), "put_along_axis")
        return
    _written(arr, indexing.put_along_axis(arr, indices, values, axis=axis), "put_along_axis")


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = as_value(a)
    places = np.arange(spec_of(x).size).reshape(shape(x))
    marks = np.zeros(shape(x), bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    put(a, places[marks], val)


def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    refuse("sort", order=order)
    x, axis = (shaping.reshape(as_value(a), (-1,)), 0) if axis is None else (as_value(a), axis)
    return library("sort", "sort")(x, axis=axis)


def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    refuse("argsort", order=order)
    x, axis = (shaping.reshape(as_value(a), (-1,)), 0) if axis is None else (as_value(a), axis)
    return np.argsort(bare(x, "argsort"), axis=axis, kind="stable")


def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Sorted as a whole, which is one of the orders that a partition may have."""
    return sort(a, axis, order=order)


def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    return argsort(a, axis, order=order)


def lexsort(keys: Any, axis: int = -1) -> Any:
    return np.lexsort(bare(keys, "lexsort"), axis=axis)


def nonzero(a: Any) -> Any:
    return np.nonzero(bare(a, "nonzero"))


def flatnonzero(a: Any) -> Any:
    return np.flatnonzero(bare(a, "flatnonzero"))


def argwhere(a: Any) -> Any:
    return np.argwhere(bare(a, "argwhere"))


def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    return calculus.searchsorted(a, v, side=side, sorter=sorter)


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    return np.digitize(bare(x, "digitize"), bare(bins, "digitize"), right=right)


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    places = bare(x, "bincount")
    if weights is None:
        return np.bincount(places, minlength=minlength)
    size = max(minlength, int(places.max()) + 1 if places.size else 0)
    w = as_value(weights)
    w = w if spec_of(w).dtype == np.float64 else shaping.astype(w, "float64")
    return indexing.add_at(zeros(make_spec((size,), np.dtype("float64"), spec_of(w).device)), places, w)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    what = "histogram_bin_edges"
    edges = bins if isinstance(bins, (int, str)) else bare(bins, what)
    return np.histogram_bin_edges(bare(a, what), edges, range, None if weights is None else bare(weights, what))


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Counts have no derivative; with weights, their sums have one in the weights."""
    edges = histogram_bin_edges(a, bins, range, weights)
    if weights is None:
        return np.histogram(bare(a, "histogram"), edges, density=density)
    numbers = bare(a, "histogram").ravel()
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    places = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(edges) - 2)
    w = shaping.reshape(as_value(weights), (-1,))
    sums = bincount(places[inside], indexing.getitem(w, inside), len(edges) - 1)
    if density:
        sums = pointwise.divide(pointwise.divide(sums, np.diff(edges)), reducing.sum(sums))
    elif spec_of(w).inexact:
        sums = shaping.astype(sums, spec_of(w).dtype)
    return sums, edges


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    refuse("histogram2d", weights=weights)
    return np.histogram2d(bare(x, "histogram2d"), bare(y, "histogram2d"), _bare_bins(bins), range, density)


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    refuse("histogramdd", weights=weights)
    return np.histogramdd(bare(sample, "histogramdd"), _bare_bins(bins), range, density)


def _bare_bins(bins: Any) -> Any:
    if isinstance(bins, (list, tuple)):
        return [_bare_bins(b) for b in bins]
    return bins if isinstance(bins, (int, float, str)) else bare(bins, "histogram")


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         kind: Any = None) -> Any:  # fmt: skip
    return np.isin(bare(element, "isin"), bare(test_elements, "isin"), assume_unique, invert, kind=kind)


def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: Any = None, *, equal_nan: bool = True, sorted: bool = True) -> Any:  # fmt: skip
    x = as_value(ar)
    asked: Any = (True, return_inverse, return_counts, axis)
    found = np.unique(bare(x, "unique"), *asked, equal_nan=equal_nan)
    chosen = indexing.take(x, found[1], axis=axis)
    rest = found[2:]
    if not (return_index or rest):
        return chosen
    return (chosen, *((found[1],) if return_index else ()), *rest)


def unique_values(x: Any) -> Any:
    return sets.unique_values(x)


def unique_counts(x: Any) -> Any:
    return sets.unique_counts(x)


def unique_inverse(x: Any) -> Any:
    return sets.unique_inverse(x)


def unique_all(x: Any) -> Any:
    return sets.unique_all(x)


def union1d(ar1: Any, ar2: Any) -> Any:
    return unique(arranging.concat([ar1, ar2], axis=None))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    first, second = bare(ar1, "intersect1d"), bare(ar2, "intersect1d")
    _, of_first, of_second = np.intersect1d(first, second, assume_unique, return_indices=True)
    chosen = indexing.take(as_value(ar1), of_first)
    return (chosen, of_first, of_second) if return_indices else chosen


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    x = shaping.reshape(as_value(ar1), (-1,)) if assume_unique else unique(ar1)
    kept = ~np.isin(bare(x, "setdiff1d"), bare(ar2, "setdiff1d"))
    return indexing.getitem(x, kept)


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    return unique(arranging.concat([setdiff1d(ar1, ar2, assume_unique), setdiff1d(ar2, ar1, assume_unique)]))

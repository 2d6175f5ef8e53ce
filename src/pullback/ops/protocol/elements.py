"""NumPy's functions on elements (choice, counts, sets, spread) with NumPy's signatures, where ours differ; those that
work in place rebind a tensor to the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...arrays.value import Value
from ...errors import ArgumentError, UnsupportedFunction
from .. import functions
from ..concrete import as_bare_array
from ..dispatch import as_value, ndim, shape
from ..dtype_info import finfo
from ..elementwise import pointwise, rounding
from ..elementwise.pointwise import divide, multiply, subtract
from ..fusion import cast_whole
from ..index import indexing
from ..reduce import calculus, reductions
from ..shape import arrange, reshaping
from .nested import is_variable, rebind
from .unsupported import NOT_GIVEN, package_function, refuse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


_count = range  # which is a parameter of histograms


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


def real_if_close(a: Any, tol: float = 100) -> Any:
    x = as_value(a)
    if spec_of(x).dtype.kind != "c":
        return x
    bound = finfo(spec_of(x).dtype).eps * tol if tol > 1 else tol
    return pointwise.real(x) if (np.abs(as_bare_array(pointwise.imag(x), "real_if_close")) < bound).all() else x


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    found = rounding.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    return found if copy else write_in_place(x, found, "nan_to_num")


def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = as_value(a)
    for axis in np.atleast_1d(axes):
        found = func(x, int(axis))
        x = reshaping.expand_dims(found, int(axis) % ndim(x)) if ndim(found) < ndim(x) else found
    return x


@overload
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Plain | None = None
) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, *, weights: V
) -> tuple[V, NDArray[Any]]: ...
@overload
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any: ...
@attributed_to_caller
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """How many numbers lie in each bin, and the edges of the bins; or the sums of their weights. Counts have no
    derivative, sums have one in the weights.

    >>> import numpy as np, pullback as pb
    >>> pb.histogram(np.array([0.5, 1.5, 1.7, 3.0]), bins=3, range=(0, 3))
    (array([1, 2, 1]), array([0., 1., 2., 3.]))
    """
    edges = histogram_bin_edges(a, bins, range, weights)
    places, numbers = as_bare_array(edges, "histogram"), as_bare_array(a, "histogram").ravel()
    if weights is None:
        sums: Any = np.histogram(numbers, places)[0]
    else:
        inside = (numbers >= places[0]) & (numbers <= places[-1])
        bin_of = np.clip(np.searchsorted(places, numbers, side="right") - 1, 0, len(places) - 2)
        w = reshaping.reshape(as_value(weights), (-1,))
        sums = package_function("bincount", "histogram")(bin_of[inside], indexing.getitem(w, inside), len(places) - 1)
    if density:
        sums = divide(divide(sums, calculus.diff(edges)), reductions.sum(sums))
    elif weights is not None and spec_of(w).inexact:
        sums = reshaping.astype(sums, spec_of(w).dtype)
    return sums, edges


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of bins: as they are given, or at equal distances from the least number to the largest one."""
    if not isinstance(bins, str) and ndim(as_value(bins)):
        return as_value(bins)
    low, high = (None, None) if range is None else range
    limits = None if range is None else (_number(low), _number(high))
    weights = None if weights is None else as_bare_array(weights, "histogram")
    edges = np.histogram_bin_edges(as_bare_array(a, "histogram"), bins, limits, weights)
    if range is None and as_value(a).size:
        low, high = reductions.min(a), reductions.max(a)
    ends = [as_value(end) for end in (low, high)]
    if not any(isinstance(end, Value) for end in ends):
        return edges
    # NumPy moves ends that are equal apart
    first, last = (
        end + (place - as_bare_array(end, "histogram")) for end, place in zip(ends, edges[[0, -1]], strict=True)
    )
    return np.linspace(first, last, len(edges))


def _number(x: Any) -> float:
    return float(as_bare_array(x, "histogram"))


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    two = isinstance(bins, (int, str)) or np.ndim(bins) != 1 or len(bins) == 2  # else one array of edges for both
    sums, (first, second) = histogramdd([x, y], bins if two else [bins, bins], range, density, weights)
    return sums, first, second


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    refuse("histogramdd", weights=weights)
    if isinstance(sample, (list, tuple)):
        columns = list(sample)
    else:
        x = as_value(sample)
        columns = [x] if ndim(x) < 2 else [indexing.getitem(x, (slice(None), i)) for i in _count(shape(x)[1])]
    each = [bins] * len(columns) if isinstance(bins, (int, str)) else bins
    ranges = [None] * len(columns) if range is None else range
    edges = [histogram_bin_edges(*given) for given in zip(columns, each, ranges, strict=True)]
    points = np.stack([as_bare_array(column, "histogramdd").ravel() for column in columns], axis=-1)
    sums: Any = np.histogramdd(points, [as_bare_array(x, "histogramdd") for x in edges])[0]
    if density:
        total = sums.sum()  # counts over the volume of each bin
        for axis, of_axis in enumerate(edges):
            widths = reshaping.reshape(calculus.diff(of_axis), [-1 if i == axis else 1 for i in _count(len(edges))])
            sums = divide(sums, widths)
        sums = divide(sums, total)
    return sums, edges


def ix_(*args: Any) -> Any:
    """Arrays of one axis, each along an axis of its own; most are indices, but NumPy takes any."""
    found = np.ix_(*(as_bare_array(x, "ix_") for x in args))
    return tuple(
        reshaping.reshape(x, y.shape) if isinstance(x, Value) and spec_of(x).inexact else y
        for x, y in zip(map(as_value, args), found, strict=True)
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


@cast_whole("high")
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


def write_in_place(target: Any, found: Any, name: str) -> Any:
    """An in-place function of NumPy: rebinds a tensor to the result."""
    if not is_variable(target):
        raise UnsupportedFunction(
            f"np.{name} writes into a bare array, which cannot hold a derivative.\n"
            "  Make the array a tensor, x = pb.tensor(x), or use what returns a new one: pb.set_at, pb.where."
        )
    return rebind(target, found, f"np.{name}")


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    found = reshaping.broadcast_to(as_value(src), shape(dst))
    if not np.can_cast(spec_of(found).dtype, spec_of(dst).dtype, casting=casting):
        given, wanted = spec_of(found).dtype, spec_of(dst).dtype
        raise ArgumentError(f"copyto: {given} cannot be cast to {wanted} with casting={casting!r}.")
    write_in_place(dst, found if where is True else pointwise.where(where, found, dst), "copyto")


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    size = spec_of(as_value(a)).size
    places = as_bare_array(ind, "put").ravel()
    places = places % size if mode == "wrap" else np.clip(places, 0, size - 1) if mode == "clip" else places
    if not places.size:
        return
    flat = reshaping.reshape(as_value(v), (-1,))
    values = indexing.take(flat, np.arange(places.size) % shape(flat)[0])
    found = indexing.set_at(reshaping.reshape(as_value(a), (-1,)), places, values)
    write_in_place(a, reshaping.reshape(found, shape(a)), "put")


def place(arr: Any, mask: Any, vals: Any) -> None:
    chosen = np.flatnonzero(as_bare_array(mask, "place"))
    put(arr, chosen, vals)


def putmask(a: Any, /, mask: Any, values: Any) -> None:
    flat = reshaping.reshape(as_value(values), (-1,))
    repeated = indexing.take(flat, np.arange(spec_of(a).size) % shape(flat)[0])
    write_in_place(a, pointwise.where(mask, reshaping.reshape(repeated, shape(a)), a), "putmask")


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if axis is None:
        flat = indexing.put_along_axis(reshaping.reshape(arr, (-1,)), indices, values, axis=0)
        write_in_place(arr, reshaping.reshape(flat, shape(arr)), "put_along_axis")
        return
    write_in_place(arr, indexing.put_along_axis(arr, indices, values, axis=axis), "put_along_axis")


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = as_value(a)
    places = np.arange(spec_of(x).size).reshape(shape(x))
    marks = np.zeros(shape(x), bool)
    np.fill_diagonal(marks, True, wrap=wrap)
    put(a, places[marks], val)

"""Gather and scatter along an axis, as in PyTorch: writing, adding or reducing at given indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import ones, spec_of, zeros
from ...errors import ArgumentError, DtypeError, IndexingError, ShapeError
from .. import statics
from ..axes import normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..families import general
from ..forms import ScatterExtreme
from ..op import Op
from ..order import sorting
from ..reduce import scans
from ..shape import arrange, reshaping
from ..signatures import of_mixed_arrays
from . import indexing
from .normalize import SLOT, Index, fill_slots, index_static, namespace_for

P = ParamSpec("P")


def _is_extreme(x: Any, level: Any) -> Any:
    """Which elements equal the extreme; a NaN result selects the NaNs."""
    return pointwise.logical_or(
        pointwise.equal(x, level), pointwise.logical_and(pointwise.isnan(x), pointwise.isnan(level))
    )


def _find_ties(x: Any, values: Any, out: Any, indices: Sequence[Any], index: Index) -> tuple[Any, Any, Any]:
    """Which elements of the target and of the values are the extreme at their index, and how many share it."""
    dtype = spec_of(x).dtype
    of_target = _is_extreme(x, out)
    of_values = _is_extreme(values, indexing.getitem_normalized(out, indices, index))
    tied_values = indexing.scatter_normalized(reshaping.astype(of_values, dtype), indices, index, shape(x))
    return of_target, of_values, pointwise.add(reshaping.astype(of_target, dtype), tied_values)


def _pull_extreme_target(bar: Any, x: Any, values: Any, out: Any, indices: Any, index: Index) -> Any:
    of_target, _, count = _find_ties(x, values, out, indices, index)
    return pointwise.mask_cotangent(of_target, pointwise.divide(bar, count))


def _pull_extreme_values(bar: Any, x: Any, values: Any, out: Any, indices: Any, index: Index) -> Any:
    _, of_values, count = _find_ties(x, values, out, indices, index)
    return pointwise.mask_cotangent(
        of_values, indexing.getitem_normalized(pointwise.divide(bar, count), indices, index)
    )


def _push_extreme(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (x, values, *indices), index = primals, static["index"]
    of_target, of_values, count = _find_ties(x, values, out, indices, index)
    total = zeros(spec_of(out)) if tangents[0] is None else pointwise.where(of_target, tangents[0], 0)
    if tangents[1] is not None:
        moved = pointwise.where(of_values, tangents[1], 0)
        total = pointwise.add(total, indexing.scatter_normalized(moved, indices, index, shape(x)))
    return pointwise.divide(total, count)


def _extreme_value(xp: Any, x: Any, values: Any, *indices: Any, index: Index, least: bool) -> Any:
    if xp is not np and (wide := _EXTREMES_AS.get(x.dtype.name)):
        found = _extreme_value(xp, x.astype(wide), values.astype(wide), *indices, index=index, least=least)
        return found.astype(x.dtype)
    if xp is not np and x.dtype.kind == "f":
        return _extreme_by_bits(xp, x, values, fill_slots(index, indices), least)
    out = xp.array(x)
    (xp.minimum if least else xp.maximum).at(out, fill_slots(index, indices), values)
    return out


#: Dtypes whose extremes CuPy finds at an index by way of another one, which holds their numbers exactly.
_EXTREMES_AS = {**indexing.CHANGED_AS, "float16": "float32"}


def _extreme_by_bits(xp: Any, x: Any, values: Any, index: Any, least: bool) -> Any:
    """CuPy compares floats at an index in single precision, integers exactly; the bits of floats, those below the sign
    inverted in negative ones, sort like the numbers.
    """
    whole = xp.dtype(f"i{x.dtype.itemsize}")

    def sortable_bits(a: Any) -> Any:
        bits = xp.ascontiguousarray(a).view(whole)
        return bits ^ ((bits >> (8 * whole.itemsize - 1)) & xp.iinfo(whole).max)

    out = sortable_bits(xp.array(x))
    (xp.minimum if least else xp.maximum).at(out, index, sortable_bits(values.astype(x.dtype, copy=False)))
    return (out ^ ((out >> (8 * whole.itemsize - 1)) & xp.iinfo(whole).max)).view(x.dtype)


def _samples(rng: Any) -> Any:
    return [(sample, {**static, "least": bool(i % 2)}) for i, (sample, static) in enumerate(indexing.set_samples(rng))]


# x with each element the greatest (or least) of itself and the values sent to it.
_extreme: Op = general(
    "scatter_extreme",
    statics={"index": index_static(2, lambda specs, static: specs[0].ndim), "least": statics.flag},
    value=_extreme_value,
    spec=lambda x, values, *indices, index, least: indexing.set_spec(x, values, *indices, index=index),
    pulls={"x": _pull_extreme_target, "values": _pull_extreme_values},
    push=_push_extreme,
    batch=indexing.batch_set,
    samples=_samples,
    form=ScatterExtreme(),
)


class _Places:
    """Where values go in a target: an index with slots and its arrays, all of one shape with the values."""

    __slots__ = ("arrays", "index", "target")

    def __init__(self, target: Any, arrays: Sequence[Any]) -> None:
        self.target = target
        self.arrays = list(arrays)
        self.index: Index = (SLOT,) * len(self.arrays)

    def add(self, values: Any) -> Any:
        """Zeros like the target with the values added."""
        return indexing.scatter_at(values, tuple(self.arrays), shape(self.target))

    def write(self, target: Any, values: Any) -> Any:
        return indexing.set_at(target, tuple(self.arrays), values)

    def touched_mask(self) -> Any:
        """Which elements receive any value."""
        none = zeros(spec_of(self.target), bool)
        return indexing.set_at(none, tuple(self.arrays), True)

    def flat(self) -> Any:
        """Flat indices, counted row by row."""
        total: Any = 0
        for array, size in zip(self.arrays, shape(self.target), strict=True):
            array = pointwise.where(pointwise.less(array, 0), pointwise.add(array, size), array)
            total = pointwise.add(pointwise.multiply(total, size), array)
        return reshaping.reshape(total, (-1,))


def _fold_sum(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    return pointwise.add(pointwise.where(keep, x, 0), places.add(values))


def _fold_mean(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    dtype = spec_of(x).dtype
    if not spec_of(x).inexact:
        raise DtypeError(f"scatter_reduce: a mean wants floating-point numbers, got {dtype}.")
    own = reshaping.astype(keep, dtype) if spec_of(keep).shape else 1.0
    count = pointwise.add(places.add(ones(spec_of(values), dtype)), own)
    return pointwise.divide(_fold_sum(places, x, values, keep), count)


def _fold_prod(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    """Sorted by index the values form runs; a running product that restarts with each run ends with
    the product of the run, and being written last, stays. So zeros are no special case, at any order.
    """
    order = sorting.argsort(places.flat())
    turn = indexing.take(reshaping.reshape(values, (-1,)), order)
    where_to = indexing.take(places.flat(), order)
    first = ones(spec_of(where_to[:1]), bool)
    starts = arrange.concat([first, pointwise.not_equal(where_to[1:], where_to[:-1])])
    running = scans.linear_recurrence(pointwise.where(starts, 0, turn), pointwise.where(starts, turn, 0), axis=0)
    sorted_places = tuple(indexing.take(reshaping.reshape(a, (-1,)), order) for a in places.arrays)
    board = indexing.set_at(ones(spec_of(x)), sorted_places, running)
    return pointwise.multiply(pointwise.where(keep, x, 1), board)


def _fold_extreme(least: bool) -> Any:
    def fold(places: _Places, x: Any, values: Any, keep: Any) -> Any:
        worst = extreme_identity(spec_of(x).dtype, least)
        target = pointwise.where(keep, x, worst)
        values = reshaping.astype(values, spec_of(x).dtype)
        return apply(_extreme, target, values, *places.arrays, index=places.index, least=least)

    return fold


def extreme_identity(dtype: Any, least: bool) -> Any:
    """The identity of an extreme: any other number replaces it."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max if least else np.iinfo(dtype).min)
    return np.inf if least else -np.inf


_FOLDS: dict[str, Any] = {
    "sum": _fold_sum, "mean": _fold_mean, "prod": _fold_prod, "amax": _fold_extreme(False), "amin": _fold_extreme(True),
}  # fmt: skip


def fold_into(x: Any, arrays: Sequence[Any], values: Any, reduce: str, include_self: bool, what: str) -> Any:
    """x with values reduced into it; without `include_self`, an element that receives values drops its own."""
    if reduce not in _FOLDS:
        raise ArgumentError(f"{what}: reduce must be one of {', '.join(_FOLDS)}, got {reduce!r}.")
    if not spec_of(values).size:
        return reshaping.pass_through(x)
    places = _Places(x, arrays)
    keep = np.asarray(True) if include_self else pointwise.logical_not(places.touched_mask())
    return _FOLDS[reduce](places, x, values, keep)


def _at_least_1d(x: Any) -> Any:
    """A 0-d array is treated as a vector of one element."""
    return x if ndim(x) else reshaping.reshape(x, (1,))


def _along_axis(
    function: Callable[Concatenate[Any, int, Any, P], Any],
) -> Callable[Concatenate[Any, int, Any, P], Any]:
    """A function of (x, axis, index, ...) whose result is like x. It gets values, a normalized axis, and a vector of
    one element for each 0-d array.
    """

    @attributed_to_caller
    @functools.wraps(function)
    def call(x: Any, axis: int, index: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        given = as_value(x)
        x = _at_least_1d(given)
        axis = normalize_axis(axis, ndim(x), function.__name__)
        out = function(x, axis, _at_least_1d(as_value(index)), *args, **kwargs)
        return reshaping.reshape(out, shape(given))

    return call


def _index_grid(x: Any, axis: int, index: Any, what: str) -> list[Any]:
    """Index arrays for every axis: `index` along one, each element's own position along the others."""
    spec = spec_of(index)
    if spec.dtype.kind not in "iu" and spec.size:
        raise IndexingError(f"{what}: indices must be integers, got {spec.dtype}.")
    if spec.ndim != ndim(x):
        raise ShapeError(f"{what}: the index has {spec.ndim} axes, the array has {ndim(x)}.")
    for i, (n, size) in enumerate(zip(spec.shape, shape(x), strict=True)):
        if i != axis and n > size:
            raise ShapeError(f"{what}: an index of shape {spec.shape} does not fit an array of shape {shape(x)}.")
    xp = namespace_for(x)
    rank = spec.ndim
    own = [xp.arange(n).reshape((n, *(1,) * (rank - i - 1))) for i, n in enumerate(spec.shape)]
    return [reshaping.astype(index, np.intp) if i == axis else xp.broadcast_to(own[i], spec.shape) for i in range(rank)]


def _values_like_index(values: Any, index: Any, what: str) -> Any:
    """Values of the index's shape: a number for all, or the part of a larger array that the index covers."""
    values = as_value(values)
    if not ndim(values):
        return reshaping.broadcast_to(values, shape(index))
    if ndim(values) != ndim(index) or any(n < m for n, m in zip(shape(values), shape(index), strict=True)):
        raise ShapeError(f"{what}: values of shape {shape(values)} for an index of shape {shape(index)}.")
    return values if shape(values) == shape(index) else indexing.getitem(values, tuple(map(slice, shape(index))))


@of_mixed_arrays
@attributed_to_caller
def gather(x: Any, axis: int, index: Any, /) -> Any:
    """For each entry of `index` the element of x at that index along an axis, at the same position along the others.

    >>> import numpy as np, pullback as pb
    >>> pb.gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]]))
    array([[1, 1],
           [4, 3]])
    """
    given, index = as_value(x), as_value(index)
    x, index = _at_least_1d(given), _at_least_1d(index)
    axis = normalize_axis(axis, ndim(x), "gather")
    out = indexing.getitem(x, tuple(_index_grid(x, axis, index, "gather")))
    return out if ndim(given) else reshaping.reshape(out, ())


@of_mixed_arrays
@_along_axis
def scatter(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with values written at an index along an axis; where an index repeats, the last value stays.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter(np.zeros(3), 0, np.array([2, 0]), np.array([5.0, 7.0]))
    array([7., 0., 5.])
    """
    values = _values_like_index(values, index, "scatter")
    if not spec_of(index).size:
        return reshaping.pass_through(x)
    return indexing.set_at(x, tuple(_index_grid(x, axis, index, "scatter")), values)


@of_mixed_arrays
def scatter_add(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with values added at an index along an axis; repeated indices add up.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter_add(np.zeros(3), 0, np.array([2, 2]), np.array([5.0, 7.0]))
    array([ 0.,  0., 12.])
    """
    return scatter_reduce(x, axis, index, values, reduce="sum")


@of_mixed_arrays
@_along_axis
def scatter_reduce(x: Any, axis: int, index: Any, values: Any, /, *, reduce: str, include_self: bool = True) -> Any:
    """x with values reduced into it at an index along an axis by sum, prod, mean, amax or amin.

    Without `include_self` an element that receives values drops its own. Ties of amax and amin share evenly, and the
    product has correct derivatives at zeros to every order.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter_reduce(np.ones(3), 0, np.array([2, 2]), np.array([5.0, 7.0]), reduce="prod")
    array([ 1.,  1., 35.])
    """
    values, grid = _values_like_index(values, index, "scatter_reduce"), _index_grid(x, axis, index, "scatter_reduce")
    return fold_into(x, grid, values, reduce, include_self, "scatter_reduce")


def _check_slices(x: Any, axis: int, index: Any, values: Any, what: str) -> Any:
    """The values, with one slice for each entry of an index that is a vector."""
    values = as_value(values)
    if ndim(index) != 1:
        raise ShapeError(f"{what}: the index must have one axis, got shape {shape(index)}.")
    wanted = (*shape(x)[:axis], shape(index)[0], *shape(x)[axis + 1 :])
    if spec_of(values).size == spec_of(index).size and ndim(values) < len(wanted) and len(wanted) == 1:
        values = reshaping.reshape(values, wanted)
    if shape(values) != wanted:
        raise ShapeError(f"{what}: values have shape {shape(values)}, the slices {wanted}.")
    return values


def _index_at(axis: int, index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, index)


@of_mixed_arrays
@_along_axis
def index_add(x: Any, axis: int, index: Any, values: Any, /, *, alpha: Any = 1) -> Any:
    """x with slices of values, times alpha, added to the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_add(np.zeros((3, 1)), 0, np.array([2, 2]), np.array([[5.0], [7.0]])).ravel()
    array([ 0.,  0., 12.])
    """
    values = _check_slices(x, axis, index, values, "index_add")
    values = values if type(alpha) is int and alpha == 1 else pointwise.multiply(values, alpha)
    return indexing.add_at(x, _index_at(axis, index), values)


@of_mixed_arrays
@_along_axis
def index_copy(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with slices of values written to the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_copy(np.zeros(3), 0, np.array([2]), np.array([5.0]))
    array([0., 0., 5.])
    """
    return indexing.set_at(x, _index_at(axis, index), _check_slices(x, axis, index, values, "index_copy"))


@of_mixed_arrays
@_along_axis
def index_fill(x: Any, axis: int, index: Any, value: Any, /) -> Any:
    """x with one value in the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_fill(np.zeros(3), 0, np.array([2]), 5.0)
    array([0., 0., 5.])
    """
    return indexing.set_at(x, _index_at(axis, index), value)


@of_mixed_arrays
@_along_axis
def index_reduce(x: Any, axis: int, index: Any, values: Any, /, *, reduce: str, include_self: bool = True) -> Any:
    """x with slices of values reduced into the slices that an index names along an axis, as `scatter_reduce` does.

    >>> import numpy as np, pullback as pb
    >>> pb.index_reduce(np.ones(3), 0, np.array([2, 2]), np.array([5.0, 7.0]), reduce="amax")
    array([1., 1., 7.])
    """
    values = _check_slices(x, axis, index, values, "index_reduce")
    column = reshaping.reshape(index, (-1, *(1,) * (ndim(x) - axis - 1)))
    spread = reshaping.broadcast_to(column, shape(values))
    grid = _index_grid(x, axis, spread, "index_reduce")
    return fold_into(x, grid, values, reduce, include_self, "index_reduce")

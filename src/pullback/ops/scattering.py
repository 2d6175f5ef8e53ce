"""Values sent to places, PyTorch's way: gather and scatter along an axis, with writing, adding or any other folding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import ones, spec_of, zeros
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from . import arranging, indexing, scanning, shaping, sorting, statics
from . import elementwise as pointwise
from .axes import one_axis
from .dispatch import apply, as_value, ndim, shape
from .families import general
from .index import SLOT, Index, filled, index_kind, namespace_for
from .op import Op

__all__ = [
    "gather", "index_add", "index_copy", "index_fill", "index_reduce", "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip


def _holds(x: Any, level: Any) -> Any:
    """Which elements are the extreme they are compared with; a NaN came from the NaNs."""
    return pointwise.logical_or(
        pointwise.equal(x, level), pointwise.logical_and(pointwise.isnan(x), pointwise.isnan(level))
    )


def _tied(x: Any, values: Any, out: Any, indices: Sequence[Any], index: Index) -> tuple[Any, Any, Any]:
    """Which elements of the target and of the values are the extreme of their place, and how many share it."""
    dtype = spec_of(x).dtype
    of_target = _holds(x, out)
    of_values = _holds(values, indexing.pick(out, indices, index))
    landed = indexing.add_into(shaping.astype(of_values, dtype), indices, index, shape(x))
    return of_target, of_values, pointwise.add(shaping.astype(of_target, dtype), landed)


def _target_share(bar: Any, x: Any, values: Any, out: Any, indices: Any, index: Index) -> Any:
    of_target, _, count = _tied(x, values, out, indices, index)
    return pointwise.only(of_target, pointwise.divide(bar, count))


def _value_share(bar: Any, x: Any, values: Any, out: Any, indices: Any, index: Index) -> Any:
    _, of_values, count = _tied(x, values, out, indices, index)
    return pointwise.only(of_values, indexing.pick(pointwise.divide(bar, count), indices, index))


def _push_extreme(tangents: Any, out: Any, primals: Any, static: dict[str, Any]) -> Any:
    (x, values, *indices), index = primals, static["index"]
    of_target, of_values, count = _tied(x, values, out, indices, index)
    total = zeros(spec_of(out)) if tangents[0] is None else pointwise.where(of_target, tangents[0], 0)
    if tangents[1] is not None:
        moved = pointwise.where(of_values, tangents[1], 0)
        total = pointwise.add(total, indexing.add_into(moved, indices, index, shape(x)))
    return pointwise.divide(total, count)


def _extremes(xp: Any, x: Any, values: Any, *indices: Any, index: Index, least: bool) -> Any:
    if xp is not np and x.dtype.kind == "f":
        return _extremes_of_bits(xp, x, values, filled(index, indices), least)
    out = xp.array(x)
    (xp.minimum if least else xp.maximum).at(out, filled(index, indices), values)
    return out


def _extremes_of_bits(xp: Any, x: Any, values: Any, index: Any, least: bool) -> Any:
    """CuPy compares floats at an index in single precision, integers exactly; the bits of floats, those below the sign
    turned over in negative ones, are in the order of the numbers.
    """
    whole = xp.dtype(f"i{x.dtype.itemsize}")

    def ordered(a: Any) -> Any:
        bits = xp.ascontiguousarray(a).view(whole)
        return bits ^ ((bits >> (8 * whole.itemsize - 1)) & xp.iinfo(whole).max)

    out = ordered(xp.array(x))
    (xp.minimum if least else xp.maximum).at(out, index, ordered(values.astype(x.dtype, copy=False)))
    return (out ^ ((out >> (8 * whole.itemsize - 1)) & xp.iinfo(whole).max)).view(x.dtype)


def _samples(rng: Any) -> Any:
    return [(sample, {**static, "least": bool(i % 2)}) for i, (sample, static) in enumerate(indexing.set_samples(rng))]


_extreme: Op = general(
    "scatter_extreme",
    statics={"index": index_kind(2, lambda specs, static: specs[0].ndim), "least": statics.flag},
    args=("x", "values", "*indices"),
    doc="x with each place the greatest (or least) of itself and the values sent to it.",
    value=_extremes,
    spec=lambda x, values, *indices, index, least: indexing.set_spec(x, values, *indices, index=index),
    pulls={"x": _target_share, "values": _value_share},
    push=_push_extreme,
    batch=indexing.batch_set,
    samples=_samples,
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

    def touched(self) -> Any:
        """Where any value goes."""
        none = zeros(spec_of(self.target), bool)
        return indexing.set_at(none, tuple(self.arrays), True)

    def flat(self) -> Any:
        """One number for each place, counted row by row."""
        total: Any = 0
        for array, size in zip(self.arrays, shape(self.target), strict=True):
            array = pointwise.where(pointwise.less(array, 0), pointwise.add(array, size), array)
            total = pointwise.add(pointwise.multiply(total, size), array)
        return shaping.reshape(total, (-1,))


def _added(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    return pointwise.add(pointwise.where(keep, x, 0), places.add(values))


def _averaged(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    dtype = spec_of(x).dtype
    if not spec_of(x).inexact:
        raise DtypeError(f"scatter_reduce: a mean wants floating-point numbers, got {dtype}.")
    own = shaping.astype(keep, dtype) if spec_of(keep).shape else 1.0
    count = pointwise.add(places.add(ones(spec_of(values), dtype)), own)
    return pointwise.divide(_added(places, x, values, keep), count)


def _multiplied(places: _Places, x: Any, values: Any, keep: Any) -> Any:
    """The values in the order of their places are runs; a running product that starts anew with each run ends with
    the product of the run, and being written last, stays. So zeros are nothing special, to any order.
    """
    order = sorting.argsort(places.flat())
    turn = indexing.take(shaping.reshape(values, (-1,)), order)
    where_to = indexing.take(places.flat(), order)
    first = ones(spec_of(where_to[:1]), bool)
    starts = arranging.concat([first, pointwise.not_equal(where_to[1:], where_to[:-1])])
    running = scanning.linear_recurrence(pointwise.where(starts, 0, turn), pointwise.where(starts, turn, 0), axis=0)
    sorted_places = tuple(indexing.take(shaping.reshape(a, (-1,)), order) for a in places.arrays)
    board = indexing.set_at(ones(spec_of(x)), sorted_places, running)
    return pointwise.multiply(pointwise.where(keep, x, 1), board)


def _outdone(least: bool) -> Any:
    def fold(places: _Places, x: Any, values: Any, keep: Any) -> Any:
        worst = worst_of(spec_of(x).dtype, least)
        target = pointwise.where(keep, x, worst)
        values = shaping.astype(values, spec_of(x).dtype)
        return apply(_extreme, target, values, *places.arrays, index=places.index, least=least)

    return fold


def worst_of(dtype: Any, least: bool) -> Any:
    """The number that any other outdoes."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max if least else np.iinfo(dtype).min)
    return np.inf if least else -np.inf


_FOLDS: dict[str, Any] = {
    "sum": _added, "mean": _averaged, "prod": _multiplied, "amax": _outdone(False), "amin": _outdone(True),
}  # fmt: skip


def fold_into(x: Any, arrays: Sequence[Any], values: Any, reduce: str, include_self: bool, what: str) -> Any:
    """x with the values sent to places folded in; without `include_self`, a place that gets any forgets its own."""
    if reduce not in _FOLDS:
        raise ArgumentError(f"{what}: reduce must be one of {', '.join(_FOLDS)}, got {reduce!r}.")
    if not spec_of(values).size:
        return shaping.unchanged(x)
    places = _Places(x, arrays)
    keep = np.asarray(True) if include_self else pointwise.logical_not(places.touched())
    return _FOLDS[reduce](places, x, values, keep)


def _lifted(x: Any) -> Any:
    """A 0-d array passes for a vector of one element."""
    return x if ndim(x) else shaping.reshape(x, (1,))


def _grid(x: Any, axis: int, index: Any, what: str) -> list[Any]:
    """The index arrays of places along an axis: `index` there, elsewhere each its own place."""
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
    return [shaping.astype(index, np.intp) if i == axis else xp.broadcast_to(own[i], spec.shape) for i in range(rank)]


def _cut(values: Any, index: Any, what: str) -> Any:
    """Values of the index's shape: a number for all, or the part of a larger array that the index covers."""
    values = as_value(values)
    if not ndim(values):
        return shaping.broadcast_to(values, shape(index))
    if ndim(values) != ndim(index) or any(n < m for n, m in zip(shape(values), shape(index), strict=True)):
        raise ShapeError(f"{what}: values of shape {shape(values)} for an index of shape {shape(index)}.")
    return values if shape(values) == shape(index) else indexing.getitem(values, tuple(map(slice, shape(index))))


@signed
def gather(x: Any, axis: int, index: Any, /) -> Any:
    """For each place in `index` the element of x at that index along an axis, elsewhere at its own place.

    >>> import numpy as np, pullback as pb
    >>> pb.gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]]))
    array([[1, 1],
           [4, 3]])
    """
    given, index = as_value(x), as_value(index)
    x, index = _lifted(given), _lifted(index)
    axis = one_axis(axis, ndim(x), "gather")
    out = indexing.getitem(x, tuple(_grid(x, axis, index, "gather")))
    return out if ndim(given) else shaping.reshape(out, ())


@signed
def scatter(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with values written at an index along an axis; where a place is named twice, the last value stays.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter(np.zeros(3), 0, np.array([2, 0]), np.array([5.0, 7.0]))
    array([7., 0., 5.])
    """
    given, index = as_value(x), _lifted(as_value(index))
    x = _lifted(given)
    axis = one_axis(axis, ndim(x), "scatter")
    values = _cut(_as_lifted(values, given), index, "scatter")
    if not spec_of(index).size:
        return shaping.unchanged(given)
    out = indexing.set_at(x, tuple(_grid(x, axis, index, "scatter")), values)
    return shaping.reshape(out, shape(given))


def _as_lifted(values: Any, given: Any) -> Any:
    values = as_value(values)
    return values if ndim(given) or ndim(values) else shaping.reshape(values, (1,))


def scatter_add(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with values added at an index along an axis; places named twice add up.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter_add(np.zeros(3), 0, np.array([2, 2]), np.array([5.0, 7.0]))
    array([ 0.,  0., 12.])
    """
    return scatter_reduce(x, axis, index, values, reduce="sum")


@signed
def scatter_reduce(x: Any, axis: int, index: Any, values: Any, /, *, reduce: str, include_self: bool = True) -> Any:
    """x with values folded in at an index along an axis by sum, prod, mean, amax or amin.

    Without `include_self` a place that gets values forgets its own. Ties of amax and amin share evenly, and the
    product is right at zeros to every order.

    >>> import numpy as np, pullback as pb
    >>> pb.scatter_reduce(np.ones(3), 0, np.array([2, 2]), np.array([5.0, 7.0]), reduce="prod")
    array([ 1.,  1., 35.])
    """
    given, index = as_value(x), _lifted(as_value(index))
    x = _lifted(given)
    axis = one_axis(axis, ndim(x), "scatter_reduce")
    values = _cut(_as_lifted(values, given), index, "scatter_reduce")
    out = fold_into(x, _grid(x, axis, index, "scatter_reduce"), values, reduce, include_self, "scatter_reduce")
    return shaping.reshape(out, shape(given))


def _slices(x: Any, axis: int, index: Any, values: Any, what: str) -> tuple[int, Any, Any]:
    """The axis, the index as a vector, and the values with one slice for each of its entries."""
    axis, index, values = one_axis(axis, ndim(x), what), _lifted(as_value(index)), as_value(values)
    if ndim(index) != 1:
        raise ShapeError(f"{what}: the index must have one axis, got shape {shape(index)}.")
    wanted = (*shape(x)[:axis], shape(index)[0], *shape(x)[axis + 1 :])
    if spec_of(values).size == spec_of(index).size and ndim(values) < len(wanted) and len(wanted) == 1:
        values = shaping.reshape(values, wanted)
    if shape(values) != wanted:
        raise ShapeError(f"{what}: values have shape {shape(values)}, the slices {wanted}.")
    return axis, index, values


def _at(axis: int, index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, index)


@signed
def index_add(x: Any, axis: int, index: Any, values: Any, /, *, alpha: Any = 1) -> Any:
    """x with slices of values, times alpha, added to the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_add(np.zeros((3, 1)), 0, np.array([2, 2]), np.array([[5.0], [7.0]])).ravel()
    array([ 0.,  0., 12.])
    """
    given = as_value(x)
    x = _lifted(given)
    axis, index, values = _slices(x, axis, index, values, "index_add")
    values = values if type(alpha) is int and alpha == 1 else pointwise.multiply(values, alpha)
    return shaping.reshape(indexing.add_at(x, _at(axis, index), values), shape(given))


@signed
def index_copy(x: Any, axis: int, index: Any, values: Any, /) -> Any:
    """x with slices of values written over the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_copy(np.zeros(3), 0, np.array([2]), np.array([5.0]))
    array([0., 0., 5.])
    """
    given = as_value(x)
    x = _lifted(given)
    axis, index, values = _slices(x, axis, index, values, "index_copy")
    return shaping.reshape(indexing.set_at(x, _at(axis, index), values), shape(given))


@signed
def index_fill(x: Any, axis: int, index: Any, value: Any, /) -> Any:
    """x with one number in the slices that an index names along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.index_fill(np.zeros(3), 0, np.array([2]), 5.0)
    array([0., 0., 5.])
    """
    given = as_value(x)
    x = _lifted(given)
    axis = one_axis(axis, ndim(x), "index_fill")
    return shaping.reshape(indexing.set_at(x, _at(axis, _lifted(as_value(index))), value), shape(given))


@signed
def index_reduce(x: Any, axis: int, index: Any, values: Any, /, *, reduce: str, include_self: bool = True) -> Any:
    """x with slices of values folded into the slices that an index names along an axis, as `scatter_reduce` does.

    >>> import numpy as np, pullback as pb
    >>> pb.index_reduce(np.ones(3), 0, np.array([2, 2]), np.array([5.0, 7.0]), reduce="amax")
    array([1., 1., 7.])
    """
    given = as_value(x)
    x = _lifted(given)
    axis, index, values = _slices(x, axis, index, values, "index_reduce")
    column = shaping.reshape(index, (-1, *(1,) * (ndim(x) - axis - 1)))
    spread = shaping.broadcast_to(column, shape(values))
    out = fold_into(x, _grid(x, axis, spread, "index_reduce"), values, reduce, include_self, "index_reduce")
    return shaping.reshape(out, shape(given))

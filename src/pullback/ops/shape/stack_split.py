"""Stacking, splitting and flipping by NumPy's names: composites of `arrange` and `reshaping`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ..axes import as_integer, as_shape, normalize_axis
from ..dispatch import as_value, ndim, shape
from ..index import indexing
from ..signatures import ArrayFunction, ListFunction, of_array, of_sequence, to_list, to_tuple
from . import arrange, reshaping


@of_array
def swapaxes(x: Any, axis1: int, axis2: int, /) -> Any:
    """Two axes exchanged.

    >>> import numpy as np, pullback as pb
    >>> pb.swapaxes(np.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_value(x)
    order = list(range(ndim(x)))
    first, second = normalize_axis(axis1, ndim(x), "swapaxes"), normalize_axis(axis2, ndim(x), "swapaxes")
    order[first], order[second] = second, first
    return reshaping.permute_dims(x, tuple(order))


@of_array
def rollaxis(x: Any, axis: int, start: int = 0, /) -> Any:
    """One axis moved back until it lies before another.

    >>> import numpy as np, pullback as pb
    >>> pb.rollaxis(np.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = as_value(x)
    rank = ndim(x)
    axis, start = normalize_axis(axis, rank, "rollaxis"), as_integer(start, "rollaxis: start")
    start = start + rank if start < 0 else start
    if not 0 <= start <= rank:
        raise ShapeError(f"rollaxis: start {start} is outside of 0 to {rank}.")
    return reshaping.moveaxis(x, axis, start - 1 if axis < start else start)


@of_array
def ravel(x: Any, /, order: str = "C") -> Any:
    """The elements as a vector, row by row.

    >>> import numpy as np, pullback as pb
    >>> pb.ravel(np.array([[1, 2], [3, 4]]))
    array([1, 2, 3, 4])
    """
    if order not in ("C", "F"):
        raise ArgumentError(f"ravel: order must be C or F, got {order!r}: values have no other memory order here.")
    x = as_value(x)
    return reshaping.reshape(reshaping.permute_dims(x) if order == "F" else x, (-1,))


@of_array
def flatten(x: Any, /, start_axis: int = 0, end_axis: int = -1) -> Any:
    """A range of axes merged into one.

    >>> import numpy as np, pullback as pb
    >>> pb.flatten(np.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_value(x)
    if not ndim(x):
        return reshaping.reshape(x, (1,))
    first, last = normalize_axis(start_axis, ndim(x), "flatten"), normalize_axis(end_axis, ndim(x), "flatten")
    if first > last:
        raise ArgumentError(f"flatten: axis {start_axis} comes after axis {end_axis}.")
    sizes = shape(x)
    return reshaping.reshape(x, (*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :]))


@of_array
def unflatten(x: Any, axis: int, sizes: Any, /) -> Any:
    """One axis split into several; one of their sizes may be -1.

    >>> import numpy as np, pullback as pb
    >>> pb.unflatten(np.zeros((2, 12)), 1, (3, -1)).shape
    (2, 3, 4)
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "unflatten")
    wanted = list(as_shape(sizes, "unflatten"))
    if wanted.count(-1) == 1:
        rest = math.prod(n for n in wanted if n != -1)
        if not rest or shape(x)[axis] % rest:
            raise ShapeError(f"unflatten: an axis of {shape(x)[axis]} does not fill sizes {tuple(wanted)}.")
        wanted[wanted.index(-1)] = shape(x)[axis] // rest
    if math.prod(wanted) != shape(x)[axis] or min(wanted, default=0) < 0:
        raise ShapeError(f"unflatten: an axis of {shape(x)[axis]} does not fill sizes {tuple(wanted)}.")
    return reshaping.reshape(x, (*shape(x)[:axis], *wanted, *shape(x)[axis + 1 :]))


def _make_atleast(name: str, grow: Any, example: str) -> Any:
    def function(*arrays: Any) -> Any:
        found = [grow(as_value(x)) for x in arrays]
        return found[0] if len(found) == 1 else tuple(found)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Arrays with axes of size one added until each has {name[8]}; several come back as a tuple.

    >>> import numpy as np, pullback as pb
    >>> pb.{name}(np.zeros(3)).shape
    {example}
    """
    return function


def _to_three_axes(x: Any) -> Any:
    sizes = shape(x)
    wanted = {0: (1, 1, 1), 1: (1, *sizes, 1), 2: (*sizes, 1)}.get(len(sizes), sizes)
    return reshaping.reshape(x, wanted)


atleast_1d: ArrayFunction[...] = _make_atleast("atleast_1d", lambda x: reshaping.reshape(x, shape(x) or (1,)), "(3,)")
atleast_2d: ArrayFunction[...] = _make_atleast(
    "atleast_2d", lambda x: reshaping.reshape(x, (1,) * max(0, 2 - ndim(x)) + shape(x)), "(1, 3)"
)
atleast_3d: ArrayFunction[...] = _make_atleast("atleast_3d", _to_three_axes, "(1, 3, 1)")


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Arrays broadcast to their common shape.

    >>> import numpy as np, pullback as pb
    >>> [x.shape for x in pb.broadcast_arrays(np.zeros(3), np.zeros((2, 1)))]
    [(2, 3), (2, 3)]
    """
    return tuple(reshaping.broadcast_together(*(as_value(x) for x in arrays))) if arrays else ()


@attributed_to_caller
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Any, ...]:
    """One grid for each vector: its values along its own axis, repeated along the others.

    >>> import numpy as np, pullback as pb
    >>> pb.meshgrid(np.array([1, 2, 3]), np.array([4, 5]))[1]
    array([[4, 4, 4],
           [5, 5, 5]])
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be xy or ij, got {indexing!r}.")
    xs = [as_value(x) for x in arrays]
    if any(ndim(x) > 1 for x in xs):
        raise ShapeError(f"meshgrid: wants vectors, got shapes {[shape(x) for x in xs]}.")
    grids = [
        reshaping.reshape(x, tuple(-1 if i == j else 1 for j in range(len(xs))) or (-1,)) for i, x in enumerate(xs)
    ]
    if indexing == "xy" and len(xs) > 1:
        grids = [swapaxes(g, 0, 1) for g in grids]
    return tuple(grids) if sparse or not grids else broadcast_arrays(*grids)


@to_tuple
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, as a tuple.

    >>> import numpy as np, pullback as pb
    >>> pb.unstack(np.array([[1, 2], [3, 4]]), axis=1)
    (array([1, 3]), array([2, 4]))
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "unstack")
    size = shape(x)[axis]
    if not size:
        return ()
    return tuple(reshaping.squeeze(part, axis) for part in arrange.split(x, size, axis=axis))


@to_list
@attributed_to_caller
def tensor_split(x: Any, /, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """x cut along an axis before the given indices, or into sections whose sizes differ by one at most.

    >>> import numpy as np, pullback as pb
    >>> pb.tensor_split(np.arange(5), 2)
    [array([0, 1, 2]), array([3, 4])]
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "tensor_split")
    if isinstance(indices_or_sections, (list, tuple)) or getattr(indices_or_sections, "ndim", 0) > 0:
        return _split_at_any(x, indices_or_sections, axis)
    count = as_integer(indices_or_sections, "tensor_split: sections")
    if count < 1:
        raise ArgumentError(f"tensor_split: wants at least one section, got {count}.")
    size, longer = divmod(shape(x)[axis], count)
    ends = np.cumsum([size + (k < longer) for k in range(count)])[:-1]
    return arrange.split(x, [int(e) for e in ends], axis=axis)


def _split_at_any(x: Any, indices: Any, axis: int) -> list[Any]:
    """NumPy lets indices decrease: each part is then the slice from one to the next, which may be empty."""
    cuts = [as_integer(i, "split: index") for i in indices]
    places = [slice(0, c).indices(shape(x)[axis])[1] for c in cuts]
    if places == sorted(places):
        return arrange.split(x, cuts, axis=axis)
    before = (slice(None),) * axis
    ends = [0, *cuts, shape(x)[axis]]
    return [indexing.getitem(x, (*before, slice(a, b))) for a, b in itertools.pairwise(ends)]


array_split = tensor_split


def _make_split(name: str, axis_of: Any, least: int, what: str) -> Any:
    def function(x: Any, /, indices_or_sections: Any) -> list[Any]:
        x = as_value(x)
        if ndim(x) < least:
            raise ShapeError(f"{name}: wants {least} axes or more, got shape {shape(x)}.")
        return arrange.split(x, indices_or_sections, axis=axis_of(ndim(x)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""x cut along its {what}, into equal sections or before indices.

    >>> import numpy as np, pullback as pb
    >>> len(pb.{name}(np.zeros((2, 2, 2)), 2))
    2
    """
    return function


hsplit: ListFunction[...] = _make_split(
    "hsplit", lambda rank: 0 if rank == 1 else 1, 1, "second axis (of a vector, its only one)"
)
vsplit: ListFunction[...] = _make_split("vsplit", lambda rank: 0, 2, "first axis")
dsplit: ListFunction[...] = _make_split("dsplit", lambda rank: 2, 3, "third axis")


def _grow_all(arrays: Any, grow: Any) -> list[Any]:
    found = grow(*arrays)
    return [found] if len(arrays) == 1 else list(found)


@of_sequence
@attributed_to_caller
def vstack(arrays: Any, /, *, dtype: Any = None) -> Any:
    """Arrays stacked vertically, vectors as rows.

    >>> import numpy as np, pullback as pb
    >>> pb.vstack([np.array([1, 2]), np.array([3, 4])])
    array([[1, 2],
           [3, 4]])
    """
    return arrange.concat(_grow_all(arrays, atleast_2d), axis=0, dtype=dtype)


@of_sequence
@attributed_to_caller
def hstack(arrays: Any, /, *, dtype: Any = None) -> Any:
    """Arrays stacked horizontally, vectors end to end.

    >>> import numpy as np, pullback as pb
    >>> pb.hstack([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    xs = _grow_all(arrays, atleast_1d)
    return arrange.concat(xs, axis=0 if ndim(xs[0]) == 1 else 1, dtype=dtype)


@of_sequence
@attributed_to_caller
def dstack(arrays: Any, /) -> Any:
    """Arrays stacked along a third axis.

    >>> import numpy as np, pullback as pb
    >>> pb.dstack([np.array([1, 2]), np.array([3, 4])]).shape
    (1, 2, 2)
    """
    return arrange.concat(_grow_all(arrays, atleast_3d), axis=2)


@of_sequence
@attributed_to_caller
def column_stack(arrays: Any, /) -> Any:
    """Arrays stacked horizontally, vectors as columns.

    >>> import numpy as np, pullback as pb
    >>> pb.column_stack([np.array([1, 2]), np.array([3, 4])])
    array([[1, 3],
           [2, 4]])
    """
    xs = [as_value(x) for x in arrays]
    return arrange.concat([reshaping.reshape(x, (-1, 1)) if ndim(x) < 2 else x for x in xs], axis=1)


@of_sequence
@attributed_to_caller
def block(arrays: Any, /) -> Any:
    """Nested lists of arrays joined: the innermost along the last axis, each list outside of them along the one before.

    >>> import numpy as np, pullback as pb
    >>> pb.block([[np.ones((1, 1)), np.zeros((1, 2))]])
    array([[1., 0., 0.]])
    """
    depth = _nesting_depth(arrays)
    parts = _nested_leaves(arrays)
    rank = max([depth, *(ndim(as_value(x)) for x in parts)])

    def join(item: Any, level: int) -> Any:
        if not isinstance(item, list):
            x = as_value(item)
            return reshaping.reshape(x, (1,) * (rank - ndim(x)) + shape(x))
        return arrange.concat([join(part, level + 1) for part in item], axis=rank - depth + level)

    return join(arrays, 0)


def _nesting_depth(item: Any) -> int:
    if isinstance(item, tuple):
        raise ArgumentError("block: wants lists, got a tuple.")
    if not isinstance(item, list):
        return 0
    depths = {_nesting_depth(part) for part in item}
    if len(depths) != 1:
        raise ArgumentError("block: lists must all be nested equally deep, and none empty.")
    return 1 + depths.pop()


def _nested_leaves(item: Any) -> list[Any]:
    return [x for part in item for x in _nested_leaves(part)] if isinstance(item, list) else [item]


@of_array
def fliplr(x: Any, /) -> Any:
    """The elements in reverse order along the second axis.

    >>> import numpy as np, pullback as pb
    >>> pb.fliplr(np.array([[1, 2], [3, 4]]))
    array([[2, 1],
           [4, 3]])
    """
    return arrange.flip(x, axis=1)


@of_array
def flipud(x: Any, /) -> Any:
    """The elements in reverse order along the first axis.

    >>> import numpy as np, pullback as pb
    >>> pb.flipud(np.array([1, 2]))
    array([2, 1])
    """
    return arrange.flip(x, axis=0)


@of_array
@attributed_to_caller
def rot90(x: Any, /, k: int = 1, axes: Any = (0, 1)) -> Any:
    """x rotated by k quarter turns in the plane of two axes, from the first towards the second.

    >>> import numpy as np, pullback as pb
    >>> pb.rot90(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    x = as_value(x)
    if len(axes) != 2:
        raise ArgumentError(f"rot90: a plane has two axes, got {axes}.")
    first, second = (normalize_axis(a, ndim(x), "rot90") for a in axes)
    if first == second:
        raise ArgumentError(f"rot90: axes {axes} are the same axis.")
    turns = as_integer(k, "rot90: k") % 4
    if turns == 0:
        return reshaping.pass_through(x)
    if turns == 2:
        return arrange.flip(x, axis=(first, second))
    if turns == 1:
        return swapaxes(arrange.flip(x, axis=second), first, second)
    return arrange.flip(swapaxes(x, first, second), axis=second)

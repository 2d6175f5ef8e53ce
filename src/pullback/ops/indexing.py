"""Indexing and its transpose: every form of `x[index]`, of `x[index] = v`, and what is built on them.

An index is a tuple in which arrays are marked by `SLOT`; the arrays themselves are arguments of the op, so that
they may be batched or staged. Boolean masks become integer arrays at the border, where their values are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..errors import ConversionError, DtypeError, IndexingError, ShapeError
from . import batching, shaping
from .axes import one_axis
from .dispatch import apply, as_value, ndim, shape
from .elementwise import add, equal, only
from .families import general
from .op import Op

__all__ = ["SLOT", "add_at", "getitem", "put_along_axis", "scatter", "set_at", "take", "take_along_axis"]


class _Slot:
    """Where an index array goes in an index."""

    def __repr__(self) -> str:
        return "SLOT"


SLOT = _Slot()
Index = tuple[Any, ...]


def namespace_for(x: Any) -> Any:
    """The library in which constants beside x must be made."""
    return namespace_on(spec_of(x).device)


def namespace_zeros(spec: Spec) -> Any:
    return namespace_on(spec.device).zeros(spec.shape, spec.dtype)


def _filled(index: Index, arrays: Sequence[Any]) -> Index:
    left = iter(arrays)
    return tuple(next(left) if i is SLOT else i for i in index)


def _advanced(index: Index) -> list[int]:
    """Positions that NumPy treats as advanced: arrays, and integers beside arrays."""
    if SLOT not in index:
        return []
    return [n for n, i in enumerate(index) if i is SLOT or isinstance(i, int)]


def _is_apart(index: Index) -> bool:
    """Whether the advanced positions are separated, which makes NumPy put their axes first."""
    places = _advanced(index)
    return bool(places) and places != list(range(places[0], places[-1] + 1))


def _shape_at(x: Spec, arrays: Sequence[Spec], index: Index, what: str) -> tuple[int, ...]:
    """The shape of x[index], found on an array without memory."""
    dummies = [np.zeros(s.shape, np.intp) for s in arrays]
    full = np.broadcast_to(np.int8(0), x.shape)
    try:
        return full[_filled(index, dummies)].shape
    except IndexError as error:
        if any(n == 0 for n in x.shape):
            return _shape_when_empty(x, arrays, index)
        raise IndexingError(f"{what}: {error}.\n  The array has shape {x.shape}.") from None


def _shape_when_empty(x: Spec, arrays: Sequence[Spec], index: Index) -> tuple[int, ...]:
    """An empty axis accepts no index 0, so the dummy gets one element there."""
    full = np.broadcast_to(np.int8(0), tuple(max(n, 1) for n in x.shape))
    return full[_filled(index, [np.zeros(s.shape, np.intp) for s in arrays])].shape


def normal_index(x: Any, index: Any) -> tuple[Index, list[Any]]:
    """What a user wrote in brackets as an index with slots and its arrays; shapes and kinds checked."""
    entries = index if isinstance(index, tuple) else (index,)
    if all(_is_basic(entry) for entry in entries):
        return _without_ellipsis(entries, ndim(x)), []
    plain: list[Any] = []
    arrays: list[Any] = []
    seen: list[Any] = []
    for entry in entries:
        if entry is None or entry is Ellipsis:
            plain.append(entry)
        elif isinstance(entry, slice):
            plain.append(slice(*(None if e is None else _as_int(e) for e in (entry.start, entry.stop, entry.step))))
        elif isinstance(entry, (int, np.integer)) and not isinstance(entry, (bool, np.bool_)):
            plain.append(int(entry))
        else:
            found = _index_arrays(x, entry, _axis_of(entries, len(seen), ndim(x)))
            arrays.extend(found)
            plain.extend([SLOT] * len(found))
        seen.append(entry)
    return _without_ellipsis(tuple(plain), ndim(x)), arrays


def _is_basic(entry: Any) -> bool:
    """A plain integer, a slice of plain integers, None or an ellipsis: nothing to normalise."""
    if type(entry) is slice:
        start, stop, step = entry.start, entry.stop, entry.step
        return (
            (start is None or type(start) is int)
            and (stop is None or type(stop) is int)
            and (step is None or type(step) is int)
        )
    return type(entry) is int or entry is None or entry is Ellipsis


def _as_int(e: Any) -> int:
    try:
        return int(e.__index__())
    except (AttributeError, TypeError):
        raise IndexingError(f"a slice is made of integers, got {e!r}.") from None


def _axis_of(entries: Sequence[Any], place: int, rank: int) -> int:
    """The first axis that an entry of an index stands for, counted from the back if an ellipsis comes before."""
    if any(e is Ellipsis for e in entries[:place]):
        return rank - sum(map(_axes_taken, entries[place:]))
    return sum(map(_axes_taken, entries[:place]))


def _axes_taken(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    if isinstance(entry, (slice, int, np.integer)):
        return 1
    spec = spec_of(as_value(entry))
    return spec.ndim if spec.dtype.kind == "b" else 1


def _index_arrays(x: Any, entry: Any, axis: int) -> list[Any]:
    entry = as_value(entry)
    kind = spec_of(entry).dtype.kind
    xp = namespace_for(x)
    if kind == "b":
        mask = _known(entry)
        if not mask.ndim:
            raise IndexingError("a single True or False can be an index only by itself: x[flag].")
        over = shape(x)[axis : axis + mask.ndim]
        if mask.shape != over:
            raise IndexingError(
                f"a mask of shape {mask.shape} stands over axes of shape {over}, the array has {shape(x)}."
            )
        return list(xp.nonzero(xp.asarray(mask)))
    if kind not in "iu":
        if spec_of(entry).size:
            raise IndexingError(f"indices must be integers or booleans, got {spec_of(entry).dtype}.")
        entry = np.zeros(shape(entry), np.intp)
    if isinstance(entry, Value):
        return [entry]
    return [xp.asarray(entry)]


def _known(mask: Any) -> Any:
    """The numbers of a mask: which elements it picks decides a shape, so they must be known now."""
    while isinstance(mask, Tensor):
        mask = mask.value
    if not is_array(mask):
        if isinstance(mask, Value):
            raise ConversionError(
                "a boolean mask inside a transform has no known count of elements.\n"
                "  Use pb.where(mask, x, 0), whose shape does not depend on values."
            )
        mask = np.asarray(mask)
    return mask


def _without_ellipsis(index: Index, rank: int) -> Index:
    used = sum(i is not None and i is not Ellipsis for i in index)
    if used > rank:
        raise IndexingError(f"too many indices: {used} for an array of {rank} axes.")
    dots = [n for n, i in enumerate(index) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("an index can have one ellipsis ('...').")
    at = dots[0] if dots else len(index)
    full = (slice(None),) * (rank - used)
    return (*index[:at], *full, *index[at + 1 :])


def _batch_getitem(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """The batch axis is one more slice in front, or, where the index differs by element, one more index array."""
    index: Index = static["index"]
    (x, *arrays), (x_axis, *array_axes) = args, axes
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, array_axes, strict=True)], default=0)
    if all(ax is None for ax in array_axes):
        out = apply(op, batching.lead(x, x_axis), *arrays, index=(slice(None), *index))
        return out, rank if _is_apart(index) else 0
    moved = [batching.padded(a, ax, rank) for a, ax in zip(arrays, array_axes, strict=True)]
    if x_axis is None:
        out = apply(op, x, *moved, index=index)
        return out, 0 if _is_apart(index) else _before(index)
    steps = namespace_for(x).arange(size).reshape((size,) + (1,) * rank)
    out = apply(op, batching.lead(x, x_axis), steps, *moved, index=(SLOT, *index))
    if not _is_apart(index) and _is_apart((SLOT, *index)):  # the index axes came first, but belong after the slices
        at = _before(index)
        out = shaping.moveaxis(out, tuple(range(1, rank + 1)), tuple(range(at + 1, at + rank + 1)))
    return out, 0


def _before(index: Index) -> int:
    """How many axes of the result stand before those of the index arrays."""
    return sum(not isinstance(i, int) for i in index[: _advanced(index)[0]])


def _index_samples(rng: Any) -> Any:
    x = rng.normal(size=(3, 4, 2))
    i, j = np.array([0, 2, 0]), np.array([[1], [3]])
    return [
        ((x,), {"index": (1, slice(None, None, 2), None, slice(None))}),
        ((x,), {"index": (slice(None, None, -1), -1, slice(0, 0))}),
        ((x, i), {"index": (SLOT, slice(None), slice(None))}),
        ((x, i, j), {"index": (SLOT, SLOT, slice(None))}),
        ((x, i), {"index": (slice(None), SLOT, slice(None))}),
        ((x, i, j % 2), {"index": (SLOT, slice(None), SLOT)}),
        ((x, np.zeros(0, int)), {"index": (SLOT, 1, slice(None))}),
    ]


def _scatter_spec(x: Spec, *indices: Spec, index: Index, wanted: tuple[int, ...]) -> Spec:
    return make_spec(wanted, x.dtype, x.device)


def _push_getitem(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    return None if tangents[0] is None else apply(_getitem, tangents[0], *primals[1:], **static)


_getitem: Op = general(
    "getitem",
    family="linear",
    args=("x", "*indices"),
    doc="x[index].",
    value=lambda xp, x, *indices, index: x[_filled(index, indices)],
    spec=lambda x, *indices, index: make_spec(_shape_at(x, indices, index, "getitem"), x.dtype, x.device),
    pulls={"x": lambda bar, x_spec, indices, index: apply(_scatter, bar, *indices, index=index, wanted=x_spec.shape)},
    push=_push_getitem,
    batch=_batch_getitem,
    samples=_index_samples,
    motion="rearrange",
)


def _scattered(xp: Any, x: Any, *indices: Any, index: Index, wanted: tuple[int, ...]) -> Any:
    out = xp.zeros(wanted, x.dtype)
    if indices:
        xp.add.at(out, _filled(index, indices), x)
    else:
        out[index] = x
    return out


def _batch_scatter(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """Each element writes into its own slice: one more index array in front counts the elements."""
    (x, *arrays), (x_axis, *array_axes) = args, axes
    index, wanted = static["index"], static["wanted"]
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, array_axes, strict=True)], default=0)
    x = batching.lead(x, x_axis, size)
    if all(ax is None for ax in array_axes):
        if _is_apart(index):  # the axes of the index arrays come first in x, before the batch axis
            x = shaping.moveaxis(x, 0, rank)
        return apply(op, x, *arrays, index=(slice(None), *index), wanted=(size, *wanted)), 0
    moved = [batching.padded(a, ax, rank) for a, ax in zip(arrays, array_axes, strict=True)]
    steps = namespace_for(x).arange(size).reshape((size,) + (1,) * rank)
    if not _is_apart(index) and _is_apart((SLOT, *index)):
        at = _before(index)
        x = shaping.moveaxis(x, tuple(range(at + 1, at + rank + 1)), tuple(range(1, rank + 1)))
    return apply(op, x, steps, *moved, index=(SLOT, *index), wanted=(size, *wanted)), 0


def _scatter_samples(rng: Any) -> Any:
    full = np.zeros((3, 4, 2))
    return [
        ((rng.normal(size=full[_filled(static["index"], arrays)].shape), *arrays), {**static, "wanted": full.shape})
        for (_, *arrays), static in _index_samples(rng)
    ]


def _push_scatter(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    return None if tangents[0] is None else apply(_scatter, tangents[0], *primals[1:], **static)


_scatter: Op = general(
    "scatter",
    family="linear",
    args=("x", "*indices"),
    doc="Zeros of a shape with x added at an index: the transpose of getitem.",
    value=_scattered,
    spec=_scatter_spec,
    pulls={"x": lambda bar, indices, index: apply(_getitem, bar, *indices, index=index)},
    push=_push_scatter,
    batch=_batch_scatter,
    samples=_scatter_samples,
    motion="rearrange",
)


def _written(xp: Any, x: Any, values: Any, *indices: Any, index: Index) -> Any:
    if xp is np or not indices or not values.size:
        out = xp.array(x)
        out[_filled(index, indices)] = values
        return out
    # A GPU writes in any order, so let each place find the last value that was sent to it.
    ticket = xp.arange(1, values.size + 1).reshape(values.shape)
    board = xp.zeros(x.shape, ticket.dtype)
    xp.maximum.at(board, _filled(index, indices), ticket)
    return xp.where(board > 0, values.reshape(-1)[xp.maximum(board - 1, 0)], x)


def _set_spec(x: Spec, values: Spec, *indices: Spec, index: Index) -> Spec:
    region = _shape_at(x, indices, index, "set_at")
    if region != values.shape:
        raise ShapeError(f"set_at: values have shape {values.shape}, the region has {region}.")
    return x


def _winners(indices: Sequence[Any], index: Index, region: Spec, target: tuple[int, ...]) -> Any:
    """Where an index names a place twice the last write stays: True for the values that stayed."""
    xp = namespace_on(region.device)
    ticket = xp.arange(1, region.size + 1).reshape(region.shape)
    board = apply(_set, xp.zeros(target, ticket.dtype), ticket, *indices, index=index)
    return equal(apply(_getitem, board, *indices, index=index), ticket)


def _share_of_values(bar: Any, values_spec: Spec, x_spec: Spec, indices: Any, index: Index) -> Any:
    taken = apply(_getitem, bar, *indices, index=index)
    return only(_winners(indices, index, values_spec, x_spec.shape), taken) if indices else taken


def _share_of_target(bar: Any, values_spec: Spec, indices: Any, index: Index) -> Any:
    untouched = apply(_set, _ones(spec_of(bar), bool), _zeros(values_spec, bool), *indices, index=index)
    return only(untouched, bar)


def _ones(spec: Spec, dtype: Any) -> Any:
    return namespace_on(spec.device).ones(spec.shape, dtype)


def _zeros(spec: Spec, dtype: Any) -> Any:
    return namespace_on(spec.device).zeros(spec.shape, dtype)


def _push_set(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    x_dot, v_dot = (
        _zeros(spec_of(p), spec_of(p).dtype) if t is None else t for t, p in zip(tangents[:2], primals[:2], strict=True)
    )
    return apply(_set, x_dot, v_dot, *primals[2:], **static)


def _batch_set(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    (x, values, *arrays), (x_axis, v_axis, *array_axes) = args, axes
    index = static["index"]
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, array_axes, strict=True)], default=0)
    x, values = batching.lead(x, x_axis, size), batching.lead(values, v_axis, size)
    if all(ax is None for ax in array_axes):
        if _is_apart(index):
            values = shaping.moveaxis(values, 0, rank)
        return apply(op, x, values, *arrays, index=(slice(None), *index)), 0
    moved = [batching.padded(a, ax, rank) for a, ax in zip(arrays, array_axes, strict=True)]
    steps = namespace_for(x).arange(size).reshape((size,) + (1,) * rank)
    if not _is_apart(index) and _is_apart((SLOT, *index)):
        at = _before(index)
        values = shaping.moveaxis(values, tuple(range(at + 1, at + rank + 1)), tuple(range(1, rank + 1)))
    return apply(op, x, values, steps, *moved, index=(SLOT, *index)), 0


def _set_samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=static["wanted"]), values, *arrays), {"index": static["index"]})
        for (values, *arrays), static in _scatter_samples(rng)
    ]


_set: Op = general(
    "set_at",
    family="linear",
    args=("x", "values", "*indices"),
    doc="x with x[index] = values written.",
    value=_written,
    spec=_set_spec,
    pulls={"x": _share_of_target, "values": _share_of_values},
    push=_push_set,
    batch=_batch_set,
    samples=_set_samples,
    motion="rearrange",
)


def _checked(function: Any, x: Any, *args: Any, **static: Any) -> Any:
    """Run an indexing op with NumPy's out-of-range error in our words."""
    try:
        return apply(function, x, *args, **static)
    except IndexError as error:
        if isinstance(error, IndexingError):
            raise
        raise IndexingError(f"{function.name}: {error}.\n  The array has shape {shape(x)}.") from None


def getitem(x: Any, index: Any, /) -> Any:
    """x[index] for every index NumPy knows: integers, slices, None, ..., integer arrays, boolean masks.

    >>> import numpy as np, pullback as pb
    >>> pb.getitem(np.arange(5), np.array([0, 0, 3]))
    array([0, 0, 3])
    """
    x = as_value(x)
    if _is_one_truth(index):  # x[True] is x with a new axis of size one, x[False] of size zero
        x, index = shaping.expand_dims(x, 0), slice(0, int(bool(_known(index))))
    plain, arrays = normal_index(x, index)
    return _checked(_getitem, x, *arrays, index=plain)


_NEVER_ONE_TRUTH = frozenset((int, slice, tuple, list, type(None), type(Ellipsis)))


def _is_one_truth(index: Any) -> bool:
    if type(index) in _NEVER_ONE_TRUTH:
        return False
    spec = spec_of(as_value(index))
    return spec.dtype.kind == "b" and not spec.shape


def scatter(x: Any, index: Any, shape_wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with x added at an index."""
    return apply(_scatter, x, index=index, wanted=shape_wanted)


def _region(x: Any, plain: Index, arrays: Sequence[Any], values: Any, what: str) -> Any:
    """The values in the dtype of x, stretched to the region they are written to."""
    region = _shape_at(spec_of(x), [spec_of(a) for a in arrays], plain, what)
    found, wanted = spec_of(values), spec_of(x).dtype
    if found.dtype != wanted and not (found.weak or np.can_cast(found.dtype, wanted, casting="same_kind")):
        raise DtypeError(f"{what}: {found.dtype} values do not fit into a {wanted} array.")
    while ndim(values) > len(region) and shape(values)[0] == 1:  # NumPy lets extra axes of size one go
        values = shaping.squeeze(values, 0)
    return shaping.broadcast_to(shaping.astype(values, wanted), region)


def set_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with `x[index] = values` written. Where an index repeats, the last value stays.

    >>> import numpy as np, pullback as pb
    >>> pb.set_at(np.zeros(3), [0, 2], np.array([5.0, 7.0]))
    array([5., 0., 7.])
    """
    x, values = as_value(x), as_value(values)
    plain, arrays = normal_index(x, index)
    return _checked(_set, x, _region(x, plain, arrays, values, "set_at"), *arrays, index=plain)


@signed
def add_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with the values added at the index, repeated places adding up.

    >>> import numpy as np, pullback as pb
    >>> pb.add_at(np.zeros(3), [0, 0], np.array([5.0, 7.0]))
    array([12.,  0.,  0.])
    """
    x, values = as_value(x), as_value(values)
    plain, arrays = normal_index(x, index)
    region = _region(x, plain, arrays, values, "add_at")
    return add(x, _checked(_scatter, region, *arrays, index=plain, wanted=shape(x)))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The elements at integer places along an axis; without `axis`, of the flattened array.

    >>> import numpy as np, pullback as pb
    >>> pb.take(np.array([[1, 2], [3, 4]]), np.array([1, 1]), axis=0)
    array([[3, 4],
           [3, 4]])
    """
    x, indices = as_value(x), as_value(indices)
    if axis is None:
        x, axis = shaping.reshape(x, (-1,)), 0
    if spec_of(indices).dtype.kind not in "iu" and spec_of(indices).size:
        raise IndexingError(f"take: indices must be integers, got {spec_of(indices).dtype}.")
    axis = one_axis(axis, ndim(x), "take")
    return getitem(x, (*(slice(None),) * axis, indices))


def _along_axis(x: Any, indices: Any, axis: int, what: str) -> tuple[int, tuple[Any, ...]]:
    """The full index of `take_along_axis`: on the other axes, each element its own place."""
    axis = one_axis(axis, ndim(x), what)
    if spec_of(indices).dtype.kind not in "iu":
        raise IndexingError(f"{what}: indices must be integers, got {spec_of(indices).dtype}.")
    if ndim(indices) != ndim(x):
        raise ShapeError(f"{what}: indices have {ndim(indices)} axes, the array has {ndim(x)}.")
    xp = namespace_for(x)
    sizes = shape(x)
    places = [
        indices if i == axis else xp.arange(n).reshape((1,) * i + (n,) + (1,) * (len(sizes) - i - 1))
        for i, n in enumerate(sizes)
    ]
    for i, n in enumerate(shape(indices)):
        if i != axis and sizes[i] != 1 and n not in (1, sizes[i]):
            raise ShapeError(f"{what}: indices of shape {shape(indices)} do not fit an array of shape {sizes}.")
    return axis, tuple(places)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """For each place in `indices`, the element of x at that index along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.take_along_axis(np.array([[3, 1, 2]]), np.array([[2, 0]]), axis=1)
    array([[2, 3]])
    """
    x, indices = as_value(x), as_value(indices)
    return getitem(x, _along_axis(x, indices, axis, "take_along_axis")[1])


def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int = -1) -> Any:
    """A new array: x with the values written at the indices along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.put_along_axis(np.zeros((1, 3)), np.array([[2]]), 5.0, axis=1)
    array([[0., 0., 5.]])
    """
    x, indices = as_value(x), as_value(indices)
    return set_at(x, _along_axis(x, indices, axis, "put_along_axis")[1], values)

"""Indexing and its transpose: every form of `x[index]` and of `x[index] = v`, and what is built on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import namespace_on
from ..arrays.node import signed
from ..arrays.size import Size
from ..arrays.spec import Spec, make_spec, ones, spec_of, zeros
from ..arrays.views import as_view
from ..errors import ArgumentError, ConversionError, DtypeError, IndexingError, ShapeError
from . import batching, shaping, statics
from .accumulate import add_into_zeros
from .axes import one_axis
from .dispatch import apply, as_value, ndim, shape
from .elementwise import add, clip_to, equal, only, where
from .families import general
from .forms import Gather, Place, Write
from .index import (
    SLOT,
    Index,
    axes_before,
    filled,
    index_kind,
    is_apart,
    is_one_truth,
    known_mask,
    namespace_for,
    normal_index,
    shape_at,
    unknown_mask,
)
from .op import Op
from .statics import check_fits

__all__ = ["SLOT", "add_at", "getitem", "put_along_axis", "scatter", "set_at", "take", "take_along_axis"]


def _batch_getitem(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """The batch axis is one more slice in front, or, where the index differs by element, one more index array."""
    index: Index = static["index"]
    (x, *arrays), (x_axis, *array_axes) = args, axes
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, array_axes, strict=True)], default=0)
    if all(ax is None for ax in array_axes):
        out = apply(op, batching.lead(x, x_axis), *arrays, index=(slice(None), *index))
        return out, rank if is_apart(index) else 0
    moved = [batching.padded(a, ax, rank) for a, ax in zip(arrays, array_axes, strict=True)]
    if x_axis is None:
        out = apply(op, x, *moved, index=index)
        return out, 0 if is_apart(index) else axes_before(index)
    steps = namespace_for(x).arange(size).reshape((size,) + (1,) * rank)
    out = apply(op, batching.lead(x, x_axis), steps, *moved, index=(SLOT, *index))
    if not is_apart(index) and is_apart((SLOT, *index)):  # the index axes came first, but belong after the slices
        at = axes_before(index)
        out = shaping.moveaxis(out, tuple(range(1, rank + 1)), tuple(range(at + 1, at + rank + 1)))
    return out, 0


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
    out = make_spec(wanted, x.dtype, x.device)
    check_fits("scatter", x.shape, shape_at(out, indices, index, "scatter"))
    return out


def _push_first(op: Op, tangents: Any, primals: Any, static: dict[str, Any]) -> Any:
    """The tangent of an op that is linear in its first argument and has only indices beside it."""
    return None if tangents[0] is None else apply(op, tangents[0], *primals[1:], **static)


_getitem: Op = general(
    "getitem",
    statics={"index": index_kind(1, lambda specs, static: specs[0].ndim)},
    family="linear",
    args=("x", "*indices"),
    doc="x[index].",
    value=lambda xp, x, *indices, index: x[filled(index, indices) if indices else (*index, ...)],
    spec=lambda x, *indices, index: make_spec(shape_at(x, indices, index, "getitem"), x.dtype, x.device),
    pulls={"x": lambda bar, x_spec, indices, index: apply(_scatter, bar, *indices, index=index, wanted=x_spec.shape)},
    push=lambda tangents, out, primals, static: _push_first(_getitem, tangents, primals, static),
    batch=_batch_getitem,
    samples=_index_samples,
    motion="rearrange",
    form=Gather(),
)


def _scattered(xp: Any, x: Any, *indices: Any, index: Index, wanted: tuple[int, ...]) -> Any:
    if indices and xp is np:
        return add_into_zeros(wanted, x, filled(index, indices))
    out = xp.zeros(wanted, x.dtype)
    if indices:
        xp.add.at(out, filled(index, indices), x)
    else:
        out[index] = x
    return out


def _each_its_own(region: Any, arrays: Any, axes: Any, index: Index, size: int) -> tuple[Any, list[Any], Index]:
    """A region to write, batch axis first, with the arrays and the index that send each element to its own slice:
    one more slice in front, or where the index differs by element, one more array that counts the elements.
    """
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, axes, strict=True)], default=0)
    if all(ax is None for ax in axes):  # where index arrays are apart, their axes come before the batch axis
        return (shaping.moveaxis(region, 0, rank) if is_apart(index) else region), arrays, (slice(None), *index)
    moved = [batching.padded(a, ax, rank) for a, ax in zip(arrays, axes, strict=True)]
    steps = namespace_for(region).arange(size).reshape((size,) + (1,) * rank)
    if not is_apart(index) and is_apart((SLOT, *index)):
        at = axes_before(index)
        region = shaping.moveaxis(region, tuple(range(at + 1, at + rank + 1)), tuple(range(1, rank + 1)))
    return region, [steps, *moved], (SLOT, *index)


def _batch_scatter(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    region = batching.lead(args[0], axes[0], size)
    region, arrays, index = _each_its_own(region, args[1:], axes[1:], static["index"], size)
    return apply(op, region, *arrays, index=index, wanted=(size, *static["wanted"])), 0


def _scatter_samples(rng: Any) -> Any:
    full = np.zeros((3, 4, 2))
    return [
        ((rng.normal(size=full[filled(static["index"], arrays)].shape), *arrays), {**static, "wanted": full.shape})
        for (_, *arrays), static in _index_samples(rng)
    ]


_scatter: Op = general(
    "scatter",
    statics={"index": index_kind(1, lambda specs, static: len(static["wanted"])), "wanted": statics.shape},
    family="linear",
    args=("x", "*indices"),
    doc="Zeros of a shape with x added at an index: the transpose of getitem.",
    value=_scattered,
    spec=_scatter_spec,
    pulls={"x": lambda bar, indices, index: apply(_getitem, bar, *indices, index=index)},
    push=lambda tangents, out, primals, static: _push_first(_scatter, tangents, primals, static),
    batch=_batch_scatter,
    samples=_scatter_samples,
    motion="rearrange",
    form=Place(),
)


def _written(xp: Any, x: Any, values: Any, *indices: Any, index: Index) -> Any:
    if xp is np or not indices or not values.size:
        out = xp.array(x)
        out[filled(index, indices)] = values
        return out
    # A GPU writes in any order, so let each place find the last value that was sent to it.
    ticket = xp.arange(1, values.size + 1).reshape(values.shape)
    board = xp.zeros(x.shape, ticket.dtype)
    xp.maximum.at(board, filled(index, indices), ticket)
    return xp.where(board > 0, values.reshape(-1)[xp.maximum(board - 1, 0)], x)


def set_spec(x: Spec, values: Spec, *indices: Spec, index: Index) -> Spec:
    region = shape_at(x, indices, index, "set_at")
    if region != values.shape:
        raise ShapeError(f"set_at: values have shape {values.shape}, the region has {region}.")
    if values.dtype != x.dtype:
        raise DtypeError(f"set_at: values are {values.dtype}, the array is {x.dtype}.")
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
    untouched = apply(_set, ones(spec_of(bar), bool), zeros(values_spec, bool), *indices, index=index)
    return only(untouched, bar)


def _push_set(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    x_dot, v_dot = (zeros(spec_of(p)) if t is None else t for t, p in zip(tangents[:2], primals[:2], strict=True))
    return apply(_set, x_dot, v_dot, *primals[2:], **static)


def batch_set(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    x, region = batching.lead(args[0], axes[0], size), batching.lead(args[1], axes[1], size)
    region, arrays, index = _each_its_own(region, args[2:], axes[2:], static["index"], size)
    return apply(op, x, region, *arrays, **{**static, "index": index}), 0


def set_samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=static["wanted"]), values, *arrays), {"index": static["index"]})
        for (values, *arrays), static in _scatter_samples(rng)
    ]


_set: Op = general(
    "set_at",
    statics={"index": index_kind(2, lambda specs, static: specs[0].ndim)},
    family="linear",
    args=("x", "values", "*indices"),
    doc="x with x[index] = values written.",
    value=_written,
    spec=set_spec,
    pulls={"x": _share_of_target, "values": _share_of_values},
    push=_push_set,
    batch=batch_set,
    samples=set_samples,
    motion="rearrange",
    form=Write(),
)


def getitem(x: Any, index: Any, /) -> Any:
    """x[index] for every index NumPy knows: integers, slices, None, ..., integer arrays, boolean masks.

    >>> import numpy as np, pullback as pb
    >>> pb.getitem(np.arange(5), np.array([0, 0, 3]))
    array([0, 0, 3])
    """
    x = as_value(x)
    if is_one_truth(index):  # x[True] is x with a new axis of size one, x[False] of size zero
        x, index = shaping.expand_dims(x, 0), slice(0, int(bool(known_mask(index))))
    plain, arrays = normal_index(x, index)
    out = apply(_getitem, x, *arrays, index=plain)
    return out if arrays or type(out) is np.ndarray else as_view(out, x)


def scatter(x: Any, index: Any, shape_wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with x added at an index."""
    return apply(_scatter, x, index=index, wanted=shape_wanted)


def pick(x: Any, indices: Sequence[Any], index: Index) -> Any:
    """x[index] for rules, whose index is in its normal form."""
    return apply(_getitem, x, *indices, index=index)


def add_into(values: Any, indices: Sequence[Any], index: Index, wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values added at an index, for rules, whose index is in its normal form."""
    return apply(_scatter, values, *indices, index=index, wanted=wanted)


def scatter_at(values: Any, places: tuple[Any, ...], wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values added at index arrays, one for each axis from the front."""
    index = (SLOT,) * len(places) + (slice(None),) * (len(wanted) - len(places))
    return apply(_scatter, values, *_beside(values, places), index=index, wanted=wanted)


def scatter_at_end(values: Any, places: tuple[Any, ...], wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values written at index arrays, one for each axis up to the last."""
    index = (slice(None),) * (len(wanted) - len(places)) + (SLOT,) * len(places)
    return apply(_scatter, values, *_beside(values, places), index=index, wanted=wanted)


def _beside(values: Any, places: Sequence[Any]) -> list[Any]:
    """Places as arrays of the library that the values are in."""
    xp = namespace_for(values)
    return [xp.asarray(p) if type(p) is np.ndarray else p for p in places]


def _region(x: Any, plain: Index, arrays: Sequence[Any], values: Any, what: str) -> Any:
    """The values in the dtype of x, stretched to the region they are written to."""
    region = shape_at(spec_of(x), [spec_of(a) for a in arrays], plain, what)
    values = _in_dtype_of(x, values, what)
    while ndim(values) > len(region) and shape(values)[0] == 1:  # NumPy lets extra axes of size one go
        values = shaping.squeeze(values, 0)
    return shaping.broadcast_to(values, region)


def _in_dtype_of(x: Any, values: Any, what: str) -> Any:
    found, wanted = spec_of(values), spec_of(x).dtype
    if found.dtype != wanted and not (found.weak or np.can_cast(found.dtype, wanted, casting="same_kind")):
        raise DtypeError(f"{what}: {found.dtype} values do not fit into a {wanted} array.")
    return shaping.astype(values, wanted)


def set_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with `x[index] = values` written. Where an index repeats, the last value stays.

    >>> import numpy as np, pullback as pb
    >>> pb.set_at(np.zeros(3), [0, 2], np.array([5.0, 7.0]))
    array([5., 0., 7.])
    """
    x, values = as_value(x), as_value(values)
    mask = unknown_mask(index)
    if mask is not None:
        return where(_over(mask, x), _for_all(x, ndim(mask), values, "set_at"), x)
    if is_one_truth(index):
        return _under_truth(set_at, x, index, values)
    plain, arrays = normal_index(x, index)
    return apply(_set, x, _region(x, plain, arrays, values, "set_at"), *arrays, index=plain)


def _steps(xp: Any, n: Any) -> Any:
    return n.unknowns.recorder.counted(n) if type(n) is Size else xp.arange(n)


def _under_truth(write: Any, x: Any, index: Any, values: Any) -> Any:
    """`x[True] = values` writes all of x, seen with a new axis of size one, `x[False] = values` nothing of it."""
    whole = write(shaping.expand_dims(x, 0), slice(0, int(bool(known_mask(index)))), values)
    return shaping.squeeze(whole, 0)


def _over(mask: Any, x: Any) -> Any:
    """A mask of the first axes of x, with axes of size one for the rest."""
    own = shape(mask)
    if own != shape(x)[: len(own)]:
        over = shape(x)[: len(own)]
        raise IndexingError(f"a mask of shape {own} stands over axes of shape {over}, the array has {shape(x)}.")
    return shaping.reshape(mask, own + (1,) * (ndim(x) - len(own)))


def _for_all(x: Any, axes: int, values: Any, what: str) -> Any:
    """Values that are the same for each place a mask picks, since how many it picks is not known."""
    values = _in_dtype_of(x, values, what)
    rest = ndim(x) - axes
    while ndim(values) > rest and shape(values)[0] == 1:
        values = shaping.squeeze(values, 0)
    if ndim(values) > rest:
        raise ConversionError(
            f"{what}: a boolean mask inside a transform has no known count of elements, and the values of shape "
            f"{shape(values)} are one for each.\n  Use pb.where(mask, values, x) with values for all of x."
        )
    return values


@signed
def add_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with the values added at the index, repeated places adding up.

    >>> import numpy as np, pullback as pb
    >>> pb.add_at(np.zeros(3), [0, 0], np.array([5.0, 7.0]))
    array([12.,  0.,  0.])
    """
    x, values = as_value(x), as_value(values)
    mask = unknown_mask(index)
    if mask is not None:
        return add(x, where(_over(mask, x), _for_all(x, ndim(mask), values, "add_at"), 0))
    if is_one_truth(index):
        return _under_truth(add_at, x, index, values)
    plain, arrays = normal_index(x, index)
    region = _region(x, plain, arrays, values, "add_at")
    return add(x, apply(_scatter, region, *arrays, index=plain, wanted=shape(x)))


def within(indices: Any, size: int, mode: str, what: str) -> Any:
    """Indices made to fit an axis: by an error ("raise"), by the nearest ("clip") or round and round ("wrap")."""
    if mode == "raise":
        return indices
    if mode == "clip":
        return clip_to(indices, 0, size - 1)
    if mode == "wrap":
        return known_mask(indices) % max(size, 1)
    raise ArgumentError(f"{what}: mode must be raise, wrap or clip, got {mode!r}.")


def take(x: Any, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> Any:
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
    indices = within(indices, shape(x)[axis], mode, "take")
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
        indices if i == axis else _steps(xp, n).reshape((1,) * i + (n,) + (1,) * (len(sizes) - i - 1))
        for i, n in enumerate(sizes)
    ]
    for i, n in enumerate(shape(indices)):
        if i != axis and n not in (sizes[i], 1) and sizes[i] != 1:
            raise ShapeError(f"{what}: indices of shape {shape(indices)} do not fit an array of shape {sizes}.")
    return axis, tuple(places)


def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> Any:
    """For each place in `indices`, the element of x at that index along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.take_along_axis(np.array([[3, 1, 2]]), np.array([[2, 0]]), axis=1)
    array([[2, 3]])
    """
    x, indices = as_value(x), as_value(indices)
    if axis is None:
        x, axis = shaping.reshape(x, (-1,)), 0
    return getitem(x, _along_axis(x, indices, axis, "take_along_axis")[1])


def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int = -1) -> Any:
    """A new array: x with the values written at the indices along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.put_along_axis(np.zeros((1, 3)), np.array([[2]]), 5.0, axis=1)
    array([[0., 0., 5.]])
    """
    x, indices = as_value(x), as_value(indices)
    return set_at(x, _along_axis(x, indices, axis, "put_along_axis")[1], values)

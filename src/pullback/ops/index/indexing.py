"""Indexing and its transpose: every form of `x[index]` and of `x[index] = v`, and the functions built on them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.call_site import attributed_to_caller, format_line, user_line
from ...arrays.size import Size
from ...arrays.spec import Spec, make_spec, ones, spec_of, zeros
from ...arrays.tensor import Tensor
from ...arrays.views import as_tensor_view, as_view
from ...errors import ArgumentError, ConversionError, DeterminismError, DtypeError, IndexingError, ShapeError
from ...settings import PLAIN, is_deterministic, modes
from .. import batching, statics
from ..axes import normalize_axis
from ..dispatch import apply, as_value, counts_as_number, ndim, shape
from ..elementwise.pointwise import add, clip_to, equal, mask_cotangent, where
from ..families import linear
from ..forms import Gather, ScatterAdd, Write
from ..lazy import lazy_function
from ..op import Op
from ..placement import move
from ..plans import learn, make_plan, new_table
from ..shape import reshaping
from ..signatures import of_mixed_arrays
from ..statics import check_shape
from . import normalize
from .accumulate import add_into_zeros
from .normalize import Index, basic_key, fill_slots, has_separated_arrays, indexed_shape, namespace_for


def _batch_getitem(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """The batch axis is one more slice in front, or, where the index differs by element, one more index array."""
    index: Index = static["index"]
    (x, *arrays), (x_axis, *array_axes) = args, axes
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, array_axes, strict=True)], default=0)
    if all(ax is None for ax in array_axes):
        out = apply(op, batching.move_batch_first(x, x_axis), *arrays, index=(slice(None), *index))
        return out, rank if has_separated_arrays(index) else 0
    moved = [batching.align_rank(a, ax, rank) for a, ax in zip(arrays, array_axes, strict=True)]
    if x_axis is None:
        out = apply(op, x, *moved, index=index)
        return out, 0 if has_separated_arrays(index) else normalize.axes_before(index)
    steps = namespace_for(x).arange(size).reshape((size,) + (1,) * rank)
    out = apply(op, batching.move_batch_first(x, x_axis), steps, *moved, index=(normalize.SLOT, *index))
    if not has_separated_arrays(index) and has_separated_arrays(
        (normalize.SLOT, *index)
    ):  # the index axes came first, but must follow the slices
        at = normalize.axes_before(index)
        out = reshaping.moveaxis(out, tuple(range(1, rank + 1)), tuple(range(at + 1, at + rank + 1)))
    return out, 0


def _index_samples(rng: Any) -> Any:
    x = rng.normal(size=(3, 4, 2))
    i, j = np.array([0, 2, 0]), np.array([[1], [3]])
    return [
        ((x,), {"index": (1, slice(None, None, 2), None, slice(None))}),
        ((x,), {"index": (slice(None, None, -1), -1, slice(0, 0))}),
        ((x, i), {"index": (normalize.SLOT, slice(None), slice(None))}),
        ((x, i, j), {"index": (normalize.SLOT, normalize.SLOT, slice(None))}),
        ((x, i), {"index": (slice(None), normalize.SLOT, slice(None))}),
        ((x, i, j % 2), {"index": (normalize.SLOT, slice(None), normalize.SLOT)}),
        ((x, np.zeros(0, int)), {"index": (normalize.SLOT, 1, slice(None))}),
    ]


def _scatter_spec(x: Spec, *indices: Spec, index: Index, wanted: tuple[int, ...]) -> Spec:
    out = make_spec(wanted, x.dtype, x.device)
    check_shape("scatter", x.shape, indexed_shape(out, indices, index, "scatter"))
    return out


_getitem: Op = linear(
    "getitem",
    statics={"index": normalize.index_static(1, lambda specs, static: specs[0].ndim)},
    value=lambda xp, x, *indices, index: x[fill_slots(index, indices) if indices else (*index, ...)],
    spec=lambda x, *indices, index: make_spec(indexed_shape(x, indices, index, "getitem"), x.dtype, x.device),
    transpose={
        "x": lambda bar, x_spec, indices, index: apply(_scatter, bar, *indices, index=index, wanted=x_spec.shape)
    },
    batch=_batch_getitem,
    samples=_index_samples,
    form=Gather(),
    direct=lambda x, *indices, index: None if indices else itemgetter((*index, ...)),
)


def _scatter_value(xp: Any, x: Any, *indices: Any, index: Index, wanted: tuple[int, ...]) -> Any:
    if indices and xp is np:
        return add_into_zeros(wanted, x, fill_slots(index, indices))
    if indices:
        return _add_on_gpu(xp, wanted, x, fill_slots(index, indices))
    out = xp.zeros(wanted, x.dtype)
    out[index] = x
    return out


#: By atomic additions the bits of a sum would depend on which is first.
_add_in_order = lazy_function("eager_scatter", "add_into_zeros", "compile.cuda")
#: Dtypes that CuPy changes at an index by way of another one: a sum of booleans is whether any holds, and what becomes
#: of narrow numbers is rounded once.
CHANGED_AS = {
    "bool": "uint32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32", "bfloat16": "float32",
}  # fmt: skip


def _add_on_gpu(xp: Any, wanted: tuple[int, ...], x: Any, index: Any) -> Any:
    if x.dtype.kind == "c":
        return _add_on_gpu(xp, wanted, x.real, index) + 1j * _add_on_gpu(xp, wanted, x.imag, index)
    dtype = np.dtype("float32" if x.dtype.name == "float16" else CHANGED_AS.get(x.dtype.name, x.dtype))
    out = _add_in_order(xp, wanted, x.astype(dtype, copy=False), index) if dtype.kind == "f" else None
    if out is None:
        if dtype.kind == "f" and is_deterministic():
            raise DeterminismError(
                f"getitem: the gradient of this index is added atomically on a GPU, in any order (to {wanted}).\n"
                f"  at {format_line(*user_line(sys._getframe(1)))}\n  Compile it with pb.jit, which sorts."
            )
        out = xp.zeros(wanted, dtype)
        xp.add.at(out, index, x.astype(dtype, copy=False))
    return out != 0 if x.dtype.kind == "b" else out.astype(x.dtype, copy=False)


def _bind_scatter(dtype: Any, index: Index, wanted: tuple[int, ...]) -> Any:
    zeros = np.zeros

    def scatter(x: Any) -> Any:
        out = zeros(wanted, dtype)
        out[index] = x
        return out

    return scatter


def _batch_region(region: Any, arrays: Any, axes: Any, index: Index, size: int) -> tuple[Any, list[Any], Index]:
    """A region to write, batch axis first, with the arrays and the index that map each batch element to its slice:
    one more slice in front, or where the index differs by element, one more array that counts the elements.
    """
    rank = max([ndim(a) - (ax is not None) for a, ax in zip(arrays, axes, strict=True)], default=0)
    if all(ax is None for ax in axes):  # where index arrays are not adjacent, their axes come before the batch axis
        return (
            (reshaping.moveaxis(region, 0, rank) if has_separated_arrays(index) else region),
            arrays,
            (slice(None), *index),
        )
    moved = [batching.align_rank(a, ax, rank) for a, ax in zip(arrays, axes, strict=True)]
    steps = namespace_for(region).arange(size).reshape((size,) + (1,) * rank)
    if not has_separated_arrays(index) and has_separated_arrays((normalize.SLOT, *index)):
        at = normalize.axes_before(index)
        region = reshaping.moveaxis(region, tuple(range(at + 1, at + rank + 1)), tuple(range(1, rank + 1)))
    return region, [steps, *moved], (normalize.SLOT, *index)


def _batch_scatter(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    region = batching.move_batch_first(args[0], axes[0], size)
    region, arrays, index = _batch_region(region, args[1:], axes[1:], static["index"], size)
    return apply(op, region, *arrays, index=index, wanted=(size, *static["wanted"])), 0


def _scatter_samples(rng: Any) -> Any:
    full = np.zeros((3, 4, 2))
    return [
        ((rng.normal(size=full[fill_slots(static["index"], arrays)].shape), *arrays), {**static, "wanted": full.shape})
        for (_, *arrays), static in _index_samples(rng)
    ]


# Zeros of a shape with x added at an index: the transpose of getitem.
_scatter: Op = linear(
    "scatter",
    statics={"index": normalize.index_static(1, lambda specs, static: len(static["wanted"])), "wanted": statics.shape},
    value=_scatter_value,
    spec=_scatter_spec,
    transpose={"x": lambda bar, indices, index: apply(_getitem, bar, *indices, index=index)},
    batch=_batch_scatter,
    samples=_scatter_samples,
    sums=True,
    form=ScatterAdd(),
    direct=lambda x, *indices, index, wanted: None if indices else _bind_scatter(x.dtype, index, wanted),
)


def _set_value(xp: Any, x: Any, values: Any, *indices: Any, index: Index) -> Any:
    if xp is np or not indices or not values.size:
        out = xp.array(x)
        out[fill_slots(index, indices)] = values
        return out
    # A GPU writes in any order, so each position looks up the last value sent to it.
    ticket = xp.arange(1, values.size + 1).reshape(values.shape)
    board = xp.zeros(x.shape, ticket.dtype)
    xp.maximum.at(board, fill_slots(index, indices), ticket)
    return xp.where(board > 0, values.reshape(-1)[xp.maximum(board - 1, 0)], x)


def set_spec(x: Spec, values: Spec, *indices: Spec, index: Index) -> Spec:
    region = indexed_shape(x, indices, index, "set_at")
    if region != values.shape:
        raise ShapeError(f"set_at: values have shape {values.shape}, the region has {region}.")
    if values.dtype != x.dtype:
        raise DtypeError(f"set_at: values are {values.dtype}, the array is {x.dtype}.")
    return x


def _last_writes(indices: Sequence[Any], index: Index, region: Spec, target: tuple[int, ...]) -> Any:
    """Where an index repeats the last write stays: True for the values that stayed."""
    xp = namespace_on(region.device)
    ticket = xp.arange(1, region.size + 1).reshape(region.shape)
    board = apply(_set, xp.zeros(target, ticket.dtype), ticket, *indices, index=index)
    return equal(apply(_getitem, board, *indices, index=index), ticket)


def _pull_set_values(bar: Any, values_spec: Spec, x_spec: Spec, indices: Any, index: Index) -> Any:
    taken = apply(_getitem, bar, *indices, index=index)
    return mask_cotangent(_last_writes(indices, index, values_spec, x_spec.shape), taken) if indices else taken


def _pull_set_target(bar: Any, values_spec: Spec, indices: Any, index: Index) -> Any:
    untouched = apply(_set, ones(spec_of(bar), bool), zeros(values_spec, bool), *indices, index=index)
    return mask_cotangent(untouched, bar)


def batch_set(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    x, region = batching.move_batch_first(args[0], axes[0], size), batching.move_batch_first(args[1], axes[1], size)
    region, arrays, index = _batch_region(region, args[2:], axes[2:], static["index"], size)
    return apply(op, x, region, *arrays, **{**static, "index": index}), 0


def set_samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=static["wanted"]), values, *arrays), {"index": static["index"]})
        for (values, *arrays), static in _scatter_samples(rng)
    ]


_set: Op = linear(
    "set_at",
    statics={"index": normalize.index_static(2, lambda specs, static: specs[0].ndim)},
    value=_set_value,
    spec=set_spec,
    transpose={"x": _pull_set_target, "values": _pull_set_values},
    batch=batch_set,
    samples=set_samples,
    form=Write(),
)


@of_mixed_arrays
def getitem(x: Any, index: Any, /) -> Any:
    """x[index] for every index NumPy knows: integers, slices, None, ..., integer arrays, boolean masks.

    >>> import numpy as np, pullback as pb
    >>> pb.getitem(np.arange(5), np.array([0, 0, 3]))
    array([0, 0, 3])
    """
    if type(x) is not Tensor or not (number := x.spec.number) or (key := basic_key(number, index)) is None:
        return _getitem_general(x, index)
    plan = _item_plans.get(key)
    if plan:
        run = plan.record if (mode := modes()) is PLAIN else plan.in_mode(mode)  # type: ignore[union-attr]
        if run is not None:
            return as_tensor_view(run(x), x, lambda x: getitem(x, index))
    out = _getitem_general(x, index)
    if plan is None:
        learn(_item_plans, key, lambda: make_plan(_getitem, (x,), {"index": normalize.normalize_index(x, index)[0]}))
    return out


_item_plans = new_table()


def _getitem_general(x: Any, index: Any) -> Any:
    x = as_value(x)
    if normalize.is_scalar_bool(index):  # x[True] is x with a new axis of size one, x[False] of size zero
        x, index = reshaping.expand_dims(x, 0), slice(0, int(bool(normalize.concrete_mask(index))))
    elif (parted := normalize.part_at_ellipsis(index, ndim(x))) is not None:
        index, axis, follow = parted
        wide = getitem(reshaping.expand_dims(x, axis), index)
        return reshaping.squeeze(wide, -1 - follow)
    plain, arrays = normalize.normalize_index(x, index)
    out = apply(_getitem, x, *arrays, index=plain)
    return out if arrays or type(out) is np.ndarray else as_view(out, x, lambda x: getitem(x, index))


def scatter(x: Any, index: Any, shape_wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with x added at an index."""
    return apply(_scatter, x, index=index, wanted=shape_wanted)


def getitem_normalized(x: Any, indices: Sequence[Any], index: Index) -> Any:
    """x[index] for rules, whose index is normalized."""
    return apply(_getitem, x, *indices, index=index)


def slice_along(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """x[start:stop] along an axis."""
    return getitem(x, (*(slice(None),) * axis, slice(start, stop)))


def scatter_normalized(values: Any, indices: Sequence[Any], index: Index, wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values added at an index, for rules, whose index is normalized."""
    return apply(_scatter, values, *indices, index=index, wanted=wanted)


def scatter_at(values: Any, places: tuple[Any, ...], wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values added at index arrays, one for each axis from the front."""
    index = (normalize.SLOT,) * len(places) + (slice(None),) * (len(wanted) - len(places))
    return apply(_scatter, values, *_as_library_arrays(values, places), index=index, wanted=wanted)


def scatter_at_end(values: Any, places: tuple[Any, ...], wanted: tuple[int, ...]) -> Any:
    """Zeros of a shape with values written at index arrays, one for each axis up to the last."""
    index = (slice(None),) * (len(wanted) - len(places)) + (normalize.SLOT,) * len(places)
    return apply(_scatter, values, *_as_library_arrays(values, places), index=index, wanted=wanted)


def _as_library_arrays(values: Any, places: Sequence[Any]) -> list[Any]:
    """Index arrays in the namespace (NumPy or CuPy) of the values."""
    xp = namespace_for(values)
    return [xp.asarray(p) if type(p) is np.ndarray else p for p in places]


def _broadcast_to_region(x: Any, plain: Index, arrays: Sequence[Any], values: Any, what: str) -> Any:
    """The values in the dtype of x, broadcast to the region they are written to."""
    region = indexed_shape(spec_of(x), [spec_of(a) for a in arrays], plain, what)
    values = _cast_to_dtype_of(x, values, what)
    if spec_of(x).device != "cpu" and counts_as_number(spec_of(values)):
        values = move(values, spec_of(x).device)
    while ndim(values) > len(region) and shape(values)[0] == 1:  # NumPy drops extra axes of size one
        values = reshaping.squeeze(values, 0)
    return reshaping.broadcast_to(values, region)


def _cast_to_dtype_of(x: Any, values: Any, what: str) -> Any:
    found, wanted = spec_of(values), spec_of(x).dtype
    if found.dtype != wanted and not (found.weak or np.can_cast(found.dtype, wanted, casting="same_kind")):
        raise DtypeError(f"{what}: {found.dtype} values do not fit into a {wanted} array.")
    return reshaping.astype(values, wanted)


@of_mixed_arrays
def set_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with `x[index] = values` written. Where an index repeats, the last value stays.

    >>> import numpy as np, pullback as pb
    >>> pb.set_at(np.zeros(3), [0, 2], np.array([5.0, 7.0]))
    array([5., 0., 7.])
    """
    x, values = as_value(x), as_value(values)
    mask = normalize.abstract_mask(index)
    if mask is not None:
        return where(_expand_mask(mask, x), _uniform_values(x, ndim(mask), values, "set_at"), x)
    if normalize.is_scalar_bool(index):
        return _write_under_bool(set_at, x, index, values)
    if (parted := normalize.part_at_ellipsis(index, ndim(x))) is not None:
        return _write_parted(set_at, x, parted, values)
    plain, arrays = normalize.normalize_index(x, index)
    return apply(_set, x, _broadcast_to_region(x, plain, arrays, values, "set_at"), *arrays, index=plain)


def _arange(xp: Any, n: Any) -> Any:
    return n.unknowns.recorder.arange_array(n) if type(n) is Size else xp.arange(n)


def _write_under_bool(write: Any, x: Any, index: Any, values: Any) -> Any:
    """`x[True] = values` writes all of x, with a new axis of size one, `x[False] = values` nothing."""
    whole = write(reshaping.expand_dims(x, 0), slice(0, int(bool(normalize.concrete_mask(index)))), values)
    return reshaping.squeeze(whole, 0)


def _write_parted(write: Any, x: Any, parted: tuple[Index, int, int], values: Any) -> Any:
    """`x[i, ..., j] = values` where the ellipsis stands for no axis: x and the values get one there."""
    index, axis, follow = parted
    values = reshaping.expand_dims(values, -1 - follow) if ndim(values) > follow else values
    return reshaping.squeeze(write(reshaping.expand_dims(x, axis), index, values), axis)


def _expand_mask(mask: Any, x: Any) -> Any:
    """A mask of the first axes of x, with axes of size one for the rest."""
    own = shape(mask)
    if own != shape(x)[: len(own)]:
        over = shape(x)[: len(own)]
        raise IndexingError(f"a mask of shape {own} indexes axes of shape {over}, the array has {shape(x)}.")
    return reshaping.reshape(mask, own + (1,) * (ndim(x) - len(own)))


def _uniform_values(x: Any, axes: int, values: Any, what: str) -> Any:
    """Values that are the same for each element a mask selects, since their count is not known."""
    values = _cast_to_dtype_of(x, values, what)
    rest = ndim(x) - axes
    while ndim(values) > rest and shape(values)[0] == 1:
        values = reshaping.squeeze(values, 0)
    if ndim(values) > rest:
        raise ConversionError(
            f"{what}: a boolean mask inside a transform selects an unknown number of elements, and the values of shape "
            f"{shape(values)} are one for each.\n  Use pb.where(mask, values, x) with values for all of x."
        )
    return values


@of_mixed_arrays
@attributed_to_caller
def add_at(x: Any, index: Any, values: Any, /) -> Any:
    """A new array: x with the values added at the index, repeated indices adding up.

    >>> import numpy as np, pullback as pb
    >>> pb.add_at(np.zeros(3), [0, 0], np.array([5.0, 7.0]))
    array([12.,  0.,  0.])
    """
    x, values = as_value(x), as_value(values)
    mask = normalize.abstract_mask(index)
    if mask is not None:
        return add(x, where(_expand_mask(mask, x), _uniform_values(x, ndim(mask), values, "add_at"), 0))
    if normalize.is_scalar_bool(index):
        return _write_under_bool(add_at, x, index, values)
    if (parted := normalize.part_at_ellipsis(index, ndim(x))) is not None:
        return _write_parted(add_at, x, parted, values)
    plain, arrays = normalize.normalize_index(x, index)
    region = _broadcast_to_region(x, plain, arrays, values, "add_at")
    return add(x, apply(_scatter, region, *arrays, index=plain, wanted=shape(x)))


def fit_indices(indices: Any, size: int, mode: str, what: str) -> Any:
    """Indices brought into range of an axis: by an error ("raise"), clamping ("clip") or modulo ("wrap")."""
    if mode == "raise":
        return indices
    if mode == "clip":
        return clip_to(indices, 0, size - 1)
    if mode == "wrap":
        return normalize.concrete_mask(indices) % max(size, 1)
    raise ArgumentError(f"{what}: mode must be raise, wrap or clip, got {mode!r}.")


@of_mixed_arrays
def take(x: Any, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> Any:
    """The elements at integer indices along an axis; without `axis`, of the flattened array.

    >>> import numpy as np, pullback as pb
    >>> pb.take(np.array([[1, 2], [3, 4]]), np.array([1, 1]), axis=0)
    array([[3, 4],
           [3, 4]])
    """
    x, indices = as_value(x), as_value(indices)
    if axis is None:
        x, axis = reshaping.reshape(x, (-1,)), 0
    if spec_of(indices).dtype.kind not in "iu" and spec_of(indices).size:
        raise IndexingError(f"take: indices must be integers, got {spec_of(indices).dtype}.")
    axis = normalize_axis(axis, ndim(x), "take")
    indices = fit_indices(indices, shape(x)[axis], mode, "take")
    return getitem(x, (*(slice(None),) * axis, indices))


def _index_along_axis(x: Any, indices: Any, axis: int, what: str) -> tuple[int, tuple[Any, ...]]:
    """The full index of `take_along_axis`: on the other axes, each element's own position."""
    axis = normalize_axis(axis, ndim(x), what)
    if spec_of(indices).dtype.kind not in "iu":
        raise IndexingError(f"{what}: indices must be integers, got {spec_of(indices).dtype}.")
    if ndim(indices) != ndim(x):
        raise ShapeError(f"{what}: indices have {ndim(indices)} axes, the array has {ndim(x)}.")
    xp = namespace_for(x)
    sizes = shape(x)
    places = [
        indices if i == axis else _arange(xp, n).reshape((1,) * i + (n,) + (1,) * (len(sizes) - i - 1))
        for i, n in enumerate(sizes)
    ]
    for i, n in enumerate(shape(indices)):
        if i != axis and n not in (sizes[i], 1) and sizes[i] != 1:
            raise ShapeError(f"{what}: indices of shape {shape(indices)} do not fit an array of shape {sizes}.")
    return axis, tuple(places)


@of_mixed_arrays
def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> Any:
    """For each entry of `indices`, the element of x at that index along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.take_along_axis(np.array([[3, 1, 2]]), np.array([[2, 0]]), axis=1)
    array([[2, 3]])
    """
    x, indices = as_value(x), as_value(indices)
    if axis is None:
        x, axis = reshaping.reshape(x, (-1,)), 0
    return getitem(x, _index_along_axis(x, indices, axis, "take_along_axis")[1])


@of_mixed_arrays
def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int = -1) -> Any:
    """A new array: x with the values written at the indices along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.put_along_axis(np.zeros((1, 3)), np.array([[2]]), 5.0, axis=1)
    array([[0., 0., 5.]])
    """
    x, indices = as_value(x), as_value(indices)
    return set_at(x, _index_along_axis(x, indices, axis, "put_along_axis")[1], values)

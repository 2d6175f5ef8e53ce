"""Ops that move elements about: few primitives, each its own transpose's partner, and composites over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.dtypes import as_dtype
from ..arrays.spec import Spec, is_inexact, make_spec, spec_of
from ..arrays.tensor import Tensor, another
from ..errors import ArgumentError, ShapeError
from . import batching, indexing, reducing
from . import elementwise as pointwise
from .axes import all_axes, filled_shape, one_axis, shape_tuple, whole
from .dispatch import apply, as_value, ndim, shape
from .families import broadcast_shape, common_device, is_complex, linear, result_dtype
from .op import Op
from .sampling import one, several

__all__ = [
    "astype", "broadcast_to", "concat", "diagonal", "expand_dims", "flip", "matrix_transpose", "moveaxis", "pad",
    "permute_dims", "repeat", "reshape", "roll", "split", "squeeze", "stack", "tile", "tril", "triu",
]  # fmt: skip


def _astype_spec(x: Spec, dtype: Any) -> Spec:
    return make_spec(x.shape, np.dtype(dtype), x.device)


_astype = linear(
    "astype",
    doc="The values converted to a dtype.",
    value=lambda xp, x, dtype: _converted(xp.asarray(x), dtype),
    spec=_astype_spec,
    transpose=lambda bar: bar,
    batch=batching.shifted(),
    samples=several(
        one(3, dtype=np.dtype("float64")), one(2, 2, dtype=np.dtype("float32")), one(dtype=np.dtype("float32"))
    ),
    motion="rearrange",
)


def _converted(x: Any, dtype: Any) -> Any:
    return (x.real if x.dtype.kind == "c" and np.dtype(dtype).kind != "c" else x).astype(dtype)


def astype(x: Any, dtype: Any, /) -> Any:
    """x converted to a dtype; the cotangent is converted back, so the graph is never cut.

    >>> import numpy as np, pullback as pb
    >>> pb.astype(np.array([1.5, 2.5]), np.float32).dtype
    dtype('float32')
    """
    x = as_value(x)
    wanted = as_dtype(dtype)
    if spec_of(x).dtype == wanted and spec_of(x).weak is None:
        return unchanged(x)
    return apply(_astype, x, dtype=wanted)


_reshape = linear(
    "reshape",
    doc="The same elements in another shape.",
    value=lambda xp, x, shape: xp.reshape(x, shape),
    spec=lambda x, shape: make_spec(filled_shape(shape, x.size, "reshape"), x.dtype, x.device),
    transpose=lambda bar, x_spec: reshape(bar, x_spec.shape),
    batch=batching.shifted(shape="shape"),
    samples=several(one(2, 3, shape=(6,)), one(6, shape=(3, 1, 2)), one(1, shape=()), one(0, 3, shape=(3, 0))),
    motion="rearrange",
)


def reshape(x: Any, /, shape: Any) -> Any:
    """The same elements, in the same order, in another shape; one size may be -1.

    >>> import numpy as np, pullback as pb
    >>> pb.reshape(np.arange(6), (2, -1))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    x = as_value(x)
    spec = spec_of(x)
    wanted = filled_shape(shape_tuple(shape, "reshape"), spec.size, "reshape")
    return unchanged(x) if wanted == spec.shape and spec.weak is None else apply(_reshape, x, shape=wanted)


_permute = linear(
    "permute_dims",
    doc="The axes in another order.",
    value=lambda xp, x, axes: xp.asarray(x).transpose(axes),
    spec=lambda x, axes: make_spec(tuple(x.shape[a] for a in axes), x.dtype, x.device),
    transpose=lambda bar, axes: permute_dims(bar, tuple(int(i) for i in np.argsort(axes))),
    batch=batching.shifted(axes="order"),
    samples=several(one(2, 3, axes=(1, 0)), one(2, 3, 4, axes=(2, 0, 1)), one(axes=()), one(0, 2, axes=(1, 0))),
    motion="rearrange",
)


def unchanged(x: Any) -> Any:
    """What an op with nothing to do answers: a variable of its own, and if tracked, a gradient of its own."""
    if type(x) is Tensor and x.node is not None:
        return apply(_reshape, x, shape=x.shape)
    return another(x)


def permute_dims(x: Any, /, axes: Sequence[int] | None = None) -> Any:
    """The axes in another order; without `axes`, reversed.

    >>> import numpy as np, pullback as pb
    >>> pb.permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_value(x)
    rank = ndim(x)
    order = tuple(range(rank))[::-1] if axes is None else tuple(one_axis(a, rank, "permute_dims") for a in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"permute_dims: axes {axes} are not an order of the {rank} axes.")
    return unchanged(x) if order == tuple(range(rank)) else apply(_permute, x, axes=order)


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged.

    >>> import numpy as np, pullback as pb
    >>> pb.matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = as_value(x)
    if ndim(x) < 2:
        raise ShapeError(f"matrix_transpose: wants two axes or more, got shape {shape(x)}.")
    return swapped(x)


def swapped(x: Any) -> Any:
    """`matrix_transpose` for rules, whose arguments are known to be matrices."""
    rank = ndim(x)
    return apply(_permute, x, axes=(*range(rank - 2), rank - 1, rank - 2))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Some axes moved to other places, the rest in their order.

    >>> import numpy as np, pullback as pb
    >>> pb.moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_value(x)
    rank = ndim(x)
    froms = [one_axis(a, rank, "moveaxis") for a in (source if isinstance(source, (tuple, list)) else (source,))]
    tos = [
        one_axis(a, rank, "moveaxis")
        for a in (destination if isinstance(destination, (tuple, list)) else (destination,))
    ]
    if len(froms) != len(tos) or len(set(froms)) < len(froms) or len(set(tos)) < len(tos):
        raise ArgumentError(f"moveaxis: source {source} and destination {destination} do not pair up.")
    rest = iter([a for a in range(rank) if a not in froms])
    moved = dict(zip(tos, froms, strict=True))
    return permute_dims(x, tuple(moved[i] if i in moved else next(rest) for i in range(rank)))


def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """A new axis of size one at each place named.

    >>> import numpy as np, pullback as pb
    >>> pb.expand_dims(np.zeros(3), axis=1).shape
    (3, 1)
    """
    x = as_value(x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = all_axes(tuple(given), ndim(x) + len(given), "expand_dims")
    sizes = iter(shape(x))
    return reshape(x, tuple(1 if i in axes else next(sizes) for i in range(ndim(x) + len(given))))


def squeeze(x: Any, /, axis: Any = None) -> Any:
    """Without the named axes of size one; without `axis`, without any of them.

    >>> import numpy as np, pullback as pb
    >>> pb.squeeze(np.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    x = as_value(x)
    sizes = shape(x)
    axes = [i for i, n in enumerate(sizes) if n == 1] if axis is None else all_axes(axis, len(sizes), "squeeze")
    for a in axes:
        if sizes[a] != 1:
            raise ShapeError(f"squeeze: axis {a} has size {sizes[a]}, only axes of size 1 can go.")
    return reshape(x, tuple(n for i, n in enumerate(sizes) if i not in axes))


def _broadcast_spec(x: Spec, shape: tuple[int, ...]) -> Spec:
    if broadcast_shape("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: shape {x.shape} does not broadcast to {shape}.")
    return make_spec(shape, x.dtype, x.device)


def _stretched(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """A view where memory counts; small arrays are filled, which is faster than making NumPy's view."""
    if math.prod(shape) > 4096:
        return xp.broadcast_to(x, shape)
    out = xp.empty(shape, spec_of(x).dtype)
    out[...] = x
    return out


def _batch_broadcast(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    x, wanted = batching.lead(args[0], axes[0]), static["shape"]
    inner = shape(x)[1:]
    return apply(op, reshape(x, (size, *(1,) * (len(wanted) - len(inner)), *inner)), shape=(size, *wanted)), 0


_broadcast = linear(
    "broadcast_to",
    doc="Repeated along new axes and axes of size one.",
    value=lambda xp, x, shape: _stretched(xp, x, shape),
    spec=_broadcast_spec,
    transpose=lambda bar: bar,  # the engine sums a cotangent to its argument's shape
    batch=_batch_broadcast,
    samples=several(one(3, shape=(2, 3)), one(shape=(2,)), one(2, 1, shape=(4, 2, 3)), one(1, shape=(0,))),
    motion="rearrange",
)


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """x repeated along new axes and axes of size one until it has the shape.

    >>> import numpy as np, pullback as pb
    >>> pb.broadcast_to(np.array([1, 2]), (2, 2))
    array([[1, 2],
           [1, 2]])
    """
    x = as_value(x)
    wanted = shape_tuple(shape, "broadcast_to")
    spec = spec_of(x)
    if spec.shape == wanted and spec.weak is None:
        return unchanged(x)
    _broadcast_spec(spec, wanted)
    return apply(_broadcast, x, shape=wanted)


def stretched(x: Any, shape_wanted: tuple[int, ...]) -> Any:
    """`broadcast_to` for rules, whose shapes are known to fit."""
    return x if shape(x) == shape_wanted else apply(_broadcast, x, shape=shape_wanted)


def sum_to(bar: Any, shape_wanted: tuple[int, ...]) -> Any:
    """The transpose of broadcasting: sums over every axis that broadcasting made or stretched."""
    given = shape(bar)
    extra = len(given) - len(shape_wanted)
    stretched = (i + extra for i, n in enumerate(shape_wanted) if n == 1 and given[i + extra] != 1)
    return reshape(reducing.sum(bar, axis=(*range(extra), *stretched)), shape_wanted)


def any_to(mask: Any, shape_wanted: tuple[int, ...]) -> Any:
    """For each element that was broadcast, whether the mask holds for any of its copies."""
    return pointwise.not_equal(sum_to(mask, shape_wanted), 0)


def fit(bar: Any, spec: Spec) -> Any:
    """A cotangent in the shape and dtype of the value it belongs to."""
    found = spec_of(bar)
    if found.shape != spec.shape:
        bar = sum_to(bar, spec.shape)
    if found.dtype != spec.dtype and is_inexact(spec.dtype):
        if is_complex(bar) and spec.dtype.kind != "c":
            bar = pointwise.real(bar)
        bar = astype(bar, spec.dtype)
    return bar


def _concat_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0].shape
    for x in xs:
        if x.ndim != len(first) or any(
            i != axis and n != m for i, (n, m) in enumerate(zip(x.shape, first, strict=True))
        ):
            raise ShapeError(f"concat: shapes {first} and {x.shape} differ beside axis {axis}.")
    joined = (*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :])
    return make_spec(joined, result_dtype(xs), common_device("concat", xs))


def _concat_share(bar: Any, position: int, specs: tuple[Spec, ...], axis: int) -> Any:
    start = sum(s.shape[axis] for s in specs[:position])
    return bar[(slice(None),) * axis + (slice(start, start + specs[position].shape[axis]),)]


def _parts(rng: Any) -> Any:
    return [
        ((rng.normal(size=(2, 3)), rng.normal(size=(1, 3))), {"axis": 0}),
        ((rng.normal(size=(2, 3)), rng.normal(size=(2, 0)), rng.normal(size=(2, 2))), {"axis": 1}),
        ((rng.normal(size=2),), {"axis": 0}),
    ]


_concat = linear(
    "concat", args=("*xs",), doc="Arrays joined along an axis.",
    value=lambda xp, *xs, axis: xp.concatenate(xs, axis=axis), spec=_concat_spec,
    transpose=_concat_share, batch=batching.shifted(axis="axis"), samples=_parts, motion="rearrange",
)  # fmt: skip


def _listed(arrays: Any, what: str) -> list[Any]:
    if not isinstance(arrays, (list, tuple)):
        arrays = list(arrays)
    if not arrays:
        raise ArgumentError(f"{what}: wants at least one array.")
    return [as_value(x) for x in arrays]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Arrays joined along an axis; with `axis=None`, all flattened first.

    >>> import numpy as np, pullback as pb
    >>> pb.concat([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    xs = _listed(arrays, "concat")
    if axis is None:
        xs, axis = [reshape(x, (-1,)) for x in xs], 0
    if ndim(xs[0]) == 0:
        raise ShapeError("concat: 0-d arrays cannot be joined.\n  Use pb.stack.")
    return apply(_concat, *xs, axis=one_axis(axis, ndim(xs[0]), "concat"))


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays of one shape joined along a new axis.

    >>> import numpy as np, pullback as pb
    >>> pb.stack([np.array([1, 2]), np.array([3, 4])], axis=1)
    array([[1, 3],
           [2, 4]])
    """
    xs = _listed(arrays, "stack")
    axis = one_axis(axis, ndim(xs[0]) + 1, "stack")
    for x in xs:
        if shape(x) != shape(xs[0]):
            raise ShapeError(f"stack: shapes {shape(xs[0])} and {shape(x)} differ.")
    return concat([expand_dims(x, axis) for x in xs], axis=axis)


def _split_spec(x: Spec, cuts: tuple[int, ...], axis: int) -> tuple[Spec, ...]:
    ends = (0, *cuts, x.shape[axis])
    sizes = [b - a for a, b in itertools.pairwise(ends)]
    return tuple(make_spec((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.device) for n in sizes)


def _join_parts(bar: Any, x_spec: Spec, cuts: tuple[int, ...], axis: int) -> Any:
    parts = _split_spec(x_spec, cuts, axis)
    return concat([zeros(s) if b is None else b for b, s in zip(bar, parts, strict=True)], axis=axis)


def zeros(spec: Spec) -> Any:
    """Zeros of a spec as a bare array of its own library."""
    return indexing.namespace_zeros(spec)


def _batch_split(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, Any]:
    cuts, axis = static["cuts"], static["axis"]
    outs = apply(op, batching.lead(args[0], axes[0]), cuts=cuts, axis=axis + 1)
    return outs, (0,) * len(outs)


_split = linear(
    "split",
    doc="One array cut into several along an axis.",
    value=lambda xp, x, cuts, axis: tuple(xp.split(x, cuts, axis=axis)),
    spec=_split_spec,
    transpose=_join_parts,
    batch=_batch_split,
    samples=several(one(5, cuts=(2,), axis=0), one(2, 6, cuts=(1, 4), axis=1), one(3, cuts=(0, 3), axis=0)),
    motion="rearrange",
)


def split(x: Any, /, indices_or_sections: Any, *, axis: int = 0) -> list[Any]:
    """x cut along an axis, into equal sections or before the given indices, as a list.

    >>> import numpy as np, pullback as pb
    >>> pb.split(np.arange(5), [2, 3])
    [array([0, 1]), array([2]), array([3, 4])]
    """
    x = as_value(x)
    axis = one_axis(axis, ndim(x), "split")
    size = shape(x)[axis]
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        cuts = tuple(slice(0, whole(i, "split: index")).indices(size)[1] for i in indices_or_sections)
        if list(cuts) != sorted(cuts):
            raise ArgumentError(f"split: indices {cuts} must not fall.")
    else:
        sections = whole(indices_or_sections, "split: sections")
        if sections < 1 or size % sections:
            raise ShapeError(f"split: {size} elements do not divide into {sections} equal sections.")
        cuts = tuple(range(size // sections, size, size // sections)) if size else (0,) * (sections - 1)
    return list(apply(_split, x, cuts=cuts, axis=axis))


_flip = linear(
    "flip",
    doc="The elements in reverse order along axes.",
    value=lambda xp, x, axis: xp.flip(x, axis),
    spec=lambda x, axis: x,
    transpose=lambda bar, axis: flip(bar, axis=axis),
    batch=batching.shifted(axis="axis"),
    samples=several(one(3, axis=(0,)), one(2, 3, axis=(0, 1)), one(0, 2, axis=(1,))),
    motion="rearrange",
)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """The elements in reverse order along some axes, or along all.

    >>> import numpy as np, pullback as pb
    >>> pb.flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    x = as_value(x)
    return apply(_flip, x, axis=all_axes(axis, ndim(x), "flip"))


_roll: Op = linear(
    "roll",
    doc="The elements moved along axes, those that leave coming in at the other end.",
    value=lambda xp, x, shift, axis: xp.roll(x, shift, axis),
    spec=lambda x, shift, axis: x,
    transpose=lambda bar, shift, axis: apply(_roll, bar, shift=tuple(-s for s in shift), axis=axis),
    batch=batching.shifted(axis="axis"),
    samples=several(
        one(4, shift=(1,), axis=(0,)), one(2, 3, shift=(-1, 5), axis=(0, 1)), one(0, shift=(2,), axis=(0,))
    ),
    motion="rearrange",
)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """The elements moved along axes, those that leave coming in at the other end; without `axis`, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.roll(np.arange(4), 1)
    array([3, 0, 1, 2])
    """
    x = as_value(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), shape(x))
    shifts = tuple(whole(s, "roll: shift") for s in (shift if isinstance(shift, (tuple, list)) else (shift,)))
    axes = tuple(one_axis(a, ndim(x), "roll") for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    count = max(len(shifts), len(axes))
    if {len(shifts), len(axes)} - {1, count}:
        raise ArgumentError(f"roll: shift {shift} and axis {axis} do not pair up.")
    shifts, axes = (shifts * count if len(shifts) == 1 else shifts), (axes * count if len(axes) == 1 else axes)
    return apply(_roll, x, shift=shifts, axis=axes)


def tile(x: Any, repetitions: Any, /) -> Any:
    """x repeated as a whole along each axis.

    >>> import numpy as np, pullback as pb
    >>> pb.tile(np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    x = as_value(x)
    times = shape_tuple(repetitions, "tile")
    if any(n < 0 for n in times):
        raise ArgumentError(f"tile: repetitions {times} must not be negative.")
    rank = max(ndim(x), len(times))
    times = (1,) * (rank - len(times)) + times
    sizes = (1,) * (rank - ndim(x)) + shape(x)
    apart = reshape(x, tuple(n for size in sizes for n in (1, size)))
    spread = broadcast_to(apart, tuple(n for pair in zip(times, sizes, strict=True) for n in pair))
    return reshape(spread, tuple(t * n for t, n in zip(times, sizes, strict=True)))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element repeated along an axis: all as often, or each by its own count.

    >>> import numpy as np, pullback as pb
    >>> pb.repeat(np.array([1, 2]), 2), pb.repeat(np.array([1, 2]), [0, 3])
    (array([1, 1, 2, 2]), array([2, 2, 2]))
    """
    x = as_value(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis = one_axis(axis, ndim(x), "repeat")
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ArgumentError("repeat: repeats must be integers, none negative.")
    size = shape(x)[axis]
    if counts.ndim and counts.shape != (1,):
        if counts.shape != (size,):
            raise ShapeError(f"repeat: {counts.shape} counts for an axis of size {size}.")
        return indexing.take(x, np.repeat(np.arange(size), counts), axis=axis)
    times = int(counts.reshape(()))
    before, after = shape(x)[:axis], shape(x)[axis + 1 :]
    spread = broadcast_to(reshape(x, (*before, size, 1, *after)), (*before, size, times, *after))
    return reshape(spread, (*before, size * times, *after))


def pad(x: Any, pad_width: Any, /, *, value: Any = 0) -> Any:
    """x with a constant added around it: a number for all sides, a pair for all axes, or a pair for each.

    >>> import numpy as np, pullback as pb
    >>> pb.pad(np.array([1, 2]), (1, 2))
    array([0, 1, 2, 0, 0])
    """
    x = as_value(x)
    try:
        pairs = np.broadcast_to(np.asarray(pad_width), (ndim(x), 2))
    except ValueError:
        raise ShapeError(f"pad: pad_width {pad_width} does not give a pair for each of {ndim(x)} axes.") from None
    if pairs.dtype.kind not in "iu" or (pairs < 0).any():
        raise ArgumentError(f"pad: pad_width {pad_width} must be integers, none negative.")
    sizes = shape(x)
    index = tuple(slice(int(a), int(a) + n) for (a, _), n in zip(pairs, sizes, strict=True))
    wanted = tuple(int(a) + n + int(b) for (a, b), n in zip(pairs, sizes, strict=True))
    if type(value) in (int, float) and value == 0:
        return indexing.scatter(x, index, wanted)
    around = broadcast_to(astype(as_value(value), spec_of(x).dtype), wanted)
    return indexing.set_at(around, index, x)


def _triangle(x: Any, keep: Any, what: str) -> Any:
    if ndim(x) < 2:
        raise ShapeError(f"{what}: wants two axes or more, got shape {shape(x)}.")
    rows, columns = shape(x)[-2:]
    xp = indexing.namespace_for(x)
    return pointwise.where(keep(xp.arange(columns) - xp.arange(rows)[:, None]), x, 0)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The lower triangle of each matrix, up to the k-th diagonal; zeros above.

    >>> import numpy as np, pullback as pb
    >>> pb.tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    k = whole(k, "tril: k")
    return _triangle(as_value(x), lambda offset: offset <= k, "tril")


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The upper triangle of each matrix, from the k-th diagonal; zeros below.

    >>> import numpy as np, pullback as pb
    >>> pb.triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    k = whole(k, "triu: k")
    return _triangle(as_value(x), lambda offset: offset >= k, "triu")


def diagonal(x: Any, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal over two axes, as a new last axis.

    >>> import numpy as np, pullback as pb
    >>> pb.diagonal(np.arange(9).reshape(3, 3), offset=1)
    array([1, 5])
    """
    x = as_value(x)
    rank, offset = ndim(x), whole(offset, "diagonal: offset")
    if rank < 2:
        raise ShapeError(f"diagonal: wants two axes or more, got shape {shape(x)}.")
    first, second = one_axis(axis1, rank, "diagonal"), one_axis(axis2, rank, "diagonal")
    if first == second:
        raise ArgumentError("diagonal: axis1 and axis2 are the same axis.")
    x = moveaxis(x, (first, second), (rank - 2, rank - 1))
    rows, columns = shape(x)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    steps = np.arange(count)
    return indexing.getitem(x, (..., steps + max(-offset, 0), steps + max(offset, 0)))

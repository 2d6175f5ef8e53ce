"""Ops that put arrays together, cut them apart and lay their elements out anew, and composites over them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..arrays.node import signed
from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..errors import ArgumentError, ShapeError
from . import batching, indexing, shaping, statics
from . import elementwise as pointwise
from .axes import all_axes, one_axis, shape_tuple, whole
from .dispatch import apply, as_value, ndim, shape
from .families import common_device, linear, result_dtype
from .forms import Join
from .index import namespace_for
from .op import Op
from .sampling import one, several

__all__ = ["concat", "diagonal", "flip", "pad", "repeat", "roll", "split", "stack", "tile", "tril", "triu"]


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
    "concat",
    statics={"axis": statics.axis}, args=("*xs",), doc="Arrays joined along an axis.",
    value=lambda xp, *xs, axis: xp.concatenate(xs, axis=axis), spec=_concat_spec,
    transpose=_concat_share, batch=batching.shifted(axis="axis"), samples=_parts, motion="rearrange",
    form=Join(),
)  # fmt: skip


def _listed(arrays: Any, what: str) -> list[Any]:
    if not isinstance(arrays, (list, tuple)):
        arrays = list(arrays)
    if not arrays:
        raise ArgumentError(f"{what}: wants at least one array.")
    return [as_value(x) for x in arrays]


@signed
def concat(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Arrays joined along an axis; with `axis=None`, all flattened first.

    >>> import numpy as np, pullback as pb
    >>> pb.concat([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    xs = _listed(arrays, "concat")
    if axis is None:
        xs, axis = [shaping.reshape(x, (-1,)) for x in xs], 0
    if ndim(xs[0]) == 0:
        raise ShapeError("concat: 0-d arrays cannot be joined.\n  Use pb.stack.")
    out = apply(_concat, *xs, axis=one_axis(axis, ndim(xs[0]), "concat"))
    return out if dtype is None else shaping.astype(out, dtype)


@signed
def stack(arrays: Any, /, axis: int = 0, *, dtype: Any = None) -> Any:
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
    return concat([shaping.expand_dims(x, axis) for x in xs], axis=axis, dtype=dtype)


def _split_spec(x: Spec, cuts: tuple[int, ...], axis: int) -> tuple[Spec, ...]:
    ends = (0, *cuts, x.shape[axis])
    sizes = [b - a for a, b in itertools.pairwise(ends)]
    return tuple(make_spec((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.device) for n in sizes)


def _join_parts(bar: Any, x_spec: Spec, cuts: tuple[int, ...], axis: int) -> Any:
    parts = _split_spec(x_spec, cuts, axis)
    return concat([zeros(s) if b is None else b for b, s in zip(bar, parts, strict=True)], axis=axis)


def _batch_split(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, Any]:
    cuts, axis = static["cuts"], static["axis"]
    outs = apply(op, batching.lead(args[0], axes[0]), cuts=cuts, axis=axis + 1)
    return outs, (0,) * len(outs)


_split: Op = linear(
    "split",
    statics={"cuts": statics.cuts, "axis": statics.axis},
    doc="One array cut into several along an axis.",
    value=lambda xp, x, cuts, axis: tuple(xp.split(x, cuts, axis=axis)),
    spec=_split_spec,
    transpose=_join_parts,
    batch=_batch_split,
    samples=several(one(5, cuts=(2,), axis=0), one(2, 6, cuts=(1, 4), axis=1), one(3, cuts=(0, 3), axis=0)),
    motion="rearrange",
)


@signed
def split(x: Any, /, indices_or_sections: Any, axis: int = 0) -> list[Any]:
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
    statics={"axis": statics.axes},
    doc="The elements in reverse order along axes.",
    value=lambda xp, x, axis: xp.flip(x, axis),
    spec=lambda x, axis: x,
    transpose=lambda bar, axis: flip(bar, axis=axis),
    batch=batching.shifted(axis="axis"),
    samples=several(one(3, axis=(0,)), one(2, 3, axis=(0, 1)), one(0, 2, axis=(1,))),
    motion="rearrange",
)


def flip(x: Any, /, axis: Any = None) -> Any:
    """The elements in reverse order along some axes, or along all.

    >>> import numpy as np, pullback as pb
    >>> pb.flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    x = as_value(x)
    return apply(_flip, x, axis=all_axes(axis, ndim(x), "flip"))


_roll: Op = linear(
    "roll",
    statics={"shift": statics.shifts, "axis": statics.axes_again},
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


def roll(x: Any, /, shift: Any, axis: Any = None) -> Any:
    """The elements moved along axes, those that leave coming in at the other end; without `axis`, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.roll(np.arange(4), 1)
    array([3, 0, 1, 2])
    """
    x = as_value(x)
    if axis is None:
        return shaping.reshape(roll(shaping.reshape(x, (-1,)), shift, axis=0), shape(x))
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
    apart = shaping.reshape(x, tuple(n for size in sizes for n in (1, size)))
    spread = shaping.broadcast_to(apart, tuple(n for pair in zip(times, sizes, strict=True) for n in pair))
    return shaping.reshape(spread, tuple(t * n for t, n in zip(times, sizes, strict=True)))


@signed
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Any:
    """Each element repeated along an axis: all as often, or each by its own count.

    >>> import numpy as np, pullback as pb
    >>> pb.repeat(np.array([1, 2]), 2), pb.repeat(np.array([1, 2]), [0, 3])
    (array([1, 1, 2, 2]), array([2, 2, 2]))
    """
    x = as_value(x)
    if axis is None:
        x, axis = shaping.reshape(x, (-1,)), 0
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
    spread = shaping.broadcast_to(shaping.reshape(x, (*before, size, 1, *after)), (*before, size, times, *after))
    return shaping.reshape(spread, (*before, size * times, *after))


@signed
def pad(
    x: Any,
    pad_width: Any,
    /,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    reflect_type: str = "even",
) -> Any:
    """x with something added around it: a number of elements for all sides, a pair for all axes, or a pair for each.

    Modes are "constant", and "edge", "reflect", "symmetric" and "wrap", which take elements of x itself.

    >>> import numpy as np, pullback as pb
    >>> pb.pad(np.array([1, 2]), (1, 2))
    array([0, 1, 2, 0, 0])
    >>> pb.pad(np.array([1, 2, 3]), 2, mode="reflect")
    array([3, 2, 1, 2, 3, 2, 1])
    """
    x = as_value(x)
    pairs = _pairs(pad_width, ndim(x), "pad_width")
    if any(type(n) is not int or n < 0 for pair in pairs for n in pair):
        raise ArgumentError(f"pad: pad_width {pad_width} must be integers, none negative.")
    if mode == "constant":
        return _surrounded(x, pairs, constant_values)
    if mode not in _ECHOES or (reflect_type != "even" and mode in ("reflect", "symmetric")):
        raise ArgumentError(
            f"pad: mode {mode!r} with reflect_type {reflect_type!r} is not supported.\n"
            f"  Use constant, {', '.join(_ECHOES)} (even), or join parts with pb.concat."
        )
    for axis, pair in enumerate(pairs):
        if any(pair):
            if not shape(x)[axis]:
                raise ShapeError(f"pad: axis {axis} of shape {shape(x)} has no elements to take ({mode}).")
            x = indexing.take(x, np.pad(np.arange(shape(x)[axis]), pair, mode=mode), axis=axis)  # type: ignore[call-overload]
    return x


#: Modes of padding that take elements of the array itself.
_ECHOES = ("edge", "reflect", "symmetric", "wrap")


def _pairs(given: Any, rank: int, what: str) -> list[tuple[Any, Any]]:
    """One pair for each axis, from a number, a pair, or pairs."""
    if isinstance(given, dict):
        pairs = {one_axis(a, rank, "pad"): pair for a, pair in given.items()}
        given = [pairs.get(i, (0, 0)) for i in range(rank)]
        given = [pair if isinstance(pair, (tuple, list)) else (pair, pair) for pair in given]
    try:
        return [(a, b) for a, b in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]
    except ValueError:
        raise ShapeError(f"pad: {what} {given} does not give a pair for each of {rank} axes.") from None


def _surrounded(x: Any, pairs: list[tuple[int, int]], values: Any) -> Any:
    """x inside of a constant, or of one for each side."""
    sizes = shape(x)
    index = tuple(slice(a, a + n) for (a, _), n in zip(pairs, sizes, strict=True))
    wanted = tuple(a + n + b for (a, b), n in zip(pairs, sizes, strict=True))
    if type(values) in (int, float) and values == 0:
        return indexing.scatter(x, index, wanted)
    values = as_value(values)
    if not ndim(values):
        around = shaping.broadcast_to(shaping.astype(values, spec_of(x).dtype), wanted)
        return indexing.set_at(around, index, x)
    return _bordered(x, pairs, values)


def _bordered(x: Any, pairs: list[tuple[int, int]], values: Any) -> Any:
    """Axis after axis, a stretch of its own number before and after; a later axis surrounds the earlier ones."""
    values = shaping.broadcast_to(shaping.astype(values, spec_of(x).dtype), (ndim(x), 2))
    for axis, pair in enumerate(pairs):
        sides = [
            shaping.broadcast_to(values[axis, k], (*shape(x)[:axis], n, *shape(x)[axis + 1 :]))
            for k, n in enumerate(pair)
        ]
        x = concat([sides[0], x, sides[1]], axis=axis)
    return x


def _triangle(x: Any, keep: Any, what: str) -> Any:
    if ndim(x) < 2:
        raise ShapeError(f"{what}: wants two axes or more, got shape {shape(x)}.")
    rows, columns = shape(x)[-2:]
    xp = namespace_for(x)
    return pointwise.where(keep(xp.arange(columns) - xp.arange(rows)[:, None]), x, 0)


def tril(x: Any, /, k: int = 0) -> Any:
    """The lower triangle of each matrix, up to the k-th diagonal; zeros above.

    >>> import numpy as np, pullback as pb
    >>> pb.tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    k = whole(k, "tril: k")
    return _triangle(as_value(x), lambda offset: offset <= k, "tril")


def triu(x: Any, /, k: int = 0) -> Any:
    """The upper triangle of each matrix, from the k-th diagonal; zeros below.

    >>> import numpy as np, pullback as pb
    >>> pb.triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    k = whole(k, "triu: k")
    return _triangle(as_value(x), lambda offset: offset >= k, "triu")


def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
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
    x = shaping.moveaxis(x, (first, second), (rank - 2, rank - 1))
    rows, columns = shape(x)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    steps = np.arange(count)
    return indexing.getitem(x, (..., steps + max(-offset, 0), steps + max(offset, 0)))

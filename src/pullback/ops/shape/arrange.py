"""Ops that join, split, reverse, shift, repeat and pad arrays, and composites over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.argument_checks import explains_keywords, refuse_keywords
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...errors import ArgumentError, ArgumentTypeError, ShapeError
from .. import statics
from ..axes import as_integer, as_shape, axes_tuple, normalize_axes, normalize_axis
from ..dispatch import apply, as_value, match_bfloat16, ndim, shape
from ..elementwise import pointwise
from ..families import common_device, linear, result_dtype
from ..forms import Expand, Join
from ..index import indexing
from ..index.normalize import namespace_for
from ..lazy import lazy_function
from ..op import Op
from ..op_samples import normal_samples
from ..placement import as_value_beside
from ..remember import JoinedOutcomes
from ..signatures import of_array, of_sequence, to_list
from . import reshaping


def _concat_spec(*xs: Spec, axis: int) -> Spec:
    first = xs[0].shape
    for x in xs:
        if x.ndim != len(first) or any(
            i != axis and n != m for i, (n, m) in enumerate(zip(x.shape, first, strict=True))
        ):
            raise ShapeError(f"concat: shapes {first} and {x.shape} differ off axis {axis}.")
    joined = (*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :])
    return make_spec(joined, result_dtype(xs), common_device("concat", xs))


def _pull_concat(bar: Any, position: int, specs: tuple[Spec, ...], axis: int) -> Any:
    start = sum(s.shape[axis] for s in specs[:position])
    return bar[(slice(None),) * axis + (slice(start, start + specs[position].shape[axis]),)]


#: Arrays of a GPU joined by one kernel.
_bind_concat_on_gpu = lazy_function("cuda.eager", "bind_concat", "compile")


def _bind_concat(axis: int) -> Callable[..., Any]:
    concatenate = np.concatenate
    return lambda *xs: concatenate(xs, axis)


def _concat_samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=(2, 3)), rng.normal(size=(1, 3))), {"axis": 0}),
        ((rng.normal(size=(2, 3)), rng.normal(size=(2, 0)), rng.normal(size=(2, 2))), {"axis": 1}),
        ((rng.normal(size=2),), {"axis": 0}),
    ]


_concat = linear(
    "concat",
    statics={"axis": statics.axis},
    value=lambda xp, *xs, axis: xp.concatenate(match_bfloat16(xp, xs), axis=axis), spec=_concat_spec,
    transpose=_pull_concat, samples=_concat_samples,
    form=Join(), direct=lambda *xs, axis: _bind_concat(axis), on_gpu=lambda *xs, axis: _bind_concat_on_gpu(xs, axis),
)  # fmt: skip


def _as_values(arrays: Any, what: str, axis: Any = None) -> list[Any]:
    if getattr(axis, "ndim", 0):
        raise ArgumentTypeError(f"{what}: takes one sequence of arrays.\n  Write pb.{what}([a, b]).")
    if not isinstance(arrays, (list, tuple)):
        arrays = list(arrays)
    if not arrays:
        raise ArgumentError(f"{what}: wants at least one array.")
    return [as_value(x) for x in arrays]


@of_sequence
@explains_keywords
def concat(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None, dim: None = None) -> Any:
    """Arrays joined along an axis; with `axis=None`, all flattened first.

    >>> import numpy as np, pullback as pb
    >>> pb.concat([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    if dim is not None:
        refuse_keywords(concat, dim=dim)
    kind = type(arrays)
    if (kind is list or kind is tuple) and (run := _concat_outcomes.find(arrays, axis, dtype)) is not None:
        return run(*arrays)
    return _concat_general(arrays, axis, dtype)


@attributed_to_caller
def _concat_general(arrays: Any, axis: int | None, dtype: Any) -> Any:
    xs = _as_values(arrays, "concat", axis)
    if axis is None:
        xs, axis = [reshaping.reshape(x, (-1,)) for x in xs], 0
    if ndim(xs[0]) == 0:
        raise ShapeError("concat: 0-d arrays cannot be joined.\n  Use pb.stack.")
    out = apply(_concat, *xs, axis=normalize_axis(axis, ndim(xs[0]), "concat"))
    return out if dtype is None else reshaping.astype(out, dtype)


_concat_outcomes = JoinedOutcomes(_concat_general)


@of_sequence
@attributed_to_caller
def stack(arrays: Any, /, axis: int = 0, *, dtype: Any = None) -> Any:
    """Arrays of one shape joined along a new axis.

    >>> import numpy as np, pullback as pb
    >>> pb.stack([np.array([1, 2]), np.array([3, 4])], axis=1)
    array([[1, 3],
           [2, 4]])
    """
    xs = _as_values(arrays, "stack", axis)
    axis = normalize_axis(axis, ndim(xs[0]) + 1, "stack")
    for x in xs:
        if shape(x) != shape(xs[0]):
            raise ShapeError(f"stack: shapes {shape(xs[0])} and {shape(x)} differ.")
    return concat([reshaping.expand_dims(x, axis) for x in xs], axis=axis, dtype=dtype)


def _split_spec(x: Spec, cuts: tuple[int, ...], axis: int) -> tuple[Spec, ...]:
    ends = (0, *cuts, x.shape[axis])
    sizes = [b - a for a, b in itertools.pairwise(ends)]
    return tuple(make_spec((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.device) for n in sizes)


def _pull_split(bar: Any, x_spec: Spec, cuts: tuple[int, ...], axis: int) -> Any:
    parts = _split_spec(x_spec, cuts, axis)
    return concat([zeros(s) if b is None else b for b, s in zip(bar, parts, strict=True)], axis=axis)


def _bind_split(x: Spec, cuts: tuple[int, ...], axis: int) -> Callable[[Any], tuple[Any, ...]]:
    """Slices of an array, found in a third of the time that NumPy's and CuPy's own function takes."""
    ends = (0, *cuts, x.shape[axis])
    parts = [(*(slice(None),) * axis, slice(a, b)) for a, b in itertools.pairwise(ends)]
    return lambda array: tuple([array[part] for part in parts])


_split: Op = linear(
    "split",
    statics={"cuts": statics.cuts, "axis": statics.axis},
    value=lambda xp, x, cuts, axis: tuple(xp.split(x, cuts, axis=axis)),
    spec=_split_spec,
    transpose=_pull_split,
    samples=normal_samples([(5,), (2, 6), (3,)], cuts=[(2,), (1, 4), (0, 3)], axis=[0, 1, 0]),
    direct=_bind_split,
    on_gpu=_bind_split,
)


@to_list
@attributed_to_caller
def split(x: Any, /, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """x cut along an axis, into equal sections or before the given indices, as a list.

    >>> import numpy as np, pullback as pb
    >>> pb.split(np.arange(5), [2, 3])
    [array([0, 1]), array([2]), array([3, 4])]
    """
    x = as_value(x)
    axis = normalize_axis(axis, ndim(x), "split")
    size = shape(x)[axis]
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        cuts = tuple(slice(0, as_integer(i, "split: index")).indices(size)[1] for i in indices_or_sections)
        if list(cuts) != sorted(cuts):
            raise ArgumentError(f"split: indices {cuts} must not decrease.")
    else:
        sections = as_integer(indices_or_sections, "split: sections")
        if sections < 1 or size % sections:
            raise ShapeError(f"split: {size} elements do not divide into {sections} equal sections.")
        cuts = tuple(range(size // sections, size, size // sections)) if size else (0,) * (sections - 1)
    return list(apply(_split, x, cuts=cuts, axis=axis))


_flip = linear(
    "flip",
    statics={"axis": statics.axes},
    value=lambda xp, x, axis: xp.flip(x, axis),
    transpose=lambda bar, axis: flip(bar, axis=axis),
    samples=normal_samples([(3,), (2, 3), (0, 2)], axis=[(0,), (0, 1), (1,)]),
)


@of_array
@explains_keywords
def flip(x: Any, /, axis: Any = None, *, dims: None = None) -> Any:
    """The elements in reverse order along some axes, or along all.

    >>> import numpy as np, pullback as pb
    >>> pb.flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    if dims is not None:
        refuse_keywords(flip, dims=dims)
    x = as_value(x)
    return apply(_flip, x, axis=normalize_axes(axis, ndim(x), "flip"))


def _stage_roll(x: Any, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """The two parts of each axis, exchanged."""
    for by, a in zip(shift, axis, strict=True):
        n = shape(x)[a]
        if n and by % n:
            parts = indexing.slice_along(x, a, n - by % n, None), indexing.slice_along(x, a, None, n - by % n)
            x = concat(parts, axis=a)
    return x


_roll: Op = linear(
    "roll",
    statics={"shift": statics.shifts, "axis": statics.axes_with_repeats},
    value=lambda xp, x, shift, axis: xp.roll(x, shift, axis),
    transpose=lambda bar, shift, axis: apply(_roll, bar, shift=tuple(-s for s in shift), axis=axis),
    samples=normal_samples([(4,), (2, 3), (0,)], shift=[(1,), (-1, 5), (2,)], axis=[(0,), (0, 1), (0,)]),
    form=Expand(_stage_roll),
)


@of_array
@explains_keywords
def roll(x: Any, /, shift: Any, axis: Any = None, *, dims: None = None) -> Any:
    """The elements shifted cyclically along axes; without `axis`, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.roll(np.arange(4), 1)
    array([3, 0, 1, 2])
    """
    if dims is not None:
        refuse_keywords(roll, dims=dims)
    x = as_value(x)
    if axis is None:
        return reshaping.reshape(roll(reshaping.reshape(x, (-1,)), shift, axis=0), shape(x))
    shifts = tuple(as_integer(s, "roll: shift") for s in (shift if isinstance(shift, (tuple, list)) else (shift,)))
    axes = axes_tuple(axis, ndim(x), "roll")
    count = max(len(shifts), len(axes))
    if {len(shifts), len(axes)} - {1, count}:
        raise ArgumentError(f"roll: shift {shift} and axis {axis} differ in length.")
    shifts, axes = (shifts * count if len(shifts) == 1 else shifts), (axes * count if len(axes) == 1 else axes)
    return apply(_roll, x, shift=shifts, axis=axes)


@of_array
def tile(x: Any, repetitions: Any, /) -> Any:
    """x as a whole repeated along each axis.

    >>> import numpy as np, pullback as pb
    >>> pb.tile(np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    x = as_value(x)
    times = as_shape(repetitions, "tile")
    if any(n < 0 for n in times):
        raise ArgumentError(f"tile: repetitions {times} must not be negative.")
    rank = max(ndim(x), len(times))
    times = (1,) * (rank - len(times)) + times
    sizes = (1,) * (rank - ndim(x)) + shape(x)
    expanded = reshaping.reshape(x, tuple(n for size in sizes for n in (1, size)))
    spread = reshaping.broadcast_to(expanded, tuple(n for pair in zip(times, sizes, strict=True) for n in pair))
    return reshaping.reshape(spread, tuple(t * n for t, n in zip(times, sizes, strict=True)))


@of_array
@attributed_to_caller
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Any:
    """Each element repeated along an axis: one count for all, or one for each.

    >>> import numpy as np, pullback as pb
    >>> pb.repeat(np.array([1, 2]), 2), pb.repeat(np.array([1, 2]), [0, 3])
    (array([1, 1, 2, 2]), array([2, 2, 2]))
    """
    x = as_value(x)
    if axis is None:
        x, axis = reshaping.reshape(x, (-1,)), 0
    axis = normalize_axis(axis, ndim(x), "repeat")
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
    spread = reshaping.broadcast_to(reshaping.reshape(x, (*before, size, 1, *after)), (*before, size, times, *after))
    return reshaping.reshape(spread, (*before, size * times, *after))


@of_array
@attributed_to_caller
def pad(
    x: Any, pad_width: Any, /, mode: str = "constant", *, constant_values: Any = 0, reflect_type: str = "even"
) -> Any:
    """x padded on all sides: a number of elements for all sides, a pair for all axes, or a pair for each.

    Modes are "constant", and "edge", "reflect", "symmetric" and "wrap", which take elements of x itself.

    >>> import numpy as np, pullback as pb
    >>> pb.pad(np.array([1, 2]), (1, 2))
    array([0, 1, 2, 0, 0])
    >>> pb.pad(np.array([1, 2, 3]), 2, mode="reflect")
    array([3, 2, 1, 2, 3, 2, 1])
    """
    x = as_value(x)
    pairs = pad_pairs(pad_width, ndim(x), "pad_width")
    if any(type(n) is not int or n < 0 for pair in pairs for n in pair):
        raise ArgumentError(f"pad: pad_width {pad_width} must be integers, none negative.")
    if mode == "constant":
        return _pad_constant(x, pairs, constant_values)
    if mode not in _REPEATING_MODES or (reflect_type != "even" and mode in ("reflect", "symmetric")):
        raise ArgumentError(
            f"pad: mode {mode!r} with reflect_type {reflect_type!r} is not supported.\n"
            f"  Use constant, {', '.join(_REPEATING_MODES)} (even), or join parts with pb.concat."
        )
    for axis, pair in enumerate(pairs):
        if any(pair):
            if not shape(x)[axis]:
                raise ShapeError(f"pad: axis {axis} of shape {shape(x)} has no elements to repeat ({mode}).")
            x = indexing.take(x, np.pad(np.arange(shape(x)[axis]), pair, mode=mode), axis=axis)  # type: ignore[call-overload]
    return x


#: Padding modes that repeat elements of the array itself.
_REPEATING_MODES = ("edge", "reflect", "symmetric", "wrap")


def pad_pairs(given: Any, rank: int, what: str) -> list[tuple[Any, Any]]:
    """One pair for each axis, from a number, a pair, or pairs."""
    if isinstance(given, dict):
        pairs = {normalize_axis(a, rank, "pad"): pair for a, pair in given.items()}
        given = [pairs.get(i, (0, 0)) for i in range(rank)]
        given = [pair if isinstance(pair, (tuple, list)) else (pair, pair) for pair in given]
    try:
        return [(a, b) for a, b in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]
    except ValueError:
        raise ShapeError(f"pad: {what} {given} does not give a pair for each of {rank} axes.") from None


def _pad_constant(x: Any, pairs: list[tuple[int, int]], values: Any) -> Any:
    """x padded with a constant, or with one for each side."""
    sizes = shape(x)
    index = tuple(slice(a, a + n) for (a, _), n in zip(pairs, sizes, strict=True))
    wanted = tuple(a + n + b for (a, b), n in zip(pairs, sizes, strict=True))
    if type(values) in (int, float) and values == 0:
        return indexing.scatter(x, index, wanted)
    values = as_value_beside(x, values)
    if not ndim(values):
        around = reshaping.broadcast_to(reshaping.astype(values, spec_of(x).dtype), wanted)
        return indexing.set_at(around, index, x)
    return _pad_each_side(x, pairs, values)


def _pad_each_side(x: Any, pairs: list[tuple[int, int]], values: Any) -> Any:
    """Axis by axis, a block of its own constant before and after; a later axis surrounds the earlier ones."""
    values = reshaping.broadcast_to(reshaping.astype(values, spec_of(x).dtype), (ndim(x), 2))
    for axis, pair in enumerate(pairs):
        sides = [
            reshaping.broadcast_to(values[axis, k], (*shape(x)[:axis], n, *shape(x)[axis + 1 :]))
            for k, n in enumerate(pair)
        ]
        x = concat([sides[0], x, sides[1]], axis=axis)
    return x


def _mask_triangle(x: Any, keep: Any, what: str) -> Any:
    if ndim(x) < 2:
        raise ShapeError(f"{what}: wants two axes or more, got shape {shape(x)}.")
    rows, columns = shape(x)[-2:]
    xp = namespace_for(x)
    return pointwise.where(keep(xp.arange(columns) - xp.arange(rows)[:, None]), x, 0)


@of_array
def tril(x: Any, /, k: int = 0) -> Any:
    """The lower triangle of each matrix, up to the k-th diagonal; zeros above.

    >>> import numpy as np, pullback as pb
    >>> pb.tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    k = as_integer(k, "tril: k")
    return _mask_triangle(as_value(x), lambda offset: offset <= k, "tril")


@of_array
def triu(x: Any, /, k: int = 0) -> Any:
    """The upper triangle of each matrix, from the k-th diagonal; zeros below.

    >>> import numpy as np, pullback as pb
    >>> pb.triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    k = as_integer(k, "triu: k")
    return _mask_triangle(as_value(x), lambda offset: offset >= k, "triu")


@of_array
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal over two axes, as a new last axis.

    >>> import numpy as np, pullback as pb
    >>> pb.diagonal(np.arange(9).reshape(3, 3), offset=1)
    array([1, 5])
    """
    x = as_value(x)
    rank, offset = ndim(x), as_integer(offset, "diagonal: offset")
    if rank < 2:
        raise ShapeError(f"diagonal: wants two axes or more, got shape {shape(x)}.")
    first, second = normalize_axis(axis1, rank, "diagonal"), normalize_axis(axis2, rank, "diagonal")
    if first == second:
        raise ArgumentError("diagonal: axis1 and axis2 are the same axis.")
    x = reshaping.moveaxis(x, (first, second), (rank - 2, rank - 1))
    rows, columns = shape(x)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    steps = np.arange(count)
    return indexing.getitem(x, (..., steps + max(-offset, 0), steps + max(offset, 0)))

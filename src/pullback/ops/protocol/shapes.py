"""NumPy's functions that move elements, by NumPy's signatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from .. import arranging, indexing, joining, reducing, shaping
from ..axes import all_axes, filled_shape, one_axis, shape_tuple
from ..dispatch import as_value, ndim, shape
from ..joining import atleast_1d, atleast_2d, atleast_3d  # noqa: F401 - NumPy's signatures as they are
from ..known import bare
from .refusing import refuse


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    refuse("astype", device=None if device == "cpu" else device)
    return shaping.astype(x, dtype)


def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    refuse("copy", order=order)
    return shaping.unchanged(as_value(a))


def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    x = as_value(a)
    if order == "F" and ndim(x) + len(shape_tuple(shape, "reshape")) > 2:
        wanted = filled_shape(shape_tuple(shape, "reshape"), spec_of(x).size, "reshape")
        return shaping.permute_dims(shaping.reshape(shaping.permute_dims(x), wanted[::-1]))
    refuse("reshape", order=None if order == "F" else order)
    return shaping.reshape(x, shape)


def ravel(a: Any, order: str = "C") -> Any:
    return reshape(a, (-1,), order)


def transpose(a: Any, axes: Any = None) -> Any:
    return shaping.permute_dims(a, axes)


def matrix_transpose(x: Any, /) -> Any:
    return shaping.matrix_transpose(x)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return shaping.moveaxis(a, source, destination)


def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    rank = ndim(as_value(a))
    first, second = one_axis(axis1, rank, "swapaxes"), one_axis(axis2, rank, "swapaxes")
    order = list(range(rank))
    order[first], order[second] = second, first
    return shaping.permute_dims(a, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    rank = ndim(as_value(a))
    axis = one_axis(axis, rank, "rollaxis")
    start = start + rank if start < 0 else start
    return shaping.moveaxis(a, axis, start - (axis < start))


def expand_dims(a: Any, axis: Any) -> Any:
    return shaping.expand_dims(a, axis)


def squeeze(a: Any, axis: Any = None) -> Any:
    return shaping.squeeze(a, axis)


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return shaping.broadcast_to(array, shape)


def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    return joining.broadcast_arrays(*args)


def _joined(parts: Any, dtype: Any, casting: str) -> list[Any]:
    """The parts in the dtype that was asked for, if NumPy would cast them so."""
    xs = [as_value(x) for x in parts]
    if dtype is None:
        return xs
    for x in xs:
        if not np.can_cast(spec_of(x).dtype, dtype, casting=casting):  # type: ignore[arg-type]
            raise ArgumentError(f"concatenate: {spec_of(x).dtype} does not become {dtype} by casting={casting!r}.")
    return [shaping.astype(x, dtype) for x in xs]


def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None,
                casting: str = "same_kind") -> Any:  # fmt: skip
    return arranging.concat(_joined(arrays, dtype, casting), axis=axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return arranging.stack(_joined(arrays, dtype, casting), axis=axis)


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return joining.vstack(_joined(tup, dtype, casting))


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return joining.hstack(_joined(tup, dtype, casting))


def dstack(tup: Any) -> Any:
    return joining.dstack(list(tup))


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return arranging.split(ary, indices_or_sections, axis=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    x = shaping.moveaxis(as_value(x), axis, 0)
    return tuple(x[i] for i in range(shape(x)[0]))


def flip(m: Any, axis: Any = None) -> Any:
    return arranging.flip(m, axis=axis)


def flipud(m: Any) -> Any:
    return arranging.flip(m, axis=0)


def fliplr(m: Any) -> Any:
    return arranging.flip(m, axis=1)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    first, second = (one_axis(a, ndim(as_value(m)), "rot90") for a in axes)
    if first == second:
        raise ArgumentError(f"rot90: axes {axes} are the same axis.")
    k %= 4
    if k == 0:
        return copy(m)
    if k == 2:
        return arranging.flip(m, axis=(first, second))
    if k == 1:
        return swapaxes(arranging.flip(m, axis=second), first, second)
    return arranging.flip(swapaxes(m, first, second), axis=second)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return arranging.roll(a, shift, axis=axis)


def tile(A: Any, reps: Any) -> Any:
    return arranging.tile(A, reps)


def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return arranging.repeat(a, bare(repeats, "repeat"), axis=axis)


def resize(a: Any, new_shape: Any) -> Any:
    """The elements over and over until the shape is full."""
    wanted = shape_tuple(new_shape, "resize")
    flat = shaping.reshape(as_value(a), (-1,))
    count = int(np.prod(wanted))
    places = np.arange(count) % max(shape(flat)[0], 1)
    return shaping.reshape(indexing.take(flat, places), wanted)


def tril(m: Any, k: int = 0) -> Any:
    return arranging.tril(_as_matrix(m), k=k)


def triu(m: Any, k: int = 0) -> Any:
    return arranging.triu(_as_matrix(m), k=k)


def _as_matrix(m: Any) -> Any:
    """A vector as NumPy reads it here: each row of a square."""
    x = as_value(m)
    return shaping.broadcast_to(x, (shape(x)[0],) * 2) if ndim(x) == 1 else x


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return arranging.diagonal(a, offset=offset, axis1=axis1, axis2=axis2)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return joining.trace(a, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype)


def linalg_matrix_transpose(x: Any, /) -> Any:
    return shaping.matrix_transpose(x)


def linalg_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return arranging.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return joining.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}.")
    vectors = [shaping.reshape(as_value(x), (-1,)) for x in xi]
    rank = len(vectors)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = [1, 0]
    along = [tuple(-1 if place == i else 1 for i in range(rank)) for place in places]
    laid = [shaping.reshape(v, sizes) for v, sizes in zip(vectors, along, strict=True)]
    return tuple(laid) if sparse else joining.broadcast_arrays(*laid) if laid else ()


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    indices = as_value(indices)
    size = spec_of(as_value(a)).size if axis is None else shape(as_value(a))[axis]
    if mode == "wrap":
        indices = bare(indices, "take") % size
    elif mode == "clip":
        indices = np.clip(bare(indices, "take"), 0, size - 1)
    elif mode != "raise":
        raise ArgumentError(f"take: mode is 'raise', 'wrap' or 'clip', got {mode!r}.")
    return indexing.take(a, indices, axis=axis)


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    if axis is None:
        return indexing.take_along_axis(shaping.reshape(as_value(arr), (-1,)), indices, axis=0)
    return indexing.take_along_axis(arr, indices, axis=axis)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    x = as_value(filt)
    found = np.argwhere(bare(x, "trim_zeros"))
    index: list[Any] = [slice(None)] * ndim(x)
    for a in all_axes(axis, ndim(x), "trim_zeros"):
        low, high = (found[:, a].min(), found[:, a].max() + 1) if found.size else (0, 0)
        index[a] = slice(int(low) if "f" in trim.lower() else None, int(high) if "b" in trim.lower() else None)
    return indexing.getitem(x, tuple(index))


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False,
                        writeable: bool = False) -> Any:  # fmt: skip
    refuse("lib.stride_tricks.sliding_window_view", writeable=writeable or None)
    x = as_value(x)
    sizes = shape_tuple(window_shape, "sliding_window_view")
    axes = tuple(range(ndim(x))) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(sizes) != len(axes):
        raise ShapeError(f"sliding_window_view: window {sizes} does not fit axes {axes}.")
    for size, a in zip(sizes, (one_axis(a, ndim(x), "sliding_window_view") for a in axes), strict=True):
        count = shape(x)[a] - size + 1
        if count < 1:
            raise ShapeError(f"sliding_window_view: a window of {size} is larger than axis {a} of {shape(x)}.")
        places = np.arange(count)[:, None] + np.arange(size)
        x = shaping.moveaxis(indexing.take(x, places, axis=a), a + 1, -1)
    return x


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = as_value(array)
    pairs = _pairs(pad_width, ndim(x))
    if mode == "constant":
        values = kwargs.pop("constant_values", 0)
        refuse("pad", **kwargs)
        return _with_constants(x, pairs, values)
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        if kwargs.pop("reflect_type", "even") != "even":
            refuse("pad", reflect_type="odd")
        refuse("pad", **kwargs)
        for axis, pair in enumerate(pairs):
            if any(pair):
                x = indexing.take(x, np.pad(np.arange(shape(x)[axis]), pair, mode=mode), axis=axis)
        return x
    if mode in _STATISTICS:
        length = kwargs.pop("stat_length", None)
        refuse("pad", **kwargs)
        return _with_statistics(x, pairs, _STATISTICS[mode], length)
    refuse("pad", mode=mode)
    return None


def _pairs(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        found = [(0, 0)] * rank
        for axis, pair in pad_width.items():
            found[one_axis(axis, rank, "pad")] = pair if isinstance(pair, tuple) else (pair, pair)
        return found
    try:
        return [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(pad_width), (rank, 2))]
    except ValueError:
        raise ShapeError(f"pad: pad_width {pad_width} does not give a pair for each of {rank} axes.") from None


def _with_constants(x: Any, pairs: list[tuple[int, int]], values: Any) -> Any:
    values = as_value(values)
    if not ndim(values):
        return arranging.pad(x, pairs, value=values)
    pair = shaping.broadcast_to(values, (ndim(x), 2))
    for axis, (before, after) in enumerate(pairs):
        parts = [_block(pair[axis, 0], x, axis, before), x, _block(pair[axis, 1], x, axis, after)]
        x = arranging.concat(parts, axis=axis)
    return x


def _block(value: Any, x: Any, axis: int, size: int) -> Any:
    wanted = tuple(size if i == axis else n for i, n in enumerate(shape(x)))
    return shaping.broadcast_to(shaping.astype(value, spec_of(x).dtype), wanted)


_STATISTICS = {"maximum": reducing.max, "minimum": reducing.min, "mean": reducing.mean}


def _with_statistics(x: Any, pairs: list[tuple[int, int]], statistic: Any, length: Any) -> Any:
    lengths = None if length is None else _pairs(length, ndim(x))
    for axis, (before, after) in enumerate(pairs):
        size = shape(x)[axis]
        first, last = (size, size) if lengths is None else (min(n, size) for n in lengths[axis])
        front = (slice(None),) * axis
        head = statistic(x[(*front, slice(0, first))], axis=axis, keepdims=True)
        tail = statistic(x[(*front, slice(size - last, None))], axis=axis, keepdims=True)
        x = arranging.concat([_block(head, x, axis, before), x, _block(tail, x, axis, after)], axis=axis)
    return x

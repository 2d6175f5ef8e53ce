"""Pooling: for each window the place of its maximum, the element at a place, or the sum.

Arrays are (n, channels, *sizes); a place in a window is an index counted row by row. A maximum is the place where it
lies, which has no derivative, and the element taken from there; the transpose adds a cotangent at that place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...errors import DtypeError, ShapeError
from .. import statics
from ..batching import move_batch_first
from ..dispatch import apply, shape
from ..families import general, linear
from ..forms import Window
from ..native_values import native_value
from ..op import Op
from ..shape import reshaping
from . import patches
from .patches import Pairs, Sizes, inner_slices, pad_grid, window_slices, without_sizes


def _pool_counts(sizes: Sizes, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> Sizes:
    return patches.window_counts("pooling", sizes, window, stride, padding, dilation)


def lowest_of(dtype: Any) -> Any:
    """What every number of a dtype exceeds or equals."""
    return -np.inf if dtype.kind in "fV" else False if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _argmax_value(xp: Any, x: Any, **how: Any) -> Any:
    """Where each window has its first greatest element; a NaN counts as greatest, padding never does."""
    many = _pool_counts(x.shape[2:], **how)
    if x.dtype.kind == "c":
        raise DtypeError(f"pooling: {x.dtype} has no largest element.\n  Pool real and imaginary parts.")
    lowest = lowest_of(x.dtype)
    wide = pad_grid(xp, x, how["padding"], lowest)
    seen = [wide[index] for _, index in window_slices(how["window"], how["stride"], how["dilation"], many)]
    best = seen[0].copy()
    for s in seen[1:]:
        xp.maximum(best, s, out=best)
    if bool((best > lowest).all()) or ((best == best).all() and wide is x):
        return _count_before_best(xp, seen, best)
    return _search_best(xp, seen, lowest, patches.first_unpadded_place(xp, many=many, **how))


def _count_before_best(xp: Any, seen: list[Any], best: Any) -> Any:
    """How many places come before the first maximum, which exists: c0 (1 + c1 (1 + ...)), c the misses."""
    kind = "int8" if len(seen) < 128 else "int32"
    number = xp.zeros(best.shape, kind)
    for s in reversed(seen[:-1]):
        number += 1
        number *= s != best
    return number.astype("int32")


def _search_best(xp: Any, seen: list[Any], lowest: Any, first: Any) -> Any:
    """The same place by place, from the first that is no padding, for windows with NaN or only the lowest value."""
    found = xp.empty(seen[0].shape, "int32")
    found[...] = first
    best = xp.full(found.shape, lowest, seen[0].dtype)
    for number, s in enumerate(seen):
        better = (s > best) | ((s != s) & (best == best))
        xp.copyto(best, s, where=better)
        xp.copyto(found, number, where=better)
    return found


def _flat_places(xp: Any, index: Any, sizes: Sizes, **how: Any) -> Any:
    """Places in windows as places in the whole flattened array, whose grids are padded to some sizes."""
    rank, many = len(sizes), index.shape[2:]
    reach, start = xp.zeros(how["window"], np.intp), xp.zeros(many, np.intp)
    for axis in range(rank):
        weight, wide = math.prod(sizes[axis + 1 :]), (-1, *(1,) * (rank - 1 - axis))
        reach += (xp.arange(how["window"][axis]) * how["dilation"][axis] * weight).reshape(wide)
        start += (xp.arange(many[axis]) * how["stride"][axis] * weight).reshape(wide)
    flat = xp.take(reach.ravel(), index)
    flat += start
    planes = xp.arange(index.shape[0] * index.shape[1]) * math.prod(sizes)
    flat += planes.reshape((*index.shape[:2], *(1,) * rank))
    return flat


def _take_value(xp: Any, x: Any, index: Any, **how: Any) -> Any:
    wide = pad_grid(xp, x, how["padding"])
    return xp.take(wide.ravel(), _flat_places(xp, index, wide.shape[2:], **how))


def _put_value(xp: Any, y: Any, index: Any, sizes: Sizes, **how: Any) -> Any:
    if patches.are_windows_disjoint(how["window"], how["stride"], how["dilation"]):
        wide = tuple(n + low + high for n, (low, high) in zip(sizes, how["padding"], strict=True))
        out = xp.zeros((*y.shape[:2], *wide), y.dtype)
        out.ravel()[_flat_places(xp, index, wide, **how)] = y
        return out[inner_slices(sizes, how["padding"])]
    return _add_by_place(xp, lambda number: xp.where(index == number, y, xp.zeros((), y.dtype)), y, sizes, **how)


def _add_by_place(xp: Any, term: Any, y: Any, sizes: Sizes, **how: Any) -> Any:
    """The sum over places of `term(place)` for all windows, added at that place of each window."""
    wide = [n + low + high for n, (low, high) in zip(sizes, how["padding"], strict=True)]
    out = xp.zeros((*y.shape[:2], *wide), y.dtype)
    for number, (_, index) in enumerate(window_slices(how["window"], how["stride"], how["dilation"], y.shape[2:])):
        out[index] += term(number)
    return out[inner_slices(sizes, how["padding"])]


def _sum_value(xp: Any, x: Any, **how: Any) -> Any:
    many = _pool_counts(x.shape[2:], **how)
    wide, total = pad_grid(xp, x, how["padding"]), xp.zeros((*x.shape[:2], *many), x.dtype)
    for _, index in window_slices(how["window"], how["stride"], how["dilation"], many):
        total += wide[index]
    return total


def _spread_value(xp: Any, y: Any, sizes: Sizes, **how: Any) -> Any:
    return _add_by_place(xp, lambda number: y, y, sizes, **how)


def argmax_places(x: Any, **how: Any) -> Any:
    """The place in each window of its first greatest element."""
    return apply(_places_op, x, **how)


def take_places(x: Any, index: Any, **how: Any) -> Any:
    """The element of each window at a place."""
    return apply(_take, x, index, **how)


def put_places(y: Any, index: Any, sizes: Sizes, **how: Any) -> Any:
    """Zeros of some sizes, with each window's y added at a place of the window."""
    return apply(_put_op, y, index, sizes=sizes, **how)


def sum_windows(x: Any, **how: Any) -> Any:
    """The sum of each window; padding is zero."""
    return apply(_sum, x, **how)


def spread_windows(y: Any, sizes: Sizes, **how: Any) -> Any:
    """Zeros of some sizes, with each window's y added at all its places."""
    mirrored = _mirrored_padding(**how)
    if math.prod(sizes) > 2 * math.prod(shape(y)[2:]):  # few windows, so most elements of a mirrored one are padding
        mirrored = None
    # windows at every place: an element of the grid is the sum over the windows that see it, which is a window too
    return apply(_spread, y, sizes=sizes, **how) if mirrored is None else apply(_sum, y, **how | {"padding": mirrored})


def _mirrored_padding(window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes) -> Pairs | None:
    """The padding with which sums over windows are transposed to sums over windows; None where they are not."""
    reach = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    if any(s != 1 for s in stride) or any(max(pair) > r for pair, r in zip(padding, reach, strict=True)):
        return None
    return tuple((r - low, r - high) for (low, high), r in zip(padding, reach, strict=True))


def _batch_as_images(op: Op, size: int, args: Sequence[Any], axes: Any, static: dict[str, Any]) -> tuple[Any, int]:
    """A batch is merged with the images."""
    given = [move_batch_first(x, axis, size) for x, axis in zip(args, axes, strict=True)]
    images = shape(given[0])[1]
    given = [reshaping.reshape(x, (size * images, *shape(x)[2:])) for x in given]
    out = apply(op, *given, **static)
    return reshaping.reshape(out, (size, images, *shape(out)[1:])), 0


_CASES: tuple[tuple[Sizes, dict[str, Any]], ...] = (
    ((2, 2, 6), {"window": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}),
    ((1, 2, 7), {"window": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (2,)}),
    ((2, 2, 4, 4), {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}),
    ((1, 2, 4, 3), {"window": (3, 2), "stride": (1, 1), "padding": ((1, 1), (0, 1)), "dilation": (1, 1)}),
    ((1, 1, 5, 5), {"window": (2, 2), "stride": (3, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}),
    ((1, 1, 2, 3, 2), {
        "window": (2, 1, 2), "stride": (1, 1, 1), "padding": ((0, 0), (0, 0), (1, 0)), "dilation": (1, 1, 1),
    }),
    ((0, 2, 4), {"window": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}),
)  # fmt: skip


def _grid_samples(rng: Any) -> Any:
    return [((rng.normal(size=sizes),), how) for sizes, how in _CASES]


def _take_samples(rng: Any) -> Any:
    return [((x, _argmax_value(np, x, **how)), how) for (x,), how in _grid_samples(rng)]


def _put_samples(rng: Any) -> Any:
    found = []
    for (x, index), how in _take_samples(rng):
        found.append(((rng.normal(size=index.shape), index), {"sizes": x.shape[2:], **how}))
    return found


def _windows_spec(x: Spec, *places: Spec, **how: Any) -> Spec:
    found = (*_leading_sizes(x), *_pool_counts(x.shape[2:], **how))
    _check_places(places, found)
    return make_spec(found, x.dtype, x.device)


def _grid_spec(y: Spec, *places: Spec, sizes: Sizes, **how: Any) -> Spec:
    statics.check_shape("pooling", y.shape, (*_leading_sizes(y), *_pool_counts(sizes, **how)))
    _check_places(places, y.shape)
    return make_spec((*y.shape[:2], *sizes), y.dtype, y.device)


def _leading_sizes(x: Spec) -> Sizes:
    if x.ndim < 2:
        raise ShapeError(f"pooling: wants (n, channels, *sizes), got shape {x.shape}.")
    return x.shape[:2]


def _check_places(places: Sequence[Spec], windows: Sizes) -> None:
    for index in places:
        statics.check_shape("pooling", index.shape, windows)
        if index.dtype.kind not in "iu":
            raise DtypeError(f"pooling: places in windows are integers, got {index.dtype}.")


#: The module of `compile` with the same in native code.
_NATIVE = "cpu.window.pooling"
_WINDOWS = {"window": statics.integers(1), **statics.WINDOW}
_window_op = partial(linear, batch=_batch_as_images)
# The place in each window of its first greatest element, counted row by row.
_places_op: Op = general(
    "window_place",
    statics=_WINDOWS,
    value=native_value(_argmax_value, _NATIVE, "find_places"),
    spec=lambda x, **how: make_spec(_windows_spec(x, **how).shape, np.dtype("int32"), x.device),
    batch=_batch_as_images,
    samples=_grid_samples,
    form=Window("index"),
)
# The element of each window at a place; zero where that is padding.
_take: Op = _window_op(
    "window_take",
    statics=_WINDOWS,
    value=native_value(_take_value, _NATIVE, "take_places"),
    spec=_windows_spec,
    transpose={"x": lambda bar, index, x_spec, static: put_places(bar, index, x_spec.shape[2:], **static)},
    samples=_take_samples,
    form=Window("take"),
)
# Zeros with each window's y added at a place of the window: the transpose of window_take.
_put_op: Op = _window_op(
    "window_put",
    statics={**statics.GRID, **_WINDOWS},
    value=native_value(_put_value, _NATIVE, "put_places"),
    spec=_grid_spec,
    transpose={"y": lambda bar, index, static: take_places(bar, index, **without_sizes(static))},
    samples=_put_samples,
    sums=True,
    form=Window("put"),
)
_sum: Op = _window_op(
    "window_sum",
    statics=_WINDOWS,
    value=native_value(_sum_value, _NATIVE, "sum_windows"),
    spec=_windows_spec,
    transpose=lambda bar, x_spec, static: spread_windows(bar, x_spec.shape[2:], **static),
    samples=_grid_samples,
    sums=True,
    form=Window("sum"),
)
# Zeros with each window's y added at all its places: the transpose of window_sum.
_spread: Op = _window_op(
    "window_spread",
    statics={**statics.GRID, **_WINDOWS},
    value=native_value(_spread_value, _NATIVE, "spread_windows"),
    spec=_grid_spec,
    transpose=lambda bar, static: sum_windows(bar, **without_sizes(static)),
    samples=lambda rng: [((y,), static) for (y, _), static in _put_samples(rng)],
    sums=True,
    form=Window("spread"),
)

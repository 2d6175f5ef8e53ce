"""The three ops of a convolution in native code: functions of arrays, None where there is no native form."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ops.window.convolution import check_shapes
from ....ops.window.patches import Pairs, Sizes, window_counts
from ..runtime.pool import POOL
from .direct_plans import is_direct, plan_direct, plan_direct_sums
from .library import can_run_natively
from .patch_tables import Frame, Table, Walk
from .plans import Plan
from .product_plans import plan_product_sums, plan_products

#: Axes of arrays with one, two or three sizes.
_RANKS = (3, 4, 5)
#: The most tasks in a program, whose memory is planned before it is known how many threads will run it.
_MAX_TASKS = 8
#: The shapes for which plans are kept.
_PLANS = 256
#: How filters (groups, filters, channels, taps) are read: as they are, or (groups, channels, filters, taps); and which
#: taps, None for all.
_Reading = tuple[bool, Any]


def convolve(x: Any, w: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    """`convolution` in native code."""
    if not _is_native(x, w):
        return None
    plan = _plan_forward(x.dtype, x.shape, w.shape, stride, padding, dilation, groups, POOL.wanted)
    out = np.empty(plan.shape, x.dtype)
    plan.run(out, np.ascontiguousarray(x), np.ascontiguousarray(w))
    return out


def convolve_weight(x: Any, y: Any, sizes: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    """`convolution_weight` in native code."""
    if not _is_native(x, y):
        return None
    plan = _plan_weight(x.dtype, x.shape, y.shape, sizes, stride, padding, dilation, groups, POOL.wanted)
    out = np.empty(plan.shape, x.dtype)
    plan.run(out, np.ascontiguousarray(x), np.ascontiguousarray(y))
    return out


def convolve_back(y: Any, w: Any, sizes: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    """`convolution_back` in native code: phase by phase, each a convolution of its own."""
    if not _is_native(y, w) or 0 in sizes:
        return None
    plans = _plan_back(y.dtype, y.shape, w.shape, sizes, stride, padding, dilation, groups, POOL.wanted)
    if not np.isfinite(w).all() and any(plan.is_framed for plan, _ in plans):
        return None  # zeros around the windows, which are none, would make NaN of it
    is_complete = len(plans) == math.prod(map(min, stride, sizes))
    out = (np.empty if is_complete else np.zeros)((y.shape[0], w.shape[1] * groups, *sizes), y.dtype)
    y = np.ascontiguousarray(y)
    for plan, reading in plans:
        plan.run(out, y, _read_filters(w, groups, reading))
    return out


def plan_for(result: str, static: dict[str, Any], shapes: Sequence[Sizes], dtype: np.dtype[Any]) -> Plan | None:
    """The plan of the op whose result is "y", "w" or "x", for a program; None where its value takes more than one."""
    if result == "y":
        return _plan_forward(dtype, *shapes, **static, threads=_MAX_TASKS)
    if result == "w":
        static = {"window": static["sizes"], **{name: value for name, value in static.items() if name != "sizes"}}
        return _plan_weight(dtype, *shapes, **static, threads=_MAX_TASKS)
    plans = _plan_back(dtype, *shapes, **static, threads=_MAX_TASKS)
    (plan, (by_channel, taps)), w = plans[0] if plans else (None, (False, None)), shapes[1]
    is_read_in_place = taps is None and (not by_channel or w[0] == static["groups"] or w[1] == 1)
    return plan if set(static["stride"]) == {1} and is_read_in_place else None


def _is_native(x: Any, y: Any) -> bool:
    same = x.dtype == y.dtype and x.dtype.char in "fd" and x.dtype.isnative
    return bool(same and x.size and y.size and x.ndim == y.ndim and x.ndim in _RANKS and can_run_natively())


def _read_filters(w: Any, groups: int, reading: _Reading) -> Any:
    by_channel, taps = reading
    if taps is not None:
        w = w[taps]
    if by_channel:
        w = w.reshape((groups, w.shape[0] // groups, *w.shape[1:])).swapaxes(1, 2)
    return np.ascontiguousarray(w)


@functools.lru_cache(maxsize=_PLANS)
def _plan_forward(
    dtype: np.dtype[Any], x: Sizes, w: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, threads: int
) -> Plan:
    many = window_counts("convolution", x[2:], w[2:], stride, padding, dilation)
    check_shapes(x, w, (x[0], w[0], *many), stride, padding, dilation, groups)
    walk = _walk_of(dtype, x, w[2:], many, stride, padding, dilation, groups, w[0] // groups)
    out, places = (x[0], w[0], *many), np.arange(walk.count)
    if is_direct(walk):
        return plan_direct(walk, out, places, threads)
    return plan_products(walk, 1, out, places, threads)


@functools.lru_cache(maxsize=_PLANS)
def _plan_weight(
    dtype: np.dtype[Any], x: Sizes, y: Sizes, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int, threads: int,
) -> Plan:  # fmt: skip
    out = (y[1], x[1] // groups, *window)
    check_shapes(x, out, y, stride, padding, dilation, groups)
    walk = _walk_of(dtype, x, window, y[2:], stride, padding, dilation, groups, y[1] // groups)
    return plan_direct_sums(walk, out) if is_direct(walk) else plan_product_sums(walk, out)


def _walk_of(
    dtype: np.dtype[Any], x: Sizes, window: Sizes, many: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int, columns: int,
) -> Walk:  # fmt: skip
    taps = tuple(np.arange(k) * d for k, d in zip(window, dilation, strict=True))
    return Walk(dtype, x[0], x[1], groups, x[2:], padding, many, stride, taps, columns)


@functools.lru_cache(maxsize=_PLANS)
def _plan_back(
    dtype: np.dtype[Any], y: Sizes, w: Sizes, sizes: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int, threads: int,
) -> list[tuple[Plan, _Reading]]:  # fmt: skip
    """A plan for each phase that lies under some tap, and how it reads the filters.

    An element q lies under tap k of window p if q + low = p s + k d. The elements q = first + s i of a phase see under
    the tap the window p = i + (first + low - k d) / s, where the division must come out even: windows as far away for
    all of them, so a phase is a convolution of the windows' grid.
    """
    out = (y[0], w[1] * groups, *sizes)
    check_shapes(out, w, y, stride, padding, dilation, groups)
    axes = [_axis_phases(*axis) for axis in zip(stride, padding, dilation, w[2:], sizes, strict=True)]
    around = tuple(_reach(m, phases) for m, phases in zip(y[2:], axes, strict=True))
    if any(width > 0 for pair in around for width in pair):  # a copy is not cropped: nothing might be left of it
        around = tuple((max(low, 0), max(high, 0)) for low, high in around)
    lows, found = [low for low, _ in around], []
    for phase in itertools.product(*axes):
        firsts, counts, taps, distances = zip(*phase, strict=True)
        if not all(map(len, taps)):
            continue
        seen = tuple(d + low for d, low in zip(distances, lows, strict=True))
        walk = Walk(dtype, y[0], y[1], groups, y[2:], around, counts, (1,) * len(counts), seen, w[1])
        along = [f + s * np.arange(n) for f, s, n in zip(firsts, stride, counts, strict=True)]
        places = Frame(1, 1, sizes, ((0, 0),) * len(sizes)).places([], along)
        direct = is_direct(walk)
        if direct:
            plan = plan_direct(walk, out, places, threads)
        else:
            plan = plan_products(walk, w[0] // groups, out, places, threads)
        chosen = None if list(map(len, taps)) == list(w[2:]) else np.ix_(range(w[0]), range(w[1]), *taps)
        found.append((plan, (direct, chosen)))
    return found


#: The phases of one axis: the first element, how many there are, their taps, and how far away each sees its window.
_AxisPhase = tuple[int, int, Table, Table]


def _axis_phases(s: int, padding: tuple[int, int], d: int, window: int, n: int) -> list[_AxisPhase]:
    taps, found = np.arange(window), []
    for first in range(min(s, n)):
        own = taps[(first + padding[0] - taps * d) % s == 0]
        found.append((first, -(-(n - first) // s), own, (first + padding[0] - own * d) // s))
    return found


def _reach(count: int, phases: list[_AxisPhase]) -> tuple[int, int]:
    """How far phases reach beyond the first and the last of `count` windows; less than zero if not so far."""
    seen = [(n, distances) for _, n, _, distances in phases if len(distances)]
    lowest = min((int(d.min()) for _, d in seen), default=0)
    highest = max((int(d.max()) + n for n, d in seen), default=0)
    return -lowest, highest - count

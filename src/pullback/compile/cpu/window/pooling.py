"""The ops of pooling in native code: functions of arrays, None where there is no native form."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ....ops.statics import check_shape
from ....ops.window.patches import Pairs, Sizes, first_unpadded_place, window_counts
from ..runtime.pool import POOL
from .convolution import convolve, convolve_back
from .direct_plans import frame_of, overlapping_starts, shared_fields, vector_tables
from .library import can_run_natively, vector_bytes
from .patch_tables import Frame, Walk
from .plans import Plan, make_plan

_RANKS = (3, 4, 5)
_PLANS = 256


def find_places(x: Any, **how: Any) -> Any:
    """`window_place` in native code."""
    if not _is_native(x):
        return None
    plan, start = _plan_places(x.dtype, x.shape, **how, threads=POOL.wanted)
    return _run(plan, np.dtype(np.int32), x, start)


def take_places(x: Any, index: Any, **how: Any) -> Any:
    """`window_take` in native code."""
    if not _is_native(x) or not _has_places(index):
        return None
    plan = _plan_gather("take", x.dtype, x.shape, index.shape, **how, threads=POOL.wanted)
    return _run(plan, x.dtype, x, index)


def put_places(y: Any, index: Any, sizes: Sizes, **how: Any) -> Any:
    """`window_put` in native code."""
    if not _is_native(y) or not _has_places(index) or 0 in sizes:
        return None
    plan = _plan_scatter("put", y.dtype, y.shape, index.shape, sizes, **how, threads=POOL.wanted)
    return _run(plan, y.dtype, y, index)


def sum_windows(x: Any, window: Sizes, **how: Any) -> Any:
    """`window_sum` in native code: along vectors of windows as each channel's convolution with ones, or where rows are
    short window by window.
    """
    if not _is_native(x):
        return None
    many = window_counts("pooling", x.shape[2:], window, **how)
    if many[-1] * x.itemsize >= vector_bytes():
        return convolve(x, _ones(x.dtype, x.shape[1], window), **how, groups=x.shape[1])
    plan = _plan_gather("sum", x.dtype, x.shape, (*x.shape[:2], *many), window=window, **how, threads=POOL.wanted)
    return _run(plan, x.dtype, x, x)


def spread_windows(y: Any, sizes: Sizes, window: Sizes, **how: Any) -> Any:
    """`window_spread` in native code: the transpose of that convolution, or window by window."""
    if not _is_native(y) or 0 in sizes:
        return None
    has_many = math.prod(sizes) <= 2 * math.prod(y.shape[2:])  # else most of what the convolution reads is padding
    if has_many and how["stride"][-1] == 1 and sizes[-1] * y.itemsize >= vector_bytes():
        return convolve_back(y, _ones(y.dtype, y.shape[1], window), sizes, **how, groups=y.shape[1])
    plan = _plan_scatter("spread", y.dtype, y.shape, y.shape, sizes, window=window, **how, threads=POOL.wanted)
    return _run(plan, y.dtype, y, y)


def _run(plan: Plan, dtype: np.dtype[Any], left: Any, right: Any) -> Any:
    """None if an integer is no place of the windows: NumPy says which."""
    out = np.empty(plan.shape, dtype)
    status = plan.run(out, np.ascontiguousarray(left), np.ascontiguousarray(right))
    return None if status else out


def _is_native(x: Any) -> bool:
    native = x.dtype.char in "fd" and x.dtype.isnative
    return bool(native and x.size and x.ndim in _RANKS and can_run_natively())


def _has_places(index: Any) -> bool:
    return bool(index.dtype.char == "i" and index.dtype.isnative)


@functools.lru_cache(maxsize=_PLANS)
def _ones(dtype: np.dtype[Any], channels: int, window: Sizes) -> Any:
    return np.ones((channels, 1, *window), dtype)


def _walk_of(
    dtype: np.dtype[Any], planes: int, sizes: Sizes, window: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Walk:
    """The windows of all planes, each an image of one channel."""
    many = window_counts("pooling", sizes, window, stride, padding, dilation)
    taps = tuple(np.arange(k) * d for k, d in zip(window, dilation, strict=True))
    return Walk(dtype, planes, 1, 1, sizes, padding, many, stride, taps, 1)


@functools.lru_cache(maxsize=_PLANS)
def _plan_places(dtype: np.dtype[Any], x: Sizes, threads: int, **how: Any) -> tuple[Plan, Any]:
    """A plan, and the place that each window of a plane starts from."""
    walk, lanes = _walk_of(dtype, x[0] * x[1], x[2:], **how), vector_bytes() // dtype.itemsize
    frame, inside = frame_of(walk, lanes)
    here, there = vector_tables(inside, frame, overlapping_starts(walk.many[-1], lanes))
    is_aside = walk.many[-1] < lanes
    fields, pieces = shared_fields(walk, frame, lanes, threads)
    fields |= {
        "out_step": walk.count, "rows": len(here), "depth": walk.depth, "scatter_count": is_aside * walk.count,
    }  # fmt: skip
    tables = {
        "pieces": pieces, "row_places": here, "out_places": there, "depth_places": inside.tap_distances(frame),
        "scatter_places": np.arange(walk.count),
    }  # fmt: skip
    size = fields["tasks"] * fields["task_step"]
    plan = make_plan("places", dtype, (*x[:2], *walk.many), fields, tables, {"scratch": 0}, size, fill=-np.inf)
    start = np.zeros(walk.count + lanes, np.int32)
    start[: walk.count] = first_unpadded_place(np, many=walk.many, **how).ravel()
    return plan, start


@functools.lru_cache(maxsize=_PLANS)
def _plan_gather(kind: str, dtype: np.dtype[Any], x: Sizes, index: Sizes, threads: int, **how: Any) -> Plan:
    walk = _walk_of(dtype, x[0] * x[1], x[2:], **how)
    check_shape("pooling", index, (*x[:2], *walk.many))
    frame = Frame(1, 1, walk.sizes, walk.around)
    fields, pieces = shared_fields(walk, frame, 0, threads)
    fields |= {"out_step": walk.count, "right_step": walk.count, "rows": walk.count, "depth": walk.depth}
    tables = {"pieces": pieces, "row_places": walk.window_places(frame), "depth_places": walk.tap_distances(frame)}
    size = fields["tasks"] * fields["task_step"]
    return make_plan(kind, dtype, index, fields, tables, {"scratch": 0}, size)


@functools.lru_cache(maxsize=_PLANS)
def _plan_scatter(
    kind: str, dtype: np.dtype[Any], y: Sizes, index: Sizes, sizes: Sizes, threads: int, **how: Any
) -> Plan:
    walk = _walk_of(dtype, y[0] * y[1], sizes, **how)
    check_shape("pooling", y, (*y[:2], *walk.many))
    check_shape("pooling", index, y)
    frame = Frame(1, 1, walk.sizes, walk.around)
    fields, pieces = shared_fields(walk, frame, 0, threads)
    # out of the frame, not into it
    fields |= {f"t{i}": fields[f"f{i}"] for i in range(3)} | {f"f{i}": fields[f"t{i}"] for i in range(3)}
    fields |= {
        "left_step": walk.count, "out_step": math.prod(sizes), "right_step": walk.count, "rows": walk.count,
        "depth": walk.depth, "apart": frame.plane,
    }  # fmt: skip
    tables = {
        "pieces": pieces[:, [1, 0, 2]], "row_places": walk.window_places(frame),
        "depth_places": walk.tap_distances(frame),
    }  # fmt: skip
    size = fields["tasks"] * fields["task_step"]
    return make_plan(kind, dtype, (*y[:2], *sizes), fields, tables, {"scratch": 0}, size)

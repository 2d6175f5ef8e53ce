"""Plans of convolutions that run along vectors of neighbouring windows."""

from __future__ import annotations

import math

import numpy as np

from ....ops.window.patches import Sizes
from ...loop_ir import row_major_strides
from .direct import TAPS, VECTORS
from .library import vector_bytes
from .patch_tables import Frame, Table, Walk, pad_table
from .plans import MAX_SUMS, Plan, make_plan, round_up, tasks_of

#: The share of the processor's peak that vectors along windows reach, and vectors of columns, each if all are full.
_ALONG_WINDOWS, _ALONG_COLUMNS = 0.45, 0.8


def is_direct(walk: Walk) -> bool:
    """Whether vectors along windows are faster than vectors of columns, of which there are few."""
    lanes = vector_bytes() // walk.dtype.itemsize
    windows, columns = (n / (-(-n // lanes) * lanes) for n in (walk.many[-1], walk.columns))
    return _ALONG_WINDOWS * windows > _ALONG_COLUMNS * columns


def frame_of(walk: Walk, lanes: int) -> tuple[Frame, Walk]:
    """The frame of a group of one image, and the walk in it: along rows, windows lie side by side. Where a row is
    shorter than a vector, what is loaded reaches beyond it, so there must be a copy.
    """
    frame = Frame(1, walk.group_channels, walk.sizes, walk.around, walk.strides[-1], walk.many[-1] < lanes)
    taps = (*walk.taps[:-1], frame.split(walk.taps[-1]))
    inside = Walk(
        walk.dtype, walk.images, walk.channels, walk.groups, walk.sizes, walk.around, walk.many,
        (*walk.strides[:-1], 1), taps, walk.columns,
    )  # fmt: skip
    return frame, inside


def vector_tables(walk: Walk, frame: Frame, starts: list[int]) -> tuple[Table, Table]:
    """Where vectors of windows that start at some places of each row lie: in the frame and in the result."""
    rows = [np.arange(n) for n in walk.many[:-1]]
    along = np.array(starts, np.int64)
    here = frame.places([], [*(r * s for r, s in zip(rows, walk.strides, strict=False)), along])
    there = np.zeros(1, np.int64)
    for axis, stride in zip([*rows, along], row_major_strides(walk.many), strict=True):
        there = (there[:, None] + axis * stride).ravel()
    return here, there


def overlapping_starts(width: int, lanes: int) -> list[int]:
    """Where the vectors of a row start: the last one ends where the row ends, over the one before it."""
    return sorted({min(i, max(width - lanes, 0)) for i in range(0, width, lanes)})


def plan_direct(walk: Walk, out_shape: Sizes, out_places: Table, threads: int) -> Plan:
    """Patches times filters (groups, columns, depth), stored at `out_places` of each plane of the result."""
    lanes, out_plane = vector_bytes() // walk.dtype.itemsize, math.prod(out_shape[2:])
    frame, inside = frame_of(walk, lanes)
    here, there = vector_tables(inside, frame, overlapping_starts(walk.many[-1], lanes))
    is_aside = walk.many[-1] < lanes or not np.array_equal(out_places, np.arange(walk.count))
    fields, pieces = shared_fields(walk, frame, lanes, threads)
    fields |= {
        "out_step": math.prod(out_shape[1:]), "out_group": walk.columns * out_plane, "out_panel": out_plane,
        "right_group": walk.columns * walk.depth, "right_panel": walk.depth, "rows": len(here), "depth": walk.depth,
        "scatter_count": walk.count if is_aside else 0,
    }  # fmt: skip
    tables = {
        "pieces": pieces, "row_places": pad_table(here, VECTORS), "out_places": pad_table(there, VECTORS),
        "depth_places": inside.tap_distances(frame), "scatter_places": out_places,
    }  # fmt: skip
    size = fields["tasks"] * fields["task_step"]
    return make_plan("direct", walk.dtype, out_shape, fields, tables, {"scratch": 0}, size)


def plan_direct_sums(walk: Walk, out_shape: Sizes) -> Plan:
    """The gradient by filters: for each tap the sum over windows of what it sees times the result."""
    lanes, width = vector_bytes() // walk.dtype.itemsize, walk.many[-1]
    frame, inside = frame_of(walk, lanes)
    starts = list(range(0, width, lanes))
    here, there = vector_tables(inside, frame, starts)
    row = np.array([[i + lane < width for lane in range(lanes)] for i in starts])
    masks = np.broadcast_to(-row.astype(f"i{walk.dtype.itemsize}"), (len(here) // len(starts), *row.shape))
    fields, pieces = shared_fields(walk, frame, lanes, MAX_SUMS)
    panel, filters = round_up(walk.depth, TAPS) * lanes, walk.groups * walk.columns
    fields |= {
        "right_step": filters * walk.count, "right_group": walk.columns * walk.count, "right_panel": walk.count,
        "packed_group": walk.columns * panel, "packed_panel": panel, "rows": len(here), "depth": walk.depth,
        "columns": filters, "out_panel": walk.depth, "sums_step": filters * panel, "sums_size": filters * panel,
    }  # fmt: skip
    tables = {
        "pieces": pieces, "row_places": here, "out_places": there, "masks": masks,
        "depth_places": pad_table(inside.tap_distances(frame), TAPS),
    }  # fmt: skip
    memory = {"scratch": 0, "sums": fields["tasks"] * fields["task_step"]}
    size = memory["sums"] + fields["tasks"] * fields["sums_step"]
    return make_plan("direct sums", walk.dtype, out_shape, fields, tables, memory, size)


def shared_fields(walk: Walk, frame: Frame, lanes: int, most_tasks: int) -> tuple[dict[str, int], Table]:
    """What both kinds have: tasks, their memory, the frame and its copy."""
    copying, pieces = frame.copy_fields()
    # a vector at the end of the last row reaches beyond it
    frame_size = round_up(frame.size + lanes)
    tasks, rounds = tasks_of(walk.images, walk.multiplications, most_tasks)
    fields = {
        **copying, "task_step": frame_size + round_up(walk.count + lanes), "panel_at": frame_size, "tasks": tasks,
        "blocks": walk.images, "rounds": rounds, "left_step": walk.image_size, "groups": walk.groups,
        "left_group": walk.group_channels * math.prod(walk.sizes), "panels": walk.columns,
    }  # fmt: skip
    return fields, pieces

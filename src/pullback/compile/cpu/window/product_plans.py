"""Plans of convolutions that run as products with patches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....ops.window.patches import Sizes
from .library import vector_bytes
from .patch_tables import Frame, Table, Walk, pad_table
from .patch_tile import ROW_MULTIPLE, PatchTile, patch_tile
from .plans import MAX_SUMS, Plan, make_plan, round_up, tasks_of

#: Rows of patches that are multiplied before they are stored, and the depth of a panel that stays in the near cache.
_CHUNK, _DEPTH = 240, 384
#: Windows of a block of images: enough to fill tiles, or panels.
_ROWS, _DEEP_ROWS = 240, 384


@dataclass(frozen=True, slots=True)
class _Panels:
    """Columns in panels of two vectors, the last of one if that will do; `depth` rows each."""

    tile: PatchTile
    columns: int
    depth: int

    @property
    def size(self) -> int:
        """Elements of all panels, with room behind them for a square that is not full."""
        return (-(-self.columns // self.tile.wide) * self.depth + self.tile.lanes) * self.tile.wide

    @property
    def fields(self) -> dict[str, int]:
        count, panel = -(-self.columns // self.tile.wide), self.depth * self.tile.wide
        return {"panels": count, "columns": self.columns, "packed_panel": panel, "packed_group": self.size}


def plan_products(walk: Walk, segments: int, out_shape: Sizes, out_places: Table, threads: int) -> Plan:
    """Patches times filters, stored at `out_places` of each plane of the result. Filters are in `segments`, each with
    all columns: (groups, segments, columns, depth / segments).
    """
    tile = patch_tile(walk.dtype, vector_bytes(), 2)
    frame = Frame(_images_of_block(walk, _ROWS), walk.channels, walk.sizes, walk.around)
    rows, depth = walk.window_places(frame), walk.tap_distances(frame)
    out_image, out_plane = math.prod(out_shape[1:]), math.prod(out_shape[2:])
    places = (np.arange(frame.images)[:, None] * out_image + out_places).ravel()
    panels, segment = _Panels(tile, walk.columns, walk.depth), walk.depth // segments
    fields, pieces = _shared_fields(walk, frame, (_CHUNK + ROW_MULTIPLE) * tile.wide, threads)
    fields |= {
        **panels.fields, "out_step": frame.images * out_image, "out_group": walk.columns * out_plane,
        "rows": len(rows), "chunk": _CHUNK, "depth": walk.depth, "depth_step": _depth_step(walk.depth),
        "out_panel": tile.wide * out_plane, "out_apart": out_plane, "right_group": walk.columns * walk.depth,
        "right_panel": tile.wide * segment, "segments": segments, "segment_step": walk.columns * segment,
        "segment_depth": segment, "apart": segment,
    }  # fmt: skip
    tables = {
        "pieces": pieces, "row_places": pad_table(rows, ROW_MULTIPLE, 16), "depth_places": depth,
        "out_places": pad_table(places, ROW_MULTIPLE, 16),
    }  # fmt: skip
    memory = {"scratch": 0, "packed": fields["tasks"] * fields["task_step"]}
    size = memory["packed"] + walk.groups * panels.size
    return make_plan("products", walk.dtype, out_shape, fields, tables, memory, size)


def plan_product_sums(walk: Walk, out_shape: Sizes) -> Plan:
    """The gradient by filters: patches times the grid of results, summed over windows."""
    tile = patch_tile(walk.dtype, vector_bytes(), 2)
    frame = Frame(_images_of_block(walk, _DEEP_ROWS), walk.channels, walk.sizes, walk.around)
    rows, depth = walk.tap_distances(frame), walk.window_places(frame)
    panels = _Panels(tile, walk.columns, round_up(walk.depth, ROW_MULTIPLE))
    fields, pieces = _shared_fields(walk, frame, round_up((len(depth) + tile.lanes) * tile.wide), MAX_SUMS)
    image = walk.groups * walk.columns * walk.count
    fields |= {
        **panels.fields, "right_step": frame.images * image, "right_group": walk.columns * walk.count,
        "out_group": walk.columns * walk.depth, "rows": len(rows), "depth": len(depth),
        "depth_step": _depth_step(len(depth)), "out_panel": tile.wide * walk.depth, "out_apart": walk.depth,
        "right_panel": tile.wide * walk.count, "segments": frame.images, "segment_step": image,
        "segment_depth": walk.count, "apart": walk.count,
        "sums_step": walk.groups * panels.size, "sums_size": walk.groups * panels.size,
    }  # fmt: skip
    tables = {
        "pieces": pieces, "row_places": pad_table(rows, ROW_MULTIPLE, 16), "depth_places": depth,
        "out_places": pad_table(np.arange(len(rows)), ROW_MULTIPLE, 16),
    }  # fmt: skip
    memory = {"scratch": 0, "sums": fields["tasks"] * fields["task_step"]}
    size = memory["sums"] + fields["tasks"] * fields["sums_step"]
    return make_plan("product sums", walk.dtype, out_shape, fields, tables, memory, size)


def _images_of_block(walk: Walk, most: int) -> int:
    """As many images as make up to `most` windows and divide their number."""
    limit = max(1, most // walk.count)
    return max(i for i in range(1, min(walk.images, limit) + 1) if walk.images % i == 0)


def _depth_step(depth: int) -> int:
    """Blocks of the depth, all about as deep."""
    return -(-depth // -(-depth // _DEPTH))


def _shared_fields(walk: Walk, frame: Frame, panel_size: int, most_tasks: int) -> tuple[dict[str, int], Table]:
    """What both kinds of products have: tasks, their memory, the frame and its copy."""
    copying, pieces = frame.copy_fields()
    blocks, frame_size = walk.images // frame.images, round_up(frame.size)
    tasks, rounds = tasks_of(blocks, walk.multiplications, most_tasks)
    fields = {
        **copying, "task_step": frame_size + panel_size, "panel_at": frame_size, "tasks": tasks, "blocks": blocks,
        "rounds": rounds, "left_step": frame.images * walk.image_size, "groups": walk.groups,
        "left_group": walk.group_channels * frame.plane,
    }  # fmt: skip
    return fields, pieces

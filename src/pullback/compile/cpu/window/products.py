"""Convolutions as products with patches: the LLVM functions that go over images, groups, panels and tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder.function_text import OpenLoop
from .grid_moves import emit_least, render_copy, render_pack, render_store, render_turn
from .jobs import EMPTY, JobText, framed_left, open_blocks, render_module, render_run, render_task, task_memory
from .patch_tile import PatchTile, patch_tile, render_patch_tile


def render_forward(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` packs the filters, `right`, and fills `out` with their products with patches,
    transposed.
    """
    declared: set[str] = set()
    tiles = [patch_tile(dtype, vector_bytes, vectors) for vectors in (2, 1)]
    functions = [*_tile_functions(tiles, declared), *(_render_panel(tile, declared) for tile in tiles)]
    text = JobText(dtype, declared)
    blocks, _ = open_blocks(text)
    left, panel = framed_left(text, (text.counters[-1], "left_step")), task_memory(text, "panel_at")
    out = text.move(text.address("out"), (text.counters[-1], "out_step"))
    group = text.open(text.number("groups"))
    left, right, out = (
        text.move(start, (text.counters[-1], step))
        for start, step in ((left, "left_group"), (text.address("packed"), "packed_group"), (out, "out_group"))
    )
    chunk = text.open(text.number("rows"), text.number("chunk"))
    row = text.counters[-1]
    count = emit_least(text, text.subtract(text.number("rows"), row), text.number("chunk"))
    tables = [text.entry_of(text.address(name), row) for name in ("row_places", "out_places")]

    def call(number: str, vectors: int, columns: str) -> None:
        there = text.move(out, (number, "out_panel"))
        here = text.move(right, (number, "packed_panel"))
        text.one.emit(
            f"call void @panel{vectors}(ptr %given, ptr {there}, ptr {left}, ptr {here}, ptr {tables[0]}, "
            f"ptr {tables[1]}, i64 {count}, i64 {columns}, ptr {panel})"
        )

    _over_panels(text, tiles[0], call)
    for loop in (chunk, group, blocks):
        text.close(loop, stays=True)
    own = [render_task(text), _render_packing(tiles[0], declared), render_run(declared), EMPTY % "after"]
    return render_module([*functions, *own], declared, vector_bytes)


def _render_packing(tile: PatchTile, declared: set[str]) -> str:
    """All filters packed into panels, group by group."""
    text = JobText(tile.dtype, declared)
    group = text.open(text.number("groups"))
    right, packed = (
        text.move(text.address(name), (text.counters[-1], text.number(f"{name}_group"))) for name in ("right", "packed")
    )

    def call(number: str, vectors: int, columns: str) -> None:
        there = text.move(packed, (number, "packed_panel"))
        here = text.move(right, (number, "right_panel"))
        _call_pack(text, vectors * tile.lanes, there, here, columns)

    _over_panels(text, tile, call)
    text.close(group, stays=True)
    return text.render("define void @before(ptr %given)")


def _render_panel(tile: PatchTile, declared: set[str]) -> str:
    """Some rows of a panel of the result: tile by tile into scratch memory, block by block of the depth, then out."""
    text = JobText(tile.dtype, declared)
    deep, k, depth = _open_depth(text)
    adds = text.one.assign(f"icmp ne i64 {k}, 0")
    right = text.move("%right", (k, tile.wide))
    columns = text.entry_of(text.address("depth_places"), k)
    loop = text.open("%count", tile.rows)
    _call_tile(text, tile, "%panel", right, "%rows", columns, depth, adds)
    text.close(loop, stays=True)
    text.close(deep, stays=True)
    apart = text.number("out_apart")
    text.one.emit(
        f"call void @store(ptr %out, ptr %panel, i64 {tile.wide}, ptr %places, i64 %count, i64 {apart}, i64 %columns)"
    )
    pointers = "ptr %given, ptr %out, ptr %left, ptr %right, ptr %rows, ptr %places"
    return text.render(
        f"define internal void @panel{tile.vectors}({pointers}, i64 %count, i64 %columns, ptr %panel) noinline"
    )


def render_weight(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with products of patches, transposed, and the grid `right`: each
    task adds up the products of its images, and what the tasks have is added up in their order.
    """
    declared: set[str] = set()
    tiles = [patch_tile(dtype, vector_bytes, vectors) for vectors in (2, 1)]
    functions = [*_tile_functions(tiles, declared), *(_render_sums(tile, declared) for tile in tiles)]
    text = JobText(dtype, declared)
    blocks, first = open_blocks(text)
    left, panel = framed_left(text, (text.counters[-1], "left_step")), task_memory(text, "panel_at")
    again = text.one.assign(f"icmp ne i64 {text.counters[-1]}, {first}")
    right = text.move(text.address("right"), (text.counters[-1], "right_step"))
    sums = text.move(text.address("sums"), ("%block", "sums_step"))
    group = text.open(text.number("groups"))
    left, right, sums = (
        text.move(start, (text.counters[-1], step))
        for start, step in ((left, "left_group"), (right, "right_group"), (sums, "packed_group"))
    )

    def call(number: str, vectors: int, columns: str) -> None:
        there = text.move(sums, (number, "packed_panel"))
        here = text.move(right, (number, "right_panel"))
        pointers = f"ptr %given, ptr {there}, ptr {left}, ptr {here}"
        text.one.emit(f"call void @sums{vectors}({pointers}, i64 {columns}, ptr {panel}, i1 {again})")

    _over_panels(text, tiles[0], call)
    for loop in (group, blocks):
        text.close(loop, stays=True)
    own = [render_task(text), _render_total(tiles[0], declared), render_run(declared), EMPTY % "before"]
    return render_module([*functions, *own], declared, vector_bytes)


def _render_sums(tile: PatchTile, declared: set[str]) -> str:
    """A panel of the other grid packed, and its products with all taps added up."""
    text = JobText(tile.dtype, declared)
    _call_pack(text, tile.wide, "%panel", "%right", "%columns")
    deep, k, depth = _open_depth(text)
    adds = text.one.assign(f"or i1 %again, {text.one.assign(f'icmp ne i64 {k}, 0')}")
    right = text.move("%panel", (k, tile.wide))
    columns, rows = text.entry_of(text.address("depth_places"), k), text.address("row_places")
    loop = text.open(text.number("rows"), tile.rows)
    _call_tile(text, tile, "%out", right, rows, columns, depth, adds)
    text.close(loop, stays=True)
    text.close(deep, stays=True)
    pointers = "ptr %given, ptr %out, ptr %left, ptr %right"
    return text.render(
        f"define internal void @sums{tile.vectors}({pointers}, i64 %columns, ptr %panel, i1 %again) noinline"
    )


def _render_total(tile: PatchTile, declared: set[str]) -> str:
    """The tasks' sums added up, and transposed into the filters."""
    text = JobText(tile.dtype, declared)
    text.add_up_tasks(tile.lanes)
    group = text.open(text.number("groups"))
    sums, out = (
        text.move(text.address(name), (text.counters[-1], step))
        for name, step in (("sums", "packed_group"), ("out", "out_group"))
    )
    apart, places = text.number("out_apart"), text.address("out_places")

    def call(number: str, vectors: int, columns: str) -> None:
        there = text.move(out, (number, "out_panel"))
        here = text.move(sums, (number, "packed_panel"))
        rows = f"ptr {places}, i64 {apart}, i64 {apart}"
        wide = vectors * tile.lanes
        text.one.emit(f"call void @store(ptr {there}, ptr {here}, i64 {wide}, {rows}, i64 {columns})")

    _over_panels(text, tile, call)
    text.close(group, stays=True)
    return text.render("define void @after(ptr %given)")


def _open_depth(text: JobText) -> tuple[OpenLoop, str, str]:
    """The loop over blocks of the depth: the loop, where the block starts, and its depth."""
    loop = text.open(text.number("depth"), text.number("depth_step"))
    k = text.counters[-1]
    return loop, k, emit_least(text, text.subtract(text.number("depth"), k), text.number("depth_step"))


def _call_tile(
    text: JobText, tile: PatchTile, out: str, right: str, rows: str, columns: str, depth: str, adds: str
) -> None:
    r = text.counters[-1]
    there, table = text.move(out, (r, tile.wide)), text.entry_of(rows, r)
    pointers = f"ptr {there}, ptr %left, ptr {right}, ptr {table}, ptr {columns}"
    text.one.emit(f"call void @tile{tile.vectors}({pointers}, i64 {depth}, i1 {adds})")


def _call_pack(text: JobText, wide: int, there: str, here: str, columns: str) -> None:
    numbers = [text.number(name) for name in ("segments", "segment_step", "apart")]
    numbers += [columns, text.number("segment_depth")]
    given = ", ".join(f"i64 {n}" for n in (wide, *numbers))
    text.one.emit(f"call void @pack(ptr {there}, ptr {here}, {given})")


def _tile_functions(tiles: list[PatchTile], declared: set[str]) -> list[str]:
    dtype, lanes = tiles[0].dtype, tiles[0].lanes
    shared = [render(dtype, lanes, declared) for render in (render_copy, render_turn, render_pack, render_store)]
    return shared + [render_patch_tile(tile, declared) for tile in tiles]


def _over_panels(text: JobText, tile: PatchTile, call: Callable[[str, int, str], None]) -> None:
    """A call for each panel: those of two full vectors, and one for the columns left, of one vector if that will do."""
    panels, left = text.number("panels"), text.number("columns_left")
    tag = text.begin_if_some(panels)
    loop = text.open(panels)
    call(text.counters[-1], 2, str(tile.wide))
    text.close(loop, stays=True)
    text.end_if(tag)
    for vectors, relation in ((2, "ugt"), (1, "ule")):
        fits = text.one.assign(f"icmp {relation} i64 {left}, {tile.lanes}")
        some = text.one.assign(f"icmp ne i64 {left}, 0")
        tag = text.begin_if(text.one.assign(f"and i1 {fits}, {some}"))
        call(panels, vectors, left)
        text.end_if(tag)

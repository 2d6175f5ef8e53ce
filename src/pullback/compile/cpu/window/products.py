"""Convolutions as products with patches: the LLVM functions that go over images, groups, panels and tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
    functions = [*_tile_functions(tiles, declared), _render_panel(tiles, declared)]
    text = JobText(dtype, declared)
    blocks, _ = open_blocks(text)
    left, memory = framed_left(text, (text.counters[-1], "left_step")), task_memory(text, "panel_at")
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

    def call(panel: _Panel) -> None:
        there = text.move(out, (panel.number, "out_panel"))
        here = text.move(right, (panel.number, "packed_panel"))
        pointers = ", ".join(f"ptr {p}" for p in ("%given", there, left, here, *tables, memory))
        numbers = f"i64 {count}, i64 {panel.columns}, i64 {panel.wide}, i1 {panel.is_narrow}"
        text.one.emit(f"call void @panel({pointers}, {numbers})")

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

    def call(panel: _Panel) -> None:
        there = text.move(packed, (panel.number, "packed_panel"))
        here = text.move(right, (panel.number, "right_panel"))
        _call_pack(text, there, here, panel.wide, panel.columns)

    _over_panels(text, tile, call)
    text.close(group, stays=True)
    return text.render("define void @before(ptr %given)")


def _render_panel(tiles: list[PatchTile], declared: set[str]) -> str:
    """Some rows of a panel of the result: tile by tile into scratch memory, block by block of the depth, then out."""
    text = JobText(tiles[0].dtype, declared)
    deep, k, depth = _open_depth(text)
    adds = text.one.assign(f"icmp ne i64 {k}, 0")
    _over_tiles(text, tiles, "%memory", text.move("%right", (k, "%wide")), "%rows", "%count", k, depth, adds)
    text.close(deep, stays=True)
    numbers = f"i64 %count, i64 {text.number('out_apart')}, i64 %columns"
    text.one.emit(f"call void @store(ptr %out, ptr %memory, i64 %wide, ptr %places, {numbers})")
    pointers = "ptr %given, ptr %out, ptr %left, ptr %right, ptr %rows, ptr %places, ptr %memory"
    numbers = "i64 %count, i64 %columns, i64 %wide, i1 %is_narrow"
    return text.render(f"define internal void @panel({pointers}, {numbers}) noinline")


def render_weight(dtype: np.dtype[Any], vector_bytes: int) -> str:
    """A module whose function `run(job)` fills `out` with products of patches, transposed, and the grid `right`: each
    task adds up the products of its images, and what the tasks have is added up in their order.
    """
    declared: set[str] = set()
    tiles = [patch_tile(dtype, vector_bytes, vectors) for vectors in (2, 1)]
    functions = [*_tile_functions(tiles, declared), _render_sums(tiles, declared)]
    text = JobText(dtype, declared)
    blocks, first = open_blocks(text)
    left, memory = framed_left(text, (text.counters[-1], "left_step")), task_memory(text, "panel_at")
    again = text.one.assign(f"icmp ne i64 {text.counters[-1]}, {first}")
    right = text.move(text.address("right"), (text.counters[-1], "right_step"))
    sums = text.move(text.address("sums"), ("%block", "sums_step"))
    group = text.open(text.number("groups"))
    left, right, sums = (
        text.move(start, (text.counters[-1], step))
        for start, step in ((left, "left_group"), (right, "right_group"), (sums, "packed_group"))
    )

    def call(panel: _Panel) -> None:
        there = text.move(sums, (panel.number, "packed_panel"))
        here = text.move(right, (panel.number, "right_panel"))
        pointers = f"ptr %given, ptr {there}, ptr {left}, ptr {here}"
        numbers = f"i64 {panel.columns}, i64 {panel.wide}, i1 {panel.is_narrow}, i1 {again}"
        text.one.emit(f"call void @sums({pointers}, ptr {memory}, {numbers})")

    _over_panels(text, tiles[0], call)
    for loop in (group, blocks):
        text.close(loop, stays=True)
    own = [render_task(text), _render_total(tiles[0], declared), render_run(declared), EMPTY % "before"]
    return render_module([*functions, *own], declared, vector_bytes)


def _render_sums(tiles: list[PatchTile], declared: set[str]) -> str:
    """A panel of the other grid packed, and its products with all taps added up."""
    text = JobText(tiles[0].dtype, declared)
    _call_pack(text, "%memory", "%right", "%wide", "%columns")
    deep, k, depth = _open_depth(text)
    adds = text.one.assign(f"or i1 %again, {text.one.assign(f'icmp ne i64 {k}, 0')}")
    rows, count = text.address("row_places"), text.number("rows")
    _over_tiles(text, tiles, "%out", text.move("%memory", (k, "%wide")), rows, count, k, depth, adds)
    text.close(deep, stays=True)
    pointers = "ptr %given, ptr %out, ptr %left, ptr %right, ptr %memory"
    return text.render(
        f"define internal void @sums({pointers}, i64 %columns, i64 %wide, i1 %is_narrow, i1 %again) noinline"
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

    def call(panel: _Panel) -> None:
        there = text.move(out, (panel.number, "out_panel"))
        here = text.move(sums, (panel.number, "packed_panel"))
        rows = f"ptr {places}, i64 {apart}, i64 {apart}"
        text.one.emit(f"call void @store(ptr {there}, ptr {here}, i64 {panel.wide}, {rows}, i64 {panel.columns})")

    _over_panels(text, tile, call)
    text.close(group, stays=True)
    return text.render("define void @after(ptr %given)")


def _open_depth(text: JobText) -> tuple[OpenLoop, str, str]:
    """The loop over blocks of the depth: the loop, where the block starts, and its depth."""
    loop = text.open(text.number("depth"), text.number("depth_step"))
    k = text.counters[-1]
    return loop, k, emit_least(text, text.subtract(text.number("depth"), k), text.number("depth_step"))


def _over_tiles(
    text: JobText, tiles: list[PatchTile], out: str, right: str, rows: str, count: str, k: str, depth: str, adds: str
) -> None:
    """All tiles of a panel and a block of the depth that starts at k."""
    one, (wide, narrow) = text.one, tiles
    function = one.assign(f"select i1 %is_narrow, ptr @tile{narrow.vectors}, ptr @tile{wide.vectors}")
    step = one.assign(f"select i1 %is_narrow, i64 {narrow.rows}, i64 {wide.rows}")
    columns = text.entry_of(text.address("depth_places"), k)
    loop = text.open(count, step)
    r = text.counters[-1]
    pointers = [text.move(out, (r, "%wide")), "%left", right, text.entry_of(rows, r), columns]
    one.emit(f"call void {function}({', '.join(f'ptr {p}' for p in pointers)}, i64 {depth}, i1 {adds})")
    text.close(loop, stays=True)


def _call_pack(text: JobText, there: str, here: str, wide: str, columns: str) -> None:
    numbers = [text.number(name) for name in ("segments", "segment_step", "apart")]
    given = ", ".join(f"i64 {n}" for n in (wide, *numbers, columns, text.number("segment_depth")))
    text.one.emit(f"call void @pack(ptr {there}, ptr {here}, {given})")


def _tile_functions(tiles: list[PatchTile], declared: set[str]) -> list[str]:
    dtype, lanes = tiles[0].dtype, tiles[0].lanes
    shared = [render(dtype, lanes, declared) for render in (render_copy, render_turn, render_pack, render_store)]
    return shared + [render_patch_tile(tile, declared) for tile in tiles]


class _Panel(NamedTuple):
    """A panel, of one vector if that will do for its columns: its number, how many columns, numbers of a row."""

    number: str
    columns: str
    wide: str
    is_narrow: str


def _over_panels(text: JobText, tile: PatchTile, call: Callable[[_Panel], None]) -> None:
    """A call for each panel."""
    loop = text.open(text.number("panels"))
    first = text.one.assign(f"mul nuw nsw i64 {text.counters[-1]}, {tile.wide}")
    columns = emit_least(text, text.subtract(text.number("columns"), first), tile.wide)
    is_narrow = text.one.assign(f"icmp ule i64 {columns}, {tile.lanes}")
    wide = text.one.assign(f"select i1 {is_narrow}, i64 {tile.lanes}, i64 {tile.wide}")
    call(_Panel(text.counters[-1], columns, wide, is_narrow))
    text.close(loop, stays=True)

"""Matrix product in, one LLVM function out: the result in tiles, panel by panel of the right matrix.

The BLAS packs both matrices first, which pays where each element is used very often. Here the right matrix is read in
place, or where its columns are strided, a panel of it is transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...loop_ir import Product
from ...varying import Varying, placeholder
from ..builder.function_text import FunctionText
from ..builder.memory import emit_address
from ..builder.vector_types import format_number, llvm_element_type
from .small import PRODUCT_HEAD, is_small
from .tile import Tile, render_tile
from .transpose_panel import render_transpose

#: Above so many bytes, packing as the BLAS does is worth it: the left matrix is read once for each panel of the right
#: one, from the L3 cache if need be.
LEFT_BYTES, RIGHT_BYTES = 1 << 22, 1 << 21
#: The same for a right matrix whose panels are read in place, not transposed into memory of their own; and for a left
#: matrix that is read across its rows, and its result.
PLAIN_RIGHT_BYTES, STRIDED_BYTES = 1 << 18, 1 << 19
#: Elements that are a multiple of this many bytes apart conflict in a cache; so many of them still fit, and so many
#: rows of a panel.
PAGE, ROWS_OF_PAGES, PANEL_ROWS_OF_PAGES = 4096, 128, 16
#: Where the BLAS has vectors of half the width, tiles are quicker as long as all stays in the L3 cache: the bytes of a
#: matrix that is read in place, and of one that is transposed or read across its rows.
FAR_BYTES, FAR_STRIDED_BYTES = 1 << 23, 1 << 22
#: A transposed panel is on the stack, so it has at most this many rows.
DEEPEST = 1024
#: Rows and vectors of a tile, by the bytes of a vector: as many sums as fit in the registers, less some.
_TILES = {64: (8, 2), 32: (6, 2)}


def can_be_tiled(step: Product, vector_bytes: int) -> bool:
    """Whether there are tiles for the product: it has enough rows to reuse what is loaded, and whole vectors of
    columns, which lie in order or can be transposed.
    """
    rows, columns = step.out.shape[-2:]
    depth, size = step.left.shape[-1], step.out.buffer.dtype.itemsize
    if vector_bytes not in _TILES or rows < 4 or columns * size < vector_bytes:
        return False
    in_order = step.right.strides[-1] == 1
    return in_order or (depth <= DEEPEST and (step.right.strides[-2] == 1 or depth <= 1))


def is_tiled(step: Product, vector_bytes: int, is_wider: bool) -> bool:
    """Whether the product is tiled: its matrices stay in a cache, else the BLAS is quicker; further ones too if vectors
    are wider than the BLAS's.
    """
    if not can_be_tiled(step, vector_bytes):
        return False
    return _is_near(step) or (is_wider and _is_in_far_cache(step))


def _is_near(step: Product) -> bool:
    rows, columns = step.out.shape[-2:]
    depth = step.left.shape[-1]
    size, strided = step.out.buffer.dtype.itemsize, step.right.strides[-1] != 1
    if strided:
        near = depth * columns * size <= RIGHT_BYTES and rows >= 16
    else:
        near = depth * columns * size < PLAIN_RIGHT_BYTES
        near &= step.right.strides[-2] * size % PAGE != 0 or depth <= PANEL_ROWS_OF_PAGES
    return near and _is_left_near(step)


def _is_in_far_cache(step: Product) -> bool:
    rows, columns = step.out.shape[-2:]
    depth, size = step.left.shape[-1], step.out.buffer.dtype.itemsize
    right = FAR_BYTES if step.right.strides[-1] == 1 else FAR_STRIDED_BYTES
    if depth * columns * size > right or (right < FAR_BYTES and rows < 16):
        return False
    if step.left.strides[-1] == 1:
        return rows * depth * size <= FAR_BYTES
    return rows * max(depth, columns) * size <= FAR_STRIDED_BYTES


def _is_left_near(step: Product) -> bool:
    rows, depth = step.left.shape[-2:]
    size, by = step.out.buffer.dtype.itemsize, step.left.strides[-1] * step.out.buffer.dtype.itemsize
    if by == size:
        return rows * depth * size <= LEFT_BYTES
    # a strided left matrix is read an element at a time, each on another page: more pages than a processor remembers
    collides = depth > ROWS_OF_PAGES and (by % PAGE == 0 or by >= PAGE // 2)
    return not collides and rows * max(depth, step.out.shape[-1]) * size < STRIDED_BYTES


def render_panels(step: Product, vector_bytes: int, declared: set[str], name_of: Callable[[str, str], str]) -> str:
    """The function `@NAME(out, left, right)` for one element of a batch: a call of one that all products of its kind
    share, since compiling takes time; `name_of` returns the name of a function's text.
    """
    rows, columns = step.out.shape[-2:]
    kind = _panel_shape_of(step, vector_bytes)
    walk = name_of(_PanelWriter(kind, declared, name_of).render(), "panels")
    wide = kind.vectors * kind.lanes
    numbers = [
        rows - kind.rows_left, columns - columns % wide, columns % wide, columns % kind.lanes, step.left.shape[-1],
        *step.left.strides[-2:], *step.right.strides[-2:], step.out.strides[-2],
    ]  # fmt: skip
    if kind.rows_vary:
        numbers[0] = _own_operand("rows", rows - rows % kind.rows)
        numbers += map(_own_operand, _LAST_ROWS, _split_last_rows(int(rows), kind.rows, bool(step.beta)))
    if kind.columns_vary:
        numbers[1:4] = map(_own_operand, ("columns", "used", "cut"), numbers[1:4])
        numbers.append(_own_operand("vectors", columns - columns % kind.lanes))
    given = [f"ptr {name}" for name in ("%out", "%left", "%right")] + [f"i64 {n}" for n in numbers]
    given += [
        f"{llvm_element_type(kind.dtype)} {format_number(step.alpha, kind.dtype)}",
        f"i1 {str(bool(step.beta)).lower()}",
    ]
    return f"{PRODUCT_HEAD} #0 {{\nentry:\n  call void @{walk}({', '.join(given)})\n  ret void\n}}"


def _own_operand(name: str, number: int) -> Any:
    """A number that follows from sizes that vary, under its own name, since it may equal another by chance."""
    return placeholder(str(int(number)), name, "i64")


#: Where rows vary: the end of those in tiles of half the height, the end of those in tiles of one row, and where
#: another tile of the full or of half the height starts (-1: none).
_LAST_ROWS = ("halves", "ones", "again", "again_half")


def _split_last_rows(rows: int, tall: int, adds: bool) -> tuple[int, int, int, int]:
    """Which tiles compute the rows after the last whole tile. One that computes some rows again, with the same
    results, is quicker than several small ones; but nothing must be added twice.
    """
    whole, half = rows - rows % tall, tall // 2
    if whole == rows:
        return rows, rows, -1, -1
    if not adds and rows >= tall:
        return whole, whole, rows - tall, -1
    if not adds and rows >= half:
        return half, half, -1, rows - half or -1
    halves = whole + (rows - whole) // half * half
    return halves, rows, -1, -1


def is_paneled(step: Product, vector_bytes: int, is_wider: bool = False) -> bool:
    """Whether the product is computed here. A small one is, if its rows or depth vary and its sums are those of tiles:
    then one code serves small products and larger ones.
    """
    if not is_small(step):
        return is_tiled(step, vector_bytes, is_wider)
    rows, columns = step.out.shape[-2:]
    varies = isinstance(rows, Varying) or isinstance(step.left.shape[-1], Varying)
    is_wide = vector_bytes in _TILES and columns * step.out.buffer.dtype.itemsize >= vector_bytes
    return varies and is_wide and step.right.strides[-1] == 1 and not isinstance(columns, Varying)


@dataclass(frozen=True, slots=True)
class _PanelShape:
    """What the shared function depends on: the tile, the remaining rows and vectors (the last vector may be partial),
    whether the columns of the right matrix are strided, and whether rows or columns vary: then nothing is known of what
    remains of them.
    """

    dtype: np.dtype[Any]
    lanes: int
    rows: int
    vectors: int
    rows_left: int
    has_panels: bool
    vectors_left: int
    is_cut: bool
    is_transposed: bool
    rows_vary: bool = False
    columns_vary: bool = False


def _panel_shape_of(step: Product, vector_bytes: int) -> _PanelShape:
    rows, columns = step.out.shape[-2:]
    dtype = step.out.buffer.dtype
    lanes = vector_bytes // dtype.itemsize
    tall, vectors = _TILES[vector_bytes]
    rows_vary, columns_vary = isinstance(rows, Varying), isinstance(columns, Varying)
    tall = tall if rows_vary else int(min(tall, rows))
    # few rows leave registers for more columns
    vectors = vectors if tall > 4 else 2 * vectors
    vectors = vectors if columns_vary else int(min(vectors, -(-columns // lanes)))
    used = 0 if columns_vary else int(columns % (vectors * lanes))
    return _PanelShape(
        dtype, lanes, tall, vectors, 0 if rows_vary else int(rows % tall), columns_vary or columns >= vectors * lanes,
        -(-used // lanes), bool(used % lanes), step.right.strides[-1] != 1, rows_vary, columns_vary,
    )  # fmt: skip


class _PanelWriter:
    """The function over all tiles while it is emitted: panels of columns, and in each the rows."""

    def __init__(self, kind: _PanelShape, declared: set[str], name_of: Callable[[str, str], str]) -> None:
        self.kind = kind
        self.element = llvm_element_type(kind.dtype)
        self.declared = declared
        self.name_of = name_of
        self.text = FunctionText(declared=declared)

    def render(self) -> str:
        kind = self.kind
        wide = kind.vectors * kind.lanes
        if kind.has_panels:
            some = self.text.begin_if_less("0", "%columns") if kind.columns_vary else ""
            loop = self.text.open("%columns", wide)
            self._write_panel(self.text.counters[-1], kind.vectors, str(wide), False)
            self.text.close(loop, stays=True)
            if some:
                self.text.end_if(some)
                self._write_last_columns()
        if kind.vectors_left:
            self._write_panel("%columns", kind.vectors_left, "%used", kind.is_cut)
        names = ["rows", "columns", "used", "cut", "depth", "row_step", "left_step", "right_step", "apart", "out_step"]
        parameters = [f"ptr noalias %{name}" for name in ("out", "left", "right")] + [f"i64 %{name}" for name in names]
        names = [*(_LAST_ROWS if kind.rows_vary else ()), *(["vectors"] if kind.columns_vary else [])]
        parameters += [f"i64 %{name}" for name in names]
        parameters += [f"{self.element} %alpha", "i1 %adds"]
        panel = []
        if kind.is_transposed:
            panel = [
                f"  %deep = add nuw nsw i64 %depth, {kind.lanes - 1}", f"  %room = mul nuw nsw i64 %deep, {wide}",
                f"  %panel = alloca {self.element}, i64 %room, align 64",
            ]  # fmt: skip
        return self.text.render(f"define internal void @NAME({', '.join(parameters)}) noinline", *panel)

    def _write_last_columns(self) -> None:
        """Columns that vary, after the last whole panel: vector by vector, and what remains of one."""
        text, lanes = self.text, self.kind.lanes
        some = text.begin_if_less("%columns", "%vectors")
        loop = text.open("%vectors", lanes, "%columns")
        self._write_panel(text.counters[-1], 1, str(lanes), False)
        text.close(loop, stays=True)
        text.end_if(some)
        some = text.begin_if_less("0", "%cut")
        self._write_panel("%vectors", 1, "%cut", True)
        text.end_if(some)

    def _write_panel(self, column: str, vectors: int, used: str, is_cut: bool) -> None:
        """All rows of some columns of the result."""
        builder = self.text.builder(1)
        apart = "%apart" if self.kind.is_transposed else 1
        right, step = emit_address(builder, self.kind.dtype, "%right", (column, apart)), "%right_step"
        if self.kind.is_transposed:
            right, step = self._transpose_panel(right, vectors, used)
        tile = Tile(self.kind.rows, vectors, is_cut, *self._dtype_and_lanes)
        if self.kind.rows_vary:
            self._call_tiles_of_varying_rows(column, tile, right, step)
            return
        loop = self.text.open("%rows", self.kind.rows)
        self._call_tile(self.text.counters[-1], column, tile, right, step)
        self.text.close(loop, stays=True)
        if self.kind.rows_left:
            self._call_tile("%rows", column, replace(tile, rows=self.kind.rows_left), right, step)

    def _call_tiles_of_varying_rows(self, column: str, tile: Tile, right: str, step: str) -> None:
        """Tiles of falling height, any of which may have no rows (see `_split_last_rows`)."""
        text, half, one = self.text, replace(tile, rows=tile.rows // 2), replace(tile, rows=1)
        for start, end, height in (("0", "%rows", tile), ("%rows", "%halves", half), ("%halves", "%ones", one)):
            some = text.begin_if_less(start, end)
            loop = text.open(end, height.rows, start)
            self._call_tile(text.counters[-1], column, height, right, step)
            text.close(loop, stays=True)
            text.end_if(some)
        for start, height in (("%again", tile), ("%again_half", half)):
            there = f"%t{next(text.counter)}"
            text.lines.append(f"  {there} = icmp sge i64 {start}, 0")
            some = text.begin_if(there)
            self._call_tile(start, column, height, right, step)
            text.end_if(some)

    @property
    def _dtype_and_lanes(self) -> tuple[np.dtype[Any], int]:
        return self.kind.dtype, self.kind.lanes

    def _transpose_panel(self, right: str, vectors: int, used: str) -> tuple[str, str]:
        """The panel transposed square by square on the stack, and the stride of its rows."""
        turn = self.name_of(render_transpose(*self._dtype_and_lanes, self.declared), "turn")
        wide = vectors * self.kind.lanes
        loop = self.text.open("%depth", self.kind.lanes)
        builder, at = self.text.builder(1), self.text.counters[-1]
        left = builder.assign(f"sub nsw i64 %depth, {at}")
        for first in range(0, wide, self.kind.lanes):
            to = emit_address(builder, self.kind.dtype, "%panel", (at, str(wide)), (str(first), "1"))
            source = emit_address(builder, self.kind.dtype, right, (at, "1"), (str(first), "%apart"))
            count = builder.assign(f"sub nsw i64 {used}, {first}")
            builder.emit(f"call void @{turn}(ptr {to}, ptr {source}, i64 %apart, i64 {wide}, i64 {count}, i64 {left})")
        self.text.close(loop, stays=True)
        return "%panel", str(wide)

    def _call_tile(self, row: str, column: str, tile: Tile, right: str, step: str) -> None:
        builder = self.text.builder(1)
        name = self.name_of(render_tile(tile, self.declared), "tile")
        out = emit_address(builder, self.kind.dtype, "%out", (row, "%out_step"), (column, "1"))
        left = emit_address(builder, self.kind.dtype, "%left", (row, "%row_step"))
        given = [f"ptr {pointer}" for pointer in (out, left, right)]
        given += [f"i64 {n}" for n in ("%depth", "%row_step", "%left_step", step, "%out_step")]
        given += [f"{self.element} %alpha", "i1 %adds", "i64 %cut"]
        builder.emit(f"call void @{name}({', '.join(given)})")

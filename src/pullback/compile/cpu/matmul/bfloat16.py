"""Product of bfloat16 matrices in, one LLVM function out: pairs of numbers along the depth are multiplied and added to
float32 sums by one instruction, where the processor has it.

The left matrix is read in place. Of the right one, a panel of columns at a time is laid out in pairs. The instruction
takes numbers below the least normal one as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...loop_ir import Product
from ..builder.function_text import FunctionText
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address
from ..builder.vector_types import format_number
from .small import PRODUCT_HEAD
from .tile import Tile, render_tile
from .transpose_panel import render_transpose

#: The bytes of the vectors that the instruction takes, and how many sums they hold.
VECTOR_BYTES, LANES = 64, 16
#: Rows and vectors of a tile, and the depth of a panel, which is on the stack.
ROWS, VECTORS, DEPTH = 8, 2, 2048
#: With fewer rows a panel is not worth laying out.
_FEWEST_ROWS, _FEWEST_COLUMNS = 16, 32
_PAIR, _HALF, _SUM = np.dtype(np.uint32), np.dtype(np.uint16), np.dtype(np.float32)
_NUMBERS = ("rows", "columns", "depth", "row_step", "right_step", "apart", "out_step")


def can_multiply_pairs(rows: int, columns: int, depth: int) -> bool:
    """Whether sizes fit: whole pairs, whole vectors, and enough rows."""
    return rows >= _FEWEST_ROWS and columns >= _FEWEST_COLUMNS and not columns % LANES and depth > 1 and not depth % 2


def multiplies_pairs(step: Product) -> bool:
    """Whether a product is computed here."""
    return step.left.buffer.dtype.name == "bfloat16"


def render_pairs(step: Product, declared: set[str], name_of: Callable[[str, str], str]) -> str:
    """The function `@NAME(out, left, right)` for one element of a batch: a call of one that all such products share."""
    is_transposed = step.right.strides[-1] != 1
    walk = name_of(_PairsWriter(is_transposed, declared, name_of).render(), "pairs")
    rows, columns = step.out.shape[-2:]
    numbers: list[Any] = [rows, columns, step.left.shape[-1], step.left.strides[-2]]
    numbers += [step.right.strides[-2], step.right.strides[-1], step.out.strides[-2]]
    given = [f"ptr {name}" for name in ("%out", "%left", "%right")] + [f"i64 {n}" for n in numbers]
    given += [f"float {format_number(step.alpha, _SUM)}", f"i1 {str(bool(step.beta)).lower()}"]
    return f"{PRODUCT_HEAD} #0 {{\nentry:\n  call void @{walk}({', '.join(given)})\n  ret void\n}}"


class _PairsWriter:
    """The function over all tiles while it is emitted: pieces of the depth, panels of columns, and in each the rows."""

    def __init__(self, is_transposed: bool, declared: set[str], name_of: Callable[[str, str], str]) -> None:
        self.is_transposed = is_transposed
        self.declared = declared
        self.name_of = name_of
        self.text = FunctionText(declared=declared)

    def render(self) -> str:
        text, builder = self.text, self.text.builder(1)
        wide = VECTORS * LANES
        whole = builder.assign(f"and i64 %columns, {-wide}")
        tall = builder.assign(f"and i64 %rows, {-ROWS}")
        depth = text.open("%depth", DEPTH)
        at = text.counters[-1]
        left = builder.assign(f"sub nuw nsw i64 %depth, {at}")
        builder.declared.add("declare i64 @llvm.umin.i64(i64, i64)")
        deep = builder.assign(f"call i64 @llvm.umin.i64(i64 {left}, i64 {DEPTH})")
        later = builder.assign(f"icmp ne i64 {at}, 0")
        piece = _Piece(at, builder.assign(f"lshr i64 {deep}, 1"), tall, builder.assign(f"or i1 %adds, {later}"))
        panels = text.open(whole, wide)
        self._write_panel(text.counters[-1], VECTORS, piece)
        text.close(panels, stays=True)
        some = text.begin_if_less(whole, "%columns")
        self._write_panel(whole, 1, piece)
        text.end_if(some)
        text.close(depth, stays=True)
        parameters = [f"ptr noalias %{name}" for name in ("out", "left", "right")]
        parameters += [f"i64 %{name}" for name in _NUMBERS] + ["float %alpha", "i1 %adds"]
        panel = f"  %panel = alloca i32, i64 {DEPTH // 2 * wide}, align 64"
        return text.render(f"define internal void @NAME({', '.join(parameters)}) noinline", panel)

    def _write_panel(self, column: str, vectors: int, piece: _Piece) -> None:
        """All rows of some columns of the result, for one piece of the depth."""
        text, builder = self.text, self.text.builder(1)
        source = emit_address(builder, _HALF, "%right", (piece.at, "%right_step"), (column, "%apart"))
        if self.is_transposed:
            self._transpose_panel(source, vectors, piece.pairs)
        else:
            pack = self.name_of(_render_pack(vectors, self.declared), "pack")
            builder.emit(f"call void @{pack}(ptr %panel, ptr {source}, i64 %right_step, i64 {piece.pairs})")
        for start, end, rows in (("0", piece.tall, ROWS), (piece.tall, "%rows", 1)):
            some = text.begin_if_less(start, end)
            loop = text.open(end, rows, start)
            self._call_tile(text.counters[-1], column, Tile(rows, vectors, False, _SUM, LANES, True), piece)
            text.close(loop, stays=True)
            text.end_if(some)

    def _transpose_panel(self, source: str, vectors: int, pairs: str) -> None:
        """Columns whose pairs are neighbors in memory, square by square."""
        text, wide = self.text, vectors * LANES
        turn = self.name_of(render_transpose(_PAIR, LANES, self.declared), "turn")
        builder = text.builder(1)
        apart = builder.assign("lshr i64 %apart, 1")
        loop = text.open(pairs, LANES)
        at = text.counters[-1]
        left = builder.assign(f"sub nuw nsw i64 {pairs}, {at}")
        for first in range(0, wide, LANES):
            to = emit_address(builder, _PAIR, "%panel", (at, wide), offset=first)
            part = emit_address(builder, _PAIR, source, (at, 1), (first, apart))
            builder.emit(f"call void @{turn}(ptr {to}, ptr {part}, i64 {apart}, i64 {wide}, i64 {LANES}, i64 {left})")
        text.close(loop, stays=True)

    def _call_tile(self, row: str, column: str, tile: Tile, piece: _Piece) -> None:
        builder = self.text.builder(1)
        name = self.name_of(render_tile(tile, self.declared), "tile")
        out = emit_address(builder, _SUM, "%out", (row, "%out_step"), (column, 1))
        left = emit_address(builder, _HALF, "%left", (row, "%row_step"), (piece.at, 1))
        given = [f"ptr {pointer}" for pointer in (out, left, "%panel")]
        given += [f"i64 {n}" for n in (piece.pairs, "%row_step", 2, tile.vectors * LANES, "%out_step")]
        given += ["float %alpha", f"i1 {piece.adds}", "i64 0"]
        builder.emit(f"call void @{name}({', '.join(given)})")


class _Piece:
    """A piece of the depth: where it starts, its pairs, the rows in whole tiles, and whether it is added."""

    def __init__(self, at: str, pairs: str, tall: str, adds: str) -> None:
        self.at, self.pairs, self.tall, self.adds = at, pairs, tall, adds


def _render_pack(vectors: int, declared: set[str]) -> str:
    """The function `@NAME(to, from, step, pairs)`: of each pair of rows, `step` numbers apart, the columns as words."""
    text = FunctionText(declared=declared)
    loop = text.open("%pairs")
    builder, at = text.builder(1), text.counters[-1]
    twice = builder.assign(f"shl nuw nsw i64 {at}, 1")
    for v in range(vectors):
        words = [_load_row(builder, twice, r, v) for r in range(2)]
        upper = builder.assign(f"shl <{LANES} x i32> {words[1]}, splat (i32 16)")
        both = builder.assign(f"or <{LANES} x i32> {words[0]}, {upper}")
        to = emit_address(builder, _PAIR, "%to", (at, vectors * LANES), offset=v * LANES)
        builder.emit(f"store <{LANES} x i32> {both}, ptr {to}, align 4")
    text.close(loop, stays=True)
    return text.render("define internal void @NAME(ptr noalias %to, ptr noalias %from, i64 %step, i64 %pairs) noinline")


def _load_row(builder: IRBuilder, first: str, row: int, vector: int) -> str:
    at = first if not row else builder.assign(f"add nuw nsw i64 {first}, 1")
    place = emit_address(builder, _HALF, "%from", (at, "%step"), offset=vector * LANES)
    numbers = builder.assign(f"load <{LANES} x i16>, ptr {place}, align 2")
    return builder.assign(f"zext <{LANES} x i16> {numbers} to <{LANES} x i32>")

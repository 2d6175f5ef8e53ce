"""Tile of a product with a matrix of patches in, one LLVM function out: patches are read where the grid has them.

An element of the matrix of patches lies at (offset of its row) + (offset of its column), two tables: the windows and
the taps of a convolution, in either order. So nothing is laid out, whatever the stride and the dilation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..builder.function_text import disable_unroll
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type

#: Rows of a tile of two vectors, by the bytes of a vector: as many sums as fit in the registers, less some. One of a
#: single vector has more, to keep the processor busy; there are no registers for the addresses of many more.
TILE_ROWS = {64: 8, 32: 6}
_NARROW_ROWS = 8
#: A multiple of the rows of all tiles.
ROW_MULTIPLE = 24


@dataclass(frozen=True, slots=True)
class PatchTile:
    """Rows of patches by vectors of the other matrix, which lies packed: `vectors * lanes` numbers a row."""

    dtype: np.dtype[Any]
    lanes: int
    rows: int
    vectors: int

    @property
    def wide(self) -> int:
        return self.vectors * self.lanes


def patch_tile(dtype: np.dtype[Any], vector_bytes: int, vectors: int) -> PatchTile:
    rows = TILE_ROWS[vector_bytes] if vectors == 2 else _NARROW_ROWS
    return PatchTile(dtype, vector_bytes // dtype.itemsize, rows, vectors)


def render_patch_tile(tile: PatchTile, declared: set[str]) -> str:
    """The function `@tileV(out, left, right, rows, columns, depth, adds)`: `rows` and `columns` are the tables of
    offsets into `left`; `out` has rows of `wide` elements, and with `adds` the product is added to it.
    """
    builder = IRBuilder(tile.lanes, itertools.count(), declared)
    builder.dtype = tile.dtype
    element, kind = llvm_element_type(tile.dtype), llvm_type(tile.dtype, tile.lanes)
    places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
    for r in range(tile.rows):
        place = builder.assign(f"getelementptr i64, ptr %rows, i64 {r}")
        offset = builder.assign(f"load i64, ptr {place}")
        builder.emit(f"%row{r} = getelementptr {element}, ptr %left, i64 {offset}")
    builder.emit("br label %loop")
    builder.label("loop")
    builder.emit("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
    builder.emit("%r = phi ptr [ %right, %entry ], [ %r.next, %loop ]")
    for r, v in places:
        builder.emit(f"%s{r}.{v} = phi {kind} [ zeroinitializer, %entry ], [ %t{r}.{v}, %loop ]")
    place = builder.assign("getelementptr i64, ptr %columns, i64 %k")
    column = builder.assign(f"load i64, ptr {place}")
    vectors = [
        emit_load(builder, emit_address(builder, tile.dtype, "%r", offset=v * tile.lanes), tile.dtype)
        for v in range(tile.vectors)
    ]
    for r in range(tile.rows):
        at = builder.assign(f"getelementptr {element}, ptr %row{r}, i64 {column}")
        number = builder.assign(f"load {element}, ptr {at}, align {tile.dtype.itemsize}")
        wide = builder.splat(IRValue(number, tile.dtype))
        for v, vector in enumerate(vectors):
            total = builder.fma(wide, vector, IRValue(f"%s{r}.{v}", tile.dtype, tile.lanes))
            # the sum is a phi of the loop, so its new value needs a name that is known before
            builder.lines[-1] = builder.lines[-1].replace(f"  {total.name} =", f"  %t{r}.{v} =", 1)
    builder.emit(f"%r.next = getelementptr {element}, ptr %r, i64 {tile.wide}")
    builder.emit("%next = add nuw nsw i64 %k, 1")
    builder.emit("%more = icmp ult i64 %next, %depth")
    builder.emit(f"br i1 %more, label %loop, label %end{disable_unroll(declared)}")
    builder.label("end")
    for r, v in places:
        to = emit_address(builder, tile.dtype, "%out", offset=r * tile.wide + v * tile.lanes)
        value = IRValue(f"%t{r}.{v}", tile.dtype, tile.lanes)
        total = builder.add(emit_load(builder, to, tile.dtype), value)
        # loaded in any case, which avoids a branch
        chosen = builder.assign_value(f"select i1 %adds, {kind} {total.name}, {kind} {value.name}", tile.dtype)
        emit_store(builder, chosen, to, tile.dtype)
    parameters = (
        "ptr noalias %out, ptr noalias %left, ptr noalias %right, ptr %rows, ptr %columns, i64 %depth, i1 %adds"
    )
    body = "\n".join(builder.lines)
    return f"define internal void @tile{tile.vectors}({parameters}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"

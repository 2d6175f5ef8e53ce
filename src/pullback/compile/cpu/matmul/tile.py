"""Tile of a matrix product in, one LLVM function out: its sums stay in registers while it loops over the depth."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..builder.function_text import disable_unroll
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_lane_mask, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type

_PAIR = np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows by vectors of a result; the last vector may be partial (`is_cut`). With `pairs`, the matrices are bfloat16,
    and a step along the depth takes two of their numbers, which are neighbors in the left matrix and a word of the
    right one.
    """

    rows: int
    vectors: int
    is_cut: bool
    dtype: np.dtype[Any]
    lanes: int
    pairs: bool = False


def render_tile(tile: Tile, declared: set[str]) -> str:
    """The function `@NAME(out, left, right, depth, strides, alpha, adds, lanes used)` of a tile.

    left is read at (row * row_step + k * left_step), right along vectors at k * right_step, and out has rows `out_step`
    apart. With `adds`, the result is added to what is there. All are numbers of elements, known at run time, so that
    every product of a program uses the same function.
    """
    text, found = _render_tile(tile)
    declared |= found
    return text


@functools.lru_cache(maxsize=256)
def _render_tile(tile: Tile) -> tuple[str, frozenset[str]]:
    """The text, and what it refers to: the same in every program, and for every size of one."""
    declared: set[str] = set()
    return _TileWriter(tile, declared).render(), frozenset(declared)


class _TileWriter:
    def __init__(self, tile: Tile, declared: set[str]) -> None:
        self.tile = tile
        self.kind = llvm_type(tile.dtype, tile.lanes)
        self.element = llvm_element_type(tile.dtype)
        self.left_element, self.right_element = ("i16", "i32") if tile.pairs else (self.element, self.element)
        self.builder = IRBuilder(tile.lanes, itertools.count(), declared)
        self.builder.dtype = tile.dtype
        self.places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]

    def render(self) -> str:
        parameters = ", ".join([
            "ptr noalias %out", "ptr noalias %left", "ptr noalias %right", "i64 %depth", "i64 %row_step",
            "i64 %left_step", "i64 %right_step", "i64 %out_step", f"{self.element} %alpha", "i1 %adds", "i64 %used",
        ])  # fmt: skip
        loop = [*self._mask_lines(), *self._offset_lines(), "  br label %loop", "loop:", *self._loop_lines()]
        more = f"  br i1 %more, label %loop, label %end{disable_unroll(self.builder.declared)}"
        head = f"define internal void @NAME({parameters}) noinline #0 {{"
        return "\n".join([head, "entry:", *loop, more, "end:", *self._store_lines(), "  ret void", "}"])

    def _take_lines(self) -> list[str]:
        lines, self.builder.lines = self.builder.lines, []
        return lines

    def _mask_lines(self) -> list[str]:
        if self.tile.is_cut:
            emit_lane_mask(self.builder, "%mask", "%used")
        return self._take_lines()

    def _offset_lines(self) -> list[str]:
        for r in range(self.tile.rows):
            self.builder.emit(f"%row{r} = mul nsw i64 %row_step, {r}")
        return self._take_lines()

    def _loop_lines(self) -> list[str]:
        """One step along the depth: each vector of columns times a scalar of each row."""
        builder, kind = self.builder, self.kind
        builder.emit("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
        builder.emit("%l = phi ptr [ %left, %entry ], [ %l.next, %loop ]")
        builder.emit("%r = phi ptr [ %right, %entry ], [ %r.next, %loop ]")
        for r, v in self.places:
            builder.emit(f"%s{r}.{v} = phi {kind} [ zeroinitializer, %entry ], [ %t{r}.{v}, %loop ]")
        # each vector of the right matrix is loaded once and multiplied with a scalar of every row
        columns = [self._load_factor(v) for v in range(self.tile.vectors)]
        for r in range(self.tile.rows):
            place = builder.assign(f"getelementptr inbounds {self.left_element}, ptr %l, i64 %row{r}")
            wide = self._splat_factor(place)
            for v, column in enumerate(columns):
                total = self._multiply_add(wide, column, IRValue(f"%s{r}.{v}", self.tile.dtype, self.tile.lanes))
                # the sum is a phi of the loop, so its new value needs a name that is known before
                builder.lines[-1] = builder.lines[-1].replace(f"  {total.name} =", f"  %t{r}.{v} =", 1)
        builder.emit(f"%l.next = getelementptr inbounds {self.left_element}, ptr %l, i64 %left_step")
        builder.emit(f"%r.next = getelementptr inbounds {self.right_element}, ptr %r, i64 %right_step")
        builder.emit("%next = add nuw nsw i64 %k, 1")
        builder.emit("%more = icmp ult i64 %next, %depth")
        return self._take_lines()

    def _load_factor(self, v: int) -> IRValue:
        """A vector of the right matrix."""
        place = self._vector_address("%r", v)
        return self._load(place, v) if not self.tile.pairs else emit_load(self.builder, place, _PAIR)

    def _splat_factor(self, place: str) -> IRValue:
        """A number of the left matrix, or a pair of them, in every lane."""
        dtype, aligned = (_PAIR, 2) if self.tile.pairs else (self.tile.dtype, self.tile.dtype.itemsize)
        number = self.builder.assign(f"load {llvm_element_type(dtype)}, ptr {place}, align {aligned}")
        return self.builder.splat(IRValue(number, dtype))

    def _multiply_add(self, x: IRValue, y: IRValue, total: IRValue) -> IRValue:
        if not self.tile.pairs:
            return self.builder.fma(x, y, total)
        builder, kind, halves = self.builder, self.kind, f"<{2 * self.tile.lanes} x bfloat>"
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        builder.declared.add(f"declare {kind} @{name}({kind}, {halves}, {halves})")
        words = llvm_type(_PAIR, self.tile.lanes)
        given = [builder.assign(f"bitcast {words} {v.name} to {halves}") for v in (x, y)]
        call = f"call {kind} @{name}({kind} {total.name}, {halves} {given[0]}, {halves} {given[1]})"
        return builder.assign_value(call, self.tile.dtype)

    def _vector_address(self, pointer: str, v: int) -> str:
        return emit_address(self.builder, self.tile.dtype, pointer, offset=v * self.tile.lanes)

    def _mask_of(self, v: int) -> str | None:
        return "%mask" if self.tile.is_cut and v == self.tile.vectors - 1 else None

    def _load(self, place: str, v: int) -> IRValue:
        return emit_load(self.builder, place, self.tile.dtype, self._mask_of(v), missing=0)

    def _store_lines(self) -> list[str]:
        """The output is loaded in any case, which avoids a branch; it is used only with `adds`."""
        builder = self.builder
        alpha = builder.splat(IRValue("%alpha", self.tile.dtype))
        for r in range(self.tile.rows):
            by = builder.assign(f"mul nsw i64 %out_step, {r}")
            row = builder.assign(f"getelementptr inbounds {self.element}, ptr %out, i64 {by}")
            for v in range(self.tile.vectors):
                place = self._vector_address(row, v)
                value = builder.multiply(IRValue(f"%t{r}.{v}", self.tile.dtype, self.tile.lanes), alpha)
                total = builder.add(self._load(place, v), value)
                chosen = f"select i1 %adds, {self.kind} {total.name}, {self.kind} {value.name}"
                value = builder.assign_value(chosen, self.tile.dtype)
                emit_store(builder, value, place, self.tile.dtype, self._mask_of(v))
        return self._take_lines()

"""Tile of a matrix product in, one LLVM function out: its sums stay in registers while it goes through the depth."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .lanes import Lane, element_type, type_of
from .text import rolled
from .words import Words

__all__ = ["Tile", "tile_text"]


@dataclass(frozen=True, slots=True)
class Tile:
    """So many rows by so many vectors of a result; of the last vector perhaps only some lanes (`is_cut`)."""

    rows: int
    vectors: int
    is_cut: bool
    dtype: np.dtype[Any]
    lanes: int


def tile_text(tile: Tile, declared: set[str]) -> str:
    """The function `@NAME(out, left, right, depth, strides, alpha, adds, lanes used)` of a tile.

    left is read at (row * row_step + k * left_step), right along vectors at k * right_step, and out has rows `out_step`
    apart. With `adds`, the result is added to what is there. All are numbers of elements, known when it runs, so that
    every product of a program uses the same function.
    """
    return _TileWriter(tile, declared).text()


class _TileWriter:
    def __init__(self, tile: Tile, declared: set[str]) -> None:
        self.tile = tile
        self.kind = type_of(tile.dtype, tile.lanes)
        self.element = element_type(tile.dtype)
        self.words = Words(tile.lanes, itertools.count(), declared)
        self.words.dtype = tile.dtype
        self.places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]

    def text(self) -> str:
        parameters = ", ".join([
            "ptr noalias %out", "ptr noalias %left", "ptr noalias %right", "i64 %depth", "i64 %row_step",
            "i64 %left_step", "i64 %right_step", "i64 %out_step", f"{self.element} %alpha", "i1 %adds", "i64 %used",
        ])  # fmt: skip
        loop = [*self._mask(), *self._offsets(), "  br label %loop", "loop:", *self._loop()]
        more = f"  br i1 %more, label %loop, label %end{rolled(self.words.declared)}"
        head = f"define internal void @NAME({parameters}) noinline #0 {{"
        return "\n".join([head, "entry:", *loop, more, "end:", *self._stores(), "  ret void", "}"])

    def _taken(self) -> list[str]:
        lines, self.words.lines = self.words.lines, []
        return lines

    def _mask(self) -> list[str]:
        if self.tile.is_cut:
            lanes, count = self.tile.lanes, Words.splat(self.words, Lane("%used", np.dtype(np.int64)))
            steps = ", ".join(f"i64 {i}" for i in range(lanes))
            self.words.say(f"%mask = icmp ult <{lanes} x i64> <{steps}>, {count.name}")
        return self._taken()

    def _offsets(self) -> list[str]:
        for r in range(self.tile.rows):
            self.words.say(f"%row{r} = mul nsw i64 %row_step, {r}")
        return self._taken()

    def _loop(self) -> list[str]:
        """One step through the depth: a vector of each column times a number of each row."""
        w, kind = self.words, self.kind
        w.say("%k = phi i64 [ 0, %entry ], [ %next, %loop ]")
        w.say("%l = phi ptr [ %left, %entry ], [ %l.next, %loop ]")
        w.say("%r = phi ptr [ %right, %entry ], [ %r.next, %loop ]")
        for r, v in self.places:
            w.say(f"%s{r}.{v} = phi {kind} [ zeroinitializer, %entry ], [ %t{r}.{v}, %loop ]")
        columns = [self._load(self._vector("%r", v), v) for v in range(self.tile.vectors)]
        for r in range(self.tile.rows):
            place = w.emit(f"getelementptr inbounds {self.element}, ptr %l, i64 %row{r}")
            number = w.emit(f"load {self.element}, ptr {place}, align {self.tile.dtype.itemsize}")
            wide = w.splat(Lane(number, self.tile.dtype))
            for v, column in enumerate(columns):
                total = w.fma(wide, column, Lane(f"%s{r}.{v}", self.tile.dtype, self.tile.lanes))
                w.lines[-1] = w.lines[-1].replace(f"  {total.name} =", f"  %t{r}.{v} =", 1)
        w.say(f"%l.next = getelementptr inbounds {self.element}, ptr %l, i64 %left_step")
        w.say(f"%r.next = getelementptr inbounds {self.element}, ptr %r, i64 %right_step")
        w.say("%next = add nuw nsw i64 %k, 1")
        w.say("%more = icmp ult i64 %next, %depth")
        return self._taken()

    def _vector(self, pointer: str, v: int) -> str:
        by = v * self.tile.lanes
        return self.words.emit(f"getelementptr inbounds {self.element}, ptr {pointer}, i64 {by}") if by else pointer

    def _masked(self, v: int) -> bool:
        return self.tile.is_cut and v == self.tile.vectors - 1

    def _load(self, place: str, v: int) -> Lane:
        w, kind, lanes, size = self.words, self.kind, self.tile.lanes, self.tile.dtype.itemsize
        if not self._masked(v):
            return w.made(f"load {kind}, ptr {place}, align {size}", self.tile.dtype)
        name = f"llvm.masked.load.{w.suffix(self.tile.dtype)}.p0"
        w.declared.add(f"declare {kind} @{name}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
        given = f"ptr {place}, i32 {size}, <{lanes} x i1> %mask, {kind} zeroinitializer"
        return w.made(f"call {kind} @{name}({given})", self.tile.dtype)

    def _store(self, value: Lane, place: str, v: int) -> None:
        w, kind, lanes, size = self.words, self.kind, self.tile.lanes, self.tile.dtype.itemsize
        if not self._masked(v):
            w.say(f"store {kind} {value.name}, ptr {place}, align {size}")
            return
        name = f"llvm.masked.store.{w.suffix(self.tile.dtype)}.p0"
        w.declared.add(f"declare void @{name}({kind}, ptr, i32 immarg, <{lanes} x i1>)")
        w.say(f"call void @{name}({kind} {value.name}, ptr {place}, i32 {size}, <{lanes} x i1> %mask)")

    def _stores(self) -> list[str]:
        """What is there is read in any case, so that there is one way; it counts only if it is added to."""
        w = self.words
        alpha = w.splat(Lane("%alpha", self.tile.dtype))
        for r in range(self.tile.rows):
            by = w.emit(f"mul nsw i64 %out_step, {r}")
            row = w.emit(f"getelementptr inbounds {self.element}, ptr %out, i64 {by}")
            for v in range(self.tile.vectors):
                place = self._vector(row, v)
                value = w.multiply(Lane(f"%t{r}.{v}", self.tile.dtype, self.tile.lanes), alpha)
                total = w.add(self._load(place, v), value)
                chosen = f"select i1 %adds, {self.kind} {total.name}, {self.kind} {value.name}"
                self._store(w.made(chosen, self.tile.dtype), place, v)
        return self._taken()

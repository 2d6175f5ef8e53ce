"""Matrix product in, one LLVM function out: the result in tiles, panel by panel of the right matrix.

The BLAS copies both matrices into an order of its own first, which pays where each element is used very often. Here the
right matrix is read where it lies, or where its columns are apart, a panel of it is turned round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loops import Product
from .lanes import element_type, number_text
from .text import Text
from .tiles import Tile, tile_text
from .turned import turn_text
from .words import Words

__all__ = ["is_tiled", "panels_text"]

#: Above so many bytes, copying into an order of its own, as the BLAS does, is worth it: the left matrix is read once
#: for each panel of the right one, from the third cache if need be.
LEFT_BYTES, RIGHT_BYTES = 1 << 22, 1 << 21
#: Elements that are a multiple of this many bytes apart drive each other out of a cache; so many of them still stay.
PAGE, ROWS_OF_PAGES = 4096, 128
#: A panel that is turned round lies on the stack, so it has at most this many rows.
DEEPEST = 1024
#: Rows and vectors of a tile, by the bytes of a vector: as many sums as there are registers for, less some.
_TILES = {64: (8, 2), 32: (6, 2)}


def is_tiled(step: Product, vector_bytes: int) -> bool:
    """Whether the product is one for tiles: enough rows to use what is loaded, whole vectors of columns,
    matrices that stay in a cache.
    """
    _, rows, columns = step.out.shape
    depth = step.left.shape[2]
    size, apart = step.out.buffer.dtype.itemsize, step.right.strides[2] != 1
    if vector_bytes not in _TILES or rows < 4 or columns * size < vector_bytes:
        return False
    if apart and step.right.strides[1] != 1 and depth > 1:
        return False
    near = rows * depth * size <= LEFT_BYTES and depth * columns * size <= RIGHT_BYTES
    steps = step.left.strides[2] * size, step.right.strides[1] * size
    collides = depth > ROWS_OF_PAGES and any(by % PAGE == 0 for by in steps)
    return near and not collides and (not apart or (rows >= 16 and depth <= DEEPEST))


def panels_text(step: Product, vector_bytes: int, declared: set[str], name_of: Callable[[str, str], str]) -> str:
    """The function `@NAME(out, left, right)` for one element of a batch: a call of one that all products of its kind
    use, since compiling takes time; `name_of` answers the name under which a text is known.
    """
    _, rows, columns = step.out.shape
    kind = _kind(step, vector_bytes)
    walk = name_of(_Walk(kind, declared, name_of).text(), "panels")
    wide = kind.vectors * kind.lanes
    numbers = (
        rows - kind.rest, columns - columns % wide, columns % wide, columns % kind.lanes, step.left.shape[2],
        step.left.strides[1], step.left.strides[2], step.right.strides[1], step.right.strides[2], step.out.strides[1],
    )  # fmt: skip
    given = [f"ptr {name}" for name in ("%out", "%left", "%right")] + [f"i64 {n}" for n in numbers]
    given += [f"{element_type(kind.dtype)} {number_text(step.alpha, kind.dtype)}", f"i1 {str(bool(step.beta)).lower()}"]
    return (
        "define internal void @NAME(ptr noalias %out, ptr noalias %left, ptr noalias %right) #0 {\n"
        f"entry:\n  call void @{walk}({', '.join(given)})\n  ret void\n}}"
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the text of a walk depends on: the tile, the rows and vectors that are left over (of the last vector perhaps
    only some lanes), and whether the columns of the right matrix are apart.
    """

    dtype: np.dtype[Any]
    lanes: int
    rows: int
    vectors: int
    rest: int
    has_panels: bool
    left_over: int
    is_cut: bool
    apart: bool


def _kind(step: Product, vector_bytes: int) -> _Kind:
    _, rows, columns = step.out.shape
    dtype = step.out.buffer.dtype
    lanes = vector_bytes // dtype.itemsize
    tall, vectors = _TILES[vector_bytes]
    tall = min(tall, rows)
    vectors = min(vectors if tall > 4 else 2 * vectors, -(-columns // lanes))
    used = columns % (vectors * lanes)
    return _Kind(
        dtype, lanes, tall, vectors, rows % tall, columns >= vectors * lanes, -(-used // lanes),
        bool(used % lanes), step.right.strides[2] != 1,
    )  # fmt: skip


class _Walk:
    """The function over all tiles while it is written: panels of columns, and in each the rows."""

    def __init__(self, kind: _Kind, declared: set[str], name_of: Callable[[str, str], str]) -> None:
        self.kind = kind
        self.element = element_type(kind.dtype)
        self.declared = declared
        self.name_of = name_of
        self.lines = Text()
        self.lines.declared = declared

    def text(self) -> str:
        kind = self.kind
        wide = kind.vectors * kind.lanes
        if kind.has_panels:
            loop = self.lines.open("%columns", wide)
            self._panel(self.lines.counters[-1], kind.vectors, str(wide), False)
            self.lines.close(loop, stays=True)
        if kind.left_over:
            self._panel("%columns", kind.left_over, "%used", kind.is_cut)
        names = ["rows", "columns", "used", "cut", "depth", "row_step", "left_step", "right_step", "apart", "out_step"]
        parameters = [f"ptr noalias %{name}" for name in ("out", "left", "right")] + [f"i64 %{name}" for name in names]
        parameters += [f"{self.element} %alpha", "i1 %adds"]
        panel = []
        if kind.apart:
            panel = [
                f"  %deep = add nuw nsw i64 %depth, {kind.lanes - 1}", f"  %room = mul nuw nsw i64 %deep, {wide}",
                f"  %panel = alloca {self.element}, i64 %room, align 64",
            ]  # fmt: skip
        body = "\n".join([*self.lines.entry, *panel, *self.lines.lines])
        return f"define internal void @NAME({', '.join(parameters)}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"

    def _panel(self, column: str, vectors: int, used: str, is_cut: bool) -> None:
        """All rows of some columns of the result."""
        words = self.lines.words(1)
        right, step = self._place(words, "%right", (column, "%apart" if self.kind.apart else "1")), "%right_step"
        self.lines.lines += words.lines
        if self.kind.apart:
            right, step = self._turned(right, vectors, used)
        loop = self.lines.open("%rows", self.kind.rows)
        self._tile(self.lines.counters[-1], column, Tile(self.kind.rows, vectors, is_cut, *self._lanes), right, step)
        self.lines.close(loop, stays=True)
        if self.kind.rest:
            self._tile("%rows", column, Tile(self.kind.rest, vectors, is_cut, *self._lanes), right, step)

    @property
    def _lanes(self) -> tuple[np.dtype[Any], int]:
        return self.kind.dtype, self.kind.lanes

    def _turned(self, right: str, vectors: int, used: str) -> tuple[str, str]:
        """The panel where it has been turned round, square by square, and how far apart its rows are."""
        turn = self.name_of(turn_text(*self._lanes, self.declared), "turn")
        wide = vectors * self.kind.lanes
        loop = self.lines.open("%depth", self.kind.lanes)
        words, at = self.lines.words(1), self.lines.counters[-1]
        left = words.emit(f"sub nsw i64 %depth, {at}")
        for first in range(0, wide, self.kind.lanes):
            to = self._place(words, "%panel", (at, str(wide)), (str(first), "1"))
            source = self._place(words, right, (at, "1"), (str(first), "%apart"))
            count = words.emit(f"sub nsw i64 {used}, {first}")
            words.say(f"call void @{turn}(ptr {to}, ptr {source}, i64 %apart, i64 {wide}, i64 {count}, i64 {left})")
        self.lines.lines += words.lines
        self.lines.close(loop, stays=True)
        return "%panel", str(wide)

    def _tile(self, row: str, column: str, tile: Tile, right: str, step: str) -> None:
        words = self.lines.words(1)
        name = self.name_of(tile_text(tile, self.declared), "tile")
        out = self._place(words, "%out", (row, "%out_step"), (column, "1"))
        left = self._place(words, "%left", (row, "%row_step"))
        given = [f"ptr {pointer}" for pointer in (out, left, right)]
        given += [f"i64 {n}" for n in ("%depth", "%row_step", "%left_step", step, "%out_step")]
        given += [f"{self.element} %alpha", "i1 %adds", "i64 %cut"]
        words.say(f"call void @{name}({', '.join(given)})")
        self.lines.lines += words.lines

    def _place(self, words: Words, pointer: str, *terms: tuple[str, str]) -> str:
        for counter, stride in terms:
            by = counter if stride == "1" else words.emit(f"mul nsw i64 {counter}, {stride}")
            pointer = words.emit(f"getelementptr inbounds {self.element}, ptr {pointer}, i64 {by}")
        return pointer

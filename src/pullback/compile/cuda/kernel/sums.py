"""Kernels that fold along axes into memory, in a fixed order: no two threads fold into one place.

Where the last axis is folded, a block folds the points of one place; else neighbouring threads have neighbouring
places. If there are few places, their points are divided among several blocks, and a second launch folds their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...loop_ir import Buffer, Kernel, Store
from ..words import identity_number, number_text
from .grid import Grid, count_blocks
from .points import BUSY_BLOCKS, write_vector
from .writer import FunctionLaunch, FunctionWriter, accumulator_type, fold_text, fold_word

#: Places of a block, and threads for each, where the last axis is not folded.
TILE = (32, 8)
KEPT, FOLDED = range(2)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a fold is divided: the threads of a block, the points of a block for each place, and how many blocks share
    one.
    """

    is_across: bool
    width: int
    threads: tuple[int, int]
    places: int
    points: int
    part: int
    chunks: int


def render_sums(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """Folding stores that keep the same axes, and stores of points beside them."""
    folds = [s for s in kernel.stores if s.word]
    kept = [any(s.strides[axis] for s in folds) for axis in range(len(kernel.extents))]
    grid = Grid(kernel, [KEPT if k else FOLDED for k in kept], alignments)
    shape = _choose_shape(grid)
    partial = [Buffer("scratch", shape.chunks * shape.places, s.buffer.dtype) for s in folds]
    found = [_SumWriter(grid, shape, folds, partial if shape.chunks > 1 else None).render()]
    return found if shape.chunks == 1 else [*found, _render_combination(grid, shape, folds, partial)]


def _choose_shape(grid: Grid) -> _Shape:
    places, points = (grid.size_of(grid.groups_on(side)) for side in (KEPT, FOLDED))
    last = len(grid.groups) - 1
    is_across = grid.side_of[last] == FOLDED
    width = grid.vector_width(last) if is_across else 1
    threads = (min(512, max(32, count_blocks(points, width * 4 * 32) * 32)), 1) if is_across else TILE
    blocks = places if is_across else count_blocks(places, TILE[0])
    least = threads[0] * width * 4 if is_across else 64
    chunks = max(1, min(BUSY_BLOCKS // blocks, points // least))
    part = count_blocks(points, chunks * width) * width
    return _Shape(is_across, width, threads, places, points, part, count_blocks(points, part))


class _SumWriter:
    """The function that folds points, into their places or into the parts of blocks."""

    def __init__(self, grid: Grid, shape: _Shape, folds: Sequence[Store], partial: Sequence[Buffer] | None) -> None:
        self.grid, self.shape, self.folds, self.partial = grid, shape, folds, partial
        self.writer = FunctionWriter(grid)
        self.totals = [self.writer.name("f") for _ in folds]

    def render(self) -> FunctionLaunch:
        shape = self.shape
        place = "blockIdx.x" if shape.is_across else f"blockIdx.x * {TILE[0]} + threadIdx.x"
        split, at = self.writer.split_counter(self.grid.groups_on(KEPT), "k")
        body = [f"const I k = (I){place};"]
        for total, store in zip(self.totals, self.folds, strict=True):
            start = number_text(identity_number(store.word, store.buffer.dtype), store.buffer.dtype)
            body.append(f"{accumulator_type(store)} {total} = {start};")
        inner = [*split, *self._loop(at)]
        body += inner if shape.is_across else [f"if (k < {shape.places}) {{", *("  " + x for x in inner), "}"]
        for number, store in enumerate(self.folds):
            body += self._fold_block(self.totals[number], store)
        guard = "threadIdx.x == 0" if shape.is_across else f"threadIdx.y == 0 && k < {shape.places}"
        body += [f"if ({guard}) {{", *("  " + x for x in self._stores()), "}"]
        blocks = shape.places if shape.is_across else count_blocks(shape.places, TILE[0])
        return self.writer.finish(body, (blocks, shape.chunks), shape.threads)

    def _loop(self, kept: Mapping[int, str]) -> list[str]:
        """The loop over the points of a thread."""
        grid, shape, stores = self.grid, self.shape, self.grid.kernel.stores
        split, at = self.writer.split_counter(grid.groups_on(FOLDED), "j")
        targets = [x for s in stores for x in (s.line, *s.args)]
        folds = [(total, s, s.line) for total, s in zip(self.totals, self.folds, strict=True)]
        plain = [s for s in stores if not s.word]
        last = len(grid.groups) - 1
        text = write_vector(self.writer, last, shape.width, {**kept, **at}, targets, plain, {}, folds)
        first = f"threadIdx.x * {shape.width}" if shape.is_across else "threadIdx.y"
        by = shape.threads[0] * shape.width if shape.is_across else shape.threads[1]
        return [
            f"const I end = min((I){shape.points}, (I)(blockIdx.y + 1) * {shape.part});",
            "#pragma unroll 4",
            f"for (I j = (I)blockIdx.y * {shape.part} + {first}; j < end; j += {by}) {{",
            *("  " + x for x in (*split, *text)),
            "}",
        ]

    def _fold_block(self, total: str, store: Store) -> list[str]:
        kind, word = accumulator_type(store), fold_word(store)
        if self.shape.is_across:
            if self.shape.threads[0] == 32:
                return [f"{total} = fold_warp_<{word}_, 32>({total});"]
            return [
                f"__shared__ {kind} {total}s[32];",
                f"{total} = fold_block_<{word}_, {self.shape.threads[0]}>({total}, {total}s);",
            ]
        return [
            f"__shared__ {kind} {total}s[{TILE[1]}][{TILE[0] + 1}];",
            f"{total}s[threadIdx.y][threadIdx.x] = {total};",
            "__syncthreads();",
            f"if (threadIdx.y == 0) for (int y = 1; y < {TILE[1]}; ++y)",
            f"  {total} = {word}_::of({total}, {total}s[y][threadIdx.x]);",
        ]

    def _stores(self) -> list[str]:
        writer, places = self.writer, self.shape.places
        split, at = writer.split_counter(self.grid.groups_on(KEPT), "k")
        if self.partial is None:
            return [*split, *(_store_total(writer, s, t, at) for s, t in zip(self.folds, self.totals, strict=True))]
        writer.written += self.partial
        pairs = zip(self.partial, self.totals, strict=True)
        return [f"{writer.pointer(b)}[(I)blockIdx.y * {places} + k] = {total};" for b, total in pairs]


def _store_total(writer: FunctionWriter, store: Store, total: str, at: Mapping[int, str]) -> str:
    writer.written.append(store.buffer)
    place = writer.address(store, at)
    return f"{place} = {fold_text(store, place, total) if store.accumulates else total};"


def _render_combination(grid: Grid, shape: _Shape, folds: Sequence[Store], partial: Sequence[Buffer]) -> FunctionLaunch:
    """What the blocks of each place have folded, folded in their order."""
    writer = FunctionWriter(grid)
    split, at = writer.split_counter(grid.groups_on(KEPT), "k")
    body = ["const I k = (I)blockIdx.x * 32 + threadIdx.x;", f"if (k >= {shape.places}) return;", *split]
    for store, buffer in zip(folds, partial, strict=True):
        total, source = writer.name("f"), writer.pointer(buffer)
        body += [
            f"{accumulator_type(store)} {total} = {source}[k];",
            "#pragma unroll 8",
            f"for (int part = 1; part < {shape.chunks}; ++part)",
            f"  {total} = {fold_text(store, total, f'{source}[(I)part * {shape.places} + k]')};",
            _store_total(writer, store, total, at),
        ]
    return writer.finish(body, (count_blocks(shape.places, 32), 1), (32, 1))

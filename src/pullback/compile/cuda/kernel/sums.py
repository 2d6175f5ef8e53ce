"""Kernels that fold along axes into memory, in a fixed order: no two threads fold into one place.

Where the last axis is folded, a block folds the points of one place; else neighbouring threads have neighbouring
places. If there are few places, their points are divided among several blocks, and a second launch folds their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...loop_ir import Buffer, Kernel, Store, load_line, row_major_strides
from .grid import MAX_VECTOR_LINES, Grid, count_blocks
from .points import Accumulation, write_vector
from .writer import FunctionLaunch, FunctionWriter, accumulator_type, fold_dtype, fold_text, fold_word, start_text

#: Threads along places, and threads for each, where the last axis is not folded; and where there are few places.
TILE = (32, 8)
DEEP_TILE = (32, 32)
KEPT, FOLDED = range(2)
#: So many blocks, each with so many steps for each thread, use all of the memory's bandwidth.
WANTED_BLOCKS = 1056
FEW_POINTS = 1 << 17
#: A grid has no more blocks along its second axis.
MAX_CHUNKS = 65535
LEAST_STEPS = 4


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a fold is divided: elements that a thread takes at once (of a row that is folded, or of places), the threads
    of a block, the points of a block for each place, and how many blocks share a place.
    """

    is_across: bool
    width: int
    threads: tuple[int, int]
    places: int
    points: int
    part: int
    chunks: int

    @property
    def blocks(self) -> int:
        """The blocks that have different places."""
        return self.places if self.is_across else count_blocks(self.places, TILE[0] * self.width)


@dataclass(frozen=True, slots=True)
class Sums:
    """A launch that folds; where several blocks share a place, into `partial`, each with all places for each part."""

    launch: FunctionLaunch
    folds: list[Store]
    kept: list[int]
    partial: list[Buffer]


def divide_sums(kernel: Kernel, alignments: Mapping[Buffer, int]) -> Sums:
    """Folding stores that keep the same axes, and stores of points beside them."""
    grid, shape, folds, kept = _plan_sums(kernel, alignments)
    several, size = shape.chunks > 1, shape.chunks * shape.places
    partial = [s.buffer if s.parts > 1 else Buffer("scratch", size, fold_dtype(s)) for s in folds if several]
    return Sums(_SumWriter(grid, shape, folds, partial).render(), folds, kept, partial)


def _plan_sums(kernel: Kernel, alignments: Mapping[Buffer, int]) -> tuple[Grid, _Shape, list[Store], list[int]]:
    folds = [s for s in kernel.stores if s.word]
    kept = [i for i, n in enumerate(kernel.extents) if n != 1 and any(s.strides[i] for s in folds)]
    grid = Grid(kernel, [KEPT if i in kept else FOLDED for i in range(len(kernel.extents))], alignments)
    return grid, _choose_shape(grid, folds[0].parts), folds, kept


def count_sum_parts(kernel: Kernel) -> tuple[int, list[int]]:
    """In how many parts blocks fold to places, and the axes along which these are."""
    _, shape, _, kept = _plan_sums(kernel, {})
    return shape.chunks, kept


def render_sums(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch]:
    """The launches of `divide_sums`, with those that fold the parts."""
    sums = divide_sums(kernel, alignments)
    if not sums.partial or sums.folds[0].parts > 1:
        return [sums.launch]
    rest = combine_parts(kernel, sums.kept, sums.folds, sums.partial)
    return [sums.launch, divide_sums(rest, alignments).launch]


def combine_parts(kernel: Kernel, kept: Sequence[int], folds: Sequence[Store], partial: Sequence[Buffer]) -> Kernel:
    """The kernel that folds parts, each with all places in order, in the order of the parts."""
    extents = tuple(kernel.extents[i] for i in kept)
    inner = row_major_strides(extents)
    places = row_major_strides((1, *extents))[0]
    parts = partial[0].size // places
    loads = [load_line(b, (places, *inner)) for b in partial]
    points = parts * places
    stores = [
        Store(x, s.buffer, (0, *(s.strides[i] for i in kept)), s.offset, s.word, (), (), s.accumulates, points, parts=1)
        for x, s in zip(loads, folds, strict=True)
    ]
    return Kernel((parts, *extents), 0, loads, stores)


def _choose_shape(grid: Grid, parts: int) -> _Shape:
    divides = parts != 1
    places, points = (grid.size_of(grid.groups_on(side)) for side in (KEPT, FOLDED))
    last = len(grid.groups) - 1
    is_across, width = grid.side_of[last] == FOLDED, grid.vector_width(last)
    # of many lines, each step takes long enough; a loop over them would take a compiler seconds
    steps = LEAST_STEPS if len(grid.lines) <= MAX_VECTOR_LINES else 1
    most = WANTED_BLOCKS if steps > 1 else MAX_CHUNKS
    if is_across:
        threads = min(512, max(32, count_blocks(points, width * steps * 32) * 32)), 1
        if steps == 1 and divides:
            threads = (64 if points <= 64 * WANTED_BLOCKS else 256), 1
        blocks, least = places, steps * threads[0] * width
    else:
        # few points are shared by many threads
        width = 1 if not divides or places * points < FEW_POINTS or places <= TILE[0] * width // 2 else width
        blocks = count_blocks(places, TILE[0] * width)
        threads, least = TILE if divides or points < 256 else DEEP_TILE, min(4, 16 // width) * steps * TILE[1]
    enough = points // least if steps > 1 else count_blocks(points, least)
    chunks = parts or max(1, min(count_blocks(most, blocks), enough))
    unit = threads[0] * width if is_across else 1
    part = count_blocks(points, chunks * unit) * unit
    return _Shape(is_across, width, threads, places, points, part, parts or count_blocks(points, part))


class _SumWriter:
    """The function that folds points, into their places or into the parts of blocks."""

    def __init__(self, grid: Grid, shape: _Shape, folds: Sequence[Store], partial: Sequence[Buffer]) -> None:
        self.grid, self.shape, self.folds, self.partial = grid, shape, folds, partial
        self.writer = FunctionWriter(grid)
        self.totals = [self.writer.name("f") for _ in folds]
        #: How many places a thread has.
        self.own = 1 if shape.is_across else shape.width

    def render(self) -> FunctionLaunch:
        shape = self.shape
        first = "blockIdx.x" if shape.is_across else f"(blockIdx.x * {TILE[0]} + threadIdx.x) * {self.own}"
        split, at = self.writer.split_counter(self.grid.groups_on(KEPT), "k")
        body = [f"const I k = (I){first};", *self._starts()]
        inner = [*split, *self._loop(at)]
        body += inner if shape.is_across else [f"if (k < {shape.places}) {{", *("  " + x for x in inner), "}"]
        for total, store in zip(self.totals, self.folds, strict=True):
            body += self._fold_block(total, store)
        guard = "threadIdx.x == 0" if shape.is_across else f"threadIdx.y == 0 && k < {shape.places}"
        body += [f"if ({guard}) {{", *("  " + x for x in self._stores()), "}"]
        return self.writer.finish(body, (shape.blocks, shape.chunks), shape.threads)

    def _starts(self) -> list[str]:
        found = []
        for total, store in zip(self.totals, self.folds, strict=True):
            start = start_text(store)
            several = f"[{self.own}] = {{{', '.join([start] * self.own)}}}" if self.own > 1 else f" = {start}"
            found.append(f"{accumulator_type(store)} {total}{several};")
        return found

    def _total(self, total: str, number: str = "u") -> str:
        return f"{total}[{number}]" if self.own > 1 else total

    def _loop(self, kept: Mapping[int, str]) -> list[str]:
        """The loop over the points of a thread."""
        grid, shape, stores = self.grid, self.shape, self.grid.kernel.stores
        split, at = self.writer.split_counter(grid.groups_on(FOLDED), "j")
        targets = [x for s in stores for x in (s.line, *s.args)]
        folds = [Accumulation(self._total(total), s, s.line) for total, s in zip(self.totals, self.folds, strict=True)]
        plain = [s for s in stores if not s.word]
        last = len(grid.groups) - 1
        text = write_vector(self.writer, last, shape.width, {**kept, **at}, targets, plain, {}, folds)
        first = f"threadIdx.x * {shape.width}" if shape.is_across else "threadIdx.y"
        by = shape.threads[0] * shape.width if shape.is_across else shape.threads[1]
        if shape.part == by:
            head = f"const I j = (I)blockIdx.y * {shape.part} + {first};"
            return [head, f"if (j < {shape.points}) {{", *("  " + x for x in (*split, *text)), "}"]
        return [
            f"const I end = min((I){shape.points}, (I)(blockIdx.y + 1) * {shape.part});",
            f"#pragma unroll {grid.unroll(len(grid.lines), shape.width)}",
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
        here, there = self._total(total), f"{total}s[u][threadIdx.y][threadIdx.x]"
        folded = f"{here} = {word}_::of({here}, {total}s[u][y][threadIdx.x]);"
        return [
            f"__shared__ {kind} {total}s[{self.own}][{self.shape.threads[1]}][{TILE[0]}];",
            f"for (int u = 0; u < {self.own}; ++u) {there} = {here};",
            "__syncthreads();",
            f"if (threadIdx.y == 0) for (int u = 0; u < {self.own}; ++u)",
            f"  for (int y = 1; y < {self.shape.threads[1]}; ++y) {folded}",
        ]

    def _stores(self) -> list[str]:
        """The totals, each to its place, or to that of the block's part."""
        writer, places = self.writer, self.shape.places
        found: list[str] = []
        for number in range(self.own):
            place = "k" if self.own == 1 else f"(k + {number})"
            totals = [self._total(total, str(number)) for total in self.totals]
            if not self.partial:
                split, at = writer.split_counter(self.grid.groups_on(KEPT), place)
                found += [*split, *(_store_total(writer, s, t, at) for s, t in zip(self.folds, totals, strict=True))]
                continue
            writer.written += self.partial
            pairs = zip(self.partial, totals, strict=True)
            found += [f"{writer.pointer(b)}[(I)blockIdx.y * {places} + {place}] = {total};" for b, total in pairs]
        return found


def _store_total(writer: FunctionWriter, store: Store, total: str, at: Mapping[int, str]) -> str:
    writer.written.append(store.buffer)
    place = writer.address(store, at)
    return f"{place} = {fold_text(store, place, total) if store.accumulates else total};"

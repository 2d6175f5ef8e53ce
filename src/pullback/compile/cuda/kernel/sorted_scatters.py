"""Stores at indices of many points: sorted by their places, so that those of one place follow each other in order.

The sorted points are cut into parts. A thread folds the points of a part: places whose points all lie in it are done;
what began in an earlier part is left to the thread of the part in which it began, in a second launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...loop_ir import Buffer, Kernel, Store
from ..words import CudaWords
from .grid import Grid, count_blocks
from .points import choose_threads
from .writer import FunctionLaunch, FunctionWriter, Known, accumulator_type, fold_dtype, fold_text, start_text

#: Axes along which indices do not differ and places are apart, and all others.
FREE, SORTED = range(2)
#: Sorted points of a thread: few, while there are few threads.
SHORT_PART, LONG_PART = 8, 32
MANY_POINTS = 1 << 14
#: From so many points on, several blocks sort them, each about so many; and how many blocks there are at most.
MIN_POINTS_OF_BLOCKS, POINTS_OF_BLOCK, MAX_BLOCKS = 1 << 15, 1 << 13, 128
_KEY = np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Points to sort, points along free axes beside each; the lowest place, the distance of others, and how many."""

    count: int
    beside: int
    lowest: int
    unit: int
    places: int

    @property
    def part(self) -> int:
        return SHORT_PART if self.count <= MANY_POINTS else LONG_PART

    @property
    def parts(self) -> int:
        return count_blocks(self.count, self.part)

    @property
    def blocks(self) -> int:
        """How many blocks sort: a multiple of four, unless it is one."""
        wanted = min(count_blocks(self.count, POINTS_OF_BLOCK), MAX_BLOCKS)
        return 1 if self.count < MIN_POINTS_OF_BLOCKS else 4 * count_blocks(wanted, 4)


def render_sorted_scatter(
    kernel: Kernel, apart: frozenset[int], alignments: Mapping[Buffer, int]
) -> list[FunctionLaunch] | None:
    """The launches: keys, their order, and two for the folds. None if there are more places than keys."""
    (store,) = kernel.stores
    used = frozenset().union(*(a.axes for a in store.args))
    free = [axis for axis in range(len(kernel.extents)) if axis in apart and axis not in used]
    grid = Grid(kernel, [FREE if i in free else SORTED for i in range(len(kernel.extents))], alignments)
    walked = [(s, n) for i, (s, n) in enumerate(zip(store.strides, kernel.extents, strict=True)) if i not in free]
    steps = [(s, n) for s, n in (*walked, *store.places) if s and n > 1]
    unit = math.gcd(*(s for s, _ in steps)) or 1
    lowest = sum(min(0, s * (n - 1)) for s, n in steps)
    highest = sum(max(0, s * (n - 1)) for s, n in steps)
    count, beside = (grid.size_of(grid.groups_on(side)) for side in (SORTED, FREE))
    plan = _Plan(count, beside, lowest, unit, (highest - lowest) // unit + 1)
    if max(plan.places, plan.count) >= 2**31:
        return None
    return _ScatterWriter(grid, store, plan).render()


class _ScatterWriter:
    """The launches of a store, and the scratch memory they share."""

    def __init__(self, grid: Grid, store: Store, plan: _Plan) -> None:
        self.grid, self.store, self.plan = grid, store, plan
        keys, items = ([Buffer("scratch", plan.count, _KEY) for _ in range(2)] for _ in range(2))
        passes = count_blocks(plan.places.bit_length(), 8)
        self.passes, self.buffers = passes, (keys[0], items[0], keys[1], items[1])
        self.keys, self.items = keys[passes % 2], items[passes % 2]
        size = plan.parts * plan.beside
        self.tails, self.heads = (Buffer("scratch", size, fold_dtype(store)) for _ in range(2))

    def render(self) -> list[FunctionLaunch]:
        sort = self._render_sort() if self.plan.blocks == 1 else self._render_sort_by_blocks()
        return [self._render_keys(), *sort, self._render_parts(), self._render_rest()]

    def _render_keys(self) -> FunctionLaunch:
        """The place of each point; one beyond all others if its index is out of range."""
        writer, plan, store = FunctionWriter(self.grid), self.plan, self.store
        threads = choose_threads(plan.count)
        split, at = writer.split_counter(self.grid.groups_on(SORTED), "i")
        known: Known = {}
        text = writer.compute(store.args, known, at)
        words = CudaWords(writer.counter)
        places = writer.indexed(words, store, [known[id(a)] for a in store.args])
        strides = [(c, self.grid.stride(store, g)) for g, c in at.items()]
        terms = [f"{c} * {s // plan.unit}" for c, s in strides if s]
        terms += [f"{p} * {s // plan.unit}" for p, (s, n) in zip(places, store.places, strict=True) if n > 1]
        terms += [str(-plan.lowest // plan.unit)] if plan.lowest or not terms else []
        inside = " && ".join(f"{p} >= 0" for p in places)
        writer.written.append(self.buffers[0])
        body = [
            f"const I i = (I)blockIdx.x * {threads} + threadIdx.x;",
            f"if (i >= {plan.count}) return;",
            *split,
            *text,
            *words.lines,
            f"{writer.pointer(self.buffers[0])}[i] = {inside} ? (unsigned)({' + '.join(terms)}) : {plan.places}u;",
        ]
        return writer.finish(body, (count_blocks(plan.count, threads), 1), (threads, 1))

    def _render_sort(self) -> list[FunctionLaunch]:
        call = f"block_sort_<{self.plan.count}, {self.passes}>"
        return [self._render_call(call, self.buffers, 1)]

    def _render_sort_by_blocks(self) -> list[FunctionLaunch]:
        """Three launches for each digit of eight bits, from the last on."""
        plan = self.plan
        counts, sizes = Buffer("scratch", 256 * plan.blocks, _KEY), f"{plan.count}, {plan.blocks}"
        keys, items, keys2, items2 = self.buffers
        found = []
        for number in range(self.passes):
            shift = 8 * number
            found += [
                self._render_call(f"block_sort_count_<{sizes}>", (keys, counts), plan.blocks, shift),
                self._render_call(f"block_sort_sum_<{plan.blocks}>", (counts,), 1),
                self._render_call(
                    f"block_sort_place_<{sizes}>", (keys, items, keys2, items2, counts), plan.blocks, shift
                ),
            ]
            keys, items, keys2, items2 = keys2, items2, keys, items
        return found

    def _render_call(
        self, call: str, buffers: Sequence[Buffer], blocks: int, shift: int | None = None
    ) -> FunctionLaunch:
        writer = FunctionWriter(self.grid)
        writer.written += buffers
        given = [*map(writer.pointer, buffers), *([] if shift is None else [str(shift), "(int)blockIdx.x"])]
        return writer.finish([f"{call}({', '.join(given)});"], (blocks, 1), (1024, 1))

    def _open(self, writer: FunctionWriter, threads: int) -> tuple[list[str], dict[int, str]]:
        """A thread's part and its point along the free axes."""
        plan = self.plan
        split, at = writer.split_counter(self.grid.groups_on(FREE), "p")
        return [
            f"const I i = (I)blockIdx.x * {threads} + threadIdx.x;",
            f"if (i >= {plan.parts * plan.beside}) return;",
            f"const I p = i % {plan.beside}, part = i / {plan.beside};",
            f"const I begin = part * {plan.part}, end = min(begin + {plan.part}, (I){plan.count});",
            *split,
        ], at

    def _finish(self, writer: FunctionWriter, body: list[str], threads: int) -> FunctionLaunch:
        return writer.finish(body, (count_blocks(self.plan.parts * self.plan.beside, threads), 1), (threads, 1))

    def _folded(self, total: str, value: str) -> str:
        """What a place holds with one more value: of values that are only stored, the last."""
        return fold_text(self.store, total, value) if self.store.word else value

    def _store(self, writer: FunctionWriter, at: Mapping[int, str]) -> str:
        writer.written.append(self.store.buffer)
        terms = [f"(I)key * {self.plan.unit} + {self.plan.lowest + self.store.offset}"]
        strides = [(c, self.grid.stride(self.store, g)) for g, c in at.items()]
        terms += [f"{c} * {s}" for c, s in strides if s]
        place = f"{writer.pointer(self.store.buffer)}[{' + '.join(terms)}]"
        return f"{place} = {self._folded(place, 'total')};"

    def _render_parts(self) -> FunctionLaunch:
        writer, store, threads = (
            FunctionWriter(self.grid),
            self.store,
            choose_threads(self.plan.parts * self.plan.beside),
        )
        body, at = self._open(writer, threads)
        keys, items = writer.pointer(self.keys), writer.pointer(self.items)
        tails, heads = writer.pointer(self.tails), writer.pointer(self.heads)
        split, further = writer.split_counter(self.grid.groups_on(SORTED), "j")
        known: Known = {}
        text = writer.compute([store.line], known, {**at, **further})
        kind, start = accumulator_type(store), _start_text(store)
        writer.written += [self.tails, self.heads]
        body += [
            f"bool before = begin && {keys}[begin - 1] == {keys}[begin];",
            f"{kind} total = {start};",
            "for (I s = begin; s < end; ++s) {",
            f"  const unsigned key = {keys}[s];",
            f"  const I j = (I){items}[s];",
            *("  " + x for x in (*split, *text)),
            f"  total = {self._folded('total', known[id(store.line)].name)};",
            f"  const bool after = s + 1 < {self.plan.count} && {keys}[s + 1] == key;",
            "  if (after && s + 1 < end) continue;",
            f"  if (before) {heads}[i] = total;",
            f"  else if (after) {tails}[i] = total;",
            f"  else if (key < {self.plan.places}u) {self._store(writer, at)}",
            f"  before = false, total = {start};",
            "}",
        ]
        return self._finish(writer, body, threads)

    def _render_rest(self) -> FunctionLaunch:
        """Places whose points began in a part and go on in the next."""
        writer, plan, threads = FunctionWriter(self.grid), self.plan, choose_threads(self.plan.parts * self.plan.beside)
        body, at = self._open(writer, threads)
        keys, tails, heads = (writer.pointer(b) for b in (self.keys, self.tails, self.heads))
        body += [
            f"const unsigned key = {keys}[end - 1];",
            f"if (key >= {plan.places}u || end == {plan.count} || {keys}[end] != key) return;",
            f"if (begin && {keys}[begin - 1] == key) return;",
            f"{accumulator_type(self.store)} total = {tails}[i];",
            f"for (I next = end, n = i + {plan.beside}; next < {plan.count} && {keys}[next] == key;",
            f"     next += {plan.part}, n += {plan.beside}) total = {self._folded('total', f'{heads}[n]')};",
            self._store(writer, at),
        ]
        return self._finish(writer, body, threads)


def _start_text(store: Store) -> str:
    return start_text(store) if store.word else f"({accumulator_type(store)})0"

"""Kernels that fold rows: a part of a warp, a warp or a block has a row, and keeps near what phases share: in
registers, or what is too long for them in shared memory.

Folds are made by each thread, then by exchange between threads, always in the same order. What is also folded over the
rows is first folded by each thread over the rows it takes; its sums are partial ones, for a second launch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ...loop_ir import Buffer, Kernel, KernelLine, Store
from ...schedule.arena import round_up
from ...vocabulary import value_dtype
from ..words import CudaValue, c_type
from .grid import Grid, count_blocks, is_injective
from .points import Accumulation, write_vector
from .row_shape import ALONG, PROCESSORS, ROWS, RowShape, choose_shape
from .rows_ahead import RowsAhead, plan_rows_ahead
from .sums import combine_parts, divide_sums
from .writer import (
    FunctionLaunch,
    FunctionWriter,
    Known,
    accumulator_type,
    fold_dtype,
    fold_word,
    start_text,
    stored_type,
)

#: Rows so few and long, or with so many lines in all, are divided among blocks, each phase a launch.
MANY_ROWS = 64
LONG_ROW = 1 << 15
LONG_WORK = 1 << 17
#: The most copies of a line in the text of a phase that is unrolled, so that registers hold what it loads.
MAX_UNROLLED_LINES = 1024
#: Bytes of registers in which a thread keeps what it loads, and a block: a processor should have room for several of
#: them, so that one computes while another loads.
KEPT_BYTES = 256
BLOCK_KEPT_BYTES = 64 << 10
#: Bytes of shared memory in which a block keeps what registers cannot: nearly all that a block may have. Several phases
#: then read a long row once from far memory.
SHARED_KEPT_BYTES = 220 << 10
#: As much as leaves room for a second block, which loads while the first computes; what of a row is beyond goes to
#: registers, so many bytes of each thread.
HALF_SHARED_BYTES = 108 << 10
BEYOND_BYTES = 64
#: Bytes of registers for sums over the rows that a thread takes.
MAX_SUMS_BYTES = 128
MAX_SHARED_BYTES = 32 << 10
#: Blocks that share all rows, where they are also summed.
SUMMING_BLOCKS = 2 * PROCESSORS


def goes_by_rows(kernel: Kernel) -> bool:
    """Whether threads have whole rows: there are enough of them, or they are short."""
    outer = len(kernel.extents) - kernel.inner
    count, length = math.prod(kernel.extents[:outer]), math.prod(kernel.extents[outer:])
    is_long = length >= LONG_ROW or (length >= 256 and length * len(kernel.live_lines()) >= LONG_WORK)
    return not any(s.args or s.accumulates for s in kernel.stores) and (count >= MANY_ROWS or not is_long)


def render_rows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> list[FunctionLaunch] | None:
    """All phases of a kernel in one launch, and others for what is folded over the rows too. None if registers cannot
    hold that.
    """
    plan = _plan_rows(kernel, alignments)
    if plan is None:
        return None
    writer, row = _RowWriter(*plan), _row_axes(kernel)
    sums = [s for s in kernel.stores if s.word]
    found = [writer.render()]
    if writer.partial and sums[0].parts < 2:
        found.append(divide_sums(combine_parts(kernel, row, sums, writer.partial), alignments).launch)
    return found


def count_row_parts(kernel: Kernel) -> tuple[int, list[int]]:
    """In how many parts rows are summed, and the axes of a row, along which sums have places."""
    plan = _plan_rows(kernel, {}) if goes_by_rows(kernel) else None
    return (1, []) if plan is None else (_count_blocks(*plan), _row_axes(kernel))


def _row_axes(kernel: Kernel) -> list[int]:
    rank = len(kernel.extents)
    return [axis for axis in range(rank - kernel.inner, rank) if kernel.extents[axis] != 1]


def _plan_rows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> tuple[Grid, RowShape] | None:
    rank, row = len(kernel.extents), _row_axes(kernel)
    outer = rank - kernel.inner
    grid = Grid(kernel, [ROWS if axis < outer else ALONG for axis in range(rank)], alignments)
    sums = [s for s in kernel.stores if s.word]
    shape = choose_shape(grid, summing=bool(sums))
    # each element of the row has a sum of its own
    along = all(not any(s.strides[:outer]) and all(s.strides[a] for a in row) for s in sums)
    size = shape.items * shape.width * sum(max(4, s.buffer.dtype.itemsize) for s in sums)
    shared = shape.beside * shape.length * max((fold_dtype(s).itemsize for s in sums), default=0)
    fits = size <= MAX_SUMS_BYTES and shared <= MAX_SHARED_BYTES
    if sums:
        return (grid, shape) if along and fits and not is_repeating(kernel, row, sums) else None
    return grid, plan_rows_ahead(shape, lambda: _RowWriter(grid, shape).find_repeated_loads()) or shape


def _count_blocks(grid: Grid, shape: RowShape) -> int:
    """The blocks that share all rows: as many parts there are, where these are summed."""
    sums = [s for s in grid.kernel.stores if s.word]
    blocks = count_blocks(shape.count, shape.beside)
    if shape.slots:
        return min(blocks, PROCESSORS)
    return (sums[0].parts or min(blocks, SUMMING_BLOCKS)) if sums else blocks


def is_repeating(kernel: Kernel, axes: Sequence[int], sums: Sequence[Store]) -> bool:
    """Whether two elements of the row share a place of a sum."""
    extents = [kernel.extents[a] for a in axes]
    return not all(is_injective(extents, [s.strides[a] for a in axes]) for s in sums)


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A load that a thread keeps for later phases, and the line that takes its place when it is computed. The vectors
    of its first `items` are registers, by `name`; those of others are in shared memory, at `place`.
    """

    load: KernelLine
    successor: KernelLine | None
    name: str
    items: int
    place: str = ""


class _RowWriter:
    """The function of a kernel while it is written."""

    def __init__(self, grid: Grid, shape: RowShape) -> None:
        self.grid, self.shape = grid, shape
        self.writer = FunctionWriter(grid)
        self.writer.owner = "owns" if self.is_guarded else ""
        self.stores = grid.kernel.stores
        rank = len(grid.kernel.extents)
        row = range(rank - grid.kernel.inner, rank)
        self.row = frozenset(axis for axis in row if grid.kernel.extents[axis] != 1)
        self.phases = 1 + max([x.phase for x in grid.lines] + [s.phase for s in self.stores])
        self.kept = self._choose_kept()
        self.ahead: RowsAhead | None = None
        self.fetched: set[int] = set()
        if shape.slots:
            (row_kept,) = self.kept
            self.ahead = RowsAhead(self.writer, grid, shape, row_kept.load, row_kept.name)
            self.fetched.add(id(row_kept.load))
        self.sums = {id(s): (s, self.writer.name("t")) for s in self.stores if s.word}
        self.blocks = _count_blocks(grid, shape)
        size, several = self.blocks * shape.length, self.blocks > 1
        stores = [s for s, _ in self.sums.values()] if several else []
        self.partial = [s.buffer if s.parts > 1 else Buffer("scratch", size, fold_dtype(s)) for s in stores]

    def render(self) -> FunctionLaunch:
        shape, writer, ahead = self.shape, self.writer, self.ahead
        split, at = writer.split_counter(self.grid.groups_on(ROWS), "row")
        known: Known = {}
        if ahead is not None:
            before, shared_bytes = ahead.declare(self.blocks), ahead.shared_bytes
            first, *others = [self._phase(phase, known, at) for phase in range(self.phases)]
            phases = [*ahead.take(), *first, *ahead.refill(self.blocks), *itertools.chain(*others)]
        else:
            kept = [f"{self._vector_type(x)} {x.name}[{x.items}];" for x in self.kept if x.items]
            phases = [*kept, *(text for phase in range(self.phases) for text in self._phase(phase, known, at))]
            shared_bytes = sum(self._row_bytes(x.load, x.items) for x in self.kept if x.place)
            before = ["extern __shared__ Vec<double, 2> kept[];"] if shared_bytes else []
        loops = bool(self.sums or ahead)
        inner = [*self._row_text("first" if loops else f"(I)blockIdx.x * {shape.beside}"), *split, *phases]
        body = [*before, *(self._loop_over_rows(inner) if loops else inner)]
        return replace(writer.finish(body, (self.blocks, 1), (shape.threads, shape.beside)), shared_bytes=shared_bytes)

    @property
    def is_guarded(self) -> bool:
        """Whether there are threads beyond the last row."""
        return self.shape.count % self.shape.beside != 0

    def _row_text(self, first: str) -> list[str]:
        """The row of a thread. Threads beyond the last one have it too, since all of a warp take part in exchanges, but
        neither fold nor store: what a row reads may be overwritten by what it stores.
        """
        if not self.is_guarded:
            return [f"const I row = {first} + (I)threadIdx.y;"]
        return [
            f"const bool owns = {first} + (I)threadIdx.y < {self.shape.count};",
            f"const I row = owns ? {first} + (I)threadIdx.y : (I){self.shape.count - 1};",
        ]

    def _loop_over_rows(self, inner: Sequence[str]) -> list[str]:
        """Rows that a thread takes one after the other, with the sums of its elements; then these are stored."""
        shape, each = self.shape, self.shape.items * self.shape.width
        body: list[str] = []
        if self.sums:
            widest = max(max(4, s.buffer.dtype.itemsize) for s, _ in self.sums.values())
            body.append(f"__shared__ double shared[{count_blocks(shape.beside * shape.length * widest, 8)}];")
        for store, name in self.sums.values():
            start = start_text(store)
            body.append(f"{accumulator_type(store)} {name}[{each}] = {{{', '.join([start] * each)}}};")
        count, beside = shape.count, shape.beside
        body += [f"for (I first = (I)blockIdx.x * {beside}; first < {count}; first += {self.blocks * beside}) {{"]
        body += [*("  " + x for x in inner), *(["  __syncthreads();"] if shape.threads > 32 else []), "}"]
        return [*body, *(x for number in range(len(self.sums)) for x in self._store_sums(number))]

    def _store_sums(self, number: int) -> list[str]:
        """The sums of a block, one for each element of the row: those of its threads, folded through shared memory."""
        shape, writer = self.shape, self.writer
        store, name = list(self.sums.values())[number]
        kind, total = accumulator_type(store), shape.threads * shape.beside
        split, at = writer.split_counter(self.grid.groups_on(ALONG), "e")
        if self.partial:
            split, place = [], f"{writer.pointer(self.partial[number])}[(I)blockIdx.x * {shape.length} + e]"
        else:
            place = writer.address(store, at)
        writer.written.append(self.partial[number] if self.partial else store.buffer)
        return [
            "__syncthreads();",
            f"{kind}* {name}s = reinterpret_cast<{kind}*>(shared) + threadIdx.y * {shape.length};",
            "#pragma unroll",
            f"for (int n = 0; n < {shape.items * shape.width}; ++n) {{",
            f"  const int e = (n / {shape.width} * {shape.threads} + threadIdx.x) * {shape.width} + n % {shape.width};",
            f"  if (e < {shape.length}) {name}s[e] = {name}[n];",
            "}",
            "__syncthreads();",
            f"for (int e = threadIdx.y * {shape.threads} + threadIdx.x; e < {shape.length}; e += {total}) {{",
            f"  const {kind}* part = reinterpret_cast<{kind}*>(shared) + e;",
            f"  {kind} sum = part[0];",
            f"  for (int y = 1; y < {shape.beside}; ++y) sum = {fold_word(store)}_::of(sum, part[y * {shape.length}]);",
            *("  " + x for x in split),
            f"  {place} = sum;",
            "}",
        ]

    # What happens in a phase

    def varies(self, line: KernelLine) -> bool:
        """Whether a line differs along the row."""
        return line.kind != "fold" and bool(line.axes & self.row)

    def _folds(self, phase: int) -> list[KernelLine]:
        return [x for x in self.grid.lines if x.kind == "fold" and x.phase == phase]

    def _stores(self, phase: int, along: bool) -> list[Store]:
        return [s for s in self.stores if s.phase == phase and (bool(s.word) or self._is_along(s)) == along]

    def _is_along(self, store: Store) -> bool:
        return any(store.strides[a] for a in self.row) or any(map(self.varies, (store.line, *store.args)))

    def _targets(self, phase: int) -> list[KernelLine]:
        """Lines that are computed at each point of the row."""
        stores = self._stores(phase, along=True)
        return [f.args[0] for f in self._folds(phase)] + [x for s in stores for x in (s.line, *s.args)]

    def _lines_along(self, phase: int) -> list[KernelLine]:
        """Lines that differ along the row, and are computed in a phase."""
        return [x for x in self.writer.needed_lines(self._targets(phase), self._fold_values()) if self.varies(x)]

    def find_repeated_loads(self) -> list[KernelLine]:
        """Loads along the row that several phases need; of a vector, with neighbours in memory."""
        uses: dict[int, int] = {}
        for line in (x for phase in range(self.phases) for x in self._lines_along(phase) if x.kind == "load"):
            uses[id(line)] = uses.get(id(line), 0) + 1
        last = len(self.grid.groups) - 1
        repeated = [x for x in self.grid.lines if uses.get(id(x), 0) > 1]
        return [x for x in repeated if self.shape.width == 1 or self.grid.stride(x, last) == 1]

    def _choose_kept(self) -> list[_Kept]:
        """Loads that several phases need, while registers hold them, or else shared memory: each thread reads what it
        has written itself.
        """
        each, shape = self.shape.items * self.shape.width, self.shape
        if shape.slots:
            return [_Kept(x, self._find_successor(x), "k0", shape.items) for x in self.find_repeated_loads()]
        unrolls = sum(len(self._lines_along(phase)) for phase in range(self.phases)) * each <= MAX_UNROLLED_LINES
        room = min(KEPT_BYTES, BLOCK_KEPT_BYTES // (shape.threads * shape.beside)) if unrolls else 0
        found: list[_Kept] = []
        taken = 0
        for line in self.find_repeated_loads():
            size, kind = each * max(4, line.dtype.itemsize), stored_type(line)
            if size <= room:
                room -= size
                found.append(_Kept(line, self._find_successor(line), f"k{len(found)}", shape.items))
                continue
            items = self._count_beyond(line) if not taken else 0
            if shape.threads > 32 and taken + self._row_bytes(line, items) <= SHARED_KEPT_BYTES:
                start = f"reinterpret_cast<{kind}*>(kept + {taken // 16})"
                index = f"j - {items * shape.threads * shape.width}" if items else "j"
                place = f"*reinterpret_cast<Vec<{kind}, {shape.width}>*>({start} + {index})"
                found.append(_Kept(line, self._find_successor(line), f"k{len(found)}", items, place))
                taken += self._row_bytes(line, items)
        return found

    def _count_beyond(self, line: KernelLine) -> int:
        """How many vectors of a thread go to registers, so that two blocks fit the shared memory: none if that many do
        not fit the registers.
        """
        vector = self.shape.width * line.dtype.itemsize
        beyond = max(0, self._row_bytes(line, 0) - HALF_SHARED_BYTES)
        items = count_blocks(beyond, self.shape.threads * vector)
        return items if items * vector <= BEYOND_BYTES else 0

    def _find_successor(self, load: KernelLine) -> KernelLine | None:
        """The last line computed from a load that makes it superfluous in all later phases: it takes the load's place,
        and is computed once.
        """
        if stored_type(load) != c_type(value_dtype(load.dtype)):
            return None  # it is kept as it lies in memory, which would round what is computed
        lines = [self._lines_along(phase) for phase in range(self.phases)]
        for line in reversed(self.grid.lines):
            used = [phase for phase in range(self.phases) if line in lines[phase]]
            if line.kind != "apply" or line.dtype != load.dtype or len(used) < 2:
                continue
            known = {**self._fold_values(), id(line): CudaValue("", line.dtype)}
            later = [
                x for p in range(used[0] + 1, self.phases) for x in self.writer.needed_lines(self._targets(p), known)
            ]
            if load in lines[used[0]] and load not in later:
                return line
        return None

    def _vector_type(self, x: _Kept) -> str:
        return f"Vec<{stored_type(x.load)}, {self.shape.width}>"

    def _row_bytes(self, line: KernelLine, items: int) -> int:
        """What a row takes in shared memory, but for the first vectors of each thread."""
        return round_up((self.shape.length - items * self.shape.threads * self.shape.width) * line.dtype.itemsize, 16)

    def _fold_values(self) -> Known:
        """Folds, as if they were known: what they are computed from belongs to an earlier phase."""
        return {id(x): CudaValue("", x.dtype) for x in self.grid.lines if x.kind == "fold"}

    # Text

    def _phase(self, phase: int, known: Known, at: Mapping[int, str]) -> list[str]:
        writer, folds, once = self.writer, self._folds(phase), self._stores(phase, along=False)
        targets = self._targets(phase)
        constant = [x for x in writer.needed_lines(targets, known) if not self.varies(x)]
        body = writer.compute([*constant, *(x for s in once for x in (s.line, *s.args))], known, at)
        totals = [(writer.name("f"), fold) for fold in folds]
        for total, fold in totals:
            body.append(f"{accumulator_type(fold)} {total} = {start_text(fold)};")
        if targets:
            body += self._loop(phase, targets, totals, known, at)
        for total, fold in totals:
            body += self._fold_threads(total, fold)
            known[id(fold)] = CudaValue(total, value_dtype(fold.dtype))
            if accumulator_type(fold) != c_type(fold_dtype(fold)):
                known[id(fold)] = CudaValue(f"{total}t", fold.dtype)
                body.append(f"const {c_type(fold.dtype)} {total}t = ({c_type(fold.dtype)}){total};")
        stored = [x for s in once for x in writer.store(s, known, at)]
        guard = "threadIdx.x == 0 && owns" if self.is_guarded else "threadIdx.x == 0"
        return [*body, *([f"if ({guard}) {{", *("  " + x for x in stored), "}"] if stored else [])]

    def _loop(
        self,
        phase: int,
        targets: Sequence[KernelLine],
        totals: Sequence[tuple[str, KernelLine]],
        known: Known,
        at: Mapping[int, str],
    ) -> list[str]:
        """The loop of a thread over its vectors of the row: first those that registers keep, where others are kept in
        shared memory.
        """
        shape = self.shape
        needed = {id(x) for x in self.writer.needed_lines(targets, known)}
        ends = sorted({0, shape.items, *(x.items for x in self.kept)})
        body: list[str] = []
        for first, last in itertools.pairwise(ends):
            text = self._items_text(phase, targets, totals, known, at, first, needed)
            if shape.items == 1:
                body += ["{", f"  const I j = {shape.element(0)};", *("  " + x for x in text), "}"]
                continue
            is_unrolled = self.sums or any(x.items > first for x in self.kept)
            body += [
                "#pragma unroll" if is_unrolled else f"#pragma unroll {self._unroll(phase)}",
                f"for (int item = {first}; item < {last}; ++item) {{",
                f"  const I j = {shape.element('item')};",
                *("  " + x for x in text),
                "}",
            ]
        self.fetched |= needed & {id(line) for x in self.kept for line in (x.load, x.successor)}
        return body

    def _items_text(
        self,
        phase: int,
        targets: Sequence[KernelLine],
        totals: Sequence[tuple[str, KernelLine]],
        known: Known,
        at: Mapping[int, str],
        first: int,
        needed: Set[int],
    ) -> list[str]:
        """What happens with a vector of a thread, from an item on."""
        writer, shape, along = self.writer, self.shape, self.grid.groups_on(ALONG)
        split, further = writer.split_counter(along, "j")
        item = 0 if shape.items == 1 else "item"
        stores, inner = self._stores(phase, along=True), dict(known)
        held, kept = dict[int, tuple[str, bool]](), dict[int, str]()
        head, tail = list[str](), list[str]()
        for x in self.kept:
            in_registers = x.items > first
            vector = f"{x.name}[{item}]" if in_registers else f"{x.name}s"
            element = f"{vector}.v[{'u' if shape.width > 1 else 0}]"
            held[id(x.load)] = vector, id(x.load) in self.fetched
            is_new = id(x.load) in needed and id(x.load) not in self.fetched
            if id(x.successor) in self.fetched:
                inner[id(x.successor)] = CudaValue(element, x.load.dtype)
            elif id(x.successor) in needed:
                kept[id(x.successor)] = element
            if not in_registers and needed & {id(x.load), id(x.successor)}:
                head.append(f"{self._vector_type(x)} {vector}{'' if is_new else f' = {x.place}'};")
                tail += [f"{x.place} = {vector};"] if is_new or id(x.successor) in kept else []
        group = along[-1] if along else 0
        number = f"{item} * {shape.width} + u" if shape.width > 1 else item
        own = [self.sums[id(s)] for s in stores if s.word]
        folds = [Accumulation(total, fold, fold.args[0]) for total, fold in totals]
        folds += [Accumulation(f"{name}[{number}]", s, s.line) for s, name in own]
        plain = [s for s in stores if not s.word]
        text = write_vector(writer, group, shape.width, {**at, **further}, targets, plain, inner, folds, held, kept)
        text = [*head, *text, *tail]
        guards = [*(["owns"] if self.is_guarded else []), *filter(None, [shape.guard("j", item)])]
        guarded = [f"if ({' && '.join(guards)}) {{", *("  " + x for x in text), "}"] if guards else text
        return [*split, *guarded]

    def _unroll(self, phase: int) -> int:
        return self.grid.unroll(max(1, len(self._lines_along(phase))), self.shape.width)

    def _fold_threads(self, total: str, fold: KernelLine) -> list[str]:
        """A total of one thread becomes that of all threads of its row."""
        word, threads = fold_word(fold), self.shape.threads
        if threads <= 32:
            return [f"{total} = fold_warp_<{word}_, {threads}>({total});"] if threads > 1 else []
        return [
            f"__shared__ {accumulator_type(fold)} {total}s[32];",
            f"{total} = fold_block_<{word}_, {threads}>({total}, {total}s);",
        ]

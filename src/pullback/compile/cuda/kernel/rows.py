"""Kernels that fold rows: a part of a warp, a warp or a block has a row, and keeps near what phases share: in
registers, or what is too long for them in shared memory.

Folds are made by each thread, then by exchange between threads, always in the same order. What is also folded over the
rows is first folded by each thread over the rows it takes; its sums are partial ones, for a second launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...loop_ir import Buffer, Kernel, KernelLine, Store
from ...schedule.arena import round_up
from ...vocabulary import value_dtype
from ..words import CudaValue, c_type
from .grid import Grid, count_blocks, is_injective
from .points import Accumulation, write_vector
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

ROWS, ALONG = range(2)
#: Rows so few and long, or with so many lines in all, are divided among blocks, each phase a launch.
MANY_ROWS = 64
LONG_ROW = 1 << 15
LONG_WORK = 1 << 17
#: So many threads keep a GPU busy: only with more work, a thread takes several vectors of a row, at most so many.
BUSY_THREADS = 1 << 16
MAX_ITEMS = 8
#: The threads of a block of warps.
WARPS_BLOCK = 128
#: The most copies of a line in the text of a phase that is unrolled, so that registers hold what it loads.
MAX_UNROLLED_LINES = 1024
#: Bytes of registers in which a thread keeps what it loads, and a block: a processor should have room for several of
#: them, so that one computes while another loads.
KEPT_BYTES = 256
BLOCK_KEPT_BYTES = 64 << 10
#: Bytes of shared memory in which a block keeps what registers cannot: nearly all that a block may have. Several phases
#: then read a long row once from far memory.
SHARED_KEPT_BYTES = 220 << 10
MAX_THREADS = 1024
#: Bytes of registers for sums over the rows that a thread takes.
MAX_SUMS_BYTES = 128
MAX_SHARED_BYTES = 32 << 10
#: Multiprocessors, about: so many blocks should have work.
PROCESSORS = 132
#: Blocks that share all rows, where they are also summed.
SUMMING_BLOCKS = 2 * PROCESSORS


@dataclass(frozen=True, slots=True)
class RowShape:
    """`threads` have a row, so many `beside` each other in a block; each takes `items` vectors of `width` elements."""

    threads: int
    beside: int
    width: int
    items: int
    count: int
    length: int

    @property
    def is_whole(self) -> bool:
        return self.items * self.threads * self.width == self.length


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
    return None if sums and (not along or not fits or is_repeating(kernel, row, sums)) else (grid, shape)


def _count_blocks(grid: Grid, shape: RowShape) -> int:
    """The blocks that share all rows: as many parts there are, where these are summed."""
    sums = [s for s in grid.kernel.stores if s.word]
    blocks = count_blocks(shape.count, shape.beside)
    return (sums[0].parts or min(blocks, SUMMING_BLOCKS)) if sums else blocks


def is_repeating(kernel: Kernel, axes: Sequence[int], sums: Sequence[Store]) -> bool:
    """Whether two elements of the row share a place of a sum."""
    extents = [kernel.extents[a] for a in axes]
    return not all(is_injective(extents, [s.strides[a] for a in axes]) for s in sums)


def choose_shape(grid: Grid, summing: bool) -> RowShape:
    """How rows are shared by threads: they take several vectors of a row only where there are enough of them.

    Where rows are also summed, blocks are larger, for they have fewer parts of sums.
    """
    along = grid.groups_on(ALONG)
    count, length = grid.size_of(grid.groups_on(ROWS)), grid.size_of(along)
    width = grid.vector_width(along[-1]) if along else 1
    vectors = count_blocks(length, width)
    items = max(1, min(MAX_ITEMS, count * vectors // BUSY_THREADS))
    wanted = max(min(32, vectors), count_blocks(vectors, items))
    if wanted <= 32:
        threads = 1 << (wanted - 1).bit_length()
        beside = (2 * WARPS_BLOCK if summing else WARPS_BLOCK) // threads
        # few rows are spread over the machine, in whole warps
        while beside > 32 // threads and count < beside * (1 if summing else PROCESSORS):
            beside //= 2
    else:
        threads, beside = min(MAX_THREADS, count_blocks(wanted, 32) * 32), 1
    return RowShape(threads, beside, width, count_blocks(vectors, threads), count, length)


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A load that a thread keeps for later phases, and the line that takes its place when it is computed. In registers,
    `name` is that of the vectors of all items; in shared memory, of the vector of an item, which is at `place`.
    """

    load: KernelLine
    successor: KernelLine | None
    name: str
    place: str = ""


class _RowWriter:
    """The function of a kernel while it is written."""

    def __init__(self, grid: Grid, shape: RowShape) -> None:
        self.grid, self.shape = grid, shape
        self.writer = FunctionWriter(grid)
        self.stores = grid.kernel.stores
        rank = len(grid.kernel.extents)
        row = range(rank - grid.kernel.inner, rank)
        self.row = frozenset(axis for axis in row if grid.kernel.extents[axis] != 1)
        self.phases = 1 + max([x.phase for x in grid.lines] + [s.phase for s in self.stores])
        self.kept = self._choose_kept()
        self.fetched: set[int] = set()
        self.sums = {id(s): (s, self.writer.name("t")) for s in self.stores if s.word}
        self.blocks = _count_blocks(grid, shape)
        size, several = self.blocks * shape.length, self.blocks > 1
        stores = [s for s, _ in self.sums.values()] if several else []
        self.partial = [s.buffer if s.parts > 1 else Buffer("scratch", size, fold_dtype(s)) for s in stores]

    def render(self) -> FunctionLaunch:
        shape, writer = self.shape, self.writer
        split, at = writer.split_counter(self.grid.groups_on(ROWS), "row")
        kept = [f"{self._vector_type(x)} {x.name}[{shape.items}];" for x in self.kept if not x.place]
        shared_bytes = sum(self._row_bytes(x.load) for x in self.kept if x.place)
        known: Known = {}
        phases = [text for phase in range(self.phases) for text in self._phase(phase, known, at)]
        inner = [*self._row_text("first" if self.sums else f"(I)blockIdx.x * {shape.beside}"), *split, *kept, *phases]
        body = self._loop_over_rows(inner) if self.sums else inner
        if shared_bytes:
            body = ["extern __shared__ Vec<double, 2> kept[];", *body]
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
        widest = max(max(4, s.buffer.dtype.itemsize) for s, _ in self.sums.values())
        body = [f"__shared__ double shared[{count_blocks(shape.beside * shape.length * widest, 8)}];"]
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

    def _element(self, item: int | str) -> str:
        """The first element of a thread's vector."""
        shape = self.shape
        return (
            f"((I){item} * {shape.threads} + threadIdx.x) * {shape.width}"
            if item
            else f"(I)threadIdx.x * {shape.width}"
        )

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

    def _repeated_loads(self) -> list[KernelLine]:
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
        unrolls = sum(len(self._lines_along(phase)) for phase in range(self.phases)) * each <= MAX_UNROLLED_LINES
        room = min(KEPT_BYTES, BLOCK_KEPT_BYTES // (shape.threads * shape.beside)) if unrolls else 0
        shared = SHARED_KEPT_BYTES if shape.threads > 32 else 0
        found: list[_Kept] = []
        for line in self._repeated_loads():
            size, kind = each * max(4, line.dtype.itemsize), stored_type(line)
            if size <= room:
                room -= size
                found.append(_Kept(line, self._find_successor(line), f"k{len(found)}"))
            elif self._row_bytes(line) <= shared:
                start = f"reinterpret_cast<{kind}*>(kept + {(SHARED_KEPT_BYTES - shared) // 16})"
                shared -= self._row_bytes(line)
                place = f"*reinterpret_cast<Vec<{kind}, {shape.width}>*>({start} + j)"
                found.append(_Kept(line, self._find_successor(line), f"k{len(found)}", place))
        return found

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

    def _row_bytes(self, line: KernelLine) -> int:
        return round_up(self.shape.length * line.dtype.itemsize, 16)

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
        """The loop of a thread over its vectors of the row."""
        writer, shape, along = self.writer, self.shape, self.grid.groups_on(ALONG)
        split, further = writer.split_counter(along, "j")
        needed = {id(x) for x in writer.needed_lines(targets, known)}
        item = 0 if shape.items == 1 else "item"
        stores, inner = self._stores(phase, along=True), dict(known)
        held, kept = dict[int, tuple[str, bool]](), dict[int, str]()
        head, tail = list[str](), list[str]()
        for x in self.kept:
            vector = x.name if x.place else f"{x.name}[{item}]"
            element = f"{vector}.v[{'u' if shape.width > 1 else 0}]"
            held[id(x.load)] = vector, id(x.load) in self.fetched
            is_new = id(x.load) in needed and id(x.load) not in self.fetched
            if id(x.successor) in self.fetched:
                inner[id(x.successor)] = CudaValue(element, x.load.dtype)
            elif id(x.successor) in needed:
                kept[id(x.successor)] = element
            if x.place and needed & {id(x.load), id(x.successor)}:
                head.append(f"{self._vector_type(x)} {x.name}{'' if is_new else f' = {x.place}'};")
                tail += [f"{x.place} = {x.name};"] if is_new or id(x.successor) in kept else []
        group = along[-1] if along else 0
        number = f"{item} * {shape.width} + u" if shape.width > 1 else item
        own = [self.sums[id(s)] for s in stores if s.word]
        folds = [Accumulation(total, fold, fold.args[0]) for total, fold in totals]
        folds += [Accumulation(f"{name}[{number}]", s, s.line) for s, name in own]
        plain = [s for s in stores if not s.word]
        text = write_vector(writer, group, shape.width, {**at, **further}, targets, plain, inner, folds, held, kept)
        text = [*head, *text, *tail]
        self.fetched |= needed & {id(line) for x in self.kept for line in (x.load, x.successor)}
        guards = [*(["owns"] if self.is_guarded else []), *([] if shape.is_whole else [f"j < {shape.length}"])]
        guarded = [f"if ({' && '.join(guards)}) {{", *("  " + x for x in text), "}"] if guards else text
        if shape.items == 1:
            return ["{", f"  const I j = {self._element(0)};", *("  " + x for x in (*split, *guarded)), "}"]
        return [
            "#pragma unroll"
            if self.sums or any(not x.place for x in self.kept)
            else f"#pragma unroll {self._unroll(phase)}",
            f"for (int item = 0; item < {shape.items}; ++item) {{",
            f"  const I j = {self._element('item')};",
            *("  " + x for x in (*split, *guarded)),
            "}",
        ]

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

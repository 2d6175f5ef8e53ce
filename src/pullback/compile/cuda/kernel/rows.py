"""Kernels that fold rows: a part of a warp, a warp or a block has a row, and keeps in registers what phases share.

Folds are made by each thread, then by exchange between threads, always in the same order. What is also folded over the
rows is first folded by each thread over the rows it takes; its sums are partial ones, for a second launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...loop_ir import Buffer, Kernel, KernelLine, Store
from ..words import CudaValue, c_type, identity_number, number_text
from .grid import Grid, count_blocks
from .points import write_vector
from .writer import FunctionLaunch, FunctionWriter, Known, accumulator_type, fold_word

ROWS, ALONG = range(2)
#: The longest row that a warp takes, and the threads of a block of warps.
MAX_WARP_ROW = 1024
WARPS_BLOCK = 128
#: Bytes of registers in which a thread keeps what it loads; fewer where a block has all threads it may have.
KEPT_BYTES = 256
MAX_THREADS = 1024
#: Multiprocessors, about: so many blocks should have work.
PROCESSORS = 132


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


def render_rows(kernel: Kernel, alignments: Mapping[Buffer, int]) -> FunctionLaunch:
    """All phases of a kernel in one launch."""
    rank = len(kernel.extents)
    sides = [ROWS if axis < rank - kernel.inner else ALONG for axis in range(rank)]
    grid = Grid(kernel, sides, alignments)
    return _RowWriter(grid, choose_shape(grid)).render()


def choose_shape(grid: Grid) -> RowShape:
    along = grid.groups_on(ALONG)
    count, length = grid.size_of(grid.groups_on(ROWS)), grid.size_of(along)
    width = grid.vector_width(along[-1]) if along else 1
    vectors = count_blocks(length, width)
    if length <= MAX_WARP_ROW:
        threads = min(32, 1 << (vectors - 1).bit_length())
        beside = WARPS_BLOCK // threads
        # few rows are spread over the machine, in whole warps
        while beside > 32 // threads and count < beside * PROCESSORS:
            beside //= 2
    else:
        threads, beside = min(MAX_THREADS, count_blocks(vectors, 4 * 32) * 32), 1
    return RowShape(threads, beside, width, count_blocks(vectors, threads), count, length)


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

    def render(self) -> FunctionLaunch:
        shape, writer = self.shape, self.writer
        split, at = writer.split_counter(self.grid.groups_on(ROWS), "row")
        # threads beyond the last row repeat it: all of a warp take part in exchanges, and what they store is the same
        body = [f"const I row = min((I)blockIdx.x * {shape.beside} + (I)threadIdx.y, (I){shape.count - 1});", *split]
        body += [f"Vec<{c_type(x.dtype)}, {shape.width}> {name}[{shape.items}];" for x, name in self.kept.values()]
        known: Known = {}
        for phase in range(self.phases):
            body += self._phase(phase, known, at)
        return writer.finish(body, (count_blocks(shape.count, shape.beside), 1), (shape.threads, shape.beside))

    # What happens in a phase

    def varies(self, line: KernelLine) -> bool:
        """Whether a line differs along the row."""
        return line.kind != "fold" and bool(line.axes & self.row)

    def _folds(self, phase: int) -> list[KernelLine]:
        return [x for x in self.grid.lines if x.kind == "fold" and x.phase == phase]

    def _stores(self, phase: int, along: bool) -> list[Store]:
        return [s for s in self.stores if s.phase == phase and self._is_along(s) == along]

    def _is_along(self, store: Store) -> bool:
        return any(store.strides[a] for a in self.row) or any(map(self.varies, (store.line, *store.args)))

    def _targets(self, phase: int) -> list[KernelLine]:
        """Lines that are computed at each point of the row."""
        stores = self._stores(phase, along=True)
        return [f.args[0] for f in self._folds(phase)] + [x for s in stores for x in (s.line, *s.args)]

    def _choose_kept(self) -> dict[int, tuple[KernelLine, str]]:
        """Loads that several phases need, while registers hold them."""
        uses: dict[int, int] = {}
        for phase in range(self.phases):
            for line in self.writer.needed_lines(self._targets(phase), self._fold_values()):
                if line.kind == "load" and self.varies(line):
                    uses[id(line)] = uses.get(id(line), 0) + 1
        room = KEPT_BYTES // 2 if self.shape.threads * self.shape.beside == MAX_THREADS else KEPT_BYTES
        found: dict[int, tuple[KernelLine, str]] = {}
        for line in (x for x in self.grid.lines if uses.get(id(x), 0) > 1):
            size = self.shape.items * self.shape.width * max(4, line.dtype.itemsize)
            # a vector has neighbours in memory
            is_vector = self.shape.width == 1 or self.grid.stride(line, len(self.grid.groups) - 1) == 1
            if size <= room and is_vector:
                room -= size
                found[id(line)] = line, f"k{len(found)}"
        return found

    def _fold_values(self) -> Known:
        """Folds, as if they were known: what they are computed from belongs to an earlier phase."""
        return {id(x): CudaValue("", x.dtype) for x in self.grid.lines if x.kind == "fold"}

    # Text

    def _phase(self, phase: int, known: Known, at: Mapping[int, str]) -> list[str]:
        writer, folds, once = self.writer, self._folds(phase), self._stores(phase, along=False)
        targets = self._targets(phase)
        constant = [x for x in writer.needed_lines(targets, known) if not self.varies(x)]
        body = writer.compute([*constant, *(x for s in once for x in (s.line, *s.args))], known, at)
        totals = [(writer.name("f"), fold, fold.args[0]) for fold in folds]
        for total, fold, _ in totals:
            body.append(f"{accumulator_type(fold)} {total} = {_start_text(fold)};")
        if targets:
            body += self._loop(phase, targets, totals, known, at)
        for total, fold, _ in totals:
            body += self._fold_threads(total, fold)
            known[id(fold)] = CudaValue(total, fold.dtype)
            if accumulator_type(fold) != c_type(fold.dtype):
                known[id(fold)] = CudaValue(f"{total}t", fold.dtype)
                body.append(f"const {c_type(fold.dtype)} {total}t = ({c_type(fold.dtype)}){total};")
        stored = [x for s in once for x in writer.store(s, known, at)]
        return [*body, *(["if (threadIdx.x == 0) {", *("  " + x for x in stored), "}"] if stored else [])]

    def _loop(
        self,
        phase: int,
        targets: Sequence[KernelLine],
        totals: Sequence[tuple[str, KernelLine, KernelLine]],
        known: Known,
        at: Mapping[int, str],
    ) -> list[str]:
        """The loop of a thread over its vectors of the row."""
        writer, shape, along = self.writer, self.shape, self.grid.groups_on(ALONG)
        split, further = writer.split_counter(along, "j")
        needed = {id(x) for x in writer.needed_lines(targets, known)}
        item = 0 if shape.items == 1 else "item"
        held = {key: (f"{name}[{item}]", key in self.fetched) for key, (_, name) in self.kept.items()}
        stores, inner = self._stores(phase, along=True), dict(known)
        group = along[-1] if along else 0
        text = write_vector(writer, group, shape.width, {**at, **further}, targets, stores, inner, totals, held)
        self.fetched |= needed & set(self.kept)
        guarded = text if shape.is_whole else [f"if (j < {shape.length}) {{", *("  " + x for x in text), "}"]
        if shape.items == 1:
            return ["{", f"  const I j = (I)threadIdx.x * {shape.width};", *("  " + x for x in (*split, *guarded)), "}"]
        return [
            "#pragma unroll" if self.kept or shape.items <= 8 else "#pragma unroll 4",
            f"for (int item = 0; item < {shape.items}; ++item) {{",
            f"  const I j = ((I)item * {shape.threads} + threadIdx.x) * {shape.width};",
            *("  " + x for x in (*split, *guarded)),
            "}",
        ]

    def _fold_threads(self, total: str, fold: KernelLine) -> list[str]:
        """A total of one thread becomes that of all threads of its row."""
        word, threads = fold_word(fold), self.shape.threads
        if threads <= 32:
            return [f"{total} = fold_warp_<{word}_, {threads}>({total});"] if threads > 1 else []
        return [
            f"__shared__ {accumulator_type(fold)} {total}s[32];",
            f"{total} = fold_block_<{word}_, {threads}>({total}, {total}s);",
        ]


def _start_text(fold: KernelLine) -> str:
    return number_text(identity_number(fold.word, fold.dtype), fold.dtype)

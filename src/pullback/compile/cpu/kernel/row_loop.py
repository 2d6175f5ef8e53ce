"""The loop over one phase of a row: full vectors, unrolled where that hides latency, the remainder masked."""

from __future__ import annotations

from dataclasses import dataclass

from ...loop_ir import KernelLine, Store
from ...varying import Varying
from ...vocabulary import value_dtype
from ..builder.function_text import OpenLoop
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_lane_mask
from ..builder.vector_types import IRValue
from .access import ElementRef
from .kept_sums import KeptSums
from .line_values import LineValues
from .row_folds import RowFold
from .row_scratch import RowScratch

#: So many vectors are written one after the other rather than in a loop.
FEW_VECTORS = 4
#: The vectors at once where several sums are folded: they wait for each other less, and each has a register for each.
MANY_FOLDS_UNROLL = 2


@dataclass(frozen=True, slots=True)
class RowPhase:
    """What one pass over a row does: the lines it folds, the stores along the row, the lines it saves for later."""

    number: int
    folds: list[KernelLine]
    stores: list[Store]
    saved: list[KernelLine]

    @property
    def targets(self) -> list[KernelLine]:
        return [line.args[0] for line in self.folds] + [x for s in self.stores for x in (s.line, *s.args)] + self.saved


class RowWriter:
    """The loop of one phase while it is emitted."""

    def __init__(
        self, values: LineValues, scratch: RowScratch, phase: RowPhase, used: list[KernelLine], kept: KeptSums
    ) -> None:
        self.values = values
        self.kept = kept
        self.text = values.text
        self.domain = values.domain
        self.row_scratch = scratch
        self.phase = phase
        self.needed = self._find_needed(used)
        # folds over the row's own axes accumulate in vectors, and go to memory once a row
        stays = [bool(s.word) and not s.args and not self._moves_along_row(s) for s in phase.stores]
        self.sums = [s for s, there in zip(phase.stores, stays, strict=True) if there]
        self.stores = [s for s, there in zip(phase.stores, stays, strict=True) if not there]
        self.folds: list[RowFold] = []

    def _moves_along_row(self, store: Store) -> bool:
        return bool(self.domain.in_row) and bool(self.domain.strides(store.strides)[-1])

    def _find_needed(self, used: list[KernelLine]) -> list[KernelLine]:
        """The lines that differ along the row and are computed in this phase, arguments first; scalars of the row are
        emitted now.
        """
        wanted: set[int] = set()
        stack = list(self.phase.targets)
        while stack:
            line = stack.pop()
            if not self.domain.varies_along_row(line):
                self.values.splat(line)
            elif id(line) not in wanted:
                wanted.add(id(line))
                # a saved line is loaded, so what it was computed from is not needed
                if not self.row_scratch.plan.is_saved_before(line, self.phase.number):
                    stack.extend(line.args)
        return [line for line in used if id(line) in wanted]

    def write(self) -> None:
        text, lanes, domain = self.text, self.domain.lanes, self.domain
        times = self._choose_unroll(domain.length // lanes)
        row_folds = [RowFold(line.args[0], line.word, line.dtype) for line in self.phase.folds]
        for fold in row_folds:
            fold.begin(text, lanes, times)
        inner = [self.values.open_group(i) for i in range(domain.rows, len(domain.sizes) - 1)] if domain.in_row else []
        row_sums = [RowFold(s.line, s.word, s.buffer.dtype) for s in self.sums]
        for fold in row_sums:
            fold.begin(text, lanes, times)
        self.folds = [*row_folds, *row_sums]
        self._write_vectors(times)
        for fold, store in zip(row_sums, self.sums, strict=True):
            self._accumulate(store, fold.end(text, lanes))
        for loop in reversed(inner):
            text.close(loop)
        for line, fold in zip(self.phase.folds, row_folds, strict=True):
            self.values.fold_results[id(line)] = fold.end(text, lanes)

    def _choose_unroll(self, whole: int) -> int:
        """The unroll factor in vectors: a sum waits for its last addition, a chain of functions for each link."""
        depth: dict[int, int] = {}
        for line in self.needed:
            depth[id(line)] = line.weight + max((depth.get(id(a), 0) for a in line.args), default=0)
        # several long bodies at once would spill registers, and one takes longer than the sum waits for
        light = sum(line.weight for line in self.needed) <= 16
        deep = max(depth.values(), default=0) > 30 and len(self.needed) <= 40  # else the registers run out
        summing = bool(self.phase.folds or self.sums)
        wanted = self.domain.max_unroll if ((summing and light) or deep) and not self.kept.stores else 1
        if len(self.phase.folds) + len(self.sums) > 1:
            wanted = min(wanted, MANY_FOLDS_UNROLL)
        if isinstance(whole, Varying):
            return wanted  # the loop has no rounds where it would not be unrolled
        return wanted if whole >= 2 * wanted else 1

    @property
    def _is_row_divided(self) -> bool:
        return self.domain.in_row > 0 and self.domain.divided_group == len(self.domain.sizes) - 1

    def _write_vectors(self, times: int) -> None:
        """The row in pieces: `times` vectors at once, then one at a time, then the remainder under a mask."""
        text, lanes = self.text, self.domain.lanes
        long = sum(line.weight for line in self.needed) > 40
        divided = self._is_row_divided
        if isinstance(self.domain.length, Varying):
            self._write_varying_row(times, divided, long)
            return
        whole, rest = divmod(self.domain.length, lanes)
        if divided or (times > 1 and whole // times):
            # the blocks of a divided row are multiples of the unrolled step, so each has whole ones
            loop = self._open_vector_loop(times, whole // times * times * lanes, divided)
            base = text.counters[-1]
            self._write_chunks([text.add_offset(base, u * lanes) for u in range(times)], None)
            text.close(loop, stays=long)
        # vectors that the unrolled loop leaves over, one at a time
        left = whole % times if times > 1 or divided else whole
        start = (whole - left) * lanes
        # the remainder belongs to the last block
        ending = text.begin_if("%last") if divided and (left or rest) else ""
        # sums that are kept have a slot for each vector
        if left == 1 or (left <= FEW_VECTORS and (not long or self.kept.stores)):
            for i in range(left):
                self._write_chunks([str(start + i * lanes)], None)
        elif left:
            loop = text.open(left * lanes, lanes)
            self._write_chunks([text.add_offset(text.counters[-1], start)], None)
            text.close(loop, stays=long)
        if rest:
            mask = f"<{', '.join(f'i1 {str(i < rest).lower()}' for i in range(lanes))}>"
            self._write_chunks([str(whole * lanes)], mask)
        if ending:
            text.end_if(ending)

    def _write_varying_row(self, times: int, divided: bool, long: bool) -> None:
        """The same pieces, and the same sums, for a length that is known when the code runs: each may be empty."""
        text, lanes = self.text, self.domain.lanes
        whole, rest = divmod(int(self.domain.length), lanes)
        unrolled = whole // times * times if divided or (times > 1 and whole >= 2 * times) else 0
        middle, end, used = text.operand(unrolled * lanes), text.operand(whole * lanes), text.operand(rest)
        if divided or times > 1:
            stop = self._end_of_block(middle) if divided else middle
            some = text.begin_if_less("%lo" if divided else "0", stop)
            loop = text.open(stop, lanes * times, "%lo" if divided else "0")
            base = text.counters[-1]
            self._write_chunks([text.add_offset(base, u * lanes) for u in range(times)], None)
            text.close(loop, stays=long)
            text.end_if(some)
        ending = text.begin_if("%last") if divided else ""
        some = text.begin_if_less(middle, end)
        loop = text.open(end, lanes, middle)
        self._write_chunks([text.counters[-1]], None)
        text.close(loop, stays=long)
        text.end_if(some)
        if lanes > 1:
            some = text.begin_if_less("0", used)
            mask = f"%mask{next(text.counter)}"
            emit_lane_mask(text.builder(lanes), mask, used)
            self._write_chunks([end], mask)
            text.end_if(some)
        if ending:
            text.end_if(ending)

    def _open_vector_loop(self, times: int, size: int, divided: bool) -> OpenLoop:
        """Open the loop over so many elements, or over those of this block; the last block also has the remainder."""
        if not divided:
            return self.text.open(size, self.domain.lanes * times)
        return self.text.open(self._end_of_block(size), self.domain.lanes * times, "%lo")

    def _end_of_block(self, size: int | str) -> str:
        end = f"%s{next(self.text.counter)}"
        self.text.lines.append(f"  {end} = select i1 %last, i64 {size}, i64 %hi")
        return end

    def _write_chunks(self, indices: list[str], mask: str | None) -> None:
        """One vector of the row, or several interleaved line by line, so that the processor works on one vector while
        it waits for another.
        """
        builder = self.text.builder(self.domain.lanes)
        outer = self.text.counters[: len(self.domain.sizes) - 1]
        many = [([*outer, index] if self.domain.in_row else []) for index in indices]
        values: list[dict[int, IRValue]] = [{} for _ in indices]
        for line in self.needed:
            for known, counters in zip(values, many, strict=True):
                known[id(line)] = self._compute_line(builder, line, known, counters, mask)
        for known, counters in zip(values, many, strict=True):
            self._write_stores(builder, known, counters, mask)
        # each of the vectors has a partial sum of its own, so that none waits for another
        for turn, known in enumerate(values):
            for fold in self.folds:
                fold.take(builder, turn, self._value_of(builder, known, fold.line), mask)

    def _value_of(self, builder: IRBuilder, known: dict[int, IRValue], line: KernelLine) -> IRValue:
        return known[id(line)] if id(line) in known else self.values.splat_in_loop(builder, line)

    def _compute_line(
        self, builder: IRBuilder, line: KernelLine, known: dict[int, IRValue], counters: list[str], mask: str | None
    ) -> IRValue:
        """A line that differs along the row, for one vector of it."""
        if self.row_scratch.plan.is_saved_before(line, self.phase.number):
            return self.row_scratch.load_line(builder, line, counters)
        return self.values.emit_line(builder, line, lambda a: self._value_of(builder, known, a), counters, mask)

    def _write_stores(
        self, builder: IRBuilder, known: dict[int, IRValue], counters: list[str], mask: str | None
    ) -> None:
        for line in self.phase.saved:
            self.row_scratch.store_line(builder, line, known[id(line)], counters)
        for store in self.stores:
            value = self._value_of(builder, known, store.line)
            if store in self.kept.stores:
                self.kept.take(builder, store, value, counters[-1])
                continue
            indices = [self._value_of(builder, known, a) for a in store.args]
            emit_store_of(self.values, builder, store, value, indices, counters, mask)

    def _accumulate(self, store: Store, value: IRValue) -> None:
        """Fold a row's result into its cell in memory."""
        builder = self.text.builder(1)
        builder.dtype = store.buffer.dtype
        # a sum along the innermost axis has one cell for each point of the others
        outer = len(self.domain.sizes) - 1
        strides = self.domain.strides(store.strides)[:outer]
        place = ElementRef(store.buffer, strides, store.offset, self.text.counters[:outer])
        cell = self.values.access.load(builder, place, None)
        self.values.access.store(builder, getattr(builder, store.word)(cell, value), place, None)


def emit_store_of(
    values: LineValues,
    builder: IRBuilder,
    store: Store,
    value: IRValue,
    indices: list[IRValue],
    counters: list[str],
    mask: str | None,
) -> None:
    """Store a value, or fold it into what is there; at indices, if the store has any (then they do not differ along the
    row, or there is only one lane).
    """
    place = values.element_ref(store, counters)
    if store.args:
        place = values.shift_by_indices(builder, store, place, indices)
    value = builder.cast(value, value_dtype(store.buffer.dtype))
    if store.word:
        builder.dtype = store.buffer.dtype
        value = getattr(builder, store.word)(values.access.load(builder, place, mask), value)
    values.access.store(builder, value, place, mask)

"""Kernel in, one LLVM function out: loops over the rows, and in each row a vector loop for every phase."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...loop_ir import Buffer, Kernel, KernelLine, Store
from ...schedule.domain import Domain
from ...schedule.row_plan import count_phases, plan_rows
from ...target import Limits
from ...varying import identities
from ...vocabulary import fold_identity, value_dtype
from ..builder.function_text import FunctionText
from ..program.parallel_call import render_block
from .access import BufferAccess, ElementRef
from .kept_sums import KeptSums, find_kept_stores
from .line_values import LineValues
from .row_loop import RowPhase, RowWriter, emit_store_of
from .row_scratch import RowScratch


@dataclass(frozen=True, slots=True)
class RenderedKernel:
    """A function's text (with `@NAME` for its name), the buffers of its parameters, and its declarations.

    `scratch` is the number of bytes of row memory it needs; that memory and the status word, set if an index is out of
    range, are its last parameters. A kernel in blocks also has a function `@NAME.block`.
    """

    text: str
    buffers: list[Buffer]
    declared: set[str]
    functions: dict[str, str]
    scratch: int


def kernel_key(kernel: Kernel) -> tuple[Any, list[Buffer]]:
    """A key that is equal for kernels that differ only in their buffers; and the buffers, in the order in which the key
    numbers them.
    """
    # lines by their position, since buffers and objects differ from kernel to kernel
    numbers: dict[int, int] = {}
    buffers: dict[Buffer, int] = {}
    lines = []
    for line in kernel.live_lines():
        buffer = -1 if line.buffer is None else buffers.setdefault(line.buffer, len(buffers))
        number = None if line.kind != "number" else (type(line.number), np.asarray(line.number).tobytes())
        lines.append(
            (
                line.kind, line.dtype, line.axes, line.phase, tuple([numbers[id(a)] for a in line.args]), line.kernel,
                line.compute_dtype, number, line.word, buffer, line.strides, line.offset, line.weight, line.places,
                line.narrow, None if line.buffer is None else line.buffer.dtype,
            )
        )  # fmt: skip
        numbers[id(line)] = len(numbers)
    stores = [
        (
            numbers[id(s.line)], buffers.setdefault(s.buffer, len(buffers)), s.strides, s.offset, s.word,
            tuple([numbers[id(a)] for a in s.args]), s.places, s.accumulates, s.buffer.dtype,
        )
        for s in kernel.stores
    ]  # fmt: skip
    walked = frozenset(line.strides for line in kernel.live_lines() if line.buffer is not None)
    overlapping = frozenset(buffers[b] for b in find_overlapping_buffers(buffers))
    cut = kernel.division
    blocks = None if cut is None else (cut.axis, cut.blocks)  # the stores imply which buffers have pieces
    dtypes = tuple(b.dtype for b in buffers)  # a line that loads half precision is a float32
    key = (kernel.extents, kernel.inner, blocks, tuple(lines), tuple(stores), walked, overlapping, dtypes)
    return key, list(buffers)


def find_identities(kernel: Kernel) -> tuple[Any, ...]:
    """Where sizes vary, what tells kernels apart whose keys are equal for this size alone."""
    parts: list[KernelLine | Store] = [*kernel.live_lines(), *kernel.stores]
    places = [n for part in parts for pair in part.places for n in pair]
    numbers = [line.number for line in kernel.live_lines()]
    return identities(
        kernel.extents, *(part.strides for part in parts), (part.offset for part in parts), places, numbers
    )


def find_overlapping_buffers(buffers: Iterable[Buffer]) -> set[Buffer]:
    """Buffers of the arena that share their place with another of these: a result that overwrites its argument in
    place. They must not be declared noalias.
    """
    found: set[Buffer] = set()
    highest: Buffer | None = None
    # by offset: only neighbours can overlap, or one that reaches further than all before it
    for buffer in sorted((b for b in buffers if b.kind == "arena"), key=lambda b: b.offset):
        if highest is not None and buffer.offset < highest.offset + highest.nbytes:
            found |= {buffer, highest}
        if highest is None or buffer.offset + buffer.nbytes > highest.offset + highest.nbytes:
            highest = buffer
    return found


def render_kernel(kernel: Kernel, limits: Limits) -> RenderedKernel:
    """A kernel as a function for a machine with these limits."""
    return _Renderer(kernel, limits).render()


class _Renderer:
    def __init__(self, kernel: Kernel, limits: Limits) -> None:
        self.kernel = kernel
        self.used = kernel.live_lines()
        self.domain = Domain(kernel, limits)
        self.text = FunctionText(limits.vector_bytes)
        self.text.is_paired = self.domain.is_paired
        # arithmetic makes one NaN, without lower bits, and passes on those it meets: from bfloat16, none has any
        loaded = [line.buffer.dtype for line in self.used if line.buffer is not None]
        self.text.has_long_nans = any(d.kind == "f" for d in loaded)
        self.access = BufferAccess(self.text)
        self.values = LineValues(self.text, self.domain, self.access)
        self.phases = count_phases(kernel)
        self.row_scratch = RowScratch(plan_rows(self.domain, limits))
        self.kept = KeptSums(self.values, find_kept_stores(kernel, self.domain, self.phases))

    def render(self) -> RenderedKernel:
        for store in self.kernel.stores:
            if store.word and not store.args and not store.accumulates:
                self._fill_with_identity(store)
        outer = []
        for i in range(self.domain.rows):
            if i == self.domain.rows - 1:
                self.kept.begin()
            outer.append(self.values.open_group(i))
        for number in range(self.phases):
            self._render_phase(number)
        for i, loop in enumerate(reversed(outer)):
            self.text.close(loop)
            if not i:
                self.kept.end()
        self.access.end()
        buffers = self.access.buffers
        overlapping = find_overlapping_buffers(buffers)
        # LLVM may reorder accesses of pointers that are noalias
        given = [f"ptr %b{i}" if b in overlapping else f"ptr noalias %b{i}" for i, b in enumerate(buffers)]
        division = self.kernel.division
        limits = [] if division is None else _block_bounds(self.domain)
        extra = ["ptr noalias %scratch", "ptr noalias %status", *(["i64 %block"] if division else [])]
        text = self.text.render(f"define internal void @NAME({', '.join([*given, *extra])}) noinline", *limits)
        if division is not None:
            text += "\n" + render_block(buffers, division, self.row_scratch.plan.bytes)
        return RenderedKernel(text, buffers, self.text.declared, self.text.functions, self.row_scratch.plan.bytes)

    def _render_phase(self, number: int) -> None:
        """One pass over the row: what is stored, folded or saved for later phases."""
        stores = [s for s in self.kernel.stores if s.phase == number]
        phase = RowPhase(
            number,
            [line for line in self.used if line.kind == "fold" and line.phase == number],
            [s for s in stores if self._is_stored_along_row(s)],
            [line for line in self.used if self.row_scratch.plan.phases.get(id(line)) == number],
        )
        once = [s for s in stores if not self._is_stored_along_row(s)]
        for store in once:  # all loads come before any store: a result may overwrite an argument in place
            for line in (store.line, *store.args):
                self.values.row_scalar(line)
        if phase.folds or phase.stores:
            RowWriter(self.values, self.row_scratch, phase, self.used, self.kept).write()
        for store in once:
            self._store_once(store)

    def _is_stored_along_row(self, store: Store) -> bool:
        """Whether a store happens at every point of the row: its value differs there, or it accumulates there."""
        lines: list[KernelLine] = [store.line, *store.args]
        moving = any(self.domain.varies_along_row(line) for line in lines)
        return moving or bool(store.word) or any(self.domain.strides(store.strides)[self.domain.rows :])

    def _store_once(self, store: Store) -> None:
        """A value of the whole row, stored once."""
        rows = self.domain.rows
        counters = self.text.counters[:rows]
        value, indices = self.values.row_scalar(store.line), [self.values.row_scalar(a) for a in store.args]
        builder = self.text.builder(1)
        if store.args:
            emit_store_of(self.values, builder, store, value, indices, counters, None)
        else:
            place = ElementRef(store.buffer, self.domain.strides(store.strides)[:rows], store.offset, counters)
            self.access.store(builder, builder.cast(value, value_dtype(store.buffer.dtype)), place, None)

    def _fill_with_identity(self, store: Store) -> None:
        """Fill the target of a fold with its identity."""
        walked = [(i, s) for i, s in enumerate(self.domain.strides(store.strides)) if s]
        # only along axes on which the place depends: each place is filled once
        loops = [self.values.open_group(i) for i, _ in walked]
        builder = self.text.builder(1)
        value = builder.number(fold_identity(store.word, store.buffer.dtype), store.buffer.dtype)
        place = ElementRef(store.buffer, [s for _, s in walked], store.offset, list(self.text.counters))
        self.access.store(builder, value, place, None)
        for loop in reversed(loops):
            self.text.close(loop)


def _block_bounds(domain: Domain) -> list[str]:
    """The lines that compute the range of block `%block`: `%lo`, `%hi`, and whether it is the `%last`."""
    assert domain.kernel.division is not None
    blocks, unit = domain.kernel.division.blocks, domain.block_multiple(domain.divided_group)
    size = domain.sizes[domain.divided_group]
    return [
        f"  %last = icmp eq i64 %block, {blocks - 1}",
        f"  %lo.a = mul nuw nsw i64 %block, {size // unit}",
        f"  %lo.b = udiv i64 %lo.a, {blocks}",
        f"  %lo = mul nuw nsw i64 %lo.b, {unit}",
        f"  %hi.a = add nuw nsw i64 %lo.a, {size // unit}",
        f"  %hi.b = udiv i64 %hi.a, {blocks}",
        f"  %hi.c = mul nuw nsw i64 %hi.b, {unit}",
        f"  %hi = select i1 %last, i64 {size}, i64 %hi.c",
    ]

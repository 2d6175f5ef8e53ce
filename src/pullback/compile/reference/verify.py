"""Static verification of steps: kernels are well formed, and no step reads memory that no step wrote.

Places are static, so each buffer has a bitmap of its written elements. An access by indices counts as one to every
element they may point at. A buffer or a domain of more than `MAX_TRACKED_ELEMENTS` is one bit: written at all, or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..legality import check_legality
from ..loop_ir import (
    Blocks,
    Buffer,
    Host,
    Kernel,
    KernelLine,
    Layout,
    Loop,
    Product,
    Step,
    Steps,
    Store,
    contiguous_layout,
    product_operands,
)
from .interpreter import describe, element_indices

#: Above so many elements a buffer counts as a whole.
MAX_TRACKED_ELEMENTS = 1 << 16


def verify_steps(steps: Steps) -> None:
    """Raise `MiscompiledError` if a step is malformed, reads what was not written, or a result is not complete."""
    seen = _WrittenElements(steps.inputs)
    for number, step in enumerate(steps.steps):
        try:
            seen.step(step, {})
        except MiscompiledError as error:
            raise MiscompiledError(f"step {number} ({describe(step)}): {error}") from None
    for number, buffer in enumerate(steps.outputs):
        seen.require_written(Layout(buffer, (buffer.size,), (1,)), {}, f"result {number}")


class _WrittenElements:
    """Which elements of each buffer have been written."""

    def __init__(self, inputs: Sequence[Buffer]) -> None:
        self.known: dict[Buffer, Any] = {b: np.ones(_bit_count(b), bool) for b in inputs}

    def bitmap_of(self, buffer: Buffer) -> Any:
        if buffer not in self.known:
            self.known[buffer] = np.full(_bit_count(buffer), buffer.kind == "constant")
        return self.known[buffer]

    def mark_written(self, layout: Layout, moves: dict[Buffer, int]) -> None:
        self.bitmap_of(layout.buffer)[_bit_indices(layout, moves)] = True

    def require_written(self, layout: Layout, moves: dict[Buffer, int], reader: str = "it") -> None:
        # an empty access reads nothing
        if layout.size and not self.bitmap_of(layout.buffer)[_bit_indices(layout, moves)].all():
            raise MiscompiledError(f"{reader} reads elements of {layout.buffer!r} that no step wrote.")

    def step(self, step: Step, moves: dict[Buffer, int]) -> None:
        if isinstance(step, Kernel):
            if math.prod(step.extents):
                self._verify_kernel(step, moves)
        elif isinstance(step, Product):
            for layout in (*product_operands(step), *([step.out] if step.beta else [])):
                self.require_written(layout, moves)
            self.mark_written(step.out, moves)
        elif isinstance(step, Blocks):
            for block in range(step.count):
                for inner in step.steps:
                    self.step(inner, {b: block * by for b, by in step.moves.items()})
        elif isinstance(step, Host):
            for a in step.args:
                if isinstance(a, Layout):
                    self.require_written(a, moves)
            for out in step.outs:
                self.mark_written(out, moves)
        else:
            self._verify_loop(step, moves)

    def _verify_kernel(self, kernel: Kernel, moves: dict[Buffer, int]) -> None:
        check_legality([kernel], placed=False)
        _check_order(kernel)
        for store in kernel.stores:
            if store.word and not store.args and not store.accumulates:
                whole = contiguous_layout(store.buffer, (store.buffer.size,))
                self.mark_written(whole if store.parts > 1 else _touched_layout(kernel, store), moves)
        for line in kernel.live_lines():
            if line.buffer is not None:
                self.require_written(_touched_layout(kernel, line), moves, line.label or line.kind)
        for store in kernel.stores:
            if store.word:
                self.require_written(_touched_layout(kernel, store), moves, "a store that is added to what is there")
            elif not store.args:
                self.mark_written(_touched_layout(kernel, store), moves)

    def _verify_loop(self, step: Loop, moves: dict[Buffer, int]) -> None:
        # each nested program is complete in itself: it reads its inputs and what it wrote
        for program in step.programs:
            verify_steps(program)
        if step.number is not None and step.kind == "branch":
            self.require_written(step.number, moves)
        rounds = range(step.rounds) if step.kind == "iterate" else range(1)
        inputs = zip(step.programs[-1].inputs, step.inputs, step.moves, strict=True)
        for buffer, layout, by in inputs:
            for number in rounds if by else range(1):
                self.require_written(_part_layout(layout, number * by, buffer.size), moves)
        new = step.programs[-1].new_outputs
        for buffer, layout, by in zip(new, step.outputs, step.shifts, strict=False):
            for number in rounds:
                self.mark_written(_part_layout(layout, number * by, buffer.size), moves)
        if step.number is not None and step.kind == "repeat":
            self.mark_written(step.number, moves)


def _check_order(kernel: Kernel) -> None:
    """Check that what a kernel both reads and writes is accessed at the same point, by a store that only writes."""
    for store in kernel.stores:
        for line in kernel.live_lines():
            if line.buffer is not store.buffer:
                continue
            same = line.kind == "load" and (line.strides, line.offset) == (store.strides, store.offset)
            if same and not (store.args or store.word or kernel.inner):
                continue
            read, written = (_bit_indices(_touched_layout(kernel, x), {}) for x in (line, store))
            if not isinstance(read, slice) and not isinstance(written, slice) and np.intersect1d(read, written).size:
                raise MiscompiledError(f"{store.buffer!r} is read at points other than those that write to it.")


def _part_layout(layout: Layout, by: int, size: int) -> Layout:
    return Layout(layout.buffer, (size,), (1,), layout.offset + by)


def _bit_count(buffer: Buffer) -> int:
    return buffer.size if buffer.size <= MAX_TRACKED_ELEMENTS else 1


def _touched_layout(kernel: Kernel, x: KernelLine | Store) -> Layout:
    """All elements that a load or a store may touch, each axis on which its place depends once."""
    assert x.buffer is not None
    axes = [(n, s) for n, s in zip(kernel.extents, x.strides, strict=True) if s] + [(n, s) for s, n in x.places]
    return Layout(x.buffer, tuple(n for n, _ in axes), tuple(s for _, s in axes), x.offset)


def _bit_indices(layout: Layout, moves: dict[Buffer, int]) -> Any:
    """The bits of a layout's elements."""
    buffer = layout.buffer
    if buffer.size > MAX_TRACKED_ELEMENTS or layout.size > 16 * MAX_TRACKED_ELEMENTS:
        return slice(None)
    layout = replace(layout, offset=layout.offset + moves.get(buffer, 0))
    found = element_indices(layout)
    if found.size and (found.min() < 0 or found.max() >= buffer.size):
        raise MiscompiledError(f"it touches elements outside of {buffer!r}.")
    return found


def verify_arena(steps: Sequence[Step]) -> None:
    """Raise if two buffers that are alive at the same time share bytes of the arena. A result may overwrite an argument
    that is read for the last time by the same elementwise kernel.
    """
    lives: dict[Buffer, list[int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.reads(), *step.writes()):
            if buffer.kind == "arena":
                lives.setdefault(buffer, [number, number])[1] = number
    # only buffers that begin before another ends can share bytes with it
    order = sorted(lives, key=lambda b: b.offset)
    for i, low in enumerate(order):
        for high in order[i + 1 :]:
            if high.offset >= low.offset + low.nbytes:
                break
            first, second = sorted((low, high), key=lambda b: lives[b][0])
            if lives[second][0] < lives[first][1] or (
                lives[second][0] == lives[first][1] and not _takes_over(steps[lives[second][0]], first, second)
            ):
                raise MiscompiledError(f"{low!r} and {high!r} share bytes of the arena while both are in use.")


def _takes_over(step: Step, old: Buffer, new: Buffer) -> bool:
    """Whether a step writes one buffer where it reads the other, point by point. Parts of a concatenation that it
    writes besides are elsewhere: no element is written twice.
    """
    if not isinstance(step, Kernel) or step.inner or any(s.word or s.args for s in step.stores):
        return False
    reads = {(line.kind, line.strides, line.offset) for line in step.live_lines() if line.buffer is old}
    writes = {("load", store.strides, store.offset) for store in step.stores if store.buffer is new}
    return bool(reads) and reads <= writes and old.offset == new.offset and old.dtype.itemsize == new.dtype.itemsize

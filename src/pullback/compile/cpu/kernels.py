"""Kernel in, one LLVM function out: loops over the rows, and in each row a vector loop for every phase."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loops import Buffer, Kernel, Line, Store
from .access import Access, Place
from .domain import Domain
from .folds import identity
from .kept import Kept
from .parallel import block_text
from .rows import Phase, Row, stored_at
from .text import Text
from .values import Values

__all__ = ["Rendered", "form", "render_kernel"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A function's text (with `@NAME` for its name), the buffers its parameters stand for, and what it declares.

    `scratch` is the number of bytes of row memory it wants; that memory and a word in which indices out of range are
    noted are its last parameters. A kernel in blocks has a function `@NAME.block` beside it.
    """

    text: str
    buffers: list[Buffer]
    declared: set[str]
    functions: dict[str, str]
    scratch: int


def form(kernel: Kernel) -> tuple[Any, list[Buffer]]:
    """A key that two kernels share if they differ in nothing but the buffers they work on; and its buffers, in the
    order in which the key counts them.
    """
    numbers: dict[int, int] = {}
    buffers: dict[Buffer, int] = {}
    lines = []
    for line in kernel.used():
        buffer = -1 if line.buffer is None else buffers.setdefault(line.buffer, len(buffers))
        number = None if line.kind != "number" else (type(line.number), np.asarray(line.number).tobytes())
        lines.append(
            (
                line.kind, line.dtype, line.axes, line.phase, tuple([numbers[id(a)] for a in line.args]), line.kernel,
                line.computed, number, line.word, buffer, line.strides, line.offset, line.weight, line.places,
            )
        )  # fmt: skip
        numbers[id(line)] = len(numbers)
    stores = [
        (
            numbers[id(s.line)], buffers.setdefault(s.buffer, len(buffers)), s.strides, s.offset, s.word,
            tuple([numbers[id(a)] for a in s.args]), s.places, s.onto, s.buffer.dtype,
        )
        for s in kernel.stores
    ]  # fmt: skip
    walked = frozenset(line.strides for line in kernel.used() if line.buffer is not None)
    together = frozenset(buffers[b] for b in lying_together(buffers))
    cut = kernel.division
    blocks = None if cut is None else (cut.axis, cut.blocks)  # the stores say what is apart
    key = (kernel.extents, kernel.inner, blocks, tuple(lines), tuple(stores), walked, together)
    return key, list(buffers)


def lying_together(buffers: Iterable[Buffer]) -> set[Buffer]:
    """Buffers of the arena that share their place with another of these: a result that is written over what it is
    made of. LLVM must not be told that they are apart.
    """
    found: set[Buffer] = set()
    highest: Buffer | None = None
    for buffer in sorted((b for b in buffers if b.kind == "arena"), key=lambda b: b.offset):
        if highest is not None and buffer.offset < highest.offset + highest.nbytes:
            found |= {buffer, highest}
        if highest is None or buffer.offset + buffer.nbytes > highest.offset + highest.nbytes:
            highest = buffer
    return found


def render_kernel(kernel: Kernel, vector_bytes: int) -> Rendered:
    """The function of a kernel for vectors of this many bytes."""
    return _Renderer(kernel, vector_bytes).render()


class _Renderer:
    def __init__(self, kernel: Kernel, vector_bytes: int) -> None:
        self.kernel = kernel
        self.used = kernel.used()
        self.domain = Domain(kernel, vector_bytes)
        self.text = Text(vector_bytes)
        self.access = Access()
        self.values = Values(self.text, self.domain, self.access)
        phases = [line.phase for line in self.used] + [store.phase for store in kernel.stores]
        self.phases = 1 + max(phases, default=0)
        self.kept = Kept(self.domain, self.used, self.phases)

    def render(self) -> Rendered:
        for store in self.kernel.stores:
            if store.word and not store.args and not store.onto:
                self._start(store)
        outer = [self.values.walk(i) for i in range(self.domain.rows)]
        for number in range(self.phases):
            self._phase(number)
        for loop in reversed(outer):
            self.text.close(loop)
        buffers = self.access.buffers
        together = lying_together(buffers)
        given = [f"ptr %b{i}" if b in together else f"ptr noalias %b{i}" for i, b in enumerate(buffers)]
        division = self.kernel.division
        limits = [] if division is None else self.domain.limits()
        words = ["ptr noalias %scratch", "ptr noalias %status", *(["i64 %block"] if division else [])]
        body = "\n".join([*self.text.entry, *limits, *self.text.lines])
        parameters = ", ".join([*given, *words])
        text = f"define internal void @NAME({parameters}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"
        if division is not None:
            text += "\n" + block_text(buffers, division, self.kept.bytes)
        return Rendered(text, buffers, self.text.declared, self.text.functions, self.kept.bytes)

    def _phase(self, number: int) -> None:
        """One pass over the row: what is stored, folded or kept in this phase."""
        stores = [s for s in self.kernel.stores if s.phase == number]
        phase = Phase(
            number,
            [line for line in self.used if line.kind == "fold" and line.phase == number],
            [s for s in stores if self._is_along(s)],
            [line for line in self.used if line in self.kept and line.phase == number],
        )
        once = [s for s in stores if not self._is_along(s)]
        for store in once:  # all is read before anything is written: a result may lie where an argument lay
            for line in (store.line, *store.args):
                self.values.of_row(line)
        if phase.folds or phase.stores:
            Row(self.values, self.kept, phase, self.used).write()
        for store in once:
            self._store_once(store)

    def _is_along(self, store: Store) -> bool:
        """Whether a store happens at every point of the row: its value differs there, or it adds up what does."""
        lines: list[Line] = [store.line, *store.args]
        moving = any(self.domain.differs(line) for line in lines)
        return moving or bool(store.word) or any(self.domain.strides(store.strides)[self.domain.rows :])

    def _store_once(self, store: Store) -> None:
        """A value of the whole row, stored once."""
        rows = self.domain.rows
        counters = self.text.counters[:rows]
        value, indices = self.values.of_row(store.line), [self.values.of_row(a) for a in store.args]
        words = self.text.words(1)
        if store.args:
            stored_at(self.values, words, store, value, indices, counters, None)
        else:
            place = Place(store.buffer, self.domain.strides(store.strides)[:rows], store.offset, counters)
            self.access.store(words, words.cast(value, store.buffer.dtype), place, None)
        self.text.lines += words.lines

    def _start(self, store: Store) -> None:
        """Fill what a fold will add up into with its identity."""
        walked = [(i, s) for i, s in enumerate(self.domain.strides(store.strides)) if s]
        loops = [self.values.walk(i) for i, _ in walked]
        words = self.text.words(1)
        value = words.number(identity(store.word, store.buffer.dtype), store.buffer.dtype)
        place = Place(store.buffer, [s for _, s in walked], store.offset, list(self.text.counters))
        self.access.store(words, value, place, None)
        self.text.lines += words.lines
        for loop in reversed(loops):
            self.text.close(loop)

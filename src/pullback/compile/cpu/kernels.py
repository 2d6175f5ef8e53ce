"""Kernel in, one LLVM function out: loops over the rows, and in each row a vector loop for every phase."""

from __future__ import annotations

from dataclasses import dataclass

from ..loops import Buffer, Kernel, Line, Store
from .access import Access, Place
from .domain import Domain
from .folds import identity
from .kept import Kept
from .parallel import block_text
from .rows import Phase, Row, stored_at
from .text import Text
from .values import Values

__all__ = ["Rendered", "render_kernel"]


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


def render_kernel(kernel: Kernel, vector_bytes: int) -> Rendered:
    """The function of a kernel for vectors of this many bytes."""
    return _Renderer(kernel, vector_bytes).render()


class _Renderer:
    def __init__(self, kernel: Kernel, vector_bytes: int) -> None:
        self.kernel = kernel
        self.used = kernel.used()
        self.domain = Domain(kernel, vector_bytes)
        self.text = Text()
        self.access = Access()
        self.values = Values(self.text, self.domain, self.access)
        self.phases = 1 + max([line.phase for line in self.used] + [0])
        self.kept = Kept(self.domain, self.used, self.phases)

    def render(self) -> Rendered:
        for store in self.kernel.stores:
            if store.word and not store.args:
                self._start(store)
        outer = [self.values.walk(i) for i in range(self.domain.rows)]
        for number in range(self.phases):
            self._phase(number)
        for loop in reversed(outer):
            self.text.close(loop)
        buffers = self.access.buffers
        names = [*(f"%b{i}" for i in range(len(buffers))), "%scratch", "%status"]
        division = self.kernel.division
        limits = [] if division is None else self.domain.limits()
        parameters = ", ".join([*(f"ptr noalias {name}" for name in names), *(["i64 %block"] if division else [])])
        body = "\n".join([*self.text.entry, *limits, *self.text.lines])
        text = f"define internal void @NAME({parameters}) #0 {{\nentry:\n{body}\n  ret void\n}}"
        if division is not None:
            text += "\n" + block_text(buffers, division, self.kept.bytes)
        return Rendered(text, buffers, self.text.declared, self.text.functions, self.kept.bytes)

    def _phase(self, number: int) -> None:
        """One pass over the row: what is stored, folded or kept in this phase."""
        stores = [s for s in self.kernel.stores if s.phase == number and s.line.kind != "fold"]
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
        if phase.folds or phase.stores or phase.kept:
            Row(self.values, self.kept, phase, self.used).write()
        for store in once:
            self._store_once(store)
        for store in self.kernel.stores:
            if store.line.kind == "fold" and store.line.phase == number:
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

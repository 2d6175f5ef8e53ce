"""Lines in, values in the text out: those that are one scalar for a whole row, and each line's own instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..loops import Line, Store
from .access import Access, Place
from .domain import Domain
from .lanes import Lane
from .lookup import base_at, looked_up
from .text import Loop, Text
from .words import Words

__all__ = ["Values"]


class Values:
    """What is known while a kernel is written: scalars of the row, the same in every lane, and results of folds."""

    def __init__(self, text: Text, domain: Domain, access: Access) -> None:
        self.text = text
        self.domain = domain
        self.access = access
        self.of_rows: dict[int, Lane] = {}
        self.splats: dict[int, Lane] = {}
        self.folded: dict[int, Lane] = {}

    def walk(self, group: int) -> Loop:
        """Begin the loop over a group of the domain, or over the part of it that belongs to this block."""
        if group == self.domain.divided:
            return self.text.open("%hi", 1, "%lo")
        return self.text.open(self.domain.sizes[group])

    def place(self, x: Line | Store, counters: Sequence[str]) -> Place:
        assert x.buffer is not None
        return Place(x.buffer, self.domain.strides(x.strides), x.offset, counters)

    def of_row(self, line: Line) -> Lane:
        """A value that is one scalar for the whole row; computed before the row's loop, once."""
        if id(line) in self.folded:
            return self.folded[id(line)]
        if id(line) not in self.of_rows:
            words = self.text.words(1)
            self._compute(words, line)
            self.text.lines += words.lines
        return self.of_rows[id(line)]

    def _compute(self, words: Words, line: Line) -> None:
        """A scalar of the row after all it is made of; by a stack, since chains of lines can be long."""
        stack = [line]
        while stack:
            top = stack[-1]
            waiting = [a for a in top.args if id(a) not in self.of_rows and id(a) not in self.folded]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if id(top) not in self.of_rows:
                counters = self.text.counters[: self.domain.rows]
                self.of_rows[id(top)] = self.computed(words, top, self.of_row, counters)

    def splat(self, line: Line) -> Lane:
        """A scalar of the row in every lane."""
        value = self.of_row(line)
        if id(line) not in self.splats:
            words = self.text.words(self.domain.lanes)
            self.splats[id(line)] = words.splat(value) if not value.name.startswith("splat") else value
            self.text.lines += words.lines
        return self.splats[id(line)]

    def in_every_lane(self, words: Words, line: Line) -> Lane:
        """The same inside the row's loop, where it has been computed before."""
        return words.number(line.number, line.dtype) if line.kind == "number" else self.splats[id(line)]

    def computed(
        self,
        words: Words,
        line: Line,
        value: Callable[[Line], Lane],
        counters: Sequence[str],
        mask: str | None = None,
    ) -> Lane:
        """The instructions of one line, given the values of its arguments."""
        if line.kind == "number":
            return words.number(line.number, line.dtype)
        if line.kind == "load":
            return self.access.load(words, self.place(line, counters), mask)
        args = [value(a) for a in line.args]
        if line.kind == "gather":
            return self._looked_up(words, line, args, counters, mask)
        if line.kind == "cast":
            return words.cast(args[0], line.dtype)
        return self._applied(words, line, args)

    def _applied(self, words: Words, line: Line, args: list[Lane]) -> Lane:
        assert line.kernel is not None
        assert line.computed is not None
        words.dtype = line.computed
        args = [
            words.number(a.number, line.computed) if a.kind == "number" and line.computed.kind != "b" else v
            for a, v in zip(line.args, args, strict=True)
        ]
        return words.cast(line.kernel(words, *args), line.dtype)

    def _looked_up(
        self, words: Words, line: Line, indices: list[Lane], counters: Sequence[str], mask: str | None
    ) -> Lane:
        """A load at a place given by indices."""
        place = self.place(line, counters)
        same = self.is_one_place(line)
        if words.lanes > 1 and not same:
            return looked_up(self.access, words, place, line.places, indices, mask)
        return self.access.load(words, self.moved(words, line, place, indices), mask)

    def is_one_place(self, x: Line | Store) -> bool:
        """Whether the indices are the same for the whole row."""
        return all(not self.domain.differs(a) for a in x.args)

    def moved(self, words: Words, x: Line | Store, place: Place, indices: list[Lane]) -> Place:
        """A place moved by indices that are the same for all lanes there are."""
        scalar = self.text.words(1)
        scalar.lines = words.lines
        rows = [self.of_row(a) for a in x.args] if words.lanes > 1 else indices
        return base_at(self.access, scalar, place, x.places, rows)

"""One phase of a row in, its loop out: full vectors, several side by side where that hides waiting, the rest masked."""

from __future__ import annotations

from dataclasses import dataclass

from ..loops import Line, Store
from .access import Place
from .domain import BESIDE
from .folds import Fold
from .kept import Kept
from .lanes import Lane
from .text import Loop
from .values import Values
from .words import Words

__all__ = ["Phase", "Row", "stored_at"]


@dataclass(frozen=True, slots=True)
class Phase:
    """What one pass over a row does: the lines it folds, the stores along the row, the lines it keeps for later."""

    number: int
    folds: list[Line]
    stores: list[Store]
    kept: list[Line]

    @property
    def targets(self) -> list[Line]:
        return [line.args[0] for line in self.folds] + [x for s in self.stores for x in (s.line, *s.args)] + self.kept


class Row:
    """The loop of one phase while it is written."""

    def __init__(self, values: Values, kept: Kept, phase: Phase, used: list[Line]) -> None:
        self.values = values
        self.text = values.text
        self.domain = values.domain
        self.kept = kept
        self.phase = phase
        self.needed = self._needed(used)
        # sums over the row's own axes go into vectors first, and into memory once a row
        stays = [bool(s.word) and not s.args and not self._moves(s) for s in phase.stores]
        self.sums = [s for s, there in zip(phase.stores, stays, strict=True) if there]
        self.stores = [s for s, there in zip(phase.stores, stays, strict=True) if not there]
        self.folds: list[Fold] = []

    def _moves(self, store: Store) -> bool:
        return bool(self.domain.in_row) and bool(self.domain.strides(store.strides)[-1])

    def _needed(self, used: list[Line]) -> list[Line]:
        """The lines that differ along the row and are computed in this phase, arguments first; what is one scalar for
        the row is computed now.
        """
        wanted: set[int] = set()
        stack = list(self.phase.targets)
        while stack:
            line = stack.pop()
            if not self.domain.differs(line):
                self.values.splat(line)
            elif id(line) not in wanted:
                wanted.add(id(line))
                if line.phase == self.phase.number or line not in self.kept:
                    stack.extend(line.args)
        return [line for line in used if id(line) in wanted]

    def write(self) -> None:
        text, lanes, domain = self.text, self.domain.lanes, self.domain
        times = self._side_by_side(domain.length // lanes)
        row_folds = [Fold(line.args[0], line.word, line.dtype) for line in self.phase.folds]
        for fold in row_folds:
            fold.begin(text, lanes, times)
        inner = [self.values.walk(i) for i in range(domain.rows, len(domain.sizes) - 1)] if domain.in_row else []
        row_sums = [Fold(s.line, s.word, s.buffer.dtype) for s in self.sums]
        for fold in row_sums:
            fold.begin(text, lanes, times)
        self.folds = [*row_folds, *row_sums]
        self._vectors(times)
        for fold, store in zip(row_sums, self.sums, strict=True):
            self._add_up(store, fold.end(text, lanes))
        for loop in reversed(inner):
            text.close(loop)
        for line, fold in zip(self.phase.folds, row_folds, strict=True):
            self.values.folded[id(line)] = fold.end(text, lanes)

    def _side_by_side(self, whole: int) -> int:
        """How many vectors go side by side: a sum waits for its last addition, a chain of functions for each link."""
        depth: dict[int, int] = {}
        for line in self.needed:
            depth[id(line)] = line.weight + max((depth.get(id(a), 0) for a in line.args), default=0)
        light = sum(line.weight for line in self.needed) <= 40
        deep = max(depth.values(), default=0) > 30 and len(self.needed) <= 40  # of more, the registers do not hold four
        summing = bool(self.phase.folds or self.sums)
        wanted = BESIDE if (summing and light) or deep else 1
        return wanted if whole >= 2 * wanted else 1

    def _vectors(self, times: int) -> None:
        """The row in pieces: `times` vectors at once, then one at once, then what is left under a mask."""
        text, lanes = self.text, self.domain.lanes
        whole, rest = divmod(self.domain.length, lanes)
        long = sum(line.weight for line in self.needed) > 40
        divided = self.domain.in_row > 0 and self.domain.divided == len(self.domain.sizes) - 1
        if divided or (times > 1 and whole // times):
            loop = self._strides_of(times, whole // times * times * lanes, divided)
            base = text.counters[-1]
            self._chunks([text.shifted(base, u * lanes) for u in range(times)], None)
            text.close(loop, stays=long)
        left = whole % times if times > 1 or divided else whole
        start = (whole - left) * lanes
        ending = text.only_if("%last") if divided and (left or rest) else ""
        if left == 1:
            self._chunks([str(start)], None)
        elif left:
            loop = text.open(left * lanes, lanes)
            self._chunks([text.shifted(text.counters[-1], start)], None)
            text.close(loop, stays=long)
        if rest:
            mask = f"<{', '.join(f'i1 {str(i < rest).lower()}' for i in range(lanes))}>"
            self._chunks([str(whole * lanes)], mask)
        if ending:
            text.end_if(ending)

    def _strides_of(self, times: int, size: int, divided: bool) -> Loop:
        """Begin the loop over so many elements, or over those of this block; the last block also has what is left."""
        if not divided:
            return self.text.open(size, self.domain.lanes * times)
        end = f"%s{next(self.text.counter)}"
        self.text.lines.append(f"  {end} = select i1 %last, i64 {size}, i64 %hi")
        return self.text.open(end, self.domain.lanes * times, "%lo")

    def _chunks(self, indices: list[str], mask: str | None) -> None:
        """One vector of the row, or several side by side: line by line, so that the processor finds work in one vector
        while it waits for another.
        """
        words = self.text.words(self.domain.lanes)
        outer = self.text.counters[: len(self.domain.sizes) - 1]
        many = [([*outer, index] if self.domain.in_row else []) for index in indices]
        values: list[dict[int, Lane]] = [{} for _ in indices]
        for line in self.needed:
            for known, counters in zip(values, many, strict=True):
                known[id(line)] = self._along(words, line, known, counters, mask)
        for known, counters in zip(values, many, strict=True):
            self._write_out(words, known, counters, mask)
        for turn, known in enumerate(values):
            for fold in self.folds:
                fold.take(words, turn, self._value(words, known, fold.line), mask)
        self.text.lines += words.lines

    def _value(self, words: Words, known: dict[int, Lane], line: Line) -> Lane:
        return known[id(line)] if id(line) in known else self.values.in_every_lane(words, line)

    def _along(self, words: Words, line: Line, known: dict[int, Lane], counters: list[str], mask: str | None) -> Lane:
        """A line that differs along the row, for one vector of it."""
        if line.kind != "load" and line.phase < self.phase.number and line in self.kept:
            return self.kept.fetch(words, line, counters, mask)
        return self.values.computed(words, line, lambda a: self._value(words, known, a), counters, mask)

    def _write_out(self, words: Words, known: dict[int, Lane], counters: list[str], mask: str | None) -> None:
        for line in self.phase.kept:
            self.kept.keep(words, line, known[id(line)], counters, mask)
        for store in self.stores:
            value = self._value(words, known, store.line)
            indices = [self._value(words, known, a) for a in store.args]
            stored_at(self.values, words, store, value, indices, counters, mask)

    def _add_up(self, store: Store, value: Lane) -> None:
        """Fold a row's result into its cell in memory."""
        words = self.text.words(1)
        words.dtype = store.buffer.dtype
        outer = len(self.domain.sizes) - 1
        strides = self.domain.strides(store.strides)[:outer]
        place = Place(store.buffer, strides, store.offset, self.text.counters[:outer])
        cell = self.values.access.load(words, place, None)
        self.values.access.store(words, getattr(words, store.word)(cell, value), place, None)
        self.text.lines += words.lines


def stored_at(
    values: Values,
    words: Words,
    store: Store,
    value: Lane,
    indices: list[Lane],
    counters: list[str],
    mask: str | None,
) -> None:
    """A value written, or folded into what is there; where indices say, if the store has any (then they do not differ
    along the row, or there is but one lane).
    """
    place = values.place(store, counters)
    if store.args:
        place = values.moved(words, store, place, indices)
    value = words.cast(value, store.buffer.dtype)
    if store.word:
        words.dtype = store.buffer.dtype
        value = getattr(words, store.word)(values.access.load(words, place, mask), value)
    values.access.store(words, value, place, mask)

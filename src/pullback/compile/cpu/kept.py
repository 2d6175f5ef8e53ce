"""Values of a row that a later phase needs: kept in a row of memory that stays in the nearest cache."""

from __future__ import annotations

from ..loops import Kernel, Line
from .access import load_at, store_at, truths
from .domain import Domain
from .lanes import Lane, element_type
from .text import INDEX
from .words import Words

__all__ = ["Kept", "targets"]

#: Lines lighter than this are computed again in a later phase of a row rather than kept in a row of memory.
LIGHT = 6


class Kept:
    """Which lines are kept, each at an offset of the scratch memory; `bytes` is what they need together."""

    def __init__(self, domain: Domain, used: list[Line], phases: int) -> None:
        self.domain = domain
        self.offsets: dict[int, int] = {}
        self.bytes = 0
        heavy: dict[int, int] = {}
        for line in used:
            heavy[id(line)] = line.weight + sum(heavy[id(a)] for a in line.args if domain.differs(a))
        for phase in reversed(range(1, phases)):
            self._plan(phase, used, heavy)

    def __contains__(self, line: Line) -> bool:
        return id(line) in self.offsets

    def _plan(self, phase: int, used: list[Line], heavy: dict[int, int]) -> None:
        """Keep what a phase takes from earlier ones, if it is heavy."""
        stack = targets(self.domain.kernel, self, phase, used)
        seen: set[int] = set()
        while stack:
            line = stack.pop()
            if id(line) in seen or not self.domain.differs(line) or line.kind in ("load", "fold"):
                continue
            seen.add(id(line))
            if line.phase < phase and heavy[id(line)] > LIGHT:
                self._add(line)
            else:
                stack.extend(line.args)

    def _add(self, line: Line) -> None:
        if line not in self:
            self.offsets[id(line)] = self.bytes
            self.bytes += -(-self.domain.row * line.dtype.itemsize // 64) * 64

    def _address(self, words: Words, line: Line, counters: list[str]) -> str:
        """The address of an element of a kept row."""
        place, step, rows = "0", 1, self.domain.rows
        for size, counter in zip(reversed(self.domain.sizes[rows:]), reversed(counters[rows:]), strict=True):
            product = counter if step == 1 else words.emit(f"mul nsw {INDEX} {counter}, {step}")
            place = product if place == "0" else words.emit(f"add nsw {INDEX} {place}, {product}")
            step *= size
        row = words.emit(f"getelementptr inbounds i8, ptr %scratch, {INDEX} {self.offsets[id(line)]}")
        return words.emit(f"getelementptr inbounds {element_type(line.dtype, True)}, ptr {row}, {INDEX} {place}")

    def keep(self, words: Words, line: Line, value: Lane, counters: list[str], mask: str | None) -> None:
        store_at(words, value, self._address(words, line, counters), line.dtype, mask)

    def fetch(self, words: Words, line: Line, counters: list[str], mask: str | None) -> Lane:
        return truths(words, load_at(words, self._address(words, line, counters), line.dtype, mask), line.dtype)


def targets(kernel: Kernel, kept: Kept, phase: int, used: list[Line]) -> list[Line]:
    """What the row's loop must know in a phase: what it folds, stores along the row, or keeps."""
    folded = [line.args[0] for line in used if line.kind == "fold" and line.phase == phase]
    stored = [x for s in kernel.stores if s.phase == phase for x in (s.line, *s.args)]
    return [*folded, *stored, *(line for line in used if line in kept and line.phase == phase)]

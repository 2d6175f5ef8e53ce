"""What was made, held and freed in, curves and rows out: the reading of a memory log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["HOLDERS", "Event", "Moment", "Origin", "Row", "read", "rows_of"]

#: Who holds memory, in the order of display.
HOLDERS = ("parameter", "input", "kept", "gradient", "temporary")


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a piece of memory, where, and on which way."""

    op: str
    line: str
    phase: str


@dataclass(frozen=True, slots=True)
class Event:
    """At some second, a block of memory began to be held by somebody, by another than before, or by nobody (freed)."""

    seconds: float
    block: int
    nbytes: int
    holder: str
    origin: Origin
    phase: str


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes that were made by one op on one line and are held alike."""

    nbytes: int
    count: int
    holder: str
    op: str
    line: str
    phase: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The bytes that live after an event, and how many of them each holder has."""

    seconds: float
    live: int
    phase: str
    by_holder: tuple[int, ...]


def read(events: Sequence[Event]) -> tuple[list[Moment], list[Event], list[Event]]:
    """The curve of living bytes, the blocks that lived at its peak, and those that live at its end."""
    living: dict[int, Event] = {}
    held = dict.fromkeys(HOLDERS, 0)
    curve: list[Moment] = []
    best, at = -1, -1
    for i, event in enumerate(events):
        before = living.pop(event.block, None)
        if before is not None:
            held[before.holder] -= before.nbytes
        if event.holder:
            living[event.block] = event
            held[event.holder] += event.nbytes
        live = sum(held.values())
        curve.append(Moment(event.seconds, live, event.phase, tuple(held.values())))
        if live > best:
            best, at = live, i
    return curve, _living_after(events[: at + 1]), list(living.values())


def _living_after(events: Iterable[Event]) -> list[Event]:
    living: dict[int, Event] = {}
    for event in events:
        living.pop(event.block, None)
        if event.holder:
            living[event.block] = event
    return list(living.values())


def rows_of(events: Iterable[Event]) -> tuple[Row, ...]:
    """Blocks put together by who holds them and what made them, the largest first."""
    nbytes: Counter[tuple[str, Origin]] = Counter()
    count: Counter[tuple[str, Origin]] = Counter()
    for event in events:
        nbytes[event.holder, event.origin] += event.nbytes
        count[event.holder, event.origin] += 1
    rows = [Row(nbytes[key], count[key], key[0], key[1].op, key[1].line, key[1].phase) for key in nbytes]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.line, row.op)))

"""The memory log: events, the timeline, and rows by holder, op and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Who holds memory, in the order of display.
HOLDERS = ("parameter", "input", "kept", "gradient", "temporary")


@dataclass(frozen=True, slots=True)
class Origin:
    """The op, line and phase that allocated a piece of memory."""

    op: str
    line: str
    phase: str


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """At some second, a block of memory was allocated, changed its holder, or was freed (no holder)."""

    seconds: float
    block: int
    nbytes: int
    holder: str
    origin: Origin
    phase: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Bytes of one op, line and holder."""

    nbytes: int
    count: int
    holder: str
    op: str
    line: str
    phase: str


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """The bytes alive after an event, in total and by holder."""

    seconds: float
    live: int
    phase: str
    by_holder: tuple[int, ...]


def replay_events(events: Sequence[MemoryEvent]) -> tuple[list[TimelinePoint], list[MemoryEvent], list[MemoryEvent]]:
    """The curve of live bytes, the blocks alive at its peak, and those alive at its end."""
    living: dict[int, MemoryEvent] = {}
    held = dict.fromkeys(HOLDERS, 0)
    curve: list[TimelinePoint] = []
    best, at = -1, -1
    for i, event in enumerate(events):
        before = living.pop(event.block, None)
        if before is not None:
            held[before.holder] -= before.nbytes
        if event.holder:
            living[event.block] = event
            held[event.holder] += event.nbytes
        live = sum(held.values())
        curve.append(TimelinePoint(event.seconds, live, event.phase, tuple(held.values())))
        if live > best:
            best, at = live, i
    return curve, _live_blocks(events[: at + 1]), list(living.values())


def _live_blocks(events: Iterable[MemoryEvent]) -> list[MemoryEvent]:
    living: dict[int, MemoryEvent] = {}
    for event in events:
        living.pop(event.block, None)
        if event.holder:
            living[event.block] = event
    return list(living.values())


def group_events(events: Iterable[MemoryEvent]) -> tuple[MemoryRow, ...]:
    """Blocks grouped by holder and origin, the largest first."""
    nbytes: Counter[tuple[str, Origin]] = Counter()
    count: Counter[tuple[str, Origin]] = Counter()
    for event in events:
        nbytes[event.holder, event.origin] += event.nbytes
        count[event.holder, event.origin] += 1
    rows = [MemoryRow(nbytes[key], count[key], key[0], key[1].op, key[1].line, key[1].phase) for key in nbytes]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.line, row.op)))

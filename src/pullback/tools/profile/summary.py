"""Events in, rows out: time by line, op, module, program, stage, kind or thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...arrays.timing import (
    BACKWARD,
    BESIDE,
    COMPILE,
    GPU,
    ITERATION,
    MEETING,
    MODULE,
    OPTIMIZER,
    PROGRAM,
    PULL,
    RECOMPUTE,
    STEP,
)  # fmt: skip
from ...errors import ArgumentError
from .events import PHASES, Event


@dataclass(slots=True)
class Row:
    """The time of one line, op or module, in seconds: its own by phase, and in total with what it called."""

    key: str
    calls: int = 0
    total: float = 0.0
    nbytes: int = 0
    by_phase: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def own(self) -> float:
        """The time that is its own, in all phases."""
        return sum(self.by_phase.values())

    @property
    def forward(self) -> float:
        return self.by_phase["forward"]

    @property
    def backward(self) -> float:
        return self.by_phase["backward"]


_OTHERS = {
    MODULE: "(Python of modules)", BACKWARD: "(the backward pass itself)", RECOMPUTE: "(recomputation of {})",
    ITERATION: "(step of {})", OPTIMIZER: "(step of {})", COMPILE: "(compiler: {})", MEETING: "(waiting: {})",
}  # fmt: skip


def op_of(event: Event) -> str:
    """The op of an event, or in parentheses what it is instead."""
    if event.kind == STEP:
        return event.program
    name = event.name.partition(" of ")[0] if event.kind == MEETING else event.name
    return _OTHERS[event.kind].format(name) if event.kind in _OTHERS else name


#: What rows can be made by; None leaves an event out.
KEYS: dict[str, Callable[[Event], str | None]] = {
    "line": lambda e: e.line or "(unknown line)",
    "op": op_of,
    "module": lambda e: e.module or "(no module)",
    "kind": lambda e: e.kind,
    "thread": lambda e: f"thread {e.track}",
    "rank": lambda e: f"rank {e.rank}",
    "stage": lambda e: e.name if e.kind == COMPILE else None,
    "program": lambda e: e.name if e.kind == PROGRAM else f"{e.name}, backward" if _is_pulled_program(e) else None,
    "collective": lambda e: e.name if e.kind in (MEETING, BESIDE) else None,
}


def _is_pulled_program(event: Event) -> bool:
    return event.kind == PULL and event.name.startswith("jit ")


def summarize(events: Sequence[Event], by: str) -> list[Row]:
    """Rows by a key, the one with the most time of its own first; stages and programs by their total."""
    if by not in KEYS:
        raise ArgumentError(f"profile: rows are by {', '.join(map(repr, KEYS))}, got {by!r}.")
    key_of = KEYS[by]
    rows: dict[str, Row] = {}
    keys: list[str | None] = []
    #: For each event the keys of those around it, shared by all events inside one.
    above: list[frozenset[str]] = []
    for event in events:
        key = key_of(event)
        keys.append(key)
        around = frozenset() if event.parent < 0 else _with_key(above[event.parent], keys[event.parent])
        above.append(around)
        if key is None or (event.kind in (BESIDE, GPU) and by not in ("collective", "kind")):
            continue
        row = rows.setdefault(key, Row(key))
        row.by_phase[event.phase] += max(event.own, 0) * 1e-9
        row.nbytes += event.nbytes
        if key not in around:
            row.total += event.spent * 1e-9
            row.calls += event.runs
    if by == "module":
        _add_inner_modules(rows, events)
    order = (lambda r: -r.total) if by in ("stage", "program", "collective") else (lambda r: -r.own)
    return sorted(rows.values(), key=order)


def _add_inner_modules(rows: dict[str, Row], events: Sequence[Event]) -> None:
    """The total of a module is its own time and that of those inside it, whose backward lies apart from its own."""
    for row in rows.values():
        inside = (other.own for key, other in rows.items() if f"{key}.".startswith(f"{row.key}."))
        row.total = sum(inside)
        row.calls = sum(e.kind == MODULE and e.name == row.key for e in events)


def _with_key(around: frozenset[str], key: str | None) -> frozenset[str]:
    return around if key is None or key in around else around | {key}


def covered_seconds(events: Iterable[Event]) -> float:
    """The time of the first thread of each rank that is in some event."""
    return sum(e.spent for e in events if e.parent < 0 and e.track == 0) * 1e-9

"""The log of a profile in, events out: named, nested, each with its module, its phase and the time that is its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arrays.call_site import format_line
from ...arrays.spec import Spec
from ...arrays.timing import (
    BACKWARD,
    BESIDE,
    COMPILE,
    GPU,
    MEETING,
    MODULE,
    NODE,
    OP,
    PULL,
    RECOMPUTE,
    STEP,
    WIDTH,
)  # fmt: skip
from ...compile.inspect import bytes_moved, summarize_step
from .module_paths import ModulePaths

#: The phases in which time is spent, in the order of display.
PHASES = ("forward", "backward", "recompute", "compile", "wait")
#: The phase that a kind of event begins; others are in that of what is around them.
_BEGINS = {PULL: "backward", BACKWARD: "backward", RECOMPUTE: "recompute", COMPILE: "compile", MEETING: "wait"}
#: Tracks of what is under way beside the threads: collectives, and streams of a GPU behind it.
BESIDE_TRACK, FIRST_STREAM = -1, -2


@dataclass(slots=True)
class Event:
    """Something that took time. `start` and `end` are nanoseconds of the profile; `own` is the time of no event inside;
    `parent` is the number of the event around it, -1 if there is none; `runs` is how often a step ran in it.
    """

    kind: str
    name: str
    line: str
    start: int
    end: int
    nbytes: int
    track: int
    rank: int = 0
    runs: int = 1
    own: int = 0
    parent: int = -1
    module: str = ""
    phase: str = "forward"
    #: Of a step of a program: its bytes moved and operations in all its runs, its program, and whether in float64.
    moved: int = 0
    operations: int = 0
    program: str = ""
    is_double: bool = False

    @property
    def spent(self) -> int:
        return self.end - self.start


def read_log(log: Sequence[Any], since: int, rank: int = 0) -> list[Event]:
    """The events of a log, by their tracks and in the order of their starts; an event comes after those around it."""
    rows = [tuple(log[i : i + WIDTH]) for i in range(0, len(log), WIDTH)]
    # of two that begin at once, the longer one is around the other
    rows.sort(key=lambda row: (row[2], -row[3]))
    lines: dict[tuple[Any, int], str] = {}

    def line_of(code: Any, lasti: int) -> str:
        if (found := lines.get((code, lasti))) is None:
            found = lines[code, lasti] = "" if code is None else format_line(code, lasti)
        return found

    return _Reader(line_of, since, rank).read(rows)


class _Reader:
    """Reads events in the order of their starts; knows what is open in each track."""

    def __init__(self, line_of: Callable[[Any, int], str], since: int, rank: int) -> None:
        self._line_of, self._since, self._rank = line_of, since, rank
        self._events: list[Event] = []
        self._open: defaultdict[int, list[int]] = defaultdict(list)
        self._modules = ModulePaths()
        #: By node: the module that made it. Nodes that are gone may have had the same number.
        self._makers: dict[int, str] = {}
        self._tracks: dict[int, int] = {}

    def read(self, rows: Iterable[tuple[Any, ...]]) -> list[Event]:
        for row in rows:
            self._add(row)
        return self._events

    def _add(self, row: tuple[Any, ...]) -> None:
        kind, what, start, end, code, lasti, size, node, thread = row
        track = self._track_of(kind, thread, what)
        parent = self._enclosing(track, start, end)
        if kind == NODE:
            self._makers[node] = self._module_of(parent)
            return
        event = Event(
            kind, name_of(kind, what), self._line_of(code, lasti), start - self._since, end - self._since,
            bytes_of(kind, what, size), track, self._rank, own=end - start, parent=parent,
        )  # fmt: skip
        self._place(event, what, node)
        if kind == STEP:
            describe_step(event, what)
        self._open[track].append(len(self._events))
        self._events.append(event)

    def _track_of(self, kind: str, thread: int, what: Any) -> int:
        if kind == BESIDE:
            return BESIDE_TRACK
        return FIRST_STREAM - what.stream if kind == GPU else self._tracks.setdefault(thread, len(self._tracks))

    def _enclosing(self, track: int, start: int, end: int) -> int:
        """The number of the innermost event around this stretch."""
        opened, start, end = self._open[track], start - self._since, end - self._since
        while opened and self._events[opened[-1]].end <= start:
            opened.pop()
        # a clock of native code may be read a little after the one around it
        while opened and self._events[opened[-1]].end < end:
            opened.pop()
        return opened[-1] if opened else -1

    def _module_of(self, number: int) -> str:
        return self._events[number].module if number >= 0 else ""

    def _place(self, event: Event, what: Any, node: int) -> None:
        """The module and the phase of an event, and the line of what runs inside a pull."""
        around = self._events[event.parent] if event.parent >= 0 else None
        event.module = around.module if around is not None else ""
        event.phase = _BEGINS.get(event.kind) or (around.phase if around is not None else "forward")
        if around is not None:
            around.own -= event.spent
            # what a rule computes belongs to the line that made the node; what is computed again has its own
            if event.phase == "backward" and around.kind in (PULL, OP) and around.phase == "backward":
                event.line = around.line
        if event.kind == MODULE:
            event.module = event.name = self._modules.path_of(what, event.module)
        elif event.kind == PULL:
            event.module = self._makers.get(node, event.module)
        elif node:
            self._makers[node] = event.module


def name_of(kind: str, what: Any) -> str:
    """What an event is called."""
    if kind in (OP, GPU):
        return str(what.name)
    if kind == PULL:
        return "add to .grad" if what is None else str(what.op.name)
    if kind == STEP:
        return f"step {what.number}"
    return "" if kind == MODULE else str(what)


def bytes_of(kind: str, what: Any, size: Any) -> int:
    """The bytes that an event allocated: those of results, and of a pull those of the cotangents it computed."""
    if isinstance(size, int):
        return size
    needs = what.needs if kind == PULL and what is not None else ()
    if kind != PULL:
        return int(size.nbytes)
    if isinstance(size, Spec):
        return size.nbytes * len(needs)
    return sum(size[i].nbytes for i in needs if i < len(size) and isinstance(size[i], Spec))


def describe_step(event: Event, what: Any) -> None:
    """A step of a compiled program: what runs in it, and how much it moves and computes."""
    domain, operations, runs = summarize_step(what.step)
    event.name = f"{what.number} {runs} ({domain})" if domain else f"{what.number} {runs}"
    event.program, event.runs = what.program, what.runs
    event.is_double = any(b.dtype.itemsize == 8 for b in what.step.writes())
    event.moved, event.operations = bytes_moved(what.step) * what.runs, operations * what.runs

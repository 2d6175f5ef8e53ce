"""`profile`: where time goes, by line, op, module, program and stage of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, final

from ...arrays.argument_checks import check_count
from ...arrays.html_text import html_report
from ...arrays.text import format_seconds, text_table
from ...arrays.timing import WIDTH, clock
from ...errors import GraphError
from ...ops.collective.world import current_world
from ...settings import Modes, installed, modes, set_modes
from ..render.html_page import write_by_suffix
from ..render.tables import rich_table
from .calibration import event_cost
from .chrome_trace import trace_json
from .events import PHASES, Event, read_log
from .flame import flame_page
from .gpu_clock import start_gpu_clock
from .nvtx import find_ranges
from .profile_diff import ProfileDiff, compare
from .rank_clocks import RankClock, gather_events
from .recorder import OpTimer, RangeMarker, StepTimer, new_log
from .roofline import load_roofline
from .summary import Row, covered_seconds, summarize
from .tables import format_rows, step_rows

#: From this share on the cost of the profile itself is worth a warning.
_NOTICEABLE = 0.03


def profile(*, steps: bool = False, nvtx: bool = False, limit: int = 500_000) -> Profile:
    """Profile the time of everything inside: eager ops and their backward, fused and compiled functions, transforms,
    recomputation, solvers, the compiler, waiting for ranks. With `steps`, compiled programs run in a build that times
    each of their steps; with `nvtx`, ops are ranges for NVIDIA's tools too. The last `limit` events are kept.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> with pb.profile() as seen:
    ...     pb.sum(pb.sin(x) * x).backward()
    >>> calls = {row.key: row.calls for row in seen.rows("op")}
    >>> calls["sin"], calls["multiply"]  # forward and backward
    (2, 2)
    """
    return Profile(_Settings(steps, nvtx, check_count(limit, "profile: limit", 1)))


@dataclass(frozen=True, slots=True)
class _Settings:
    steps: bool
    nvtx: bool
    limit: int


@dataclass(slots=True)
class _Findings:
    """What is left of a profile when it is over: no array, module or node is held."""

    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0
    overhead: float = 0.0
    dropped: float = 0.0
    ranks: list[RankClock] = field(default_factory=list)


@final
class Profile:
    """A time profile, to be entered once; it can be read when the block is over."""

    def __init__(self, settings: _Settings, findings: _Findings | None = None) -> None:
        self._settings = settings
        self._found = findings
        self._before: Modes | None = None
        self._start = 0
        self._log = new_log(settings.limit)

    def __enter__(self) -> Profile:
        if self._before is not None or self._found is not None:
            raise GraphError("profile: a profile can be entered once.\n  Create another one: pb.profile().")
        timer, others = OpTimer(self._log), self._other_instruments()
        self._is_alone = not others and all(i.only_times for i in installed().stack)
        self._gpu = start_gpu_clock(self._log)
        timer.mark = None if self._gpu is None else self._gpu.mark
        before = self._before = modes()
        self._start = clock()
        set_modes(before._replace(instruments=installed().push(*others, timer)))
        return self

    def _other_instruments(self) -> list[Any]:
        found: list[Any] = [StepTimer(self._log)] if self._settings.steps else []
        return [*found, RangeMarker(*find_ranges())] if self._settings.nvtx else found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = clock()
        if self._before is not None:
            set_modes(self._before)
        if self._gpu is not None:
            self._gpu.finish()
        world = current_world()
        count = len(self._log)
        events = read_log(list(self._log), self._start, world.rank)
        found = self._found = _Findings(events, (end - self._start) * 1e-9)
        found.overhead = event_cost(self._is_alone) * (count // WIDTH) / found.seconds if found.seconds else 0.0
        if count == self._log.maxlen and events:
            found.dropped = min(e.start for e in events) * 1e-9
        found.ranks = [RankClock(world.rank, 0, 0, found.seconds, self._start)]
        self._log.clear()  # its ops, rules and modules may be freed

    def _findings(self) -> _Findings:
        if self._found is None:
            raise GraphError("profile: it can be read when its block is over.\n  with pb.profile() as p: ...; print(p)")
        return self._found

    @property
    def events(self) -> Sequence[Event]:
        """Everything that was seen, in the order of its beginning."""
        return self._findings().events

    @property
    def seconds(self) -> float:
        """How long the block took; of several ranks, the longest."""
        return self._findings().seconds

    @property
    def overhead(self) -> float:
        """The share of that time that the profile itself took: events times what one costs on this machine."""
        return self._findings().overhead

    @property
    def ranks(self) -> Sequence[RankClock]:
        """The ranks that it is of, and how their clocks were aligned."""
        return self._findings().ranks

    def rows(self, by: str = "line") -> list[Row]:
        """Time by `"line"`, `"op"`, `"module"`, `"program"`, `"stage"` (of the compiler), `"collective"`, `"kind"`,
        `"thread"` or `"rank"`: each with `calls`, `own` and `total` seconds, `by_phase` and `nbytes` allocated. What
        most time was spent on comes first. Backward time is that of the line and module that made the node.
        """
        return summarize(self.events, by)

    def by_phase(self) -> dict[str, float]:
        """Seconds in ops and other events, by phase: forward, backward, recompute, compile, wait."""
        found = dict.fromkeys(PHASES, 0.0)
        for row in summarize(self.events, "kind"):
            for phase, seconds in row.by_phase.items():
                found[phase] += seconds
        return found

    def title(self) -> str:
        """The whole in one line: how long, which phases, what was in no event, and what the profile itself cost."""
        found = self._findings()
        wall = found.seconds * len(found.ranks)
        phases = [f"{name} {seconds / wall:.0%}" for name, seconds in self.by_phase().items() if seconds and wall]
        outside = max(1 - covered_seconds(self.events) / wall, 0.0) if wall else 0.0
        text = f"{format_seconds(found.seconds)}: {', '.join([*phases, f'outside of ops {outside:.0%}'])}"
        text += f"; the profile itself took about {found.overhead:.1%}"
        if found.overhead > _NOTICEABLE:
            text += ", since ops are short: read shares, not seconds"
        if found.dropped:
            text += f"; events of the first {format_seconds(found.dropped)} were dropped (limit={self._settings.limit})"
        return text

    def table(self, by: str = "line", rows: int = 25) -> str:
        """The rows as text; `by="step"` has the steps of compiled programs, of a profile with `steps=True`."""
        numbers = range(6) if by == "step" else range(len(self.table_rows(by, 0)[0]) - 1)
        return f"{self.title()}\n{text_table(self.table_rows(by, rows), right=tuple(numbers))}"

    def table_rows(self, by: str, most: int) -> list[tuple[str, ...]]:
        """The heading and the rows of a table."""
        if by == "step":
            return step_rows(self.events, load_roofline())[: most + 1]
        return format_rows(self.rows(by), by, self.seconds * len(self.ranks), most)

    def diff(self, after: Profile, by: str = "line") -> ProfileDiff:
        """What takes longer or shorter in another profile.

        >>> import numpy as np, pullback as pb
        >>> with pb.profile() as one:
        ...     y = pb.sin(np.ones(10))
        >>> with pb.profile() as two:
        ...     y = pb.sin(pb.cos(np.ones(10)))
        >>> sorted(change.key for change in one.diff(two, by="op").changes)
        ['cos', 'sin']
        """
        return compare(self.rows(by), after.rows(by), by, (self.seconds, after.seconds))

    def gather(self) -> Profile:
        """The profiles of all ranks as one, with their clocks aligned; a collective, to be called on every rank."""
        events, ranks = gather_events(self.events, self.ranks[0])
        found = self._findings()
        made = _Findings(events, max(r.seconds for r in ranks), found.overhead, found.dropped, ranks)
        return Profile(self._settings, made)

    def trace(self) -> str:
        """The events in the format of Chrome's tracing, which https://ui.perfetto.dev opens: a process for each rank, a
        track for each thread and stream.
        """
        return trace_json(self.events, self.ranks)

    def html(self) -> str:
        """A flame graph and tables as one page, which needs nothing else."""
        return flame_page(self)

    def save(self, path: str | Path) -> None:
        """Write to a file, by its suffix: `.json` for a trace, `.html` for a flame graph, `.txt` for the table. A
        profile of several ranks is written by rank 0 alone.
        """
        if len(self.ranks) > 1 and current_world().rank:
            return
        writers: dict[str, Callable[[], str]] = {".json": self.trace, ".html": self.html, ".txt": self.table}
        write_by_suffix(path, writers)

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        head, *rows = self.table_rows("line", 25)
        return rich_table(self.title(), head, rows)

    def _repr_html_(self) -> str:
        return html_report(self.table())

    def __repr__(self) -> str:
        return "<a profile that is not over>" if self._found is None else f"<profile of {self.title()}>"

"""`profile`: live memory of eager code over time, by op, line and holder."""

from __future__ import annotations

import json
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from types import CodeType, TracebackType
from typing import Any

from ...arrays import process_memory
from ...arrays.call_site import format_line, user_line
from ...arrays.html_text import escape, html_block, html_table
from ...arrays.memory_ledger import Block, Ledger
from ...arrays.node import Node
from ...arrays.tensor import Tensor
from ...arrays.text import format_bytes, text_table
from ...errors import ArgumentError, GraphError
from ...instrument import Instrument, OpCall, ProgramCall
from ...ops.saved_values import SavedValue
from ...settings import Modes, installed, modes, set_modes
from ...tape.cotangents import arrays_in
from ..render.html_page import Page, write_by_suffix
from ..render.svg_plots import draw_areas
from ..render.tables import rich_table
from .event_log import HOLDERS, MemoryEvent, MemoryRow, Origin, TimelinePoint, group_events, replay_events

_HEAD = ("bytes", "count", "holder", "op", "line")


def profile(*, exact: bool = False) -> Profile:
    """Profile the memory of everything inside: `peak`, `timeline`, and by op, line and holder. With `exact`, every
    allocation of NumPy is counted too (by `tracemalloc`, which is slow), also those inside ops.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> with pb.memory.profile() as seen:
    ...     pb.sum(pb.sin(pb.sin(x))).backward()
    >>> seen.by_holder()["kept"], seen.by_holder()["parameter"]
    (8000, 8000)
    """
    return Profile(exact)


class Profile(Instrument):
    """A memory profile, readable during and after the block; bytes count each piece of memory once."""

    measures = True

    def __init__(self, exact: bool = False) -> None:
        self.exact_peak: int | None = None
        self.resident_before = self.resident_after = 0
        self._exact = exact
        self._guard = threading.RLock()
        self._events: list[MemoryEvent] = []
        self._ledger = Ledger(self._on_free)
        self._blocks = 0
        self._passes = 0
        self._start = 0.0
        self._lines: dict[tuple[CodeType, int], str] = {}
        self._before: Modes | None = None
        self._reading: tuple[int, tuple[list[TimelinePoint], list[MemoryEvent], list[MemoryEvent]]] | None = None

    def __enter__(self) -> Profile:
        if self._before is not None or self._events:
            raise GraphError(
                "memory.profile: a profile can be entered once.\n  Create another one: pb.memory.profile()."
            )
        self._before = modes()
        self.resident_before = process_memory.resident()
        self._start = perf_counter()
        if self._exact:
            self._exact = not tracemalloc.is_tracing()  # tracing that was on before stays on
            tracemalloc.start()
            tracemalloc.reset_peak()
            self._traced = tracemalloc.get_traced_memory()[0]
        set_modes(self._before._replace(instruments=installed().push(self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            set_modes(self._before)
        if tracemalloc.is_tracing() and hasattr(self, "_traced"):
            self.exact_peak = tracemalloc.get_traced_memory()[1] - self._traced
            if self._exact:
                tracemalloc.stop()
        self.resident_after = process_memory.resident()

    def compute(self, call: OpCall, below: Callable[[], Any]) -> Any:
        if call.level > 1:
            return below()
        line = self._line(user_line(sys._getframe(1)))
        for arg, value in zip(call.args, call.values, strict=True):
            leaf = type(arg) is Tensor and arg.node is not None and arg.node.is_leaf
            self._track(value, Origin("leaf" if leaf else "given", line, self._phase), "parameter" if leaf else "input")
        out = below()
        self._track(out, Origin(call.op.name, line, self._phase), "temporary")
        return out

    def node_made(self, node: Node) -> None:
        for value in node.kept:
            array = getattr(value, "array", None) if isinstance(value, SavedValue) else value
            self._mark_held(array, "kept")

    def run_program(self, call: ProgramCall, below: Callable[[], Any]) -> Any:
        line = self._line(user_line(sys._getframe(1)))
        outs = below()
        self._track(list(call.arrays), Origin("given", line, self._phase), "input")
        self._track(list(call.workspace()), Origin(f"inside {call.name}", line, self._phase), "temporary")
        self._track(list(outs), Origin(call.name, line, self._phase), "temporary")
        return outs

    def backward_begins(self) -> None:
        self._passes += 1

    def backward_ends(self, released: bool) -> None:
        self._passes -= 1
        self._ledger.remove_freed()

    def pull_begins(self, node: Node, bar: Any) -> None:
        self._track(bar, Origin("seed", self._line((node.code, node.lasti)), "backward"), "gradient")

    def pulled(self, node: Node, shares: tuple[Any, ...]) -> None:
        origin = Origin(f"pull of {node.name}", self._line((node.code, node.lasti)), "backward")
        self._track(shares, origin, "gradient")

    def summed(self, total: Any) -> None:
        self._track(total, Origin("sum of cotangents", "", "backward"), "gradient")

    def delivered(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if tensor.grad is not None:
                self._track(tensor.grad, Origin("grad", "", "backward"), "gradient")

    @property
    def peak(self) -> int:
        """The most bytes of arrays alive at once."""
        return max((moment.live for moment in self.timeline), default=0)

    @property
    def live(self) -> int:
        """The bytes alive now, of what was profiled."""
        return self._ledger.remove_freed()

    @property
    def timeline(self) -> list[TimelinePoint]:
        """The bytes alive after each event: `seconds`, `live`, `phase`, `by_holder`."""
        return self._readings()[0]

    @property
    def at_peak(self) -> tuple[MemoryRow, ...]:
        """What was alive at the peak, grouped by holder, op and line; the largest first."""
        return group_events(self._readings()[1])

    @property
    def alive(self) -> tuple[MemoryRow, ...]:
        """What is alive at the end, grouped likewise."""
        return group_events(self._readings()[2])

    def peak_of(self, phase: str) -> int:
        """The peak of the phase "forward" or "backward"."""
        if phase not in ("forward", "backward"):
            raise ArgumentError(f"peak_of: phase is 'forward' or 'backward', got {phase!r}.")
        return max((moment.live for moment in self.timeline if moment.phase == phase), default=0)

    def by_holder(self) -> dict[str, int]:
        """Bytes at the peak by holder."""
        return {holder: sum(r.nbytes for r in self.at_peak if r.holder == holder) for holder in HOLDERS}

    def by_op(self) -> dict[str, int]:
        """Bytes at the peak by the op that made them, the largest first."""
        return self._sum_by("op")

    def by_line(self) -> dict[str, int]:
        """Bytes at the peak by the user's line that made them, the largest first."""
        return self._sum_by("line")

    def _sum_by(self, what: str) -> dict[str, int]:
        found: Counter[str] = Counter()
        for row in self.at_peak:
            found[getattr(row, what)] += row.nbytes
        return dict(found.most_common())

    def json(self) -> str:
        """Everything as JSON text."""
        found = self._summary() | {
            "at_peak": [asdict(row) for row in self.at_peak],
            "alive": [asdict(row) for row in self.alive],
            "holders": HOLDERS,
            "timeline": [[m.seconds, m.live, m.phase, *m.by_holder] for m in self.timeline],
        }
        return json.dumps(found, indent=1)

    def _summary(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "peak_forward": self.peak_of("forward"),
            "peak_backward": self.peak_of("backward"),
            "exact_peak": self.exact_peak,
            "live": self.live,
            "resident_before": self.resident_before,
            "resident_after": self.resident_after,
            "by_holder": self.by_holder(),
        }

    def table(self, rows: int = 20) -> str:
        """The peak as plain text: totals, holders, then the largest rows."""
        title = (
            f"peak {format_bytes(self.peak)} (forward {format_bytes(self.peak_of('forward'))}, "
            f"backward {format_bytes(self.peak_of('backward'))})"
        )
        if self.exact_peak is not None:
            title += f", with allocations inside ops {format_bytes(self.exact_peak)}"
        held = ", ".join(f"{holder} {format_bytes(n)}" for holder, n in self.by_holder().items() if n)
        return f"{title}\nheld by: {held or 'nothing'}\n" + text_table([_HEAD, *self._table_rows(rows)], right=(0, 1))

    def _table_rows(self, rows: int) -> list[tuple[str, ...]]:
        return [(format_bytes(r.nbytes), str(r.count), r.holder, r.op, r.line) for r in self.at_peak[:rows]]

    def __rich__(self) -> Any:
        return rich_table(f"peak {format_bytes(self.peak)}", _HEAD, self._table_rows(20))

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        title, held, *_ = self.table(0).split("\n")
        table = html_table(_HEAD, self._table_rows(len(self.at_peak)), numbers=(0, 1))
        return html_block(title, f"<div>{escape(held)}</div>", self.svg(), table)

    def svg(self) -> str:
        """The timeline as an SVG picture: live bytes by holder, the backward pass shaded."""
        by_holder = {name: [m.by_holder[i] for m in self.timeline] for i, name in enumerate(HOLDERS)}
        shaded = [moment.phase == "backward" for moment in self.timeline]
        return draw_areas(
            by_holder, shaded, title="Live bytes", x_label="events: allocations and frees, in order",
            shade_label="backward pass", text=format_bytes,
        )  # fmt: skip

    def html(self) -> str:
        """The timeline and the table as one self-contained page."""
        page = Page("Memory")
        page.pictures(self.svg())
        page.text("Live bytes over events; the backward pass is shaded.")
        page.code(self.table(50))
        return page.html()

    def save(self, path: str | Path) -> None:
        """Write to a file, by its suffix: `.json`, `.svg`, `.html` or `.txt`."""
        write_by_suffix(path, {".json": self.json, ".svg": self.svg, ".html": self.html, ".txt": self.table})

    @property
    def _phase(self) -> str:
        return "backward" if self._passes else "forward"

    def _line(self, at: tuple[Any, int]) -> str:
        if at not in self._lines:
            self._lines[at] = "" if at[0] is None else format_line(*at)
        return self._lines[at]

    def _track(self, value: Any, origin: Origin, holder: str) -> None:
        with self._guard:
            for array in arrays_in(value):
                block, new = self._ledger.track(array)
                if new:
                    self._blocks += 1
                    self._log_event(block, self._blocks, holder, origin)
                elif holder == "gradient" and block.about.holder == "temporary":  # a rule returned it
                    self._log_event(block, block.about.block, holder, origin)

    def _mark_held(self, value: Any, holder: str) -> None:
        """What was temporary now has a holder."""
        with self._guard:
            for array in arrays_in(value):
                block = self._ledger.block(array)
                if block is not None and block.about.holder == "temporary":
                    self._log_event(block, block.about.block, holder, block.about.origin)

    def _log_event(self, block: Block, key: int, holder: str, origin: Origin) -> None:
        block.about = MemoryEvent(perf_counter() - self._start, key, block.nbytes, holder, origin, self._phase)
        self._events.append(block.about)

    def _on_free(self, block: Block) -> None:
        if block.about is not None:
            self._events.append(
                replace(block.about, seconds=perf_counter() - self._start, holder="", phase=self._phase)
            )

    def _readings(self) -> tuple[list[TimelinePoint], list[MemoryEvent], list[MemoryEvent]]:
        with self._guard:
            self._ledger.remove_freed()
            if self._reading is None or self._reading[0] != len(self._events):
                self._reading = len(self._events), replay_events(list(self._events))
            return self._reading[1]

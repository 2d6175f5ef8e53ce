"""Eager work in, its memory out: what lived when, made by which op on which line, held by whom."""

from __future__ import annotations

import json
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from types import CodeType, TracebackType
from typing import Any

from ...arrays import pages
from ...arrays.ledger import Block, Ledger
from ...arrays.node import Node, show_line, user_line
from ...arrays.tensor import Tensor
from ...checkpoint.report import mebibytes
from ...errors import ArgumentError, GraphError
from ...ops.keeping import Kept
from ...ops.observing import Observer, watched_by
from ...ops.op import Op
from ...settings import Modes, modes, switch_to
from ...tape.cotangents import arrays_in
from .log import HOLDERS, Event, Moment, Origin, Row, read, rows_of
from .showing import coloured, html, svg, table

__all__ = ["Profile", "profile"]

_HEAD = ("bytes", "count", "holder", "op", "line")


def profile(*, exact: bool = False) -> Profile:
    """Watch the memory of everything inside: `peak`, `timeline`, and by op, line and holder. With `exact`, every
    allocation of NumPy is counted too (by `tracemalloc`, which slows down), also those inside of ops.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> with pb.memory.profile() as seen:
    ...     pb.sum(pb.sin(pb.sin(x))).backward()
    >>> seen.by_holder()["kept"], seen.by_holder()["parameter"]
    (8000, 8000)
    """
    return Profile(exact)


class Profile(Observer):
    """What `profile` saw. Readings may be asked for during and after; bytes count each piece of memory once."""

    def __init__(self, exact: bool = False) -> None:
        self.exact_peak: int | None = None
        self.resident_before = self.resident_after = 0
        self._exact = exact
        self._guard = threading.RLock()
        self._events: list[Event] = []
        self._ledger = Ledger(self._freed)
        self._blocks = 0
        self._passes = 0
        self._start = 0.0
        self._lines: dict[tuple[CodeType, int], str] = {}
        self._before: Modes | None = None
        self._reading: tuple[int, tuple[list[Moment], list[Event], list[Event]]] | None = None

    def __enter__(self) -> Profile:
        if self._before is not None or self._events:
            raise GraphError("memory.profile: a profile watches once.\n  Make another one: pb.memory.profile().")
        self._before = modes()
        self.resident_before = pages.resident()
        self._start = perf_counter()
        if self._exact:
            self._exact = not tracemalloc.is_tracing()  # whoever traces already goes on after us
            tracemalloc.start()
            tracemalloc.reset_peak()
            self._traced = tracemalloc.get_traced_memory()[0]
        switch_to(replace(self._before, observer=watched_by(self._before.observer, self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            switch_to(self._before)
        if tracemalloc.is_tracing() and hasattr(self, "_traced"):
            self.exact_peak = tracemalloc.get_traced_memory()[1] - self._traced
            if self._exact:
                tracemalloc.stop()
        self.resident_after = pages.resident()

    def computed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        line = self._line(user_line(sys._getframe(2)))
        for arg, value in zip(args, values, strict=True):
            leaf = type(arg) is Tensor and arg.node is not None and arg.node.is_leaf
            self._see(value, Origin("leaf" if leaf else "given", line, self._phase), "parameter" if leaf else "input")
        out = compute()
        self._see(out, Origin(op.name, line, self._phase), "temporary")
        return out

    def noted(self, node: Node, out: Any) -> None:
        for value in node.kept:
            array = getattr(value, "array", None) if isinstance(value, Kept) else value
            self._hold(array, "kept")

    def ran(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        line = self._line(user_line(sys._getframe(1)))
        self._see(list(arrays), Origin("given", line, self._phase), "input")
        self._see(list(room), Origin(f"inside {name}", line, self._phase), "temporary")
        self._see(list(outs), Origin(name, line, self._phase), "temporary")

    def began(self) -> None:
        self._passes += 1

    def pulling(self, node: Node, bar: Any) -> None:
        self._see(bar, Origin("seed", self._line((node.code, node.lasti)), "backward"), "gradient")

    def pulled(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        if node is None:
            origin = Origin("sum of cotangents", "", "backward")
        else:
            origin = Origin(f"pull of {node.name}", self._line((node.code, node.lasti)), "backward")
        self._see(shares, origin, "gradient")

    def delivered(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if tensor.grad is not None:
                self._see(tensor.grad, Origin("grad", "", "backward"), "gradient")

    def ended(self, released: bool) -> None:
        self._passes -= 1
        self._ledger.settle()

    @property
    def peak(self) -> int:
        """The most bytes of arrays that lived at once."""
        return max((moment.live for moment in self.timeline), default=0)

    @property
    def live(self) -> int:
        """The bytes that live now, of what was seen."""
        return self._ledger.settle()

    @property
    def timeline(self) -> list[Moment]:
        """The bytes that live after each event: `seconds`, `live`, `phase`, `by_holder`."""
        return self._read()[0]

    @property
    def at_peak(self) -> tuple[Row, ...]:
        """What lived at the peak, put together by holder, op and line; the largest first."""
        return rows_of(self._read()[1])

    @property
    def alive(self) -> tuple[Row, ...]:
        """What lives at the end, put together likewise."""
        return rows_of(self._read()[2])

    def peak_of(self, phase: str) -> int:
        """The peak on the way "forward", or "backward"."""
        if phase not in ("forward", "backward"):
            raise ArgumentError(f"peak_of: phase is 'forward' or 'backward', got {phase!r}.")
        return max((moment.live for moment in self.timeline if moment.phase == phase), default=0)

    def by_holder(self) -> dict[str, int]:
        """Bytes at the peak by who holds them."""
        return {holder: sum(r.nbytes for r in self.at_peak if r.holder == holder) for holder in HOLDERS}

    def by_op(self) -> dict[str, int]:
        """Bytes at the peak by the op that made them, the largest first."""
        return self._by("op")

    def by_line(self) -> dict[str, int]:
        """Bytes at the peak by the user's line that made them, the largest first."""
        return self._by("line")

    def _by(self, what: str) -> dict[str, int]:
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
            f"peak {mebibytes(self.peak)} (forward {mebibytes(self.peak_of('forward'))}, "
            f"backward {mebibytes(self.peak_of('backward'))})"
        )
        if self.exact_peak is not None:
            title += f", with what is inside of ops {mebibytes(self.exact_peak)}"
        held = ", ".join(f"{holder} {mebibytes(n)}" for holder, n in self.by_holder().items() if n)
        return f"{title}\nheld by: {held or 'nobody'}\n" + table(_HEAD, self._shown(rows))

    def _shown(self, rows: int) -> list[tuple[str, ...]]:
        return [(mebibytes(r.nbytes), str(r.count), r.holder, r.op, r.line) for r in self.at_peak[:rows]]

    def __rich__(self) -> Any:
        return coloured(f"peak {mebibytes(self.peak)}", _HEAD, self._shown(20))

    def __str__(self) -> str:
        return self.table()

    def svg(self) -> str:
        """The timeline as an SVG picture: living bytes by holder, the way back shaded."""
        return svg(self.timeline)

    def html(self) -> str:
        """The timeline and the table as one page that needs nothing else."""
        return html(self.svg(), self.table(50))

    def save(self, path: str | Path) -> None:
        """Write to a file, by its ending: `.json`, `.svg`, `.html` or `.txt`."""
        writers = {".json": self.json, ".svg": self.svg, ".html": self.html, ".txt": self.table}
        suffix = Path(path).suffix
        if suffix not in writers:
            raise ArgumentError(f"save: wants a name that ends in {', '.join(writers)}, got {str(path)!r}.")
        Path(path).write_text(writers[suffix](), encoding="utf-8")

    @property
    def _phase(self) -> str:
        return "backward" if self._passes else "forward"

    def _line(self, at: tuple[Any, int]) -> str:
        if at not in self._lines:
            self._lines[at] = "" if at[0] is None else show_line(*at)
        return self._lines[at]

    def _see(self, value: Any, origin: Origin, holder: str) -> None:
        with self._guard:
            for array in arrays_in(value):
                block, new = self._ledger.see(array)
                if new:
                    self._blocks += 1
                    self._note(block, self._blocks, holder, origin)
                elif holder == "gradient" and block.about.holder == "temporary":  # a rule gave it
                    self._note(block, block.about.block, holder, origin)

    def _hold(self, value: Any, holder: str) -> None:
        """What was temporary is held by somebody."""
        with self._guard:
            for array in arrays_in(value):
                block = self._ledger.block(array)
                if block is not None and block.about.holder == "temporary":
                    self._note(block, block.about.block, holder, block.about.origin)

    def _note(self, block: Block, key: int, holder: str, origin: Origin) -> None:
        block.about = Event(perf_counter() - self._start, key, block.nbytes, holder, origin, self._phase)
        self._events.append(block.about)

    def _freed(self, block: Block) -> None:
        if block.about is not None:
            self._events.append(
                replace(block.about, seconds=perf_counter() - self._start, holder="", phase=self._phase)
            )

    def _read(self) -> tuple[list[Moment], list[Event], list[Event]]:
        with self._guard:
            self._ledger.settle()
            if self._reading is None or self._reading[0] != len(self._events):
                self._reading = len(self._events), read(list(self._events))
            return self._reading[1]

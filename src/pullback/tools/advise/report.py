"""`AdviceReport`: what costs time in a call, where, and what was gained by a change that was tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...arrays.html_text import html_block, html_table
from ...arrays.text import format_seconds, text_table
from ..render.tables import rich_table

_HEAD = ("topic", "what", "before", "after", "gain", "change", "where")
#: A change that gains less than this is within the noise of a busy machine.
LEAST_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding. `before` and `after` are seconds of a call without and with the change, if it was tried."""

    topic: str
    what: str
    change: str
    where: str = ""
    before: float | None = None
    after: float | None = None

    @property
    def gain(self) -> float | None:
        """How many times faster the call is with the change; None: the change was not tried."""
        return None if self.before is None or self.after is None else self.before / self.after

    @property
    def is_worth_it(self) -> bool:
        """Whether a change that was tried gained anything."""
        return self.gain is not None and self.gain >= LEAST_GAIN

    def cells(self) -> tuple[str, ...]:
        """One row of a table."""
        times = ["" if t is None else format_seconds(t) for t in (self.before, self.after)]
        gain = "not tried" if self.gain is None else f"{self.gain:.2f}x"
        return self.topic, self.what, *times, gain, self.change, self.where


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """What `advise` found: changes that gained time, the largest gain first; then what was observed and cannot be tried
    from outside; then changes that were tried and gained nothing (`tried`).
    """

    seconds: float
    advice: tuple[Advice, ...]
    observations: tuple[Advice, ...]
    tried: tuple[Advice, ...]

    def __iter__(self) -> Iterator[Advice]:
        return iter((*self.advice, *self.observations))

    def about(self, topic: str) -> list[Advice]:
        """The findings of one topic, also of changes that gained nothing."""
        return [item for item in (*self, *self.tried) if item.topic == topic]

    def table(self) -> str:
        """Everything as plain text."""
        rows = [item.cells() for item in (*self, *self.tried)]
        return "\n".join([self._summary(), *([text_table([_HEAD, *rows])] if rows else [])])

    def _summary(self) -> str:
        best = f", {self.advice[0].gain:.2f}x at best" if self.advice else ""
        counts = f"{len(self.advice)} changes gain time{best}; {len(self.observations)} observations"
        return f"a call takes {format_seconds(self.seconds)}: {counts}; {len(self.tried)} changes gained nothing"

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        return rich_table(self._summary(), _HEAD, [item.cells() for item in (*self, *self.tried)])

    def _repr_html_(self) -> str:
        rows = [item.cells() for item in (*self, *self.tried)]
        return html_block(self._summary(), html_table(_HEAD, rows, numbers=(2, 3, 4)))

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

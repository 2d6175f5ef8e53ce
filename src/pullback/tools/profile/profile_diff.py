"""`diff`: what takes longer or shorter in one profile than in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...arrays.html_text import html_report
from ...arrays.text import format_seconds, text_table
from .summary import Row


@dataclass(frozen=True, slots=True)
class Change:
    """The time of its own that a line, op or module took, and how often it was called, before and after; in seconds."""

    key: str
    before: float
    after: float
    calls_before: int
    calls_after: int

    @property
    def seconds(self) -> float:
        """What was added."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """What changed from one profile to another, the largest change first."""

    by: str
    seconds_before: float
    seconds_after: float
    changes: tuple[Change, ...]

    def table(self, rows: int = 25) -> str:
        """The largest changes as text."""
        head = ("change", "before", "after", "calls", self.by)
        shown = [_table_row(change) for change in self.changes[:rows]]
        whole = f"{format_seconds(self.seconds_before)} before, {format_seconds(self.seconds_after)} after"
        return f"{whole}\n{text_table([head, *shown], right=range(4))}"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return html_report(self.table())


def _table_row(change: Change) -> tuple[str, ...]:
    sign = "-" if change.seconds < 0 else "+"
    calls = f"{change.calls_before} -> {change.calls_after}"
    times = [format_seconds(x) if x > 0 else "-" for x in (change.before, change.after)]
    return (f"{sign}{format_seconds(abs(change.seconds))}", *times, calls, change.key)


def compare(before: Sequence[Row], after: Sequence[Row], by: str, seconds: tuple[float, float]) -> ProfileDiff:
    """The rows of two profiles side by side."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    none = Row("")
    changes = [
        Change(key, (b := old.get(key, none)).own, (a := new.get(key, none)).own, b.calls, a.calls)
        for key in dict.fromkeys((*old, *new))
    ]
    return ProfileDiff(by, *seconds, tuple(sorted(changes, key=lambda c: -abs(c.seconds))))

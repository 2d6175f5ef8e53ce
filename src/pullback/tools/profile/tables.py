"""Rows of a profile as a table: text, or for `rich`."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays.text import format_bytes, format_seconds
from .events import PHASES, Event
from .roofline import Roofline
from .summary import Row


def shown_phases(rows: Sequence[Row]) -> list[str]:
    """Forward and backward always, the others where time was spent in them."""
    return [p for p in PHASES if p in ("forward", "backward") or any(row.by_phase[p] for row in rows)]


def format_rows(rows: Sequence[Row], by: str, wall: float, most: int) -> list[tuple[str, ...]]:
    """A heading, then a row each."""
    phases = shown_phases(rows)
    head = ("share", "self", *phases, "total", "calls", "allocated", by)
    return [head, *(_table_row(row, phases, wall) for row in rows[:most])]


def _table_row(row: Row, phases: Sequence[str], wall: float) -> tuple[str, ...]:
    spent = [format_time(row.by_phase[p]) for p in phases]
    allocated = format_bytes(row.nbytes) if row.nbytes else "-"
    share = f"{100 * row.own / wall:.1f}%" if wall else "-"
    return (share, format_time(row.own), *spent, format_time(row.total), str(row.calls), allocated, row.key)


def format_time(seconds: float) -> str:
    return format_seconds(seconds) if seconds > 0 else "-"


def step_rows(events: Sequence[Event], machine: Roofline | None) -> list[tuple[str, ...]]:
    """The steps of compiled programs: time, bytes moved, operations, and the share of what the machine can do."""
    head = ("time", "runs", "moved", "GB/s", "GFLOP/s", "of roofline", "program", "step")
    sums: dict[tuple[str, str], list[int]] = {}
    for e in events:
        if e.program:
            found = sums.setdefault((e.program, e.name), [0, 0, 0, 0, 0])
            for i, more in enumerate((e.spent, e.runs, e.moved, e.operations, e.is_double)):
                found[i] += more
    return [head, *(_step_row(key, machine, *found) for key, found in sums.items())]


def _step_row(
    key: tuple[str, str], machine: Roofline | None, ns: int, runs: int, moved: int, operations: int, doubles: int
) -> tuple[str, ...]:
    rates = (f"{moved / ns:.1f}", f"{operations / ns:.1f}") if ns else ("-", "-")
    reached = None if machine is None else machine.share(operations, moved, ns * 1e-9, doubles > 0)
    share = "not measured" if reached is None else f"{reached:.0%}"
    return (format_time(ns * 1e-9), str(runs), format_bytes(moved), *rates, share, *key)

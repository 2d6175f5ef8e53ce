"""`diff`: what grew between two memory profiles."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ...arrays.html_text import html_report
from ...arrays.text import format_bytes, text_table
from .event_log import MemoryRow
from .profile import Profile


@dataclass(frozen=True, slots=True)
class Change:
    """The change in bytes and blocks of one op, line and holder."""

    nbytes: int
    count: int
    holder: str
    op: str
    line: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What `diff` found: of the peak, and of what was alive at the end; the largest changes first."""

    peak: int
    live: int
    at_peak: tuple[Change, ...]
    alive: tuple[Change, ...]

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def table(self, rows: int = 20) -> str:
        """Both lists as plain text."""
        parts = []
        for title, total, changes in (("peak", self.peak, self.at_peak), ("alive at the end", self.live, self.alive)):
            shown = [(format_signed_bytes(c.nbytes), f"{c.count:+d}", c.holder, c.op, c.line) for c in changes[:rows]]
            parts.append(f"{title}: {format_signed_bytes(total)}")
            parts.append(
                text_table([("bytes", "count", "holder", "op", "line"), *shown], right=(0, 1))
                if shown
                else "  nothing changed"
            )
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return html_report(self.table())


def format_signed_bytes(nbytes: int) -> str:
    return f"{'-' if nbytes < 0 else '+'}{format_bytes(abs(nbytes))}"


def diff(before: Profile, after: Profile) -> Difference:
    """What grew or shrank from one profile to another, by op and line.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> with pb.memory.profile() as short:
    ...     y = pb.sin(x)
    >>> with pb.memory.profile() as long:
    ...     y = pb.sin(pb.sin(x))
    >>> found = pb.memory.diff(short, long)
    >>> found.peak, found.at_peak[0].op
    (8000, 'sin')
    """
    return Difference(
        after.peak - before.peak,
        after.live - before.live,
        _compare_rows(before.at_peak, after.at_peak),
        _compare_rows(before.alive, after.alive),
    )


def _compare_rows(before: Iterable[MemoryRow], after: Iterable[MemoryRow]) -> tuple[Change, ...]:
    nbytes: Counter[tuple[str, str, str]] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    for sign, rows in ((-1, before), (1, after)):
        for row in rows:
            nbytes[row.holder, row.op, row.line] += sign * row.nbytes
            count[row.holder, row.op, row.line] += sign * row.count
    found = [Change(nbytes[key], count[key], *key) for key in nbytes if nbytes[key] or count[key]]
    return tuple(sorted(found, key=lambda c: (-abs(c.nbytes), c.line, c.op)))

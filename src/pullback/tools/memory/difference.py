"""Two profiles in, what grew between them out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ...checkpoint.report import mebibytes
from .log import Row
from .profile import Profile
from .showing import table

__all__ = ["Change", "Difference", "diff"]


@dataclass(frozen=True, slots=True)
class Change:
    """How bytes and blocks that one op made on one line, held alike, have changed."""

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
            shown = [(signed(c.nbytes), f"{c.count:+d}", c.holder, c.op, c.line) for c in changes[:rows]]
            parts.append(f"{title}: {signed(total)}")
            parts.append(table(("bytes", "count", "holder", "op", "line"), shown) if shown else "  nothing changed")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.table()


def signed(nbytes: int) -> str:
    return f"{'-' if nbytes < 0 else '+'}{mebibytes(abs(nbytes))}"


def diff(before: Profile, after: Profile) -> Difference:
    """What grew or shrank from one profile to another, and where it was made.

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
        _changes(before.at_peak, after.at_peak),
        _changes(before.alive, after.alive),
    )


def _changes(before: Iterable[Row], after: Iterable[Row]) -> tuple[Change, ...]:
    nbytes: Counter[tuple[str, str, str]] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    for sign, rows in ((-1, before), (1, after)):
        for row in rows:
            nbytes[row.holder, row.op, row.line] += sign * row.nbytes
            count[row.holder, row.op, row.line] += sign * row.count
    found = [Change(nbytes[key], count[key], *key) for key in nbytes if nbytes[key] or count[key]]
    return tuple(sorted(found, key=lambda c: (-abs(c.nbytes), c.line, c.op)))

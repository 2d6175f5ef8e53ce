"""`Certificate`: the outcomes of a certification as a table in text, Markdown or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...arrays.html_text import html_block, html_folded, html_table
from ...arrays.text import text_table

#: Marks the start and end of the table in a page.
MARK = "<!-- the table of certification -->"


class Outcome(NamedTuple):
    """One role of one case: its error, the error allowed, and where it was."""

    subject: str
    role: str
    where: str
    error: float
    allowed: float
    description: str

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed  # never true of NaN


@dataclass(slots=True)
class Tally:
    """The result of one role of one op or function: cases, failures, the worst error, the first failure as text."""

    cases: int = 0
    failures: int = 0
    worst: float = 0.0
    first: str = ""

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.worst = max(self.worst, outcome.error) if outcome.error == outcome.error else float("inf")
        if not outcome.ok:
            self.failures += 1
            self.first = self.first or (
                f"{outcome.where}: error {outcome.error:.2g}, allowed {outcome.allowed:.2g}\n    {outcome.description}"
            )


@dataclass(slots=True)
class Certificate:
    """What a certification found: true when nothing failed. `rows` has a tally of cases, failures and the worst error
    for each subject and role, `excused` the declared exceptions with their reasons. `str()` is a table.

    >>> import numpy as np, pullback as pb
    >>> report = pb.certify(pb.sinh, np.array([0.5, 1.5]))
    >>> report.failures, report.rows["sinh"]["transpose"].cases
    (0, 1)
    """

    roles: tuple[str, ...]
    rows: dict[str, dict[str, Tally]] = field(default_factory=dict)
    excused: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        row = self.rows.setdefault(outcome.subject, {})
        row.setdefault(outcome.role, Tally()).add(outcome)

    @property
    def cases(self) -> int:
        return sum(tally.cases for row in self.rows.values() for tally in row.values())

    @property
    def failures(self) -> int:
        return sum(tally.failures for row in self.rows.values() for tally in row.values())

    def __bool__(self) -> bool:
        return self.failures == 0

    def __str__(self) -> str:
        lines = self._table_by_role() if len(self.rows) <= 1 else self._table_by_subject()
        return "\n".join([text_table(lines), *self.verdict_lines()])

    def _repr_html_(self) -> str:
        head, *rows = self._table_by_role() if len(self.rows) <= 1 else self._table_by_subject()
        title, *more = self.verdict_lines()
        return html_block(title, html_table(head, rows, range(1, len(head))), html_folded("findings", "\n".join(more)))

    def verdict_lines(self) -> list[str]:
        """The verdict, and the first failure of each role that failed."""
        found = [f"{self.cases} cases, {self.failures} failures, {len(self.excused)} declared exceptions"]
        for subject, row in self.rows.items():
            found += [f"  {subject}, {role}: {t.first}" for role, t in row.items() if t.failures]
        return found + [f"  {subject}, {role}, excused: {why}" for (subject, role), why in self.excused.items()]

    def markdown(self) -> str:
        """The table of ops by roles, as in the docs."""
        heading, *rows = self._table_by_subject()
        lines = [heading, ["---"] * len(heading), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self) -> str:
        """Every tally, for programs."""
        rows = {s: {role: _as_dict(t) for role, t in row.items()} for s, row in self.rows.items()}
        excused = [{"subject": s, "role": role, "reason": why} for (s, role), why in self.excused.items()]
        total = {"cases": self.cases, "failures": self.failures}
        return json.dumps({**total, "exceptions": excused, "rows": rows}, indent=1)

    def write(self, path: Path) -> None:
        """The table to a file, by its suffix: .json, .md, or text. In a page with two marks, what is between them."""
        if path.suffix == ".json":
            path.write_text(self.json() + "\n")
        elif path.suffix == ".md":
            page = path.read_text() if path.exists() else ""
            before, mark, rest = page.partition(MARK)
            after = rest.partition(MARK)[2] if mark else "\n"
            verdict = f"{self.cases} cases of {len(self.rows)} ops, {self.failures} failures."
            path.write_text(f"{before}{MARK}\n\n{verdict}\n\n{self.markdown()}\n\n{MARK}{after}")
        else:
            path.write_text(f"{self}\n")

    def _table_by_role(self) -> list[list[str]]:
        lines = [["role", "cases", "failures", "worst error"]]
        for row in self.rows.values():
            lines += [[role, str(t.cases), str(t.failures), f"{t.worst:.1e}"] for role, t in row.items()]
        return lines

    def _table_by_subject(self) -> list[list[str]]:
        lines = [["op", *self.roles]]
        for subject, row in sorted(self.rows.items()):
            lines.append([subject, *(self._cell(subject, role, row.get(role)) for role in self.roles)])
        return lines

    def _cell(self, subject: str, role: str, tally: Tally | None) -> str:
        """Cases, and failures where there are any."""
        if tally is None:
            return "excused" if (subject, role) in self.excused else "-"
        return f"{tally.cases} ({tally.failures} failed)" if tally.failures else str(tally.cases)


def _as_dict(tally: Tally) -> dict[str, Any]:
    worst = tally.worst if tally.worst < float("inf") else None  # JSON has no infinity
    return {"cases": tally.cases, "failures": tally.failures, "worst": worst, "first": tally.first}

"""`NanReport`: which op made the first NaN or infinity that reached a result, or which argument had it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arrays.html_text import html_report
from .records import Fault, Source


@dataclass(frozen=True, slots=True, eq=False)
class NanReport:
    """What `find_nan` found. It is true if all results are finite."""

    #: The first op whose NaN or infinity reached a result, or led to one that did; None if none did.
    first: Fault | None
    #: By the path of each result that is not finite: "nan" or "inf", and where it came from.
    results: dict[str, tuple[str, Source | Fault]]
    #: By the path of each argument that was not finite: "nan" or "inf".
    arguments: dict[str, str]
    #: All ops that made NaNs or infinities, in their order, also those whose numbers reached no result.
    faults: tuple[Fault, ...]
    #: Ops whose results were not finite because their arguments were not: names and lines, if they were asked for.
    passed: tuple[tuple[str, str], ...] = ()
    #: The error that ended the run, after the faults.
    error: Exception | None = None
    #: The compiled function that ran; whether the backward pass ran too.
    what: str = "the call"

    def __bool__(self) -> bool:
        return not self.results and self.error is None

    def __str__(self) -> str:
        lines = [str(self.first)] if self.first is not None else []
        for path, (kind, source) in list(self.results.items())[:8]:
            lines.append(f"{path} has {kind}" + (f", from {source}" if isinstance(source, Source) else ""))
        if self.error is not None:
            lines.append(f"{self.what} ended in {type(self.error).__name__}: {str(self.error).partition(chr(10))[0]}")
        if not lines:
            lines.append(f"all results of {self.what} are finite" + self._unreached())
        given = [f"argument {path} has {kind}" for path, kind in self.arguments.items()]
        passed = [f"then {name} at {line}" for name, line in self.passed]
        return "\n".join([*lines, *given, *passed])

    def _unreached(self) -> str:
        count = len(self.faults)
        return f"; {count} op{'s' * (count > 1)} made others on the way, which reached none (report.faults)" * bool(
            count
        )

    def __rich__(self) -> Any:
        from rich.panel import Panel
        from rich.text import Text

        return Panel(Text(str(self)), title="find_nan")

    def _repr_html_(self) -> str:
        return html_report(str(self))

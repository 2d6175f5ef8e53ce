"""`Comparison`: the first step in which two runs differ by more than asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arrays.html_text import html_report
from ...arrays.origin import Origin


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """A step, or a result, whose values differ by more than asked."""

    #: The name of the op; of a result, its path.
    name: str
    #: The user's line, rules, rounds and modules of the step; None for a result.
    origin: Origin | None
    #: The element that differs most, its two values, and the largest difference relative to the largest number.
    index: tuple[int, ...]
    values: tuple[Any, Any]
    relative: float
    #: Both results in short: spec and range.
    summaries: tuple[str, str]
    #: The largest relative difference of its arguments; None where that is unknown.
    arguments: float | None = None

    @property
    def line(self) -> str:
        """The user's line, as `file.py:12: y = x / x`."""
        return "" if self.origin is None else self.origin.line

    @property
    def places(self) -> tuple[str, ...]:
        """Rounds of loops and the module of the step, outermost first."""
        return () if self.origin is None else self.origin.places

    def __str__(self) -> str:
        where = f" at {list(self.index)}" if self.index else ""
        text = [
            f"{self.name} differs{where}: {self.values[0]:.9g} and {self.values[1]:.9g}, {self.relative:.1e} relative"
        ]
        if self.line:
            text.append(f"  at {self.line}")
        if self.origin is not None and (inside := (*self.origin.rules, *self.places)):
            text.append("  in " + ", in ".join(inside))
        text += [f"  {side}: {summary}" for side, summary in zip(("left ", "right"), self.summaries, strict=True)]
        if self.arguments is not None:
            text.append(f"  its arguments differ by at most {self.arguments:.1e} relative")
        return "\n".join(text)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What `compare` found. It is true if no step and no result differs by more than asked."""

    #: The first step that differs, of those that were compared.
    first: Difference | None
    #: The results that differ.
    results: tuple[Difference, ...]
    #: How many steps were compared, and how many each run had.
    compared: int
    steps: tuple[int, int]
    #: How the runs were aligned, and what was not compared.
    note: str

    def __bool__(self) -> bool:
        return self.first is None and not self.results

    def __str__(self) -> str:
        parts = [str(self.first)] if self.first is not None else []
        if not parts:
            parts = [f"no step differs by more than asked, of {self.compared} compared"]
        parts += [f"{d.name}: {d.values[0]:.9g} and {d.values[1]:.9g} at {list(d.index)}" for d in self.results[:8]]
        return "\n".join([*parts, self.note])

    def __rich__(self) -> Any:
        from rich.panel import Panel
        from rich.text import Text

        return Panel(Text(str(self)), title="compare")

    def _repr_html_(self) -> str:
        return html_report(str(self))

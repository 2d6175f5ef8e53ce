"""`GradientReport`: tables, pictures and a page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.html_text import MOST_ROWS, html_block, html_table
from ...arrays.text import text_table
from ..render.html_page import Page, write_by_suffix
from ..render.svg_plots import COLORS, Bar, draw_bars
from ..render.tables import rich_table
from .activations import ActivationRow
from .parameters import ParameterRow

_PARAMETERS = ("parameter", "shape", "gradient norm", "of values", "zero", "dead slices", "finding")
_ACTIVATIONS = ("activation", "shape", "flat", "stuck units", "dead units", "finding", "line")
_STATE_COLORS = dict(zip(("", "vanishing", "exploding", "not finite", "saturated"), (0, 1, 3, 3, 4), strict=True))


def _bar(name: str, number: float, text: str, state: str) -> Bar:
    return Bar(name, number, f"{text} {state}", COLORS[_STATE_COLORS.get(state, 7)])


@dataclass(frozen=True, slots=True)
class GradientReport:
    """What `gradient_report` found: a row for each parameter and each activation, in the order of the model. It is
    true if there are no findings.
    """

    parameters: tuple[ParameterRow, ...]
    activations: tuple[ActivationRow, ...] = ()

    def __bool__(self) -> bool:
        return not self.findings()

    def findings(self) -> dict[str, list[str]]:
        """The names of parameters and activations by what is wrong with them."""
        pairs = [(row.state, row.name) for row in self.parameters]
        pairs += [(row.state, f"{row.name} at {row.line}") for row in self.activations]
        found: dict[str, list[str]] = {}
        for state, name in pairs:
            if state:
                found.setdefault(state, []).append(name)
        return found

    def by_layer(self) -> dict[str, float]:
        """The norm of the gradient of each layer, parameters with one prefix together."""
        squares: dict[str, float] = {}
        for row in self.parameters:
            squares[row.layer] = float(np.hypot(squares.get(row.layer, 0.0), row.norm))
        return squares

    def table(self) -> str:
        """Everything as plain text."""
        parts = [self._summary(), text_table([_PARAMETERS, *(r.cells() for r in self.parameters)])]
        if self.activations:
            parts += ["", text_table([_ACTIVATIONS, *(r.cells() for r in self.activations)])]
        return "\n".join(parts)

    def _summary(self) -> str:
        found = [f"{state}: {', '.join(names)}" for state, names in self.findings().items()]
        return "; ".join(found) if found else "gradients: nothing vanishes, explodes, is dead or saturated"

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        from rich.console import Group

        tables = [rich_table(self._summary(), _PARAMETERS, [r.cells() for r in self.parameters])]
        if self.activations:
            tables.append(rich_table("activations", _ACTIVATIONS, [r.cells() for r in self.activations]))
        return Group(*tables)

    def _repr_html_(self) -> str:
        shown = GradientReport(self.parameters[:MOST_ROWS], self.activations[:MOST_ROWS])
        parts = [shown.svg(), html_table(_PARAMETERS, [r.cells() for r in self.parameters], numbers=(2, 3, 4))]
        if self.activations:
            parts += [html_table(_ACTIVATIONS, [r.cells() for r in self.activations], numbers=(2, 3, 4))]
        return html_block(self._summary(), *parts)

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def svg(self) -> str:
        """The norms of all gradients as bars on a log scale, colored by finding."""
        rows = [_bar(r.name, r.norm, f"{r.norm:.1e}", r.state) for r in self.parameters]
        return draw_bars(rows, title="Norm of the gradient", log=True)

    def flatness(self) -> str:
        """The share of each activation that is flat, as bars."""
        rows = [_bar(f"{i} {r.name}", r.flat, f"{r.flat:.0%}", r.state) for i, r in enumerate(self.activations)]
        return draw_bars(rows, title="Flat part of each activation")

    def html(self) -> str:
        """One self-contained page with tables and pictures."""
        page = Page("Gradients")
        page.text(self._summary())
        page.pictures(self.svg(), *([self.flatness()] if self.activations else []))
        page.table(_PARAMETERS, [r.cells() for r in self.parameters], numbers=(2, 3, 4))
        if self.activations:
            page.heading("Activations")
            page.table(_ACTIVATIONS, [r.cells() for r in self.activations], numbers=(2, 3, 4))
        return page.html()

    def save(self, path: str | Path) -> None:
        """Write to a file, by its suffix: `.html`, `.svg`, `.json` or `.txt`."""
        write_by_suffix(path, {".html": self.html, ".svg": self.svg, ".json": self.json, ".txt": self.table})

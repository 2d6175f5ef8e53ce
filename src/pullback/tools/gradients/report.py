"""Rows in, a report out: what vanishes, explodes, is dead or saturated, as tables, pictures and a page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..memory.showing import coloured
from ..pages import Page
from ..plots import COLOURS, Bar, bars
from .activations import ActivationRow
from .parameters import ParameterRow

__all__ = ["GradientReport"]

_PARAMETERS = ("parameter", "shape", "gradient norm", "of values", "zero", "dead slices", "finding")
_ACTIVATIONS = ("activation", "shape", "flat", "stuck units", "dead units", "finding", "line")
_COLOUR = {
    "": COLOURS[0],
    "vanishing": COLOURS[1],
    "exploding": COLOURS[3],
    "not finite": COLOURS[3],
    "saturated": COLOURS[4],
}


@dataclass(frozen=True, slots=True)
class GradientReport:
    """What `gradient_report` found: a row for each parameter and each activation, in the order of the model. It is
    true if there is nothing to complain about.
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
        parts = [self._summary(), _columns(_PARAMETERS, [r.cells() for r in self.parameters])]
        if self.activations:
            parts += ["", _columns(_ACTIVATIONS, [r.cells() for r in self.activations])]
        return "\n".join(parts)

    def _summary(self) -> str:
        found = [f"{state}: {', '.join(names)}" for state, names in self.findings().items()]
        return "; ".join(found) if found else "gradients: nothing vanishes, explodes, is dead or saturated"

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Any:
        from rich.console import Group

        tables = [coloured(self._summary(), _PARAMETERS, [r.cells() for r in self.parameters])]
        if self.activations:
            tables.append(coloured("activations", _ACTIVATIONS, [r.cells() for r in self.activations]))
        return Group(*tables)

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def svg(self) -> str:
        """The norms of all gradients as bars by powers of ten, coloured by finding."""
        rows = [
            Bar(r.name, r.norm, f"{r.norm:.1e} {r.state}", _COLOUR.get(r.state, COLOURS[7])) for r in self.parameters
        ]
        return bars(rows, title="Norm of the gradient", log=True)

    def flatness(self) -> str:
        """The share of each activation that is flat, as bars."""
        rows = [
            Bar(f"{i} {r.name}", r.flat, f"{r.flat:.0%} {r.state}", _COLOUR.get(r.state, COLOURS[7]))
            for i, r in enumerate(self.activations)
        ]
        return bars(rows, title="Flat part of each activation")

    def html(self) -> str:
        """One page with tables and pictures that needs nothing else."""
        page = Page("Gradients")
        page.text(self._summary())
        page.pictures(self.svg(), *([self.flatness()] if self.activations else []))
        page.table(_PARAMETERS, [r.cells() for r in self.parameters], numbers=(2, 3, 4))
        if self.activations:
            page.heading("Activations")
            page.table(_ACTIVATIONS, [r.cells() for r in self.activations], numbers=(2, 3, 4))
        return page.html()

    def save(self, path: str | Path) -> None:
        """Write to a file, by its ending: `.html`, `.svg`, `.json` or `.txt`."""
        writers = {".html": self.html, ".svg": self.svg, ".json": self.json, ".txt": self.table}
        writer = writers.get(Path(path).suffix.lower())
        if writer is None:
            raise ArgumentError(f"save: wants a name that ends in {', '.join(writers)}, got {str(path)!r}.")
        Path(path).write_text(writer(), encoding="utf-8")


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in (head, *rows))

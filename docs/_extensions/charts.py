"""Bar charts of the measured tables in `benchmarks/README.md`: the directive `time-chart` and the README's figure.

`python docs/_extensions/charts.py` writes the figure, and its description in README.md, after a table has changed.
"""

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "benchmarks" / "README.md"
README = ROOT / "README.md"
FIGURE = ROOT / "docs" / "figures" / "step-times.svg"
OURS, TAPE, PEER = "#3b82f6", "#22a06b", "#8b929c"
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
WIDTH, LABEL, VALUE, BAR, LINE = 480, 140, 78, 15, 21


class Cell(NamedTuple):
    """A bar: its label, and the place of its number by section, row and column."""

    label: str
    section: str
    row: str
    column: str


def row_of(section: str, row: str, **columns: str) -> list[Cell]:
    return [Cell(label.replace("_", " "), section, row, column) for label, column in columns.items()]


def column_of(section: str, column: str, **rows: str) -> list[Cell]:
    return [Cell(label.replace("_", " "), section, row, column) for label, row in rows.items()]


EVERYONE = {
    "pullback_jit": "pullback, compiled", "pullback_tape": "pullback, eager", "PyTorch": "PyTorch",
    "torch.compile": "`torch.compile`", "JAX_jit": "`jax.jit`",
}  # fmt: skip
COMPILED = {
    "pullback_jit": "pullback", "JAX_jit": "`jax.jit`", "PyTorch": "PyTorch eager",
    "torch.compile": "`torch.compile`",
}  # fmt: skip
EAGER = {"pullback_tape": "pullback", "PyTorch": "PyTorch"}
#: The charts by name; the groups of each by title.
CHARTS = {
    "step-times": {
        "MLP 16-64-64-4, batch 32, compiled": row_of(
            "Compiled work", "a training step of 16-64-64-4, batch 32", **COMPILED
        ),
        "the same step, eager": row_of(
            "The loop people write", "MLP 16-64-64-4, batch 32, update by hand", **EAGER
        ),
        "a small CNN, batch 32": column_of(
            "Convolutions", "time", **{**EVERYONE, "pullback_tape": "pullback eager", "PyTorch": "PyTorch eager"}
        ),
        "a transformer of 4 layers, 128 wide": column_of("A transformer", "time", **EVERYONE),
    },
    "compiled": {
        row: row_of("Compiled work", row, **COMPILED)
        for row in (
            "a training step of 8-32-32-1, batch 1",
            "a training step of 784-256-128-10, batch 64",
            "a training step of 1024-1024-1024-10, batch 256",
            "tanh(h * w + x) 100 times with gradient, 10000 elements",
            "softmax cross-entropy 256x1000 with gradient",
            "layer norm 512x768 with gradients",
        )
    },
    "eager": {
        row.replace("`", ""): row_of("The loop people write", row, **EAGER)
        for row in (
            "MLP 8-32-32-1, batch 1, update by hand",
            "MLP 784-256-128-10, batch 64, update by hand",
            "`Module` 16-64-4, batch 32, `cross_entropy`, `Adam`",
            "the demo's CNN with Adam, batch 64",
        )
    },
}  # fmt: skip


class TimeChart(SphinxDirective):
    """One of the charts, as part of the page, in the colors of its text."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(TABLES))
        return [nodes.raw("", draw(self.arguments[0]), format="html")]


def draw(name: str) -> str:
    """The SVG of a chart: in each group the longest bar has the whole width."""
    parts, y = [], 4
    for title, cells in CHARTS[name].items():
        times = [seconds(find(cell)) for cell in cells]
        parts.append(text(0, y + 12, title, "font-weight='600'"))
        y += LINE
        for cell, time in zip(cells, times, strict=True):
            length = max((WIDTH - LABEL - VALUE) * time / max(times), 1.0)
            parts.append(text(LABEL - 8, y + 12, cell.label, "text-anchor='end'"))
            parts.append(f"<rect x='{LABEL}' y='{y}' width='{length:.1f}' height='{BAR}' fill='{color(cell.label)}'/>")
            parts.append(text(LABEL + length + 6, y + 12, find(cell), ""))
            y += LINE
        y += 10
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {y}' width='100%' style='max-width:640px'"
        f" font-family='system-ui, sans-serif' font-size='13' role='img' aria-label='{escape(describe(name))}'>"
        f"{''.join(parts)}</svg>"
    )


def standalone(name: str) -> str:
    """The chart as a file, which follows the reader's light or dark scheme."""
    style = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
    return draw(name).replace("'>", f"'>{style}", 1) + "\n"


def describe(name: str) -> str:
    """The chart in words, for readers who do not see it."""
    groups = (
        f"{title}: {', '.join(f'{cell.label} {find(cell)}' for cell in cells)}" for title, cells in CHARTS[name].items()
    )
    return "; ".join(groups)


def text(x: float, y: float, words: str, more: str) -> str:
    return f"<text x='{x:.1f}' y='{y}' fill='currentColor' {more}>{escape(words)}</text>"


def color(label: str) -> str:
    return {"pullback jit": OURS, "pullback tape": TAPE}.get(label, PEER)


def find(cell: Cell) -> str:
    """The text of a cell in the tables of a section; a place that is not there stops the build."""
    section = re.search(
        rf"^## {re.escape(cell.section)}\n(.*?)(?=^## |\Z)", TABLES.read_text(), re.DOTALL | re.MULTILINE
    )
    for table in re.findall(r"(?:^\|.*\n)+", section[1] if section else "", re.MULTILINE):
        heading, _, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in table.splitlines()]
        for row in rows:
            if row[0] == cell.row and cell.column in heading:
                return row[heading.index(cell.column)]
    raise ExtensionError(f"{TABLES} has no table with {cell}.")


def seconds(time: str) -> float:
    number, unit = time.split()
    return float(number) * SECONDS[unit]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("time-chart", TimeChart)
    return {"parallel_read_safe": True}


def with_description(readme: str) -> str:
    """The README with the numbers of its figure as the figure's description: package indexes do not show the figure."""
    return re.sub(r"!\[[^\]]*\](?=\(docs/figures/step-times)", f"![Step times. {describe('step-times')}]", readme)


if __name__ == "__main__":
    FIGURE.write_text(standalone("step-times"))
    README.write_text(with_description(README.read_text()))

"""HTML fragments: what notebooks show of values and reports, also parts of pages. Without scripts, classes or colors of
their own for text and background, so that they suit a light and a dark page; of bounded size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from .backends import to_host

#: The most rows of a table, and the rows and columns of an array that are shown.
MOST_ROWS, _ROWS, _COLUMNS = 20, 8, 10
#: The most characters of a cell or a title, and of folded text.
_CELL, _TEXT = 200, 20_000
#: Gray that is seen on black and on white.
_LINE = "rgba(128,128,128,.45)"
_IN_ADDRESS = str.maketrans({c: f"%{ord(c):02X}" for c in "%#<>&\"'\n"})
_INFINITY = float("inf")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str, most: int = _CELL) -> str:
    """Text that is shown as it is, cut after so many characters. (The standard module for it is slow to import.)

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return (text if len(text) <= most else f"{text[: most - 1]}…").translate(_ENTITIES)


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int] = (), most: int | None = MOST_ROWS
) -> str:
    """A table whose columns in `numbers` are right-aligned; of rows beyond `most` only the number is said."""
    shown = rows if most is None or len(rows) <= most else rows[:most]
    lines = [_table_row("th", head, numbers), *(_table_row("td", row, numbers) for row in shown)]
    more = f"<p>… and {len(rows) - len(shown):,} more rows</p>" if len(shown) < len(rows) else ""
    body = "\n".join(lines[1:])
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:13px">'
        f"<thead>{lines[0]}</thead>\n<tbody>{body}</tbody></table></div>{more}"
    )


def _table_row(kind: str, row: Sequence[str], numbers: Collection[int]) -> str:
    line = f";border-bottom:1px solid {_LINE}" if kind == "th" else ""
    left = f' style="text-align:left;vertical-align:top;padding:2px 14px 2px 0{line}"'
    right = f' style="text-align:right;font-variant-numeric:tabular-nums;padding:2px 14px 2px 0{line}"'
    cells = (f"<{kind}{right if i in numbers else left}>{escape(cell)}</{kind}>" for i, cell in enumerate(row))
    return f"<tr>{''.join(cells)}</tr>"


def html_block(title: str, *parts: str) -> str:
    """A line of text, then parts that are HTML already."""
    return "\n".join((f'<div style="margin:2px 0"><div><b>{escape(title, 2000)}</b></div>', *parts, "</div>"))


def html_report(text: str) -> str:
    """Text whose first line is its title and whose other lines are aligned."""
    title, _, rest = text.partition("\n")
    return html_block(title, _preformatted(rest) if rest else "")


def _preformatted(text: str) -> str:
    return f'<pre style="overflow-x:auto;font-size:12px">{escape(text, _TEXT)}</pre>'


def html_folded(title: str, text: str) -> str:
    """Preformatted text below a line that opens it."""
    return f"<details><summary>{escape(title)}</summary>{_preformatted(text)}</details>"


def html_array(title: str, array: Any) -> str:
    """An array as a table with a heat map behind its numbers: blue above zero, orange below. Of more than two axes the
    last two are shown, at the first index of the others.
    """
    if array.size == 0:
        return html_block(title, "<div>no elements</div>")
    extra = max(array.ndim - 2, 0)
    # indices first: an array on a GPU is not copied as a whole
    page = array[(0,) * extra].reshape(-1, array.shape[-1] if array.ndim else 1)
    rows, columns = _shown_indices(page.shape[0], _ROWS), _shown_indices(page.shape[1], _COLUMNS)
    numbers = to_host(page[[i for i in rows if i is not None]][:, [j for j in columns if j is not None]])
    cells = iter(_heat_cells(numbers))
    lines = ["".join("<td>…</td>" if None in (i, j) else next(cells) for j in columns) for i in rows]
    where = f"<div>[{', '.join(['0'] * extra)}, :, :]</div>" if extra else ""
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    table = f'<table style="border-collapse:collapse;font-size:12px;font-family:monospace">{body}</table>'
    return html_block(title, where, f'<div style="overflow-x:auto">{table}</div>')


def _shown_indices(count: int, most: int) -> list[int | None]:
    """All indices of a short axis; of a long one those at both ends, and None between them."""
    if count <= most:
        return list(range(count))
    ends = most // 2
    return [*range(ends), None, *range(count - ends, count)]


def _heat_cells(numbers: Any) -> list[str]:
    values = numbers if numbers.dtype.kind in "biufc" else numbers.astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)).ravel()
        largest = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))) or 1.0
        shares = np.clip(np.nan_to_num(sizes / largest, nan=1.0), 0.0, 1.0)
    return [_heat_cell(value, float(share)) for value, share in zip(values.ravel().tolist(), shares, strict=True)]


def _heat_cell(value: Any, share: float) -> str:
    """A number on a color whose opacity says how large it is: never so much that the text could not be read."""
    is_negative = not isinstance(value, complex) and value < 0
    color = "200,40,40" if not abs(value) < _INFINITY else "220,120,30" if is_negative else "50,110,200"
    text = f"{value:.4g}" if isinstance(value, float | complex) else str(value)
    style = f"background:rgba({color},{0.5 * share:.2f});padding:2px 6px;text-align:right"
    return f'<td style="{style}">{escape(text)}</td>'


def html_image(svg: str) -> str:
    """A drawing as an image: its styles and names stay inside, whatever else a page shows."""
    data = svg.translate(_IN_ADDRESS)
    return (
        f'<div style="overflow:auto;max-height:600px"><img alt="drawing" src="data:image/svg+xml;utf8,{data}"/></div>'
    )

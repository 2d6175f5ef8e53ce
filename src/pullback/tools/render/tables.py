"""Tables as aligned text, and for `rich`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def align_columns(rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    """Rows of cells as lines, the first `right` columns right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i < right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> str:
    """Columns of text, the first `right` of them right-aligned.

    >>> print(text_table(("bytes", "count", "op"), [("8 B", "1", "sin")], right=2))
    bytes  count  op
      8 B      1  sin
    """
    return "\n".join(align_columns([head, *rows], right))


def rich_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """The same for `rich`, which prints it in color."""
    from rich.table import Table

    table = Table(*head, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table

"""Tables for `rich`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rich_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """A table that `rich` prints in color."""
    from rich.table import Table

    table = Table(*head, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table

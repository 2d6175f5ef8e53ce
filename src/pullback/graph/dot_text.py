"""Drawings as text of the DOT language, which graphviz and its relatives lay out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def write_dot(cards: Iterable[Any], edges: Iterable[tuple[int, int]], colors: dict[str, str]) -> str:
    """Boxes with two lines, in the colors of their kinds, and arrows between them by number."""
    lines = ["digraph program {", '  node [shape=box, style="rounded,filled", fontname="monospace"];']
    for number, card in enumerate(cards):
        label = f"{quote(card.label)[:-1]}\\n{quote(card.below)[1:]}"
        color = colors.get(card.kind, "#eeeeee")
        lines.append(f'  n{number} [label={label}, tooltip={quote(card.hint[:500])}, fillcolor="{color}"];')
    lines += [f"  n{a} -> n{b};" for a, b in edges]
    return "\n".join([*lines, "}", ""])


def quote(text: str) -> str:
    """A text between quotes, without characters that mean something there."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'

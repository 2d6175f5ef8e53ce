"""Rows and curves in, text and pictures out: plain tables, an SVG timeline, a page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

from ...checkpoint.report import mebibytes
from .log import HOLDERS, Moment

__all__ = ["coloured", "html", "svg", "table"]

_COLOURS = ("#4878a8", "#8fb4d4", "#e0a040", "#b04848", "#b8b8b8")
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 320, 80, 30
#: A picture has no more points than this: pixels.
_POINTS = 900


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, the first two to the right.

    >>> print(table(("bytes", "count", "op"), [("8 B", "1", "sin")]))
    bytes  count  op
      8 B      1  sin
    """
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = []
    for line in (head, *rows):
        cells = [c.rjust(w) if i < 2 else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def coloured(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """The same for `rich`, which prints it in colours."""
    from rich.table import Table

    made = Table(*head, title=title, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


def thinned(timeline: Sequence[Moment]) -> list[Moment]:
    """At most some hundreds of moments: of each stretch the one with the most bytes, so that peaks stay."""
    if len(timeline) <= _POINTS:
        return list(timeline)
    step = len(timeline) / _POINTS
    cuts = [round(i * step) for i in range(_POINTS + 1)]
    return [max(timeline[a:b], key=lambda m: m.live) for a, b in pairwise(cuts)]


def svg(timeline: Sequence[Moment]) -> str:
    """Living bytes over events, stacked by holder; the way back stands on a shade."""
    moments = thinned(timeline)
    most = max((m.live for m in moments), default=0) or 1
    step = _WIDTH / max(len(moments) - 1, 1)

    def x(i: float) -> str:
        return f"{_LEFT + i * step:.1f}"

    def y(nbytes: float) -> str:
        return f"{_TOP + _HEIGHT * (1 - nbytes / most):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 20} {_HEIGHT + _TOP + 50}" '
        'font-family="sans-serif" font-size="12">'
    ]
    parts += [
        f'<rect x="{x(i - 0.5)}" y="{_TOP}" width="{step:.2f}" height="{_HEIGHT}" fill="#f0f0e4"/>'
        for i, m in enumerate(moments)
        if m.phase == "backward"
    ]
    floor = [0] * len(moments)
    for holder, colour in enumerate(_COLOURS):
        roof = [below + m.by_holder[holder] for below, m in zip(floor, moments, strict=True)]
        there = [f"{x(i)},{y(v)}" for i, v in enumerate(roof)]
        again = [f"{x(i)},{y(v)}" for i, v in reversed(list(enumerate(floor)))]
        parts.append(f'<polygon points="{" ".join(there + again)}" fill="{colour}"/>')
        floor = roof
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<text x="{_LEFT - 6}" y="{y(most * share)}" text-anchor="end">{mebibytes(most * share)}</text>')
    for i, (holder_name, colour) in enumerate(zip(HOLDERS, _COLOURS, strict=True)):
        at = _LEFT + 150 * i
        parts.append(f'<rect x="{at}" y="{_HEIGHT + _TOP + 20}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 18}" y="{_HEIGHT + _TOP + 31}">{holder_name}</text>')
    return "\n".join([*parts, "</svg>"])


def html(picture: str, text: str) -> str:
    """One page with the picture and the text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Memory</title></head>\n'
        f'<body style="font-family: sans-serif; max-width: 1000px; margin: auto">\n{picture}\n'
        f'<p>Living bytes over events; the way back is shaded.</p>\n<pre style="overflow: auto">{escape(text)}</pre>\n'
        "</body></html>\n"
    )

"""Memory profiles as an SVG timeline and a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from ...arrays.text import format_bytes
from .event_log import HOLDERS, TimelinePoint

_HOLDER_COLORS = ("#4878a8", "#8fb4d4", "#e0a040", "#b04848", "#b8b8b8")
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 320, 80, 30
#: The most points of a picture: about its pixels.
_POINTS = 900


def downsample_timeline(timeline: Sequence[TimelinePoint]) -> list[TimelinePoint]:
    """At most some hundreds of points: of each interval the one with the most bytes, so that peaks stay."""
    if len(timeline) <= _POINTS:
        return list(timeline)
    step = len(timeline) / _POINTS
    cuts = [round(i * step) for i in range(_POINTS + 1)]
    return [max(timeline[a:b], key=lambda m: m.live) for a, b in pairwise(cuts)]


def timeline_svg(timeline: Sequence[TimelinePoint]) -> str:
    """Live bytes over events, stacked by holder; the backward pass is shaded."""
    moments = downsample_timeline(timeline)
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
    for holder, color in enumerate(_HOLDER_COLORS):
        roof = [below + m.by_holder[holder] for below, m in zip(floor, moments, strict=True)]
        there = [f"{x(i)},{y(v)}" for i, v in enumerate(roof)]
        again = [f"{x(i)},{y(v)}" for i, v in reversed(list(enumerate(floor)))]
        parts.append(f'<polygon points="{" ".join(there + again)}" fill="{color}"/>')
        floor = roof
    for share in (0.0, 0.5, 1.0):
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(most * share)}" text-anchor="end">{format_bytes(most * share)}</text>'
        )
    for i, (holder_name, color) in enumerate(zip(HOLDERS, _HOLDER_COLORS, strict=True)):
        at = _LEFT + 150 * i
        parts.append(f'<rect x="{at}" y="{_HEIGHT + _TOP + 20}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{at + 18}" y="{_HEIGHT + _TOP + 31}">{holder_name}</text>')
    return "\n".join([*parts, "</svg>"])


def memory_page(picture: str, text: str) -> str:
    """One page with the picture and the text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Memory</title></head>\n'
        f'<body style="font-family: sans-serif; max-width: 1000px; margin: auto">\n{picture}\n'
        f"<p>Live bytes over events; the backward pass is shaded.</p>\n"
        f'<pre style="overflow: auto">{escape(text)}</pre>\n'
        "</body></html>\n"
    )

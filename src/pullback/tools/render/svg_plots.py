"""The SVG plots of reports: curves, bars and small images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .axis_scale import AxisScale, fit_scale, format_short

#: Colors that most people can tell apart, also in gray.
COLORS = ("#3566a5", "#d9822b", "#4b9e63", "#b8434a", "#7b5ea7", "#8a6d52", "#d174ab", "#6f7379", "#a6a032", "#2fa3b5")
#: Grays and `currentColor` suit a light and a dark page, and no styles leak into what else the page shows.
_GRID = 'stroke="gray" stroke-opacity=".3"'
_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 44
#: A curve has no more points than this; of each interval the lowest and the highest stay.
_POINTS = 600

Series = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length, the text at its end, and its color."""

    label: str
    number: float
    text: str = ""
    color: str = COLORS[0]


def draw_curves(
    series: Mapping[str, Series],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    log: bool = False,
    log_x: bool = False,
    text: Callable[[float], str] | None = None,
    cover: Sequence[float] = (),
    dashed_from: float | None = None,
    dashed_label: str = "",
    points: Mapping[str, Series] | None = None,
) -> str:
    """Curves over common axes, one for each name: (xs, ys). Values that cannot be shown leave a gap. `text` formats
    the ticks of the vertical axis, which also reaches the values in `cover`. From `dashed_from` on curves, which go
    from left to right, are dashed, beyond a line with a label. `points` are dots in the color of the curve of their
    name.

    >>> draw_curves({"loss": ([0, 1, 2], [3.0, 2.0, 1.5])}, title="Loss").startswith("<svg")
    True
    """
    xs = fit_scale((float(x) for one in series.values() for x in one[0]), log=log_x)
    ys = fit_scale([*cover, *(float(y) for one in series.values() for y in one[1])], log=log)
    parts = [*_draw_frame(xs, ys, title, x_label, y_label, text)]
    for i, (name, (x, y)) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        # the first of two is wide and pale, so that it is seen below one that coincides with it
        width, opacity = (6.0, 0.6) if i == 0 and len(series) == 2 else (1.6, 1.0)
        for path, dashes in _curve_paths(x, y, xs, ys, dashed_from):
            parts.append(
                f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width:.1f}" '
                f'stroke-opacity="{opacity}"{dashes} stroke-linejoin="round"><title>{escape(name)}</title></path>'
            )
    parts += [_draw_point(xs, ys, *point) for point in _colored_points(list(series), points or {})]
    if dashed_from is not None and xs.can_show(dashed_from):
        parts += _draw_border(_x_pixel(xs, dashed_from), dashed_label)
    if len(series) > 1:
        parts += _draw_legend(list(series))
    return _wrap_svg(_WIDTH, _HEIGHT + 22 * (1 + (len(series) - 1) // 4) * (len(series) > 1), title, parts)


def draw_areas(
    series: Mapping[str, Sequence[float]],
    shaded: Sequence[bool],
    *,
    title: str = "",
    x_label: str = "",
    shade_label: str = "",
    text: Callable[[float], str],
) -> str:
    """Areas one on top of the other, one for each name, over common places; those that are shaded have a background,
    which the label explains.
    """
    rows = list(series.values())
    totals = [float(sum(column)) for column in zip(*rows, strict=True)]
    places = _places_of_extremes(totals)
    xs, ys = AxisScale(0, max(len(places) - 1, 1)), AxisScale(0, max(totals, default=0.0) or 1.0)
    marks = [(number, text(number)) for number in (0.0, ys.high / 2, ys.high)]
    parts = [_title(_LEFT, title)]
    step = _x_pixel(xs, 1) - _x_pixel(xs, 0)
    parts += [
        f'<rect x="{_x_pixel(xs, i) - step / 2:.1f}" y="{_TOP}" width="{step:.2f}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}" fill="gray" fill-opacity=".16"/>'
        for i, place in enumerate(places)
        if shaded[place]
    ]
    floor = [0.0] * len(places)
    for number, row in enumerate(rows):
        roof = [below + row[place] for below, place in zip(floor, places, strict=True)]
        there, back = ([f"{_x_pixel(xs, i):.1f},{_y_pixel(ys, v):.1f}" for i, v in enumerate(e)] for e in (roof, floor))
        parts.append(f'<polygon points="{" ".join(there + back[::-1])}" fill="{COLORS[number % len(COLORS)]}"/>')
        floor = roof
    middle = f'x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - _BOTTOM + 24}" text-anchor="middle"'
    parts.append(f"<text {middle}>{escape(x_label)}</text>")
    if shade_label and any(shaded[place] for place in places):
        first = next(i for i, place in enumerate(places) if shaded[place])
        parts.append(f'<text x="{_x_pixel(xs, first) + 4:.1f}" y="{_TOP - 3}">{escape(shade_label)}</text>')
    parts += [_y_mark(ys, number, mark) for number, mark in marks] + _draw_legend(list(series))
    return _wrap_svg(_WIDTH, _HEIGHT + 22 * (1 + (len(series) - 1) // 4), title, parts)


def draw_bars(rows: Sequence[Bar], *, title: str = "", log: bool = False) -> str:
    """Horizontal bars, each with its label and its value; one that cannot be shown has no bar.

    >>> draw_bars([Bar("ours", 1.0), Bar("theirs", 2.0)], title="Time").count("<rect")
    2
    """
    scale = fit_scale((row.number for row in rows), log=log, zero=True)
    if log:  # the shortest bar is still a bar
        scale = AxisScale(scale.low / 3, scale.high, log=True)
    left = 20 + 6.6 * max((len(row.label) for row in rows), default=0)
    room = _WIDTH - left - 110
    parts = [_title(12, title)] if title else []
    for i, row in enumerate(rows):
        top = _TOP + 24 * i
        length = room * scale.position(row.number) if scale.can_show(row.number) else 0.0
        text = escape(row.text or format_short(row.number))
        parts.append(f'<text x="{left - 8:.1f}" y="{top + 13}" text-anchor="end">{escape(row.label)}</text>')
        parts.append(f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="17" fill="{escape(row.color)}"/>')
        parts.append(f'<text x="{left + length + 6:.1f}" y="{top + 13}">{text}</text>')
    return _wrap_svg(_WIDTH, _TOP + 24 * len(rows) + 10, title, parts)


def draw_images(
    images: Sequence[Sequence[Sequence[float]]], captions: Sequence[str], marked: Sequence[bool], *, title: str = ""
) -> str:
    """Small gray images of values from 0 (white) to 1 (black) in rows, captions below them; marked ones stand out."""
    size, step, across = 48, 60, 12
    parts = [_title(12, title)] if title else []
    for i, (image, caption, mark) in enumerate(zip(images, captions, marked, strict=True)):
        left, top = 12 + step * (i % across), 30 + (step + 18) * (i // across)
        cell = size / max(len(image), 1)
        dots = "".join(
            f'<rect x="{c * cell:.1f}" y="{r * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" opacity="{dark:.2f}"/>'
            for r, row in enumerate(image)
            for c, dark in enumerate(row)
            if dark > 0
        )
        edge, ink = (COLORS[3], COLORS[3]) if mark else ("gray", "currentColor")
        parts.append(f'<g transform="translate({left} {top})"><title>{escape(caption)}</title>{dots}')
        parts.append(f'<rect width="{size}" height="{size}" fill="none" stroke="{edge}" stroke-width="{1 + mark}"/>')
        place = f'x="{size / 2}" y="{size + 13}" text-anchor="middle"'
        parts.append(f'<text {place} fill="{ink}">{escape(caption)}</text></g>')
    lines = -(-len(images) // across)
    return _wrap_svg(24 + step * across, 40 + (step + 18) * lines, title, parts)


def _wrap_svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
    )
    return "\n".join([head, *parts, "</svg>"])


def _title(left: float, text: str) -> str:
    return f'<text x="{left}" y="20" font-size="14" font-weight="600">{escape(text)}</text>'


def _x_pixel(scale: AxisScale, number: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * scale.position(number)


def _y_pixel(scale: AxisScale, number: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * scale.position(number)


def _draw_frame(
    xs: AxisScale, ys: AxisScale, title: str, x_label: str, y_label: str, y_text: Callable[[float], str] | None
) -> list[str]:
    """Title, labels, grid lines and their ticks."""
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [_title(_LEFT, title)]
    for number, text in ys.ticks():
        y = _y_pixel(ys, number)
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" {_GRID}/>')
        parts.append(_y_mark(ys, number, text if y_text is None else escape(y_text(number))))
    for number, text in xs.ticks():
        parts.append(f'<text x="{_x_pixel(xs, number):.1f}" y="{floor + 16}" text-anchor="middle">{text}</text>')
    parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{floor}" y2="{floor}" stroke="gray"/>')
    parts.append(f'<text x="{(_LEFT + right) / 2}" y="{floor + 34}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(
        f'<text transform="translate(14 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return parts


def _y_mark(scale: AxisScale, number: float, text: str) -> str:
    return f'<text x="{_LEFT - 6}" y="{_y_pixel(scale, number) + 4:.1f}" text-anchor="end">{text}</text>'


def _colored_points(names: list[str], points: Mapping[str, Series]) -> list[tuple[float, float, str]]:
    return [
        (float(x), float(y), COLORS[names.index(name) % len(COLORS)])
        for name, (across, up) in points.items()
        for x, y in zip(across, up, strict=True)
    ]


def _draw_point(xs: AxisScale, ys: AxisScale, x: float, y: float, color: str) -> str:
    if not (xs.can_show(x) and ys.can_show(y)):
        return ""
    return f'<circle cx="{_x_pixel(xs, x):.1f}" cy="{_y_pixel(ys, y):.1f}" r="3.5" fill="{color}"/>'


def _draw_border(x: float, label: str) -> list[str]:
    """A vertical line, and what is beyond it."""
    floor = _HEIGHT - _BOTTOM
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}" {_GRID} stroke-dasharray="2 3"/>'
    return [line, f'<text x="{x + 5:.1f}" y="{floor - 6}">{escape(label)}</text>']


def _curve_paths(
    across: Sequence[float], up: Sequence[float], xs: AxisScale, ys: AxisScale, dashed_from: float | None
) -> list[tuple[str, str]]:
    """The path of a curve and its dashes; two that meet where it begins to be dashed."""
    if dashed_from is None:
        return [(_curve_path(across, up, xs, ys), "")]
    solid = sum(x <= dashed_from for x in across)
    start = max(solid - 1, 0)
    parts = [(across[:solid], up[:solid], ""), (across[start:], up[start:], ' stroke-dasharray="6 4"')]
    return [(_curve_path(x, y, xs, ys), dashes) for x, y, dashes in parts if len(x) > 1]


def _curve_path(across: Sequence[float], up: Sequence[float], xs: AxisScale, ys: AxisScale) -> str:
    path, pen = [], "M"
    for i in _places_of_extremes(up):
        x, y = float(across[i]), float(up[i])
        if xs.can_show(x) and ys.can_show(y):
            path.append(f"{pen}{_x_pixel(xs, x):.1f} {_y_pixel(ys, y):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(path)


def _places_of_extremes(numbers: Sequence[float]) -> list[int]:
    """All places of few numbers; of many, the lowest and the highest in each interval."""
    if len(numbers) <= _POINTS:
        return list(range(len(numbers)))
    stretch = math.ceil(2 * len(numbers) / _POINTS)
    kept: list[int] = []
    for start in range(0, len(numbers), stretch):
        part = range(start, min(start + stretch, len(numbers)))
        kept += sorted({min(part, key=lambda i: numbers[i]), max(part, key=lambda i: numbers[i])})
    return kept


def _draw_legend(names: Sequence[str]) -> list[str]:
    parts = []
    for i, name in enumerate(names):
        x, y = _LEFT + 145 * (i % 4), _HEIGHT + 22 * (i // 4)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLORS[i % len(COLORS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 11}">{escape(name)}</text>')
    return parts

"""Small SVG pictures for the gallery: lines, dots, bars, words and heat maps in one frame, without axes.

Text and frames have the color of the page's text, so the pictures suit a light and a dark page.
"""

import base64
import struct
import zlib
from html import escape
from typing import Any

import numpy as np

WIDTH, HEIGHT, EDGE = 320, 200, 8
BLUE, ORANGE, GREEN, RED, GRAY = "#3b82f6", "#e08a2e", "#22a06b", "#d6455d", "#8b929c"
#: The colors of a heat map from its least to its greatest value: dark blue, white, dark red.
HEAT = np.array([[33, 68, 133], [120, 165, 214], [245, 245, 240], [232, 150, 110], [160, 35, 50]], float)
INK = np.array([[255, 255, 255], [0, 0, 0]], float)


class Picture:
    """A frame that shows x from `left` to `right` and y from `low` to `high`; `square` keeps circles round."""

    def __init__(self, xs: Any, ys: Any, square: bool = False) -> None:
        (left, right), (low, high) = (np.min(xs), np.max(xs)), (np.min(ys), np.max(ys))
        across, up = (WIDTH - 2 * EDGE) / (right - left), (HEIGHT - 2 * EDGE) / (high - low)
        self.scale = (min(across, up), min(across, up)) if square else (across, up)
        self.middle = (left + right) / 2, (low + high) / 2
        self.parts: list[str] = []

    def places(self, xs: Any, ys: Any) -> np.ndarray:
        """Points in pixels, one a row."""
        x = WIDTH / 2 + (np.asarray(xs, float) - self.middle[0]) * self.scale[0]
        y = HEIGHT / 2 - (np.asarray(ys, float) - self.middle[1]) * self.scale[1]
        return np.stack([x, y], axis=-1).reshape(-1, 2)

    def line(self, xs: Any, ys: Any, color: str = BLUE, width: float = 2.0, dash: str = "") -> None:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.places(xs, ys))
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}"{dashes}/>')

    def dots(self, xs: Any, ys: Any, color: str = BLUE, size: float = 3.0) -> None:
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in self.places(xs, ys))
        self.parts.append(f'<path d="{path}" stroke="{color}" stroke-width="{2 * size}" stroke-linecap="round"/>')

    def bar(self, x: float, height: float, color: str, width: float = 0.7) -> None:
        (left, top), (right, floor) = self.places([x - width / 2, x + width / 2], [height, 0.0])
        box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{max(floor - top, 1.0):.1f}"'
        self.parts.append(f'<rect {box} fill="{color}"/>')

    def heat(self, values: Any, left: float, right: float, low: float, high: float, colors: Any = HEAT) -> None:
        """Values of a grid in colors, the first row at the bottom."""
        (x, y), (x1, y1) = self.places([left, right], [high, low])
        box = f'x="{x:.1f}" y="{y:.1f}" width="{x1 - x:.1f}" height="{y1 - y:.1f}"'
        data = base64.b64encode(encode_png(blend_colors(np.asarray(values, float)[::-1], colors))).decode()
        self.parts.append(
            f'<image {box} preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{data}"/>'
        )

    def words(self, x: float, y: float, text: str, color: str = "currentColor", anchor: str = "start") -> None:
        """Text at a place in pixels."""
        self.parts.append(f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>')

    def svg(self, label: str) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" '
            f'aria-label="{escape(label)}" font-family="system-ui, sans-serif" font-size="12">'
            f"{''.join(self.parts)}</svg>"
        )


def blend_colors(values: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """The least value in the first color, the greatest in the last, as RGB bytes."""
    low, high = values.min(), values.max()
    place = (values - low) / (high - low or 1.0) * (len(colors) - 1)
    below = np.minimum(place.astype(int), len(colors) - 2)
    part = (place - below)[..., None]
    return ((1 - part) * colors[below] + part * colors[below + 1]).astype(np.uint8)


def encode_png(pixels: np.ndarray) -> bytes:
    """A PNG file of (height, width, 3) bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )

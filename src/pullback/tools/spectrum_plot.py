"""Plots of spectra: the density of eigenvalues as an SVG picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..curvature.lanczos import Spectrum
from .render.svg_plots import draw_curves


def plot_spectrum(spectrum: Spectrum, path: str | Path | None, width: float | None, points: int) -> str:
    """The density over a range a little wider than that of the nodes."""
    nodes = np.asarray(spectrum.nodes, np.float64)
    reach = float(nodes.max() - nodes.min()) or max(1.0, abs(float(nodes.max())))
    bell = width or reach / 100
    grid = np.linspace(nodes.min() - 4 * bell, nodes.max() + 4 * bell, points)
    heights = np.maximum(np.asarray(spectrum.density(grid, bell), np.float64), 0.1 / spectrum.size / reach)
    picture = draw_curves(
        {"density": (list(grid), list(heights))},
        title=f"Density of {spectrum.size:,} eigenvalues", x_label="eigenvalue", y_label="share per unit", log=True,
    )  # fmt: skip
    if path is not None:
        Path(path).write_text(picture, encoding="utf-8")
    return picture

"""One equation in one unknown in, its root out, by a few evaluations in plain floats; None where that is not enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["found_by_secants"]

#: Each step must make |F| smaller by this factor at least: else the general method takes over, from the start.
_FALL = 0.5
#: So many steps are enough for whatever these steps suit.
_STEPS = 30


def found_by_secants(
    problem: Any, start: np.ndarray, first: Callable[[float, float], float], watch: Callable[[int, float], None]
) -> tuple[np.ndarray, int, float] | None:
    """The root, the number of steps and the last slope of F.

    `first(x, F)` is the first step; then the slope is that between the last two points, and the next point is where a
    line of this slope crosses zero: x - F (x - x_before) / (F - F_before).
    """

    def evaluated(x: float) -> tuple[np.ndarray, float]:
        at = np.full(1, x, problem.dtype)
        residual = problem.residual(at)
        return at, float(residual[0]) if type(residual) is np.ndarray else math.nan

    at, here = evaluated(start.item())
    step, slope = (0.0 if abs(here) <= problem.tolerance else first(start.item(), here)), math.nan
    for steps in range(_STEPS):
        if abs(here) <= problem.tolerance:
            return at, steps, slope
        before, left = at.item(), here
        at, here = evaluated(before + step)
        moved = at.item() - before
        slope = (here - left) / moved if moved else 0.0
        # the first step is not judged: what it finds out is the slope
        if not math.isfinite(here) or slope == 0 or (steps and abs(here) > _FALL * abs(left)):
            return None
        watch(steps + 1, abs(here))
        step = -here / slope
    return None

"""The root of one equation in one unknown by secants, in plain floats; None where that is not enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.value import Value

#: Each step must make |F| smaller by this factor at least: else the general method takes over, from the start.
_MIN_DECREASE = 0.5
#: The first step without a map, relative to the start: small, so that the second one is nearly Newton's.
_FIRST_STEP = 1e-4
#: The most steps; where secants work at all, fewer are enough.
_MAX_STEPS = 30


def solve_by_secants(problem: Any, start: np.ndarray, is_map: bool) -> tuple[np.ndarray, list[float], float] | None:
    """The root, |F| after each step and the last slope of F.

    The slope is that between the last two points, and the next point is where a line of this slope crosses zero:
    x - F (x - x_before) / (F - F_before). The first step is that of the map, x + F, or else a small one.
    """

    def evaluate(x: float) -> tuple[np.ndarray, float]:
        at = np.array(x, problem.dtype)
        residual = problem.residual(at)
        return at, math.nan if isinstance(residual, Value) else residual.item()

    at, here = evaluate(start.item())
    history: list[float] = []
    step, slope = here if is_map else _FIRST_STEP * max(1.0, abs(start.item())), math.nan
    while abs(here) > problem.tolerance and len(history) < _MAX_STEPS:
        before, left = at.item(), here
        at, here = evaluate(before + step)
        moved = at.item() - before
        slope = (here - left) / moved if moved else 0.0
        # the first step is not judged: it only finds the slope
        if not math.isfinite(here) or slope == 0 or (history and abs(here) > _MIN_DECREASE * abs(left)):
            return None
        history.append(abs(here))
        step = -here / slope
    # a suspicious solution (see `verify_solution`) is left to the general method
    unsure = (not history and here != 0) or abs(at.item()) * np.finfo(problem.dtype).eps > problem.tolerance
    return (at, history, slope) if abs(here) <= problem.tolerance and not unsure else None

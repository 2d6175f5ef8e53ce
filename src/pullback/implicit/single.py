"""One equation in one unknown in, its root out, by a few evaluations in plain floats; None where that is not enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.value import Value

__all__ = ["found_by_secants"]

#: Each step must make |F| smaller by this factor at least: else the general method takes over, from the start.
_FALL = 0.5
#: The first step without a map, relative to the start: small, so that the second one is nearly Newton's.
_NEAR = 1e-4
#: So many steps are enough for whatever these steps suit.
_STEPS = 30


def found_by_secants(problem: Any, start: np.ndarray, is_map: bool) -> tuple[np.ndarray, list[float], float] | None:
    """The root, |F| after each step and the last slope of F.

    The slope is that between the last two points, and the next point is where a line of this slope crosses zero:
    x - F (x - x_before) / (F - F_before). The first step is that of the map, x + F, or else a small one.
    """

    def evaluated(x: float) -> tuple[np.ndarray, float]:
        at = np.array(x, problem.dtype)
        residual = problem.residual(at)
        return at, math.nan if isinstance(residual, Value) else residual.item()

    at, here = evaluated(start.item())
    history: list[float] = []
    step, slope = here if is_map else _NEAR * max(1.0, abs(start.item())), math.nan
    while abs(here) > problem.tolerance and len(history) < _STEPS:
        before, left = at.item(), here
        at, here = evaluated(before + step)
        moved = at.item() - before
        slope = (here - left) / moved if moved else 0.0
        # the first step is not judged: what it finds out is the slope
        if not math.isfinite(here) or slope == 0 or (history and abs(here) > _FALL * abs(left)):
            return None
        history.append(abs(here))
        step = -here / slope
    # an answer that may be none (see `assurance`) is left to the general method
    unsure = (not history and here != 0) or abs(at.item()) * np.finfo(problem.dtype).eps > problem.tolerance
    return (at, history, slope) if abs(here) <= problem.tolerance and not unsure else None

"""An integrator of differential equations that is differentiated step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np

STEPS = 8


def odeint(func: Callable[..., Any], y0: Any, t: Any, args: tuple[Any, ...] = ()) -> Any:
    """y at the times t, by the classical Runge-Kutta rule, a few steps from each time to the next."""
    found = [y0]
    for i in range(np.shape(t)[0] - 1):
        y, h = found[-1], (t[i + 1] - t[i]) / STEPS
        for k in range(STEPS):
            y = _step(func, y, t[i] + k * h, h, args)
        found.append(y)
    return np.stack(found)


def _step(func: Callable[..., Any], y: Any, t: Any, h: Any, args: tuple[Any, ...]) -> Any:
    a = func(y, t, *args)
    b = func(y + h / 2 * a, t + h / 2, *args)
    c = func(y + h / 2 * b, t + h / 2, *args)
    d = func(y + h * c, t + h, *args)
    return y + h / 6 * (a + 2 * b + 2 * c + d)

"""The strong Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ops.elementwise import pointwise
from ...ops.functions import clip
from ...transforms.control.branches_and_loops import while_loop

#: The constants c1 (sufficient decrease) and c2 (curvature) of the Wolfe conditions.
_SUFFICIENT_DECREASE, _CURVATURE = 1e-4, 0.9


def strong_wolfe(along: Callable[[Any], tuple[Any, Any]], value: Any, slope: Any, first: Any, trials: int) -> Any:
    """A step size t with f(t) <= f(0) + 1e-4 t f'(0) and |f'(t)| <= 0.9 |f'(0)|, where `along(t)` is (f(t), f'(t)).

    The bracket from `low`, the best step so far with sufficient decrease, to `high` always holds such steps; while
    there is no `high`, steps double. If the trials run out, it returns `low`, which is 0 if no step decreased enough.
    """
    zero = 0 * (value + slope + first)
    no, one = pointwise.not_equal(zero, zero + 0), zero + 1
    state = {
        "t": zero + first, "low": zero, "f_low": zero + value, "slope_low": zero + slope,
        "high": zero, "f_high": zero + value, "slope_high": zero + slope,
        "bounded": no, "done": no, "left": one * trials,
    }  # fmt: skip

    def should_continue(s: dict[str, Any]) -> Any:
        return pointwise.logical_and(pointwise.logical_not(s["done"]), pointwise.greater(s["left"], 0))

    def trial(s: dict[str, Any]) -> dict[str, Any]:
        f, d = along(s["t"])
        over = pointwise.greater(f, value + _SUFFICIENT_DECREASE * s["t"] * slope)
        poor = pointwise.logical_or(over, pointwise.greater_equal(f, s["f_low"]))
        poor = pointwise.logical_or(poor, pointwise.logical_not(pointwise.isfinite(f)))
        flat = pointwise.less_equal(pointwise.abs(d), -_CURVATURE * slope)
        done = pointwise.logical_and(pointwise.logical_not(poor), flat)
        # a good step whose slope points away from `high` makes the old `low` the other end
        away = pointwise.where(s["bounded"], d * (s["high"] - s["low"]), d)
        turns = pointwise.logical_and(pointwise.logical_not(poor), pointwise.greater_equal(away, 0))

        def update_ends(name: str, new: Any) -> tuple[Any, Any]:
            low, high = s[f"{name}low"], s[f"{name}high"]
            high = pointwise.where(poor, new, pointwise.where(turns, low, high))
            return pointwise.where(poor, low, new), high

        after = dict(s)
        for name, new in (("", s["t"]), ("f_", f), ("slope_", d)):
            after[f"{name}low"], after[f"{name}high"] = update_ends(name, new)
        bounded = pointwise.logical_or(s["bounded"], pointwise.logical_or(poor, turns))
        after |= {"bounded": bounded, "done": done, "left": s["left"] - 1}
        return after | {
            "t": pointwise.where(done, s["t"], pointwise.where(bounded, _cubic_minimizer(after), 2 * s["t"]))
        }

    return while_loop(should_continue, trial, state)["low"]


def _cubic_minimizer(s: dict[str, Any]) -> Any:
    """Where the cubic through both ends, with their slopes, is least; not too near an end, halfway if it has none."""
    a, b = s["low"], s["high"]
    width = pointwise.where(pointwise.equal(a, b), 1, b - a)
    rise = 3 * (s["f_high"] - s["f_low"]) / width
    p = s["slope_low"] + s["slope_high"] - rise
    square = p * p - s["slope_low"] * s["slope_high"]
    real = pointwise.greater(square, 0)
    q = pointwise.sqrt(pointwise.where(real, square, 1))
    q = pointwise.where(pointwise.greater(width, 0), q, -q)
    below = s["slope_high"] - s["slope_low"] + 2 * q
    good = pointwise.logical_and(real, pointwise.logical_and(pointwise.isfinite(below), pointwise.not_equal(below, 0)))
    share = 1 - (s["slope_high"] + q - p) / pointwise.where(good, below, 1)
    return a + pointwise.where(good, clip(share, 0.1, 0.9), 0.5) * (b - a)

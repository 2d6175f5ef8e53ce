"""A function of a length with its slope in, a length out that reduces it enough and leaves little slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops import elementwise as pointwise
from ..ops.functions import clip
from ..transforms.control import while_loop

__all__ = ["strong_wolfe"]

#: What a length must gain, as a share of what the slope at 0 promises, and how much of that slope may be left.
_GAIN, _LEFT = 1e-4, 0.9


def strong_wolfe(along: Callable[[Any], tuple[Any, Any]], value: Any, slope: Any, first: Any, trials: int) -> Any:
    """A length t with f(t) <= f(0) + 1e-4 t f'(0) and |f'(t)| <= 0.9 |f'(0)|, where `along(t)` is (f(t), f'(t)).

    An interval from `low`, the best length so far that gains enough, to `high` is kept such that it holds such lengths;
    while there is no `high`, lengths double. If the trials run out, the answer is `low`, which is 0 if nothing gained.
    """
    zero = 0 * (value + slope + first)
    no, one = pointwise.not_equal(zero, zero + 0), zero + 1
    state = {
        "t": zero + first, "low": zero, "f_low": zero + value, "slope_low": zero + slope,
        "high": zero, "f_high": zero + value, "slope_high": zero + slope,
        "bounded": no, "done": no, "left": one * trials,
    }  # fmt: skip

    def goes_on(s: dict[str, Any]) -> Any:
        return pointwise.logical_and(pointwise.logical_not(s["done"]), pointwise.greater(s["left"], 0))

    def trial(s: dict[str, Any]) -> dict[str, Any]:
        f, d = along(s["t"])
        over = pointwise.greater(f, value + _GAIN * s["t"] * slope)
        poor = pointwise.logical_or(over, pointwise.greater_equal(f, s["f_low"]))
        poor = pointwise.logical_or(poor, pointwise.logical_not(pointwise.isfinite(f)))
        flat = pointwise.less_equal(pointwise.abs(d), -_LEFT * slope)
        done = pointwise.logical_and(pointwise.logical_not(poor), flat)
        # a good length whose slope points away from `high` makes the old `low` the other end
        away = pointwise.where(s["bounded"], d * (s["high"] - s["low"]), d)
        turns = pointwise.logical_and(pointwise.logical_not(poor), pointwise.greater_equal(away, 0))

        def ends(name: str, new: Any) -> tuple[Any, Any]:
            low, high = s[f"{name}low"], s[f"{name}high"]
            high = pointwise.where(poor, new, pointwise.where(turns, low, high))
            return pointwise.where(poor, low, new), high

        after = dict(s)
        for name, new in (("", s["t"]), ("f_", f), ("slope_", d)):
            after[f"{name}low"], after[f"{name}high"] = ends(name, new)
        bounded = pointwise.logical_or(s["bounded"], pointwise.logical_or(poor, turns))
        after |= {"bounded": bounded, "done": done, "left": s["left"] - 1}
        return after | {"t": pointwise.where(done, s["t"], pointwise.where(bounded, _between(after), 2 * s["t"]))}

    return while_loop(goes_on, trial, state)["low"]


def _between(s: dict[str, Any]) -> Any:
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

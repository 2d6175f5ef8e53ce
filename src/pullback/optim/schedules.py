"""Learning-rate schedules: functions of the number of steps, inside `jit` too.

A schedule is any function from a count of steps (a number or an integer array, 0 at first) to a rate. These are written
in ops and computed in float64; a rule casts the rate to the precision of each parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..arrays.argument_checks import check_count
from ..arrays.picklable import picklable
from ..errors import ArgumentError
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..ops.elementwise.rounding import floor
from ..ops.functions import clip
from ..public_names import explain_missing_names
from .leaves import check_setting, check_settings, steps_as_float64

__all__ = [
    "Schedule", "constant", "cosine", "exponential", "inverse_sqrt", "join", "linear", "one_cycle", "piecewise",
    "polynomial", "step_decay", "warm_up",
]  # fmt: skip
explain_missing_names(__name__, "optim.schedules")

Schedule = Callable[[Any], Any]


def _make_schedule(of_steps: Callable[[Any], Any]) -> Schedule:
    """A schedule, which returns an array, from a function of steps as float64."""
    return lambda t: as_value(of_steps(steps_as_float64(as_value(t))))


@picklable
def constant(rate: Any) -> Schedule:
    """The same rate at every step.

    >>> import pullback as pb
    >>> pb.optim.schedules.constant(0.1)(7)
    array(0.1)
    """
    rate = check_setting(rate, "constant: rate")
    return _make_schedule(lambda t: pointwise.add(rate, 0 * t))


@picklable
def polynomial(rate: Any, end: Any, steps: int, power: Any = 1.0) -> Schedule:
    """From `rate` to `end` over so many steps, as (1 - t / steps)^power; then `end`.

    >>> import pullback as pb
    >>> pb.optim.schedules.polynomial(1.0, 0.0, 10, power=2)(5)
    array(0.25)
    """
    rate, end = check_settings("polynomial", rate=rate, end=end)
    count = check_count(steps, "polynomial: steps")

    def schedule(t: Any) -> Any:
        left = 1 - clip(t, 0, count) / count
        return end + (rate - end) * left**power

    return _make_schedule(schedule)


@picklable
def linear(rate: Any, end: Any, steps: int) -> Schedule:
    """From `rate` to `end` over so many steps, in equal parts; then `end`.

    >>> import pullback as pb
    >>> pb.optim.schedules.linear(1.0, 0.0, 4)(1)
    array(0.75)
    """
    return polynomial(rate, end, steps)


@picklable
def exponential(rate: Any, decay: Any, every: int = 1, staircase: bool = False, end: Any = 0.0) -> Schedule:
    """`rate` times decay^(t / every), at least `end`; with `staircase` the exponent is rounded down.

    >>> import pullback as pb
    >>> pb.optim.schedules.exponential(1.0, decay=0.5)(3)
    array(0.125)
    """
    rate, decay, end = check_settings("exponential", rate=rate, decay=decay, end=end)
    every = check_count(every, "exponential: every")

    def schedule(t: Any) -> Any:
        rounds = t / every
        return pointwise.maximum(rate * decay ** (floor(rounds) if staircase else rounds), end)

    return _make_schedule(schedule)


@picklable
def step_decay(rate: Any, factor: Any, every: int) -> Schedule:
    """`rate`, multiplied by `factor` every so many steps.

    >>> import pullback as pb
    >>> pb.optim.schedules.step_decay(1.0, 0.5, every=10)(25)
    array(0.25)
    """
    return exponential(rate, factor, every, staircase=True)


@picklable
def piecewise(rate: Any, factors: Mapping[int, Any]) -> Schedule:
    """`rate`, multiplied by each factor from its step on.

    >>> import pullback as pb
    >>> pb.optim.schedules.piecewise(1.0, {10: 0.1, 20: 0.5})(20)
    array(0.05)
    """
    rate = check_setting(rate, "piecewise: rate")
    steps = [check_count(s, "piecewise: a step", 0) for s in factors]
    changes = dict(zip(steps, (check_setting(f, "piecewise: a factor") for f in factors.values()), strict=True))

    def schedule(t: Any) -> Any:
        now = pointwise.add(rate, 0 * t)
        for step, factor in changes.items():
            now = now * pointwise.where(pointwise.greater_equal(t, step), factor, 1.0)
        return now

    return _make_schedule(schedule)


@picklable
def cosine(rate: Any, steps: int, end: Any = 0.0, restart: Any = None) -> Schedule:
    """From `rate` to `end` along half a cosine over so many steps (Loshchilov and Hutter, 2017). Then `end`; or, with
    `restart`, from `rate` again over `restart` times as many steps, and so on (1 for periods of one length).

    >>> import pullback as pb
    >>> plan = pb.optim.schedules.cosine(1.0, 10, restart=2)
    >>> [float(plan(t).round(6)) for t in (5, 10, 20, 30)]
    [0.5, 1.0, 0.5, 1.0]
    """
    rate, end = check_settings("cosine", rate=rate, end=end)
    count = check_count(steps, "cosine: steps")
    growth = None if restart is None else float(check_setting(restart, "cosine: restart", 1.0))

    def schedule(t: Any) -> Any:
        if growth is None:
            share = clip(t, 0, count) / count
        elif growth == 1:
            share = t / count - floor(t / count)
        else:
            # the n-th period starts at count (growth^n - 1) / (growth - 1); a little is added so that it is found there
            n = floor(pointwise.log(t * (growth - 1) / count + 1) / math.log(growth) + 1e-9)
            share = (t - count * (growth**n - 1) / (growth - 1)) / (count * growth**n)
        return end + (rate - end) * (1 + pointwise.cos(math.pi * share)) / 2

    return _make_schedule(schedule)


@picklable
def one_cycle(peak: Any, steps: int, rise: float = 0.3, start_divisor: Any = 25.0, end_divisor: Any = 1e4) -> Schedule:
    """From peak / start_divisor up to `peak` in a share `rise` of the steps, then down to start / end_divisor, both
    along half a cosine (Smith and Topin, 2018).

    >>> import pullback as pb
    >>> plan = pb.optim.schedules.one_cycle(1.0, 100)
    >>> [float(plan(t).round(6)) for t in (0, 29, 99)]
    [0.04, 1.0, 4e-06]
    """
    peak, count = check_setting(peak, "one_cycle: peak"), check_count(steps, "one_cycle: steps", 2)
    share = float(check_setting(rise, "one_cycle: rise", 0, 1))
    first = peak / start_divisor
    last = first / end_divisor
    top = min(max(share * count - 1, 1e-9), count - 1 - 1e-9)

    def schedule(t: Any) -> Any:
        t = clip(t, 0, count - 1)
        up = peak + (first - peak) * (1 + pointwise.cos(math.pi * t / top)) / 2
        down = last + (peak - last) * (1 + pointwise.cos(math.pi * (t - top) / (count - 1 - top))) / 2
        return pointwise.where(pointwise.less_equal(t, top), up, down)

    return _make_schedule(schedule)


@picklable
def inverse_sqrt(rate: Any, warmup_steps: int = 1) -> Schedule:
    """Up to `rate` in `warmup_steps` equal steps, then falling as 1 / sqrt(t) (Vaswani et al., 2017).

    >>> import pullback as pb
    >>> plan = pb.optim.schedules.inverse_sqrt(1.0, warmup_steps=4)
    >>> plan(0), plan(3), plan(15)
    (array(0.25), array(1.), array(0.5))
    """
    rate, count = check_setting(rate, "inverse_sqrt: rate"), check_count(warmup_steps, "inverse_sqrt: warmup_steps")

    def schedule(t: Any) -> Any:
        t = t + 1
        return rate * pointwise.minimum(t / count, pointwise.sqrt(count / t))

    return _make_schedule(schedule)


@picklable
def warm_up(steps: int, then: Any, start: Any = 0.0) -> Schedule:
    """From `start` to where `then` begins over so many steps, in equal parts; then `then`, a rate or a schedule, which
    counts from there.

    >>> import pullback as pb
    >>> plan = pb.optim.schedules.warm_up(10, then=pb.optim.schedules.cosine(1.0, 100))
    >>> plan(5), plan(10)
    (array(0.5), array(1.))
    """
    count, start = check_count(steps, "warm_up: steps"), check_setting(start, "warm_up: start")
    after = then if callable(then) else constant(then)

    def schedule(t: Any) -> Any:
        rising = start + (after(0) - start) * t / count
        return pointwise.where(pointwise.less(t, count), rising, after(pointwise.maximum(t - count, 0)))

    return _make_schedule(schedule)


@picklable
def join(schedules: Sequence[Any], at: Sequence[int]) -> Schedule:
    """One schedule after the other: the next begins, and counts from, each of the steps in `at`.

    >>> import pullback as pb
    >>> from pullback.optim import schedules
    >>> plan = schedules.join([schedules.linear(0.0, 1.0, 4), schedules.constant(0.5)], at=[4])
    >>> plan(2), plan(4)
    (array(0.5), array(0.5))
    """
    parts = [s if callable(s) else constant(s) for s in schedules]
    starts = [check_count(s, "join: at", 0) for s in at]
    if len(parts) != len(starts) + 1 or sorted(starts) != starts:
        raise ArgumentError(f"join: {len(parts)} schedules want {len(parts) - 1} steps in order, got {list(at)}.")

    def schedule(t: Any) -> Any:
        now = as_value(parts[0](t))
        for part, start in zip(parts[1:], starts, strict=True):
            now = pointwise.where(pointwise.less(t, start), now, part(pointwise.maximum(t - start, 0)))
        return now

    return _make_schedule(schedule)

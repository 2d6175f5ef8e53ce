"""Crossings within a step: where the sign of a condition changes, found to the last digits by bracketing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.spec import spec_of
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.placement import move
from ..ops.reduce import reductions
from ..ops.shape.arrange import stack
from ..transforms.forward import jvp
from .events import slots_of
from .loops import run_loop, store
from .methods import Slope
from .problem import Problem

#: The most rounds of a search: twice those of bisection in double precision.
_ROUNDS = 128


class Watch(NamedTuple):
    """What is known of the conditions at the state reached: their `levels` and signs (that in which an event at the
    start leaves it); the crossings found, with their states and the steps they lie in; how many there were of each
    event; and which terminal one was met, -1 for none.
    """

    levels: Any
    sides: Any
    times: Any
    rows: Any
    places: Any
    hits: Any
    stopped: Any


class Bracket(NamedTuple):
    """Two times between which a condition changes its sign, the newer first, and the one before; levels and states."""

    a: Any
    b: Any
    c: Any
    level_a: Any
    level_b: Any
    level_c: Any
    y_a: Any
    y_b: Any
    rounds: Any


def begin_watch(problem: Problem, f: Slope, y0: Any, t0: Any, t1: Any, arguments: tuple[Any, ...]) -> Watch:
    """The conditions at the start. One that is zero there has the sign that it is about to have."""
    levels, sides, ahead, place = [], [], pointwise.sign(t1 - t0), problem.place
    for event in problem.events:
        direction = (place(np.ones((), problem.dtype)), f(t0, y0))
        level, rate = jvp(lambda t, y, g=event.function: g(t, y, *arguments), (t0, y0), direction)
        levels.append(level)
        sides.append(pointwise.where(pointwise.equal(level, 0), pointwise.sign(rate) * ahead, pointwise.sign(level)))
    count = slots_of(problem.events)[-1].stop
    return Watch(
        stack(levels), stack(sides), place(np.zeros(count, problem.dtype)),
        place(np.zeros((count, problem.size), problem.dtype)), place(np.zeros(count, np.int64)),
        place(np.zeros(len(levels), np.int64)), place(np.full((), -1, np.int64)),
    )  # fmt: skip


def find_met(problem: Problem, hits: Any) -> list[Any]:
    """For each event, which of its crossings were found."""
    return [
        pointwise.less(problem.place(np.arange(event.most)), getitem(hits, e)) for e, event in enumerate(problem.events)
    ]


@final
@dataclass(frozen=True, eq=False)
class _WatchedStep:
    """A step from `start`, a time and what the method carries there, and how its conditions are searched in it."""

    problem: Problem
    f: Slope
    arguments: tuple[Any, ...]
    watch: Watch
    start: tuple[Any, Any]
    ahead: Any
    is_good: Any

    def measure(self, s: Any, state: Any) -> list[Any]:
        """The levels of all conditions."""
        return [event.function(s, state, *self.arguments) for event in self.problem.events]

    def is_crossed(self, e: int, level: Any) -> Any:
        """Whether the step is good, and a condition changes its sign up to a level at its end."""
        direction = self.problem.events[e].direction
        return pointwise.logical_and(
            self.is_good, _is_crossed(direction, getitem(self.watch.sides, e), level, self.ahead)
        )

    def cut_off(self, end: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any, list[Any]]:
        """The end of the step, or of a shorter one to the first terminal event; which it is, and the levels there."""
        (t, y), method, stopped = self.start, self.problem.method, self.watch.stopped
        whole, levels = end, self.measure(end[0], method.state(end[1]))
        for e, event in enumerate(self.problem.events):
            if event.terminal:
                crossed = self.is_crossed(e, levels[e])

                def follow(s: Any, g: Any = event.function) -> tuple[Any, Any]:
                    found = method.advance(self.f, t, y, s)
                    return g(s, method.state(found), *self.arguments), found

                s, state = find_crossing(follow, (t, y), whole, self._levels(e, levels[e]), crossed)
                is_first = pointwise.logical_or(
                    pointwise.less((s - end[0]) * self.ahead, 0), pointwise.less(stopped, 0)
                )
                is_first = pointwise.logical_and(crossed, is_first)
                end = pointwise.where(is_first, s, end[0]), pointwise.where(is_first, state, end[1])
                stopped = pointwise.where(is_first, np.int64(e), stopped)
        if any(event.terminal for event in self.problem.events):
            levels = self.measure(end[0], method.state(end[1]))
        return end, stopped, levels

    def find_within(self, e: int, end: tuple[Any, Any], level: Any, crossed: Any) -> tuple[Any, Any]:
        """Where a condition is crossed, by the dense output of the step."""
        (t, y), method = self.start, self.problem.method
        t_end = pointwise.where(crossed, end[0], t)

        def follow(s: Any) -> tuple[Any, Any]:
            state = method.interpolate(self.f, t, y, t_end, s)
            return self.problem.events[e].function(s, state, *self.arguments), state

        return find_crossing(follow, (t, method.state(y)), end, self._levels(e, level), crossed)

    def _levels(self, e: int, level: Any) -> tuple[Any, Any, Any]:
        return getitem(self.watch.levels, e), getitem(self.watch.sides, e), level


def watch_step(
    problem: Problem, f: Slope, arguments: tuple[Any, ...], watch: Watch, at: tuple[Any, Any, Any], t_next: Any,
    y_next: Any, is_good: Any,
) -> tuple[Watch, Any, Any, Any]:  # fmt: skip
    """What is known after a step from `at` = (t, y, number of the step): the end and the state of the step, cut off at
    the first terminal event, and whether all conditions are numbers.
    """
    step = _WatchedStep(problem, f, arguments, watch, at[:2], pointwise.sign(t_next - at[0]), is_good)
    end, stopped, levels = step.cut_off((t_next, y_next))
    last = end[0], problem.method.state(end[1])
    found, hits = (watch.times, watch.rows, watch.places), []
    for e, (event, slots) in enumerate(zip(problem.events, slots_of(problem.events), strict=True)):
        if event.terminal:
            crossed, (s, state) = pointwise.equal(stopped, e), last
        else:
            crossed = step.is_crossed(e, levels[e])
            s, state = step.find_within(e, last, levels[e], crossed)
        met = getitem(watch.hits, e)
        slot = slots.start + pointwise.minimum(met, event.most - 1)
        is_new = pointwise.logical_and(crossed, pointwise.less(met, event.most))
        found = _record(found, slot, is_new, (s, state, at[2]))
        hits.append(met + pointwise.where(crossed, np.int64(1), np.int64(0)))
    sides = stack([_find_side(getitem(watch.sides, e), level) for e, level in enumerate(levels)])
    sides = pointwise.where(is_good, sides, watch.sides)
    now = pointwise.where(is_good, stack(levels), watch.levels)
    is_known = reductions.all(pointwise.logical_not(pointwise.isnan(stack(levels))))
    return Watch(now, sides, *found, stack(hits), stopped), *end, is_known


def _find_side(before: Any, level: Any) -> Any:
    """The sign after a step: a condition that is zero has crossed."""
    return pointwise.where(pointwise.equal(level, 0), -before, pointwise.sign(level))


def _is_crossed(direction: int, before: Any, level: Any, ahead: Any) -> Any:
    after = _find_side(before, level)
    if direction:  # upward in time, whichever way the solve goes
        wanted = pointwise.equal(after * ahead, direction)
        return pointwise.logical_and(pointwise.less(before * after, 0), wanted)
    return pointwise.less(before * after, 0)


def _record(found: tuple[Any, ...], slot: Any, is_new: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    pairs = zip(found, values, strict=True)
    return tuple(store(x, slot, pointwise.where(is_new, value, getitem(x, slot))) for x, value in pairs)


def find_crossing(
    follow: Callable[[Any], tuple[Any, Any]], start: tuple[Any, Any], end: tuple[Any, Any],
    levels: tuple[Any, Any, Any], crossed: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The last time before a condition changes its sign, with the state there; the end where it does not.

    Inverse quadratic interpolation where three levels allow it, else bisection (Chandrupatla 1997). `follow` returns
    the level and the state at a time. The time found is the one before the crossing, so that a solve that begins there
    with another f does not meet the same event at once; but never the start, or no step would be left.
    """
    dtype = np.dtype(end[0].dtype)
    least = 4 * float(np.finfo(dtype).eps)
    level, side, level_end = levels
    level = pointwise.where(pointwise.equal(level, 0), side * float(np.finfo(dtype).tiny), level)

    def is_open(s: Bracket) -> Any:
        width = pointwise.abs(s.b - s.a)
        limit = least * pointwise.maximum(pointwise.abs(s.a), pointwise.abs(s.b))
        is_wide = pointwise.logical_and(pointwise.greater(width, limit), pointwise.less(s.rounds, _ROUNDS))
        return pointwise.logical_and(is_wide, crossed)

    def narrow(s: Bracket) -> Bracket:
        t = s.a + _choose_share(s, least) * (s.b - s.a)
        # in a batch, elements whose step is rejected go on, and its equations may have no solution
        level, y = follow(pointwise.where(crossed, t, start[0]))
        is_same = pointwise.greater(level * pointwise.sign(s.level_a), 0)
        is_exact = pointwise.equal(level, 0)

        def other(of_b: Any, of_a: Any, at_t: Any) -> Any:
            return pointwise.where(is_exact, at_t, pointwise.where(is_same, of_b, of_a))

        return Bracket(
            t, other(s.b, s.a, t), pointwise.where(is_same, s.a, s.b), level, other(s.level_b, s.level_a, level),
            pointwise.where(is_same, s.level_a, s.level_b), y, other(s.y_b, s.y_a, y), s.rounds + 1,
        )  # fmt: skip

    is_at_end = pointwise.equal(level_end, 0)
    b, y_b = (pointwise.where(is_at_end, x, y) for x, y in zip(end, start, strict=True))
    rounds = move(np.zeros((), np.int64), spec_of(b).device)
    first = Bracket(end[0], b, start[0], level_end, level, level, end[1], y_b, rounds)
    found: Bracket = run_loop(is_open, narrow, first)
    is_a = pointwise.equal(pointwise.sign(found.level_a), side)
    is_a = pointwise.not_equal(is_a, pointwise.equal(pointwise.where(is_a, found.a, found.b), start[0]))
    is_a = pointwise.logical_or(is_a, pointwise.logical_not(crossed))
    return pointwise.where(is_a, found.a, found.b), pointwise.where(is_a, found.y_a, found.y_b)


def _choose_share(s: Bracket, least: float) -> Any:
    """How far from a to b the next time lies."""
    xi = (s.a - s.b) / pointwise.where(pointwise.equal(s.c, s.b), 1.0, s.c - s.b)
    rise = pointwise.where(pointwise.equal(s.level_c, s.level_b), 1.0, s.level_c - s.level_b)
    phi = (s.level_a - s.level_b) / rise
    is_safe = pointwise.logical_and(
        pointwise.less(phi * phi, xi), pointwise.less((1 - phi) * (1 - phi), 1 - xi)
    )  # fmt: skip
    differ = pointwise.logical_and(pointwise.not_equal(s.c, s.b), pointwise.not_equal(s.level_c, s.level_a))
    is_safe = pointwise.logical_and(is_safe, differ)
    ab, cb = _part(s.level_a, s.level_b), _part(s.level_c, s.level_b)
    ac, bc = _part(s.level_a, s.level_c), _part(s.level_b, s.level_c)
    by_curve = ab * cb + (s.c - s.a) / (s.b - s.a) * ac * bc
    margin = least / 4 * pointwise.maximum(pointwise.abs(s.a), pointwise.abs(s.b)) / pointwise.abs(s.b - s.a)
    margin = pointwise.minimum(margin, 0.5)
    share = pointwise.where(is_safe, by_curve, 0.5)
    return pointwise.minimum(pointwise.maximum(share, margin), 1 - margin)


def _part(one: Any, other: Any) -> Any:
    """one / (one - other), where these are not equal."""
    is_equal = pointwise.equal(one, other)
    return one / pointwise.where(is_equal, 1.0, one - other)

"""The loop over steps: tries them, keeps or rejects them, writes down their times. Nothing here is differentiated.

It is written in ops on a carry, so it runs in Python on arrays, by masks in a batch, where each element has steps of
its own, and as one native loop in a compiled program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..implicit.linear.operator import norm
from ..ops import basis
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat, stack
from ..ops.shape.reshaping import astype, reshape
from .crossings import begin_watch, find_met, watch_step
from .loops import is_bare, len_of, make_rows, run_loop, store
from .methods import Attempt, Slope
from .problem import Outcome, Problem, Status
from .snapshots import Snapshots, hold_snapshot, make_snapshots


class Carry(NamedTuple):
    """What goes from one attempt to the next: the time, state and slope reached; the step to try; errors of the last
    steps; what has been recorded; and what is known of events, if there are any.
    """

    t: Any
    y: Any
    slope: Any
    h: Any
    before: Any
    older: Any
    worst: Any
    steps: Any
    rejected: Any
    status: Any
    grid: Any
    states: Any
    saved: Any
    rows: Any
    places: Any
    choices: Any
    held: Any
    watch: Any


def integrate(problem: Problem, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any) -> Outcome:
    """Run the loop from t0 to t1."""
    f = problem.slope(arguments)
    carry = _begin(problem, f, y0, t0, t1, times, arguments)
    end = run_loop(
        lambda c: pointwise.logical_and(pointwise.not_equal(c.t, t1), pointwise.equal(c.status, 0)),
        lambda c: _attempt(problem, f, t1, times, arguments, c),
        carry,
    )
    status = end.status
    if problem.has_times:
        is_over = pointwise.logical_or(pointwise.equal(status, 0), pointwise.equal(status, int(Status.STOPPED)))
        is_refused = pointwise.logical_and(is_over, pointwise.logical_not(_are_in_order(times, t0, t1)))
        status = pointwise.where(is_refused, np.int64(Status.OUTSIDE), status)
    if problem.knows_end:
        is_lost = _is_elsewhere(problem, y0, problem.method.state(end.y), arguments[-1])
        status = pointwise.where(
            pointwise.logical_and(pointwise.equal(status, 0), is_lost), np.int64(Status.LOST), status
        )
    counts, numbers = stack([end.steps, end.rejected, status]), stack([end.t, end.worst])
    if problem.events:
        return _join_events(problem, end, counts, numbers)
    rows = end.rows if problem.has_times else problem.method.state(end.y)
    none = problem.place(np.zeros(0, problem.dtype)), problem.place(np.zeros(0, np.int64))
    return Outcome(rows, end.grid, end.states, end.places, counts, end.choices, end.held, numbers, *none)


def _is_elsewhere(problem: Problem, start: Any, end: Any, known: Any) -> Any:
    """Whether the state at the end is not what is known of it, by more than a tenth: no tolerance asks for less."""
    n = len_of(known)
    size = norm(known) + norm(start[:n])
    return pointwise.greater(norm(end[:n] - known), size * 0.1 + problem.tolerance.atol * n**0.5)


def _are_in_order(times: Any, t0: Any, t1: Any) -> Any:
    """Whether times go from t0 to t1; all are that time in a span of no length."""
    every = concat([reshape(t0, (1,)), times, reshape(t1, (1,))])
    gaps, ahead = every[1:] - every[:-1], pointwise.sign(t1 - t0)
    is_still = pointwise.logical_or(pointwise.not_equal(t0, t1), reductions.all(pointwise.equal(gaps, 0)))
    return pointwise.logical_and(reductions.all(pointwise.greater_equal(gaps * ahead, 0)), is_still)


def _join_events(problem: Problem, end: Carry, counts: Any, numbers: Any) -> Outcome:
    """The states at saved times, at crossings and at the end, in these rows; that of the end where there is none."""
    is_met = concat(find_met(problem, end.watch.hits))
    is_saved = pointwise.less(problem.place(np.arange(int(end.rows.shape[0]))), end.saved)
    is_known = concat([is_saved, is_met, problem.place(np.zeros(1, bool))])
    last, y_end = pointwise.maximum(end.steps - 1, 0), problem.method.state(end.y)
    every = concat([end.rows, end.watch.rows, reshape(y_end, (1, -1))])
    y = pointwise.where(reshape(is_known, (-1, 1)), every, y_end)
    places = concat([end.places, end.watch.places, reshape(last, (1,))])
    found = concat([pointwise.where(is_met, end.watch.times, end.t), reshape(end.t, (1,))])
    places = pointwise.where(is_known, places, last)
    return Outcome(y, end.grid, end.states, places, counts, end.choices, end.held, numbers, found, end.watch.hits)


def _begin(problem: Problem, f: Slope, y0: Any, t0: Any, t1: Any, times: Any, arguments: tuple[Any, ...]) -> Carry:
    slope = f(t0, y0)
    exponent = problem.error_exponent
    h = problem.control.first_step(f, t0, y0, slope, t1 - t0, exponent, problem.tolerance)
    is_good = reductions.all(pointwise.logical_and(pointwise.isfinite(slope), pointwise.isfinite(y0)))
    status = pointwise.where(is_good, np.int64(Status.DONE), np.int64(Status.NOT_FINITE))
    place, dtype = problem.place, problem.dtype
    one, zero = place(np.ones((), dtype)), place(np.zeros((), np.int64))
    count, method = len_of(times), problem.method
    grid = place(np.zeros(problem.max_steps + 1, dtype))
    rows = basis.broadcast_to(y0, (count, problem.size))
    rows = rows.copy() if is_bare(rows) else rows  # it is written to
    first = method.begin(t0, y0)
    snapshots = make_snapshots(problem.snapshots, first)
    return Carry(
        t=t0, y=first, slope=slope, h=astype(h, dtype), before=one, older=one,
        worst=place(np.zeros((), dtype)), steps=zero, rejected=zero, status=status, grid=store(grid, 0, t0),
        states=make_rows(problem.max_steps, first) if problem.saves_states else snapshots.states,
        saved=zero, rows=rows, places=place(np.full(count, -1, np.int64)),
        choices=place(np.zeros(problem.max_steps if method.has_choices else 0, np.int64)),
        held=snapshots.held, watch=begin_watch(problem, f, y0, t0, t1, arguments) if problem.events else (),
    )  # fmt: skip


def _attempt(problem: Problem, f: Slope, t1: Any, times: Any, arguments: tuple[Any, ...], c: Carry) -> Carry:
    """One attempt at a step."""
    t_next = pointwise.where(problem.control.is_last(c.steps, c.h, t1 - c.t), t1, c.t + c.h)
    method = problem.method
    attempt = method.attempt(f, c.t, c.y, c.slope, t_next, problem.tolerance)
    ratio = _measure(problem, attempt, c.y)
    is_finite, is_good = pointwise.isfinite(ratio), pointwise.less_equal(ratio, 1)
    factor = pointwise.where(is_finite, _adapt(problem, attempt, c, ratio, is_finite), 0.1)
    h = (t_next - c.t) * factor
    # a step cut short to reach the end says nothing against the longer one
    h = pointwise.where(is_good, _longer(h, c.h * pointwise.minimum(factor, 1.0)), h)
    taken = astype(is_good, np.int64)
    steps = c.steps + taken
    status = _find_status(problem, c, h, t_next, t1, steps, is_good, is_finite)
    y_next, watch = attempt.y, c.watch
    if problem.events:
        at = c.t, c.y, c.steps
        watch, t_next, y_next, is_known = watch_step(problem, f, arguments, c.watch, at, t_next, y_next, is_good)
        status = pointwise.where(pointwise.greater_equal(watch.stopped, 0), np.int64(Status.STOPPED), status)
        status = pointwise.where(
            pointwise.logical_or(is_known, pointwise.logical_not(is_good)), status, np.int64(Status.NO_CONDITION)
        )
    saved = _save_times(problem, f, times, c, t_next, is_good) if problem.has_times else (c.saved, c.rows, c.places)

    snapshots, place = Snapshots(c.states, c.held), pointwise.minimum(c.steps, problem.max_steps - 1)
    if problem.saves_states:
        snapshots = Snapshots(store(c.states, place, c.y), c.held)
    elif problem.snapshots:
        snapshots = hold_snapshot(snapshots, c.steps, c.y, is_good)

    def choose(new: Any, old: Any) -> Any:
        return pointwise.where(is_good, new, old)

    return Carry(
        t=choose(t_next, c.t), y=choose(y_next, c.y), slope=choose(attempt.slope, c.slope),
        h=astype(h, problem.dtype), before=choose(ratio, c.before), older=choose(c.before, c.older),
        worst=choose(pointwise.maximum(ratio, c.worst), c.worst), steps=steps, rejected=c.rejected + 1 - taken,
        status=status,
        # written even if rejected: the next attempt is written to the same place
        grid=store(c.grid, place + 1, t_next),
        states=snapshots.states,
        saved=saved[0], rows=saved[1], places=saved[2],
        choices=store(c.choices, place, method.choice(c.y)) if method.has_choices else c.choices,
        held=snapshots.held, watch=watch,
    )  # fmt: skip


def _measure(problem: Problem, attempt: Attempt, y: Any) -> Any:
    state = problem.method.state
    found = problem.control.measure(attempt._replace(y=state(attempt.y)), state(y), problem.tolerance)
    return astype(found, problem.dtype)


def _adapt(problem: Problem, attempt: Attempt, c: Carry, ratio: Any, is_finite: Any) -> Any:
    """The factor to the next step, at the order that it will have."""
    now, exponent, outlook = pointwise.where(is_finite, ratio, 2.0), problem.error_exponent, attempt.outlook
    if outlook is None:
        return problem.control.adapt((now, c.before, c.older), exponent)
    is_good = pointwise.less_equal(now, 1)
    ahead = _measure(problem, attempt._replace(error=outlook.error), c.y)
    exponent = pointwise.where(is_good, outlook.next_exponent, outlook.exponent)
    # the error of another order may be above the tolerance; the step was accepted nevertheless
    ratios = pointwise.where(is_good, pointwise.minimum(ahead, 1.0), now), c.before, c.older
    return pointwise.minimum(problem.control.adapt(ratios, exponent), outlook.growth)


def _longer(a: Any, b: Any) -> Any:
    return pointwise.where(pointwise.less(pointwise.abs(a), pointwise.abs(b)), b, a)


def _find_status(
    problem: Problem, c: Carry, h: Any, t_next: Any, t1: Any, steps: Any, is_good: Any, is_finite: Any
) -> Any:
    """Whether to go on after an attempt."""
    least = 4 * float(np.finfo(problem.dtype).eps)
    limit = pointwise.maximum(pointwise.abs(c.t) * least, float(np.finfo(problem.dtype).tiny))
    is_stuck = pointwise.logical_and(
        pointwise.logical_not(is_good), pointwise.logical_not(pointwise.greater_equal(pointwise.abs(h), limit))
    )  # fmt: skip
    cause = pointwise.where(is_finite, np.int64(Status.STEP_UNDERFLOW), np.int64(Status.NOT_FINITE))
    is_spent = pointwise.logical_and(is_good, pointwise.greater_equal(steps, problem.max_steps))
    is_spent = pointwise.logical_and(is_spent, pointwise.not_equal(t_next, t1))
    spent = pointwise.where(is_spent, np.int64(Status.TOO_MANY_STEPS), np.int64(Status.DONE))
    return pointwise.where(is_stuck, cause, spent)


def _save_times(problem: Problem, f: Slope, times: Any, c: Carry, t_next: Any, is_good: Any) -> tuple[Any, Any, Any]:
    """The states at the times that lie within an accepted step."""
    count = len_of(times)
    ahead = pointwise.sign(t_next - c.t)
    # in a batch, elements whose step is rejected are interpolated too, and its equations may have no solution
    end = pointwise.where(is_good, t_next, c.t)

    def is_inside(s: tuple[Any, Any, Any]) -> Any:
        at = getitem(times, pointwise.minimum(s[0], count - 1))
        inside = pointwise.logical_and(
            pointwise.less_equal((at - t_next) * ahead, 0), pointwise.greater_equal((at - c.t) * ahead, 0)
        )
        return pointwise.logical_and(pointwise.logical_and(is_good, pointwise.less(s[0], count)), inside)

    def save(s: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, rows, places = pointwise.minimum(s[0], count - 1), *s[1:]  # in a batch, elements that are done go on
        at = pointwise.where(is_good, getitem(times, k), c.t)
        state = problem.method.interpolate(f, c.t, c.y, end, at)
        return s[0] + 1, store(rows, k, state), store(places, k, c.steps)

    found: tuple[Any, Any, Any] = run_loop(is_inside, save, (c.saved, c.rows, c.places))
    return found

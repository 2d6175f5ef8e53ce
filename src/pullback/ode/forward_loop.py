"""The loop over steps: tries them, keeps or rejects them, writes down their times. Nothing here is differentiated.

It is written in ops on a carry, so it runs in Python on arrays, by masks in a batch, where each element has steps of
its own, and as one native loop in a compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.trees import flatten
from ..ops import basis
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem, set_at
from ..ops.reduce import reductions
from ..ops.shape.arrange import stack
from ..ops.shape.reshaping import astype
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.staging import is_staging
from .methods import Slope
from .problem import Outcome, Problem, Status


class Carry(NamedTuple):
    """What goes from one attempt to the next: the time, state and slope reached; the step to try; errors of the last
    steps; and what has been recorded.
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


def run_loop(is_active: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
    """`while_loop` for carries that are made here. On bare arrays it is Python's own, and `store` writes in place."""
    if is_staging() or not all(type(x) is np.ndarray or isinstance(x, np.generic) for x in flatten(carry)[0]):
        return while_loop(is_active, body, carry)
    while is_active(carry):
        carry = body(carry)
    return carry


def store(buffer: Any, i: Any, value: Any) -> Any:
    """The buffer with one row replaced: in place where the buffer is a bare array, which `run_loop` made."""
    if type(buffer) is np.ndarray and not is_staging() and isinstance(value, (np.ndarray, np.generic)):
        buffer[int(i)] = value
        return buffer
    return set_at(buffer, i, value)


def integrate(problem: Problem, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any) -> Outcome:
    """Run the loop from t0 to t1."""
    f = problem.slope(arguments)
    carry = _begin(problem, f, y0, t0, t1, times)
    end = run_loop(
        lambda c: pointwise.logical_and(pointwise.not_equal(c.t, t1), pointwise.equal(c.status, 0)),
        lambda c: _attempt(problem, f, t1, times, c),
        carry,
    )
    status = end.status
    if problem.has_times:
        is_missing = pointwise.logical_and(pointwise.less(end.saved, len_of(times)), pointwise.not_equal(t0, t1))
        is_missing = pointwise.logical_and(is_missing, pointwise.equal(status, 0))
        status = pointwise.where(is_missing, np.int64(Status.OUTSIDE), status)
    return Outcome(
        end.rows if problem.has_times else end.y, end.grid, end.states, end.places,
        stack([end.steps, end.rejected, status]), stack([end.t, end.worst]),
    )  # fmt: skip


def len_of(times: Any) -> int:
    """How many times there are."""
    return int(spec_of(times).shape[0])


def _begin(problem: Problem, f: Slope, y0: Any, t0: Any, t1: Any, times: Any) -> Carry:
    slope = f(t0, y0)
    exponent = problem.error_exponent
    h = problem.control.first_step(f, t0, y0, slope, t1 - t0, exponent, problem.tolerance)
    is_good = reductions.all(pointwise.logical_and(pointwise.isfinite(slope), pointwise.isfinite(y0)))
    status = pointwise.where(is_good, np.int64(Status.DONE), np.int64(Status.NOT_FINITE))
    one, zero = np.ones((), problem.dtype), np.zeros((), np.int64)
    count = len_of(times)
    grid = np.zeros(problem.max_steps + 1, problem.dtype)
    rows = np.array(basis.broadcast_to(y0, (count, problem.size))) if type(y0) is np.ndarray else (
        basis.broadcast_to(y0, (count, problem.size))
    )  # fmt: skip
    return Carry(
        t=t0, y=y0, slope=slope, h=astype(h, problem.dtype), before=one, older=one, worst=np.zeros((), problem.dtype),
        steps=zero, rejected=zero, status=status, grid=store(grid, 0, t0),
        states=np.zeros((problem.max_steps if problem.saves_states else 0, problem.size), problem.dtype),
        saved=zero, rows=rows, places=np.zeros(count, np.int64),
    )  # fmt: skip


def _attempt(problem: Problem, f: Slope, t1: Any, times: Any, c: Carry) -> Carry:
    """One attempt at a step."""
    t_next = pointwise.where(problem.control.is_last(c.steps, c.h, t1 - c.t), t1, c.t + c.h)
    attempt = problem.method.attempt(f, c.t, c.y, c.slope, t_next)
    ratio = astype(problem.control.measure(attempt, c.y, problem.tolerance), problem.dtype)
    is_finite, is_good = pointwise.isfinite(ratio), pointwise.less_equal(ratio, 1)
    factor = problem.control.adapt((pointwise.where(is_finite, ratio, 2.0), c.before, c.older), problem.error_exponent)
    h = (t_next - c.t) * pointwise.where(is_finite, factor, 0.1)
    # a step cut short to reach the end says nothing against the longer one
    h = pointwise.where(is_good, _longer(h, c.h * pointwise.minimum(factor, 1.0)), h)
    taken = astype(is_good, np.int64)
    steps = c.steps + taken
    status = _find_status(problem, c, h, t_next, t1, steps, is_good, is_finite)
    saved = _save_times(problem, f, times, c, t_next, is_good) if problem.has_times else (c.saved, c.rows, c.places)

    def choose(new: Any, old: Any) -> Any:
        return pointwise.where(is_good, new, old)

    return Carry(
        t=choose(t_next, c.t), y=choose(attempt.y, c.y), slope=choose(attempt.slope, c.slope),
        h=astype(h, problem.dtype), before=choose(ratio, c.before), older=choose(c.before, c.older),
        worst=choose(pointwise.maximum(ratio, c.worst), c.worst), steps=steps, rejected=c.rejected + 1 - taken,
        status=status,
        # written even if rejected: the next attempt is written to the same place
        grid=store(c.grid, c.steps + 1, t_next),
        states=store(c.states, c.steps, c.y) if problem.saves_states else c.states,
        saved=saved[0], rows=saved[1], places=saved[2],
    )  # fmt: skip


def _longer(a: Any, b: Any) -> Any:
    return pointwise.where(pointwise.less(pointwise.abs(a), pointwise.abs(b)), b, a)


def _find_status(
    problem: Problem, c: Carry, h: Any, t_next: Any, t1: Any, steps: Any, is_good: Any, is_finite: Any
) -> Any:
    """Whether to go on after an attempt."""
    least = 4 * float(np.finfo(problem.dtype).eps)
    limit = pointwise.maximum(pointwise.abs(c.t) * least, float(np.finfo(problem.dtype).tiny))
    is_stuck = pointwise.logical_and(
        pointwise.logical_not(is_good), pointwise.less(pointwise.abs(h), limit)
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

    def is_inside(s: tuple[Any, Any, Any]) -> Any:
        at = getitem(times, pointwise.minimum(s[0], count - 1))
        inside = pointwise.logical_and(
            pointwise.less_equal((at - t_next) * ahead, 0), pointwise.greater_equal((at - c.t) * ahead, 0)
        )
        return pointwise.logical_and(pointwise.logical_and(is_good, pointwise.less(s[0], count)), inside)

    def save(s: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, rows, places = s
        state = problem.method.interpolate(f, c.t, c.y, t_next, getitem(times, k))
        return k + 1, store(rows, k, state), store(places, k, c.steps)

    found: tuple[Any, Any, Any] = run_loop(is_inside, save, (c.saved, c.rows, c.places))
    return found

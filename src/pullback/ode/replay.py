"""The accepted steps as a function that is differentiated: their times are known, and constants but for the ends.

Steps that were rejected have no part in it, and neither has the control of the steps: its derivative would be that of
the error, not of the solution. The first step begins at t0 and the last one ends at t1, so these have derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..checkpoint.loops.checkpoint_loop import checkpoint_loop
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.shape.arrange import stack
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.scan import scan
from ..transforms.reverse import vjp
from .forward_loop import len_of, run_loop, store
from .problem import Outcome, Problem

#: (problem, step) -> (start, end) of the step, with derivatives at both ends of the whole.
Ends = Callable[[Any], tuple[Any, Any]]


def replay(problem: Problem, done: Outcome, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any) -> Any:
    """The solution once more, by the accepted steps alone, in ops that every transform can follow."""
    f = problem.slope(arguments)
    ends = _find_ends(done, t0, t1)

    def go_to(stop: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        def step(c: tuple[Any, Any]) -> tuple[Any, Any]:
            start, end = ends(c[0])
            return c[0] + 1, problem.method.advance(f, start, c[1], end)

        found: tuple[Any, Any] = while_loop(lambda c: pointwise.less(c[0], stop), step, carry)
        return found

    first = (np.zeros((), np.int64), y0)
    if not problem.has_times:
        return go_to(getitem(done.counts, 0), first)[1]

    def save(carry: tuple[Any, Any], x: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        place, at = x
        i, y = go_to(place, carry)
        start, end = ends(i)
        # without a step (t0 is t1) there is nothing to interpolate, and no length to divide by
        is_still = pointwise.equal(start, end)
        safe_end = pointwise.where(is_still, start + 1, end)
        found = problem.method.interpolate(f, start, y, safe_end, pointwise.where(is_still, start, at))
        return (i, y), found

    return scan(save, first, (done.places, times))[1]


def _find_ends(done: Outcome, t0: Any, t1: Any) -> Ends:
    last = getitem(done.counts, 0) - 1

    def ends(i: Any) -> tuple[Any, Any]:
        start = pointwise.where(pointwise.equal(i, 0), t0, getitem(done.grid, i))
        return start, pointwise.where(pointwise.greater_equal(i, last), t1, getitem(done.grid, i + 1))

    return ends


def replay_with_snapshots(
    problem: Problem, done: Outcome, snapshots: int | None, y0: Any, span_and_times: Sequence[Any], *arguments: Any
) -> Any:
    """The same by steps of which only so many states are saved, between each two saved times: their number is known by
    now. Without one, about the square root of twice the steps.
    """
    grid, count = done.grid, int(done.counts[0])
    t0, t1, times = span_and_times

    def ends(i: int, t0: Any, t1: Any) -> tuple[Any, Any]:
        return t0 if i == 0 else grid[i], t1 if i >= count - 1 else grid[i + 1]

    def go(y: Any, first: int, last: int) -> Any:
        def step(i: Any, y: Any, t0: Any, t1: Any, *arguments: Any) -> Any:
            start, end = ends(first + i, t0, t1)
            return problem.method.advance(problem.slope(arguments), start, y, end)

        return checkpoint_loop(step, y, last - first, t0, t1, *arguments, snapshots=snapshots) if last > first else y

    if not problem.has_times:
        return go(y0, 0, count)
    if not count:
        return stack([y0] * len_of(times))

    def save(y: Any, i: int, at: Any) -> Any:
        def look(_: Any, y: Any, t0: Any, t1: Any, at: Any, *arguments: Any) -> Any:
            start, end = ends(i, t0, t1)
            return problem.method.interpolate(problem.slope(arguments), start, y, end, at)

        return checkpoint_loop(look, y, 1, t0, t1, at, *arguments, snapshots=1)

    y, reached, rows = y0, 0, []
    for k, place in enumerate(map(int, done.places)):
        y, reached = go(y, reached, place), place
        rows.append(save(y, place, getitem(times, k)))
    return stack(rows)


def sweep_back(
    problem: Problem, done: Outcome, bar: Any, span_and_times: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    """The pullback of `replay` from the saved states: each step once more, from the last to the first."""
    t0, t1, times = span_and_times
    moving = [i for i, x in enumerate(arguments) if spec_of(x).inexact]
    ends = _find_ends(done, t0, t1)
    count = getitem(done.counts, 0)

    def call(rule: Callable[..., Any], y: Any, *rest: Any) -> Any:
        *points, own = rest
        filled = list(arguments)
        for i, x in zip(moving, own, strict=True):
            filled[i] = x
        return rule(problem.slope(tuple(filled)), points[0], y, *points[1:])

    own = tuple(arguments[i] for i in moving)
    zero = zeros(spec_of(t0))
    sums = tuple(zeros(spec_of(x)) for x in own)
    at_end = bar if not problem.has_times else zeros(spec_of(getitem(bar, 0)))
    rows = zeros(spec_of(times))

    def pull_times(c: tuple[Any, ...], i: Any, y: Any, start: Any, end: Any) -> tuple[Any, ...]:
        """Add the shares of the saved times within step i."""

        def pull(s: tuple[Any, ...]) -> tuple[Any, ...]:
            k, y_bar, start_bar, end_bar, rows, sums = s
            k = k - 1
            at = getitem(times, k)
            rule = problem.method.interpolate
            _, back = vjp(lambda y, start, end, at, own: call(rule, y, start, end, at, own), y, start, end, at, own)
            found = back(getitem(bar, k))
            return (
                k, y_bar + found[0], start_bar + found[1], end_bar + found[2], store(rows, k, found[3]),
                _add(sums, found[4]),
            )  # fmt: skip

        def is_here(s: tuple[Any, ...]) -> Any:
            place = getitem(done.places, pointwise.maximum(s[0] - 1, 0))
            return pointwise.logical_and(pointwise.greater(s[0], 0), pointwise.equal(place, i))

        found: tuple[Any, ...] = run_loop(is_here, pull, c)
        return found

    def pull_step(c: tuple[Any, ...]) -> tuple[Any, ...]:
        i, k, y_bar, t0_bar, t1_bar, rows, sums = c
        i = i - 1
        y = getitem(done.states, i)
        start, end = ends(i)
        advance = problem.method.advance
        _, back = vjp(lambda y, start, end, own: call(advance, y, start, end, own), y, start, end, own)
        y_bar, start_bar, end_bar, shares = back(y_bar)
        sums = _add(sums, shares)
        if problem.has_times:
            s = (k, y_bar, start_bar, end_bar, rows, sums)
            k, y_bar, start_bar, end_bar, rows, sums = pull_times(s, i, y, start, end)
        t0_bar = pointwise.where(pointwise.equal(i, 0), start_bar, t0_bar)
        t1_bar = pointwise.where(pointwise.equal(i + 1, count), end_bar, t1_bar)
        return i, k, y_bar, t0_bar, t1_bar, rows, sums

    start = (count, np.asarray(len_of(times), np.int64), at_end, zero, zero, rows, sums)
    _, _, y_bar, t0_bar, t1_bar, rows, sums = run_loop(lambda c: pointwise.greater(c[0], 0), pull_step, start)
    if problem.has_times:  # no steps: all rows are the start
        y_bar = pointwise.where(pointwise.equal(count, 0), bar.sum(0), y_bar)
    at = dict(zip(moving, sums, strict=True))
    return [y_bar, t0_bar, t1_bar, rows, *(at.get(i) for i in range(len(arguments)))]


def _add(sums: Sequence[Any], shares: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(sums, shares, strict=True))

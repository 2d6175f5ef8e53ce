"""The accepted steps as a function that is differentiated: their times are known, and constants but for the ends.

Steps that were rejected have no part in it, and neither has the control of the steps: its derivative would be that of
the error, not of the solution. The first step begins at t0 and the last one ends at t1, so these have derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..ops.shape.reshaping import reshape
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.scan import scan
from ..transforms.reverse import vjp
from .differentiable import Differentiable
from .explicit_methods import Bosh3
from .loops import is_bare, len_of, run_loop, store
from .methods import Method, Slope
from .problem import Outcome, Problem
from .snapshots import Snapshots, find_latest, go_towards

#: (problem, step) -> (start, end) of the step, with derivatives at both ends of the whole.
Ends = Callable[[Any], tuple[Any, Any]]
#: The step that a span of no length is left by.
_SHORTEST = Bosh3()


def replay(problem: Problem, done: Outcome, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any) -> Any:
    """The solution once more, by the accepted steps alone, in ops that every transform can follow."""
    f, method = problem.slope(arguments), problem.method
    ends = _find_ends(done, t0, t1)

    def go_to(stop: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        def step(c: tuple[Any, Any]) -> tuple[Any, Any]:
            start, end = ends(c[0])
            return c[0] + 1, method.advance(f, start, _recall(method, done, c[1], c[0]), end)

        found: tuple[Any, Any] = while_loop(lambda c: pointwise.less(c[0], stop), step, carry)
        return found

    zero, is_still = problem.place(np.zeros((), np.int64)), _is_still(done, t1)
    if not problem.has_times:
        first = zero, method.begin(t0, _leave_start(f, is_still, t0, y0, t1))
        return method.state(go_to(getitem(done.counts, 0), first)[1])
    first = zero, method.begin(t0, y0)

    def save(carry: tuple[Any, Any], x: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        place, at = x
        i, y = go_to(place, carry)
        start, end = ends(i)
        is_reached = pointwise.greater_equal(place, 0)
        end, within = pointwise.where(is_reached, end, start), pointwise.where(is_reached, at, start)
        row = method.interpolate(f, start, _recall(method, done, y, i), end, within)
        is_start = pointwise.logical_or(pointwise.logical_not(is_reached), is_still)
        return (i, y), pointwise.where(is_start, _leave_start(f, is_still, t0, y0, at), row)

    return scan(save, first, (done.places, times))[1]


def _recall(method: Method, done: Outcome, y: Any, i: Any) -> Any:
    if not method.has_choices:
        return y
    return method.recall(y, getitem(done.choices, pointwise.minimum(i, len_of(done.choices) - 1)))


def _find_ends(done: Outcome, t0: Any, t1: Any) -> Ends:
    last, is_whole = getitem(done.counts, 0) - 1, _reaches_end(done, t1)

    def ends(i: Any) -> tuple[Any, Any]:
        after = pointwise.minimum(i + 1, len_of(done.grid) - 1)
        start = pointwise.where(pointwise.equal(i, 0), t0, getitem(done.grid, i))
        # in a batch, elements that are done stay where they are: equations of a step of no length have a solution
        start = pointwise.where(pointwise.greater(i, pointwise.maximum(last, 0)), t1, start)
        is_end = pointwise.logical_and(pointwise.equal(i, last), is_whole)
        is_end = pointwise.logical_or(is_end, pointwise.greater(i, last))
        return start, pointwise.where(is_end, t1, getitem(done.grid, after))

    return ends


def _reaches_end(done: Outcome, t1: Any) -> Any:
    """Whether the last step ends at t1: a solve that failed, and was not strict, ends before."""
    return pointwise.equal(getitem(done.grid, getitem(done.counts, 0)), t1)


def _is_still(done: Outcome, t1: Any) -> Any:
    """Whether the span has no length, so that no step was taken."""
    return pointwise.logical_and(pointwise.equal(getitem(done.counts, 0), 0), _reaches_end(done, t1))


def _leave_start(f: Slope, is_still: Any, t0: Any, y0: Any, at: Any) -> Any:
    """The start, as it moves with times that do not differ from t0 if the span has no length: by a step of none, whose
    derivatives up to the third are those of the solution.
    """
    return _SHORTEST.advance(f, t0, y0, t0 + pointwise.where(is_still, at - t0, 0.0))


class _Cotangents(NamedTuple):
    """What a sweep has found before the last `steps` left: the cotangents of the state there, of t0, t1, the times and
    the arguments, and how many saved times lie ahead of it.
    """

    steps: Any
    saved: Any
    y: Any
    t0: Any
    t1: Any
    times: Any
    own: tuple[Any, ...]


@final
@dataclass(frozen=True, eq=False)
class _Sweep:
    """The steps that a solve accepted, pulled from the last to the first."""

    problem: Problem
    done: Outcome
    bar: Any
    times: Any
    ends: Ends
    is_whole: Any
    arguments: Differentiable

    def run(self, first: _Cotangents) -> _Cotangents:
        """The cotangents at the start, from those at the end."""
        if self.problem.saves_states:
            found: _Cotangents = run_loop(lambda c: pointwise.greater(c.steps, 0), self._pull_saved, first)
            return found
        states = self.done.states
        states = states.copy() if is_bare(states) else states  # they are written to
        begin = first, Snapshots(states, self.done.held)
        found, _ = run_loop(lambda c: pointwise.greater(c[0].steps, 0), lambda c: self._pull_held(*c), begin)
        return found

    def _pull_saved(self, c: _Cotangents) -> _Cotangents:
        return self._pull_step(c, getitem(self.done.states, pointwise.maximum(c.steps - 1, 0)))

    def _pull_held(self, c: _Cotangents, kept: Snapshots) -> tuple[_Cotangents, Snapshots]:
        """All steps whose states are held after one more was found again."""
        kept, at, y = go_towards(kept, c.steps - 1, self._take_again)

        def is_held(s: tuple[_Cotangents, Any, Any]) -> Any:
            return pointwise.logical_and(pointwise.greater(s[0].steps, 0), pointwise.equal(s[1], s[0].steps - 1))

        # snapshots are written to out here alone: no loop within has them in its carry, which would copy them
        found: tuple[Any, ...] = run_loop(
            is_held, lambda s: (self._pull_step(s[0], s[2]), *find_latest(kept, s[0].steps - 2)), (c, at, y)
        )
        return found[0], kept

    def _take_again(self, i: Any, y: Any) -> Any:
        method = self.problem.method
        return self._call(method.advance, _recall(method, self.done, y, i), *self.ends(i), self.arguments.own)

    def _call(self, rule: Callable[..., Any], y: Any, start: Any, *rest: Any) -> Any:
        """A rule of the method from a state at the start of a step; the last of `rest` are arguments that move."""
        *points, own = rest
        return rule(self.problem.slope(tuple(self.arguments.fill(own))), start, y, *points)

    def _pull_step(self, c: _Cotangents, y: Any) -> _Cotangents:
        i = pointwise.maximum(c.steps - 1, 0)  # in a batch, elements that are done go on with their first step
        y = _recall(self.problem.method, self.done, y, i)
        start, end = self.ends(i)
        advance = partial(self._call, self.problem.method.advance)
        y_bar, start_bar, end_bar, shares = vjp(advance, y, start, end, self.arguments.own)[1](c.y)
        saved, rows, own = c.saved, c.times, _add(c.own, shares)
        if self.problem.has_times:
            carry = saved, y_bar, start_bar, end_bar, rows, own
            saved, y_bar, start_bar, end_bar, rows, own = self._pull_times(carry, i, y, start, end)
        is_last = pointwise.logical_and(pointwise.equal(i + 1, getitem(self.done.counts, 0)), self.is_whole)
        t0_bar = pointwise.where(pointwise.equal(i, 0), start_bar, c.t0)
        return _Cotangents(i, saved, y_bar, t0_bar, pointwise.where(is_last, end_bar, c.t1), rows, own)

    def _pull_times(self, carry: tuple[Any, ...], i: Any, y: Any, start: Any, end: Any) -> tuple[Any, ...]:
        """Add the shares of the saved times within step i."""
        interpolate = partial(self._call, self.problem.method.interpolate)

        def pull(s: tuple[Any, ...]) -> tuple[Any, ...]:
            k, y_bar, start_bar, end_bar, rows, sums = s
            k = k - 1
            _, back = vjp(interpolate, y, start, end, getitem(self.times, k), self.arguments.own)
            found = back(getitem(self.bar, k))
            return (
                k, y_bar + found[0], start_bar + found[1], end_bar + found[2], store(rows, k, found[3]),
                _add(sums, found[4]),
            )  # fmt: skip

        def is_here(s: tuple[Any, ...]) -> Any:
            place = getitem(self.done.places, pointwise.maximum(s[0] - 1, 0))
            return pointwise.logical_and(pointwise.greater(s[0], 0), pointwise.equal(place, i))

        found: tuple[Any, ...] = run_loop(is_here, pull, carry)
        return found


def sweep_back(
    problem: Problem, done: Outcome, bar: Any, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any
) -> list[Any]:  # fmt: skip
    """The pullback of `replay` from the states that the loop kept: each step once more, from the last to the first."""
    method, count, moving = problem.method, getitem(done.counts, 0), Differentiable(arguments)
    at_end = problem.place(np.zeros(method.count_numbers(problem.size), problem.dtype))
    if not problem.has_times:
        at_end = vjp(method.state, at_end)[1](bar)[0]
    saved, zero = reductions.sum(pointwise.greater_equal(done.places, 0)), zeros(spec_of(t0))
    sums = tuple(zeros(spec_of(x)) for x in moving.own)
    sweep = _Sweep(problem, done, bar, times, _find_ends(done, t0, t1), _reaches_end(done, t1), moving)
    found = sweep.run(_Cotangents(count, saved, at_end, zero, zero, zeros(spec_of(times)), sums))

    start_bar, y_bar = vjp(method.begin, t0, y0)[1](found.y)
    # a span of no length moves with its times as the start does with its slope
    share = pointwise.where(_is_still(done, t1), bar @ problem.slope(tuple(arguments))(t0, y0), 0.0)
    t0_bar = found.t0 + start_bar - reductions.sum(share)
    if not problem.has_times:
        return [y_bar, t0_bar, found.t1 + share, found.times, *moving.place(found.own)]
    # rows that no step led to are the start
    is_start = pointwise.logical_or(pointwise.less(done.places, 0), pointwise.equal(count, 0))
    y_bar = y_bar + reductions.sum(pointwise.where(reshape(is_start, (-1, 1)), bar, 0.0), axis=0)
    return [y_bar, t0_bar, found.t1, found.times + share, *moving.place(found.own)]


def _add(sums: Sequence[Any], shares: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(sums, shares, strict=True))

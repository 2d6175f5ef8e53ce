"""Derivatives of the times of events, and of states there, by the implicit function theorem; any policy does the rest.

An event meets g(s, y(s), p) = 0 at the time s. Let y' be the tangent of the solution at a fixed time, which is what a
policy computes, and f its slope. Then

    s' = -(g_y y' + g_p p') / (g_t + g_y f),        the tangent of the state at the event is  y' + f s'

and in reverse, with cotangents b of that state and c of s,

    l = (c + b f) / (g_t + g_y f),      the cotangent of the state at a fixed time is  b - l g_y,  that of p  -l g_p.

The end of the solve is a terminal event, if one was met, else t1. Times to save beyond the end are the end's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.order.sorting import argsort
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import reshape
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from ..transforms.vectorize import vmap
from .crossings import find_met
from .differentiable import Differentiable
from .events import slots_of
from .loops import len_of
from .policies import Call, fill_tangents
from .problem import Outcome, Problem


class _Rows(NamedTuple):
    """The times of all rows of a solution, the slope there, and which times to save lie beyond the end."""

    times: Any
    slopes: Any
    is_beyond: Any


def _find_times(done: Outcome, xs: Sequence[Any]) -> tuple[Any, Any]:
    """The times of all rows, those to save and those that were found, and which of the former lie beyond the end."""
    t0, t1, times = xs[1:4]
    end = getitem(done.found, -1)
    is_beyond = pointwise.greater((times - end) * pointwise.sign(t1 - t0), 0)
    return concat([pointwise.where(is_beyond, end, times), done.found]), is_beyond


def _find_rows(problem: Problem, done: Outcome, xs: Sequence[Any]) -> _Rows:
    times, is_beyond = _find_times(done, xs)
    return _Rows(times, vmap(problem.slope(tuple(xs[4:])))(times, done.y), is_beyond)


def _pose_at_fixed_times(call: Call, done: Outcome, xs: Sequence[Any]) -> tuple[Call, Outcome, list[Any], Any]:
    """The solve without events, up to the end that they gave it, with all rows at given times in their order; and the
    place of each row in that order.
    """

    def order(done: Outcome, xs: Sequence[Any]) -> tuple[Any, ...]:
        times, _ = _find_times(done, xs)
        at = argsort(times * pointwise.sign(xs[2] - xs[1]), stable=True)
        rows = getitem(times, at), getitem(done.y, at), getitem(done.places, at)
        return getitem(done.found, -1), *rows, argsort(at, stable=True)

    end, times, y, places, back = call.in_batches(order)(done, tuple(xs))
    posed = replace(call, problem=replace(call.problem, events=(), has_times=True))
    return posed, done._replace(y=y, places=places), [xs[0], xs[1], end, times, *xs[4:]], back


def _take_rows(call: Call, rows: Any, places: Any) -> Any:
    return call.in_batches(lambda rows, places: getitem(rows, places))(rows, places)


def push_events(call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> tuple[Any, Any]:
    """The tangents of all rows, and of the times of crossings and of the end."""
    dots = fill_tangents(tangents, xs)
    posed, at_times, given, back = _pose_at_fixed_times(call, done, xs)
    still = [dots[0], dots[1], zeros(spec_of(given[2])), zeros(spec_of(given[3])), *dots[4:]]
    y_dot = _take_rows(call, posed.policy.push(posed, still, at_times, given), back)

    def one(y_dot: Any, done: Outcome, xs: Sequence[Any], dots: Sequence[Any]) -> tuple[Any, Any]:
        return _push_one(call.problem, y_dot, done, xs, dots)

    found: tuple[Any, Any] = call.in_batches(one)(y_dot, done, tuple(xs), tuple(dots))
    return found


def _push_one(problem: Problem, y_dot: Any, done: Outcome, xs: Sequence[Any], dots: Sequence[Any]) -> tuple[Any, Any]:
    """The tangents of rows and times of one element, from those of its rows at fixed times."""
    rows = _find_rows(problem, done, xs)
    count, arguments = len_of(xs[3]), tuple(xs[4:])
    moving, found_dot = Differentiable(arguments), []
    all_met, one = find_met(problem, done.hits), problem.place(np.ones((), problem.dtype))
    for event, slots, is_met in zip(problem.events, slots_of(problem.events), all_met, strict=True):

        def of_all(t: Any, y: Any, *own: Any, g: Any = event.function) -> Any:
            return g(t, y, *moving.fill(own))

        def move(t: Any, y: Any, slope: Any, y_dot: Any, of_all: Any = of_all) -> tuple[Any, Any]:
            # g_y y' + g_p p' at a fixed time, and g_t + g_y f
            own, own_dot = moving.own, moving.select(dots[4:])
            rate = jvp(of_all, (t, y, *own), (one, slope, *map(_zeros_like, own)))[1]
            return jvp(of_all, (t, y, *own), (_zeros_like(t), y_dot, *own_dot))[1], rate

        here = slice(count + slots.start, count + slots.stop)
        change, rate = vmap(move)(rows.times[here], done.y[here], rows.slopes[here], y_dot[here])
        found_dot.append(_divide(-change, rate, is_met))
    end_dot = dots[2]
    for e, event in enumerate(problem.events):
        if event.terminal:
            end_dot = pointwise.where(pointwise.equal(getitem(done.hits, e), 0), end_dot, getitem(found_dot[e], 0))
    moves = [pointwise.where(met, dot, end_dot) for met, dot in zip(all_met, found_dot, strict=True)]
    times_dot = concat([pointwise.where(rows.is_beyond, end_dot, dots[3]), *moves, reshape(end_dot, (1,))])
    return y_dot + rows.slopes * reshape(times_dot, (-1, 1)), times_dot[count:]


def _zeros_like(x: Any) -> Any:
    return zeros(spec_of(x))


def _divide(share: Any, rate: Any, is_met: Any) -> Any:
    """share / rate where an event was met, else 0. A condition that only touches zero has no derivative: infinity."""
    return pointwise.where(is_met, share, 0.0) / pointwise.where(is_met, rate, 1.0)


def pull_events(call: Call, bars: tuple[Any, Any], done: Outcome, xs: Sequence[Any]) -> list[Any]:
    """The cotangents of y0, t0, t1, the times and the arguments."""
    posed, at_times, given, back = _pose_at_fixed_times(call, done, xs)

    def one(bars: tuple[Any, Any], done: Outcome, xs: Sequence[Any]) -> tuple[Any, ...]:
        return _pull_one(call.problem, bars, done, xs)

    y_bar, t1_bar, times_bar, shares = call.in_batches(one)(bars, done, tuple(xs))
    order = call.in_batches(lambda back: argsort(back, stable=True))(back)
    found = list(posed.policy.pull(posed, _take_rows(call, y_bar, order), at_times, given))
    found[2], found[3] = t1_bar, times_bar
    for i, share in zip(Differentiable(xs[4:]).places, shares, strict=True):
        found[4 + i] = share if found[4 + i] is None else found[4 + i] + share
    return found


def _pull_one(problem: Problem, bars: tuple[Any, Any], done: Outcome, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents of all rows at fixed times, of t1 and of the times, and the shares of the conditions."""
    y_bar, found_bar = bars
    rows = _find_rows(problem, done, xs)
    count, arguments = len_of(xs[3]), tuple(xs[4:])
    moving = Differentiable(arguments)
    own = moving.own
    times_bar = reductions.sum(y_bar * rows.slopes, axis=1)
    saved_bar, found_bar = times_bar[:count], times_bar[count:] + found_bar
    end_bar = getitem(found_bar, -1) + reductions.sum(pointwise.where(rows.is_beyond, saved_bar, 0.0))
    is_met, bar_rows, sums = find_met(problem, done.hits), [y_bar[:count]], [zeros(spec_of(x)) for x in own]
    # a crossing that was not met has the time of the end
    for met, slots in zip(is_met, slots_of(problem.events), strict=True):
        end_bar = end_bar + reductions.sum(pointwise.where(met, 0.0, found_bar[slots.start : slots.stop]))
    t1_bar = end_bar
    for event, slots, met in zip(problem.events, slots_of(problem.events), is_met, strict=True):
        bar = found_bar[slots.start : slots.stop]
        if event.terminal:
            bar = bar + pointwise.where(met, end_bar, 0.0)
            t1_bar = pointwise.where(getitem(met, 0), 0.0, t1_bar)
        here = slice(count + slots.start, count + slots.stop)

        def pull(t: Any, y: Any, slope: Any, bar: Any, met: Any, g: Any = event.function) -> tuple[Any, ...]:
            def of_all(t: Any, y: Any, own: Any) -> Any:
                return g(t, y, *moving.fill(own))

            _, back = vjp(of_all, t, y, own)
            g_t, g_y, g_own = back(problem.place(np.ones((), problem.dtype)))
            share = _divide(bar, g_t + reductions.sum(g_y * slope), met)
            return -share * g_y, tuple(-share * x for x in g_own)

        of_rows, of_own = vmap(pull)(rows.times[here], done.y[here], rows.slopes[here], bar, met)
        bar_rows.append(y_bar[here] + of_rows)
        sums = [total + reductions.sum(share, axis=0) for total, share in zip(sums, of_own, strict=True)]
    bar_rows.append(y_bar[-1:])
    return concat(bar_rows), t1_bar, pointwise.where(rows.is_beyond, 0.0, saved_bar), tuple(sums)

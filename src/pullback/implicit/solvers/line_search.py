"""The line search of descent methods: the state of a descent, and a step along a direction that goes down."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import astype
from ...transforms.control.branches_and_loops import while_loop
from ..linear.operator import norm
from .method_loop import SolverProblem, State
from .method_tools import dot

#: A step of length t must reduce the objective by this share of what its slope promises.
DECREASE = 1e-4
#: The slope along the step must become this much flatter; without it the step was too short to learn from.
CURVATURE = 0.9
#: How many lengths a search tries.
TRIALS = 40


def merit_at(problem: SolverProblem, x: Any) -> Any:
    """What is to be minimised: the objective, half the sum of squares, or zero where neither is known."""
    if problem.objective is not None:
        return astype(problem.objective(x), problem.dtype)
    if problem.inner is not None:
        return astype(0.5 * total(pointwise.square(problem.inner(x))), problem.dtype)
    return 0 * total(x)


def begin_descent(problem: SolverProblem, start: Any) -> State:
    """The state at a point; `height` is the largest merit so far."""
    gradient, merit = problem.residual(start), merit_at(problem, start)
    return {
        "x": start, "residual": gradient, "norm": norm(gradient), "merit": merit, "height": pointwise.abs(merit),
        "stuck": problem.xp.asarray(False),
    }  # fmt: skip


def is_descent_done(problem: SolverProblem, state: State) -> Any:
    """Whether the gradient is small, or nothing more can be done about it."""
    return (state["norm"] <= problem.tolerance) | state["stuck"] | ~pointwise.isfinite(state["norm"])


def merit_rounding(problem: SolverProblem, state: State) -> Any:
    """By how much two values of the objective may differ for no reason. The largest one so far stands for the terms
    that it is the sum of: they may cancel at the minimum.
    """
    return 16 * problem.eps * state["height"]


def move_where(state: State, found: State, good: Any) -> State:
    """The state at a new point where that is good, stuck elsewhere."""
    after = {name: pointwise.where(good, found[name], state[name]) for name in ("x", "residual", "merit")}
    height = pointwise.maximum(state["height"], pointwise.abs(after["merit"]))
    return after | {"norm": norm(after["residual"]), "height": height, "stuck": pointwise.logical_not(good)}


def ensure_descent(direction: Any, gradient: Any) -> Any:
    """The direction, or that of steepest descent where it does not go down."""
    return pointwise.where(dot(direction, gradient) < 0, direction, -gradient)


def search_line(problem: SolverProblem, state: State, direction: Any, first: Any, flatter: float) -> State:
    """The state after a step along a direction of descent, of a length that is neither too long nor too short.

    Too long: the objective does not fall enough. Where it differs by no more than rounding, the slopes decide, so that
    the gradient can become smaller than the objective can show; so they do where there is no objective. Too short: the
    slope is still nearly what it was. Lengths are doubled until one is too long, and then bisected.
    """
    x, before = state["x"], state["merit"]
    slope = dot(state["residual"], direction)
    is_known = problem.objective is not None or problem.inner is not None
    rounding = merit_rounding(problem, state)

    def is_too_long(t: Any, merit: Any, slope_there: Any) -> Any:
        falls = merit <= before + DECREASE * t * slope if is_known else problem.xp.asarray(False)
        return pointwise.logical_not(falls | ((merit <= before + rounding) & (slope_there <= -0.8 * slope)))

    def try_length(t: Any, low: Any, high: Any, tries: Any) -> State:
        there = x + t * direction
        gradient = problem.residual(there)
        merit, slope_there = merit_at(problem, there), dot(gradient, direction)
        long = is_too_long(t, merit, slope_there)
        return {
            "t": t, "low": pointwise.where(long, low, t), "high": pointwise.where(long, t, high), "tries": tries,
            "x": there, "residual": gradient, "merit": merit, "long": long,
            "short": pointwise.logical_not(long) & (slope_there < flatter * slope),
        }  # fmt: skip

    def needs_trial(c: State) -> Any:
        return (c["long"] | c["short"]) & pointwise.less(c["tries"], TRIALS)

    def try_next(c: State) -> State:
        low, high = c["low"], c["high"]
        t = pointwise.where(pointwise.isinf(high), 2 * low, 0.5 * (low + high))
        return try_length(t, low, high, c["tries"] + 1)

    zero, infinity = problem.xp.zeros((), problem.dtype), problem.xp.full((), np.inf, problem.dtype)
    found = while_loop(needs_trial, try_next, try_length(first, zero, infinity, 0))
    return move_where(state, found, pointwise.logical_not(found["long"]))

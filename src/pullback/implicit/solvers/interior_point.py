"""The interior-point method for minima with nonlinear constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ...transforms.control.branches_and_loops import while_loop
from ..cones.program_shape import ProgramShape
from .constrained_steps import (
    FIRST_TRIAL,
    TO_BOUNDARY,
    Derivatives,
    Linearization,
    advance,
    constrained_state_at,
    differentiate_conditions,
    finish_exactly,
    is_constrained_done,
    linearize,
    move_unknown,
    require_program,
)
from .method_loop import PackageMethod, SolverProblem, State
from .method_tools import current_point, dot

#: The first multiplier of the barrier, and its least value relative to the square of the tolerance: that is the product
#: of a slack and a multiplier which are both about zero.
_FIRST_BARRIER, _LEAST_BARRIER = 0.1, 1e-3
#: A barrier is minimized up to so many times its multiplier, which then falls by this factor, or to this power.
_BARRIER_ACCURACY, _BARRIER_FACTOR, _BARRIER_POWER = 10.0, 0.2, 1.5
#: Trials of a line search, and the share of the promised decrease that is enough.
_TRIALS, _DECREASE = 30, 1e-4
#: Below this error a step is good if it reduces the error, whatever the merit.
_NEAR = 1e-2
#: The least curvature along a step, relative to its square; what is added to the Hessian where there is less.
_CURVATURE, _FIRST_SHIFT, _SHIFT_GROWTH, _SHIFTS = 1e-10, 1e-4, 8.0, 25


@final
@dataclass(frozen=True)
class InteriorPoint(PackageMethod):
    """For minima with nonlinear constraints: for one mu after another, steps to the minimum of f with a barrier, mu
    times the logarithm of s, shortened until that and what is missing of the constraints fall together. Where the
    Hessian curves down, a multiple of the identity is added. `barrier` is the first mu.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> disk = pb.implicit.AtMost(lambda x: pb.sum(x * x), 1.0)
    >>> x = pb.argmin(f, np.array([-1.0, 0.5]), constraints=[disk], solver=pb.implicit.InteriorPoint(barrier=1.0))
    >>> np.round(x, 6)
    array([0.786415, 0.617698])
    """

    barrier: float = _FIRST_BARRIER

    def __post_init__(self) -> None:
        if not isinstance(self.barrier, (int, float)) or not 0 < self.barrier < float("inf"):
            raise ArgumentError(f"InteriorPoint: barrier must be a positive number, got {self.barrier!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        shape, xp, dtype = require_program(problem, self), problem.xp, problem.dtype
        unit = shape.cones.unit(xp, dtype)
        x, y, _ = shape.cut_unknown(start)
        inside = shape.cut_conditions(problem.conditions(start))[2]
        s = shape.cones.move_inside(inside, unit)
        z = shape.cones.divide(s, self.barrier * unit)
        return constrained_state_at(problem, concat([x, y, z]), s, {
            "mu": xp.asarray(self.barrier, dtype), "trial": xp.asarray(problem.eps**FIRST_TRIAL, dtype),
            "weight": xp.asarray(0.0, dtype), "shift": xp.asarray(0.0, dtype),
        })  # fmt: skip

    def step(self, problem: SolverProblem, state: State) -> State:
        state = _lower_barrier(problem, state)
        shape, s, mu = problem.program, state["s"], state["mu"]
        cones, unit = shape.cones, shape.cones.unit(problem.xp, problem.dtype)
        derivatives = differentiate_conditions(problem, state["x"])
        _, y, z = shape.cut_unknown(state["x"])
        here = linearize(problem, state["conditions"], s, z, derivatives)
        step, shift = _find_descent(here, here.aim(mu * unit), state["shift"])
        slope = dot(derivatives.slope, step["dx"]) - mu * dot(cones.divide(here.scaled_s, unit), step["scaled_ds"])
        missing = _missing(shape, state["conditions"], s)
        needed = slope / (0.7 * pointwise.where(missing > 0, missing, 1.0))
        enough = pointwise.maximum(state["weight"], pointwise.where(missing > 0, 1.5 * needed, 0.0))
        weight = pointwise.maximum(enough, _least_weight([y + step["dy"], z + step["dz"]], derivatives))
        longest, dual = (TO_BOUNDARY * reach for reach in here.reach(step, 1 / TO_BOUNDARY))
        promised = slope - weight * missing
        after = _search(problem, state | {"weight": weight, "shift": shift}, step, longest, dual, promised)
        return finish_exactly(problem, after | {"weight": enough})

    done = staticmethod(is_constrained_done)
    value = staticmethod(current_point)


def _missing(shape: ProgramShape, conditions: Any, s: Any) -> Any:
    """By how much the constraints are missed, all added up."""
    _, equal, inside = shape.cut_conditions(conditions)
    return reductions.sum(pointwise.abs(equal)) + reductions.sum(pointwise.abs(inside - s))


def _merit(shape: ProgramShape, conditions: Any, s: Any, mu: Any, weight: Any) -> Any:
    return conditions[-1] - mu * shape.cones.barrier(s) + weight * _missing(shape, conditions, s)


def _barrier_error(shape: ProgramShape, conditions: Any, s: Any, z: Any, mu: Any, unit: Any) -> Any:
    """The largest residual of the conditions with mu in them."""
    gradient, equal, inside = shape.cut_conditions(conditions)
    centered = shape.cones.product(s, z) - mu * unit
    # gradients are seen relative to the multipliers that they are made of
    size = pointwise.maximum(1.0, reductions.mean(pointwise.abs(z)) / 100) if shape.cones.length else 1.0
    parts = concat([gradient / size, equal, inside - s, centered / size])
    return reductions.max(pointwise.abs(parts))


def _lower_barrier(problem: SolverProblem, state: State) -> State:
    """The state with the next mu, where the barrier of this one is nearly minimized."""
    shape, mu = problem.program, state["mu"]
    unit = shape.cones.unit(problem.xp, problem.dtype)
    z = shape.cut_unknown(state["x"])[2]
    least = _LEAST_BARRIER * problem.tolerance * problem.tolerance

    def is_solved(mu: Any) -> Any:
        error = _barrier_error(shape, state["conditions"], state["s"], z, mu, unit)
        return (error <= _BARRIER_ACCURACY * mu) & (mu > least)

    def lower(mu: Any) -> Any:
        return pointwise.maximum(least, pointwise.minimum(_BARRIER_FACTOR * mu, pointwise.power(mu, _BARRIER_POWER)))

    lowered = while_loop(is_solved, lower, mu)
    return state | {"mu": lowered, "weight": pointwise.where(lowered < mu, 0.0, state["weight"])}


def _least_weight(multipliers: list[Any], derivatives: Derivatives) -> Any:
    """What the merit makes of missing constraints at least: what the next multipliers are, but no more than slopes of f
    compared to those of constraints. With more, steps along nonlinear constraints are tiny where f is small beside
    them.
    """
    slopes = concat([derivatives.equal, derivatives.inside])
    steepest = reductions.max(pointwise.abs(slopes), initial=0.0)
    share = reductions.max(pointwise.abs(derivatives.slope)) / pointwise.where(steepest > 0, steepest, 1.0)
    largest = reductions.max(pointwise.abs(concat(multipliers)), initial=0.0)
    return pointwise.minimum(1.0, pointwise.minimum(largest, share))


def _find_descent(here: Linearization, r: Any, before: Any) -> tuple[dict[str, Any], Any]:
    """A step along which the Hessian with the barrier curves up, and what was added to the Hessian for that."""
    largest = 1 + reductions.max(pointwise.abs(here.hessian))

    def try_shift(shift: Any, tries: Any) -> State:
        step = here.direction(r, shift)
        dx = step["dx"]
        scaled = matmul(here.scaled_rows, dx) if here.cones.length else 0 * dx
        curvature = dot(dx, matmul(here.hessian, dx)) + dot(scaled, scaled) + shift * dot(dx, dx)
        good = curvature >= _CURVATURE * largest * dot(dx, dx)
        return {"shift": shift, "tries": tries, "good": good, "step": step}

    def grow(c: State) -> State:
        first = pointwise.maximum(_FIRST_SHIFT * largest, before / _SHIFT_GROWTH)
        return try_shift(pointwise.where(c["shift"] > 0, _SHIFT_GROWTH * c["shift"], first), c["tries"] + 1)

    found = while_loop(
        lambda c: pointwise.logical_not(c["good"]) & pointwise.less(c["tries"], _SHIFTS), grow, try_shift(0 * before, 0)
    )
    return found["step"], pointwise.where(found["shift"] > 0, found["shift"], before)


def _search(
    problem: SolverProblem, state: State, step: dict[str, Any], longest: Any, dual: Any, promised: Any
) -> State:
    """The state after a step, halved until the merit falls by enough, or, near a solution, the error does."""
    shape, mu, weight = problem.program, state["mu"], state["weight"]
    unit = shape.cones.unit(problem.xp, problem.dtype)
    before = _merit(shape, state["conditions"], state["s"], mu, weight)
    rounding = 16 * problem.eps * (1 + pointwise.abs(before))
    z = shape.cut_unknown(state["x"])[2]
    error = _barrier_error(shape, state["conditions"], state["s"], z, mu, unit)

    def try_length(t: Any, tries: Any) -> State:
        s = state["s"] + t * step["ds"]
        w = move_unknown(state["x"], shape, step, t, dual)
        conditions = problem.conditions(w)
        falls = _merit(shape, conditions, s, mu, weight) <= before + _DECREASE * t * promised + rounding
        closer = _barrier_error(shape, conditions, s, shape.cut_unknown(w)[2], mu, unit) <= (1 - 0.1 * t) * error
        return {"t": t, "tries": tries, "good": falls | (closer & (error < _NEAR)), "w": w, "s": s}

    found = while_loop(
        lambda c: pointwise.logical_not(c["good"]) & pointwise.less(c["tries"], _TRIALS),
        lambda c: try_length(0.5 * c["t"], c["tries"] + 1),
        try_length(longest, 0),
    )
    good = found["good"]
    w, s = pointwise.where(good, found["w"], state["x"]), pointwise.where(good, found["s"], state["s"])
    after = advance(problem, state, w, s)
    return after | {"stuck": after["stuck"] | pointwise.logical_not(good)}

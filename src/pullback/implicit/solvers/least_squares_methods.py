"""Methods for least squares, which use the Jacobian of the residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...ops.shape.arrange import concat
from ...transforms.control.branches_and_loops import while_loop
from ..linear.operator import norm
from .line_search import (
    DECREASE,
    TRIALS,
    begin_descent,
    ensure_descent,
    is_descent_done,
    merit_at,
    merit_rounding,
    move_where,
    search_line,
)
from .method_loop import DescentMethod, SolverProblem, State
from .method_tools import current_point, dot, fit_dense


def _begin_least_squares(problem: SolverProblem, start: Any, what: str) -> State:
    if problem.inner is None:
        raise ArgumentError(f"{what}: wants a sum of squares.\n  Pose the problem with pb.least_squares, or use BFGS.")
    return begin_descent(problem, start)


def _linearize_residuals(problem: SolverProblem, x: Any) -> tuple[Any, Any]:
    """The residuals r(x) and their Jacobian."""
    assert problem.inner is not None
    return problem.inner(x), problem.jacobian(x, problem.inner)


@final
@dataclass(frozen=True)
class GaussNewton(DescentMethod):
    """For least squares: the step that would end it if the residuals were linear, shortened until their squares fall.

    >>> import numpy as np, pullback as pb
    >>> r = lambda x: pb.stack([1 - x[0], 10 * (x[1] - x[0] ** 2)])
    >>> np.round(pb.least_squares(r, np.array([-1.2, 1.0]), solver=pb.implicit.GaussNewton()), 6)
    array([1., 1.])
    """

    def init(self, problem: SolverProblem, start: Any) -> State:
        return _begin_least_squares(problem, start, "GaussNewton")

    def step(self, problem: SolverProblem, state: State) -> State:
        r, J = _linearize_residuals(problem, state["x"])
        direction = ensure_descent(-fit_dense(J, r), state["residual"])
        return search_line(problem, state, direction, problem.xp.ones((), problem.dtype), np.inf)

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class LevenbergMarquardt(DescentMethod):
    """For least squares: a step d minimises |r + J d|^2 + damping |D d|^2, with D the largest lengths of the columns of
    J so far; the damping grows until the step reduces the sum of squares, and falls as the linear model proves right.

    >>> import numpy as np, pullback as pb
    >>> t = np.linspace(0, 1, 5)
    >>> y = 2 * np.exp(-3 * t)
    >>> solver = pb.implicit.LevenbergMarquardt()
    >>> np.round(pb.least_squares(lambda w: w[0] * pb.exp(-w[1] * t) - y, np.ones(2), solver=solver), 6)
    array([2., 3.])
    """

    damping: float = 1e-3

    def __post_init__(self) -> None:
        if not isinstance(self.damping, (int, float)) or not 0 < self.damping < np.inf:
            raise ArgumentError(f"LevenbergMarquardt: damping must be a positive number, got {self.damping!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        lengths = problem.xp.zeros(problem.size, problem.dtype)
        damping = problem.xp.asarray(self.damping, problem.dtype)
        return _begin_least_squares(problem, start, "LevenbergMarquardt") | {"damping": damping, "lengths": lengths}

    def step(self, problem: SolverProblem, state: State) -> State:
        r, J = _linearize_residuals(problem, state["x"])
        lengths = pointwise.maximum(state["lengths"], pointwise.sqrt(total(pointwise.square(J), 0)))
        D = pointwise.where(pointwise.equal(lengths, 0), 1.0, lengths)
        right = concat([-r, 0 * D])
        rounding = merit_rounding(problem, state)

        def try_damping(damping: Any, tries: Any) -> State:
            d = fit_dense(concat([J, problem.identity() * (pointwise.sqrt(damping) * D)]), right)
            there = state["x"] + d
            gradient, merit = problem.residual(there), merit_at(problem, there)
            promised = 0.5 * (dot(r, r) - total(pointwise.square(r + matmul(J, d))))
            kept = (state["merit"] - merit) / pointwise.where(pointwise.greater(promised, 0), promised, 1.0)
            level = (merit <= state["merit"] + rounding) & (norm(gradient) < state["norm"])
            return {
                "damping": damping, "tries": tries, "x": there, "residual": gradient, "merit": merit, "kept": kept,
                "good": (kept > DECREASE) | level,
            }  # fmt: skip

        found = while_loop(
            lambda c: pointwise.logical_not(c["good"]) & pointwise.less(c["tries"], TRIALS),
            lambda c: try_damping(4 * c["damping"], c["tries"] + 1),
            try_damping(state["damping"], 0),
        )
        damping = _update_damping(found["damping"], found["kept"], problem.dtype)
        return move_where(state, found, found["good"]) | {"damping": damping, "lengths": lengths}

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)


def _update_damping(damping: Any, kept: Any, dtype: Any) -> Any:
    """Less damping where the step did what the model promised (kept = 1), more where it did not: between a tenth and
    twice of it.
    """
    factor = pointwise.clip_to(1 - (2 * kept - 1) * (2 * kept - 1) * (2 * kept - 1), 0.1, 2.0)
    return pointwise.maximum(
        damping * pointwise.where(pointwise.isnan(factor), 1.0, factor), float(np.finfo(dtype).tiny) * 1e6
    )

"""A trust-region method: steps no longer than a radius, within which a model of the function has proved right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import astype
from ...transforms.control.branches_and_loops import while_loop
from ..linear.operator import norm
from .line_search import DECREASE, TRIALS, begin_descent, is_descent_done, merit_rounding, move_where
from .method_loop import DescentMethod, SolverProblem, State
from .method_tools import current_point, dot, fit_dense

#: The model was poor or good where the function fell by less or more than these shares of what it promised.
_POOR, _GOOD = 0.25, 0.75
#: The radius after a poor step, relative to its length, and after a good one that the radius had cut off.
_SHRINK, _GROW = 0.25, 2.0


class _Model(NamedTuple):
    """g^T p + p^T B p / 2 for a step p: its slope g, the function v -> B v, and where the model is least."""

    slope: Any
    apply_hessian: Any
    newton: Any

    def change(self, p: Any) -> Any:
        """What the model says of a step."""
        return dot(self.slope, p) + 0.5 * dot(p, self.apply_hessian(p))


@final
@dataclass(frozen=True)
class Dogleg(DescentMethod):
    """Powell's dogleg, for roots, least squares and minima: Newton's step if it is no longer than a radius, the step
    down the gradient if even that is longer, else the point between the two at the radius. The radius grows and falls
    as the model proves right. It asks for the whole Jacobian, and stays cautious where Newton's step is wild.

    For a root the model is that of half the square of F. `radius` is the first one.

    >>> import numpy as np, pullback as pb
    >>> rosenbrock = lambda x: (x[0] - 1) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> np.round(pb.argmin(rosenbrock, np.array([-1.2, 1.0]), solver=pb.implicit.Dogleg()), 6)
    array([1., 1.])
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.radius, (int, float)) or not 0 < self.radius < np.inf:
            raise ArgumentError(f"Dogleg: radius must be a positive number, got {self.radius!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        state = begin_descent(problem, start)
        merit = _merit_at(problem, start, state["residual"])
        radius = problem.xp.asarray(self.radius, problem.dtype)
        return state | {"merit": merit, "height": pointwise.abs(merit), "radius": radius}

    def step(self, problem: SolverProblem, state: State) -> State:
        model = _make_model(problem, state)
        rounding = merit_rounding(problem, state)

        def try_radius(radius: Any, tries: Any) -> State:
            p = _follow_dogleg(model, radius)
            there = state["x"] + p
            residual = problem.residual(there)
            merit = _merit_at(problem, there, residual)
            promised = -model.change(p)
            kept = (state["merit"] - merit) / pointwise.where(promised > 0, promised, 1.0)
            level = (merit <= state["merit"] + rounding) & (norm(residual) < state["norm"])
            good = ((kept > DECREASE) & (promised > 0)) | level
            return {
                "radius": radius, "tries": tries, "x": there, "residual": residual, "merit": merit, "good": good,
                "kept": pointwise.where(level & (kept < _GOOD), 1.0, kept), "length": norm(p),
            }  # fmt: skip

        found = while_loop(
            lambda c: pointwise.logical_not(c["good"]) & pointwise.less(c["tries"], TRIALS),
            lambda c: try_radius(_SHRINK * pointwise.minimum(c["radius"], c["length"]), c["tries"] + 1),
            try_radius(state["radius"], 0),
        )
        cut_off = found["length"] >= 0.99 * found["radius"]
        longer = pointwise.where((found["kept"] > _GOOD) & cut_off, _GROW * found["radius"], found["radius"])
        radius = pointwise.where(found["kept"] < _POOR, _SHRINK * found["length"], longer)
        return move_where(state, found, found["good"]) | {"radius": radius}

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)


def _merit_at(problem: SolverProblem, x: Any, residual: Any) -> Any:
    """The objective, or half the sum of squares."""
    if problem.objective is not None:
        return astype(problem.objective(x), problem.dtype)
    parts = residual if problem.inner is None else problem.inner(x)
    return astype(0.5 * dot(parts, parts), problem.dtype)


def _make_model(problem: SolverProblem, state: State) -> _Model:
    """The model at a point: with the Hessian of a minimum, or with J^T J for F or the residuals, J their Jacobian."""
    x, residual = state["x"], state["residual"]
    if problem.objective is not None:
        hessian = problem.jacobian(x)
        return _Model(residual, lambda v: matmul(hessian, v), -fit_dense(hessian, residual))
    jacobian = problem.jacobian(x, problem.inner)
    parts = residual if problem.inner is None else problem.inner(x)
    slope = matmul(jacobian.T, parts)
    return _Model(slope, lambda v: matmul(jacobian.T, matmul(jacobian, v)), -fit_dense(jacobian, parts))


def _follow_dogleg(model: _Model, radius: Any) -> Any:
    """The step along the path from zero over the lowest point down the gradient to Newton's, as far as the radius.

    Where the model curves down along the gradient it is followed to the radius; where Newton's step leads up or is not
    a number, the path ends at the lowest point.
    """
    slope, newton = model.slope, model.newton
    size = norm(slope)
    size = pointwise.where(size > 0, size, 1.0)
    curvature = dot(slope, model.apply_hessian(slope)) / (size * size)
    lowest = pointwise.where(curvature > 0, size / pointwise.where(curvature > 0, curvature, 1.0), radius)
    first = -(pointwise.minimum(lowest, radius) / size) * slope
    is_convex = dot(newton, model.apply_hessian(newton)) > 0
    usable = (dot(slope, newton) < 0) & is_convex & pointwise.isfinite(norm(newton))
    newton = pointwise.where(usable & (curvature > 0), newton, first)
    way = newton - first
    # |first + t way| = radius
    a, b, c = dot(way, way), dot(first, way), radius * radius - dot(first, first)
    c = pointwise.maximum(c, 0.0)
    root = pointwise.sqrt(pointwise.maximum(b * b + a * c, 0.0))
    share = c / pointwise.where(b + root > 0, b + root, 1.0)
    between = first + pointwise.minimum(share, 1.0) * way
    return pointwise.where(norm(newton) <= radius, newton, pointwise.where(lowest >= radius, first, between))

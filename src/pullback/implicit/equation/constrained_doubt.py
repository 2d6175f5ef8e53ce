"""Doubts about a minimum with constraints: a saddle, constraints that contradict each other, no minimum at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import to_host
from ..cones.cone_blocks import INSIDE, SecondOrderCones
from ..solvers.constrained_steps import differentiate_conditions
from ..solvers.method_loop import SolverProblem

#: Up to so many variables the Hessian is checked.
_MAX_DENSE_SIZE = 64
#: Multipliers whose weights cancel the slopes of the constraints but for this share show that they contradict.
_CANCELLED = 1e-4
#: Constraints that are missed by more than this were not just stopped early.
_MISSED = 1e-3
#: What they add up to is negative if it is below this, relative to the largest of them.
_CONTRADICTION = 1e-8
#: A point so far away, or multipliers so large, are on their way to infinity.
_FAR_AWAY = 1e5
_NO_ROOM = (
    "the multipliers grow without bound, to {:.1e}: at the solution the constraints leave no room inside, or their "
    "slopes depend on each other; write x <= c with x >= c as an equation"
)


def find_doubt(problem: SolverProblem, w: Any, left: Any) -> str:
    """Why a point is no minimum; nothing if there is no sign of that."""
    if not bool(problem.xp.isfinite(w).all()):
        return ""
    if not bool(left <= problem.tolerance):
        return _explain_failure(problem, w)
    return _explain_multipliers(problem, w) or (
        _explain_saddle(problem, w) if problem.program.variables <= _MAX_DENSE_SIZE else ""
    )


def _explain_multipliers(problem: SolverProblem, w: Any) -> str:
    """Multipliers so large that what the tolerance allows of the constraints may change the minimum visibly."""
    _, y, z = map(to_host, problem.program.cut_unknown(w))
    size = np.abs(np.concatenate([y, z])).max(initial=0.0)
    if size <= problem.eps**-0.5:
        return ""
    slope = np.abs(to_host(differentiate_conditions(problem, w).slope)).max(initial=1.0)
    return "" if size <= slope * problem.eps**-0.5 else _NO_ROOM.format(size)


def _explain_failure(problem: SolverProblem, w: Any) -> str:
    """Why a search did not converge: there is no feasible point, or no minimum, or no room between the constraints."""
    shape = problem.program
    derivatives = differentiate_conditions(problem, w)
    _, equal, inside = map(to_host, shape.cut_conditions(problem.conditions(w)))
    x, y, z = map(to_host, shape.cut_unknown(w))
    weights = np.concatenate([y, z])
    size = np.abs(weights).max(initial=0.0)
    rows = np.concatenate([to_host(derivatives.equal), to_host(derivatives.inside)])
    if size > _FAR_AWAY:
        # y^T E + z^T C with z >= 0 must not be negative: that it is, with no slope, proves that no point is feasible
        values = np.concatenate([equal, inside])
        slope, sum_of_values = np.abs(weights @ rows).max() / size, weights @ values / size
        cancelled = slope <= _CANCELLED * np.abs(rows).max(initial=1.0)
        if cancelled and sum_of_values < -_CONTRADICTION * max(1.0, np.abs(values).max()):
            return (
                "infeasible: the constraints, weighted by their multipliers, add up to an expression that does not "
                f"depend on x (slope {slope:.1e}) and is negative ({sum_of_values:.3g}), where it must not be"
            )
        if np.abs(x).max() <= _FAR_AWAY:
            return _NO_ROOM.format(size)
    if np.abs(x).max() > _FAR_AWAY:
        return f"unbounded: the function still falls where |x| is {np.abs(x).max():.1e}"
    missing = max(np.abs(equal).max(initial=0.0), -to_host(shape.cones.depth(inside)).min(initial=0.0))
    if missing > _MISSED:
        return f"infeasible, at least near by: the constraints are missed by {missing:.3g}; try another start"
    return ""


def _explain_saddle(problem: SolverProblem, w: Any) -> str:
    """Curvature of the Lagrangian along what the active constraints allow, if it is negative."""
    shape = problem.program
    if any(isinstance(block, SecondOrderCones) for block in shape.cones.blocks):
        return ""  # the boundary of a cone is curved itself
    derivatives = differentiate_conditions(problem, w)
    inside, z = shape.cut_conditions(problem.conditions(w))[2], shape.cut_unknown(w)[2]
    rows = to_host(derivatives.equal)
    if shape.cones.length:
        active = to_host(shape.cones.pieces(inside - z)) != INSIDE
        rows = np.concatenate([rows, to_host(derivatives.inside)[active]])
    hessian = to_host(derivatives.hessian)
    basis = _null_space(rows)
    values = np.linalg.eigvalsh(basis.T @ (hessian + hessian.T) @ basis / 2)
    if not len(values) or values[0] >= -(problem.eps**0.4) * max(np.abs(hessian).max(), 1e-300):
        return ""
    return f"a maximum or saddle: along the active constraints the Hessian has the eigenvalue {values[0]:.3g}"


def _null_space(rows: Any) -> Any:
    if not len(rows):
        return np.eye(rows.shape[1])
    _, values, right = np.linalg.svd(rows)
    rank = int((values > 1e-10 * values[0]).sum())
    return right[rank:].T

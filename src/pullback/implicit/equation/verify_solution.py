"""Checks of a solution whose residual is small: that a root is near, and that a minimum is one.

A tolerance is absolute, so a residual may be small because the equation is, or because it falls towards infinity. Two
solutions are suspicious: the start itself, and one so large that its own rounding exceeds the tolerance. For these the
distance to the root is estimated along the residual r: a step d with F'(x) d = -r has the length |r|^2 / |F'(x) r|. A
large solution with no residual at all is none if half of it has none either.
A gradient is zero at maxima and saddles too: at a minimum no eigenvalue of the Hessian is negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.elementwise import pointwise
from ...ops.reduce import reductions
from ...transforms.control.branches_and_loops import cond
from ..linear.krylov import KrylovBasis
from ..linear.operator import norm
from ..solvers.method_loop import SolverProblem

#: A root further away than this, relative to the solution or to one, was not found.
_FAR_DISTANCE = 0.1
#: Up to so many unknowns the Hessian is made; beyond, its lowest eigenvalue is estimated by so many products.
_MAX_DENSE_SIZE, _LANCZOS_PRODUCTS = 64, 12


def is_far(problem: SolverProblem, start: Any, x: Any, left: Any, known: Any = None) -> Any:
    """Whether a solution, with a residual of the norm `left`, is suspicious and no root is near it. The residual itself
    is `known`, or computed.
    """
    size = norm(x)
    unmoved = reductions.all(pointwise.equal(x, start)) & (left > 0)
    lost = problem.eps * size > problem.tolerance
    doubtful = (unmoved | lost) & (left <= problem.tolerance)

    def is_constant(x: Any, size: Any, left: Any) -> Any:
        return pointwise.less_equal(norm(problem.residual(0.5 * x)), problem.tolerance)

    def is_step_long(x: Any, size: Any, left: Any) -> Any:
        along = (problem.residual(x) if known is None else known) / left
        slope = norm(problem.push(x, along)[1])
        return left > _FAR_DISTANCE * slope * pointwise.maximum(size, 1.0)

    def is_spurious(x: Any, size: Any, left: Any) -> Any:
        return cond(pointwise.equal(left, 0), is_constant, is_step_long, x, size, left)

    return cond(doubtful, is_spurious, lambda x, size, left: pointwise.less(left, 0), x, size, left)


def lowest_curvature(problem: SolverProblem, x: Any) -> tuple[Any, Any] | None:
    """The lowest eigenvalue of the Hessian and its direction, if it is negative beyond rounding."""
    values, vectors = _dense_spectrum(problem, x) if problem.size <= _MAX_DENSE_SIZE else _lanczos(problem, x)
    values = [float(v) for v in values]
    if not values or not all(map(math.isfinite, values)):
        return None
    lowest, largest = min(values), max(map(abs, values))
    return (lowest, vectors[:, values.index(lowest)]) if lowest < -(problem.eps**0.4) * largest else None


def _dense_spectrum(problem: SolverProblem, x: Any) -> tuple[Any, Any]:
    hessian = problem.jacobian(x)
    if not bool(problem.xp.isfinite(hessian).all()):
        return (), None
    return problem.xp.linalg.eigh((hessian + hessian.T) / 2)  # type: ignore[no-any-return]


def _lanczos(problem: SolverProblem, x: Any) -> tuple[Any, Any]:
    """Eigenvalues of the Hessian on the span of v, H v, H^2 v, ... with each vector made orthogonal to all before."""
    xp = problem.xp
    v = xp.asarray(np.random.default_rng(0).normal(size=problem.size).astype(problem.dtype))
    basis, products = KrylovBasis(v / norm(v), _LANCZOS_PRODUCTS), []
    for _ in range(_LANCZOS_PRODUCTS):
        products.append(problem.push(x, basis.newest)[1])
        rest, _ = basis.orthogonalize(products[-1])
        size = float(norm(rest))
        if len(products) == _LANCZOS_PRODUCTS or not size > 1e-12 * float(norm(products[-1])):
            break
        basis.add(rest / size)
    across, through = basis.vectors(), xp.stack(products)
    small = across @ through.T
    if not bool(xp.isfinite(small).all()):
        return (), None
    values, vectors = xp.linalg.eigh((small + small.T) / 2)
    return values, across.T @ vectors


def find_lower_point(objective: Callable[[Any], Any], x: Any, direction: Any) -> Any:
    """A point beside a maximum or saddle at which the objective is lower, None if none is found."""
    height = objective(x).item()
    reach = max(1.0, float(norm(x)))
    for length in (0.1, 0.01, 1e-3):
        for sign in (1.0, -1.0):
            there = x + sign * length * reach * direction
            if objective(there).item() < height:
                return there
    return None

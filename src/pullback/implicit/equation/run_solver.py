"""Runs the solver of an equation: the root and its true residual, for all batches around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.spec import spec_of
from ...arrays.value import unwrap_array
from ...ops.elementwise import pointwise
from ...transforms.control.staging import is_staged
from ...transforms.custom.rules import captured_value_error, is_tracked
from ..linear.operator import norm
from ..solvers import descent_methods
from ..solvers.method_loop import run_method
from .secants import solve_by_secants
from .solver_problem import SolverProblem
from .verify_solution import find_lower_point, is_far, lowest_curvature

#: How often a search restarts beside a maximum or saddle.
_ESCAPES = 5
_NO_ROOT = "the residual is small, but no root is near: the equation itself is small, or falls towards infinity"


def run_solver(equation: Any, start: Any, p: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The root as far as it was found, the norm of its residual, infinite where that is NaN, and the steps."""
    function = equation.function
    if equation.scalar and equation.is_default_method and not equation.extras:
        found = _solve_scalar(equation, lambda x: function(x, *p), start)
        if found is not None:
            return (*found, np.asarray(equation.report.steps))
    spec = spec_of(start)
    problem = SolverProblem(
        lambda x: equation.to_vector(function(equation.to_unknown(x), *p)), spec.size, spec.dtype, equation.tolerance,
        equation.adjoint, namespace_on(spec.device),
    )  # fmt: skip
    for name, extra in equation.extras.items():
        setattr(problem, name, lambda x, f=extra: f(equation.to_unknown(x), *p))
    ours = type(equation.method).__module__.startswith("pullback.implicit.")
    x, steps, left = _drive_method(equation, problem, equation.to_vector(start))
    if is_staged(x) and ours and left is not None:  # our own methods hold the residual at their solution
        wrong = pointwise.logical_or(pointwise.isnan(left), is_far(problem, equation.to_vector(start), x, left))
        return equation.to_unknown(x), pointwise.where(wrong, math.inf, left), steps
    residual = problem.residual_at_solution(x, ours)
    if is_tracked(residual) and (not is_tracked(x) or residual.level > x.level):
        raise captured_value_error(equation.what)
    left = norm(residual)
    if not is_staged(steps, x):
        x, left, steps = _verify_root(equation, problem, equation.to_vector(start), x, residual, steps)
        _add_counts(equation, problem, steps)
    return equation.to_unknown(x), pointwise.where(pointwise.isnan(left), math.inf, left), steps


def _verify_root(
    equation: Any, problem: SolverProblem, start: Any, x: Any, residual: Any, steps: int
) -> tuple[Any, Any, int]:
    """The solution, its residual and the steps, after the checks of `verify_solution`: where no root is near, it
    continues with a smaller tolerance; at a maximum or a saddle it restarts from a lower point.
    """
    left = norm(residual)
    far = is_far(problem, start, x, left, residual)
    if not is_array(x):
        if bool(unwrap_array(far).any()):
            equation.report.doubt = _NO_ROOT
        return x, left, steps
    if bool(far):
        wanted = problem.tolerance
        problem.tolerance = float(left) * math.sqrt(float(np.finfo(problem.dtype).eps))
        x, more, _ = _drive_method(equation, problem, x)
        problem.tolerance, steps = wanted, steps + more
        left = norm(problem.residual(x))
        equation.report.doubt = _NO_ROOT if bool(is_far(problem, x, x, left)) else ""
    if problem.objective is not None and _is_descent_method(equation.method):
        return _escape_saddles(equation, problem, x, left, steps)
    return x, left, steps


def _is_descent_method(method: Any) -> bool:
    """Whether a method looks for minima; the others find any point with a gradient of zero."""
    return type(method).__module__ == descent_methods.__name__


def _escape_saddles(equation: Any, problem: SolverProblem, x: Any, left: Any, steps: int) -> tuple[Any, Any, int]:
    for _ in range(_ESCAPES):
        found = lowest_curvature(problem, x) if bool(left <= problem.tolerance) else None
        if found is None:
            return x, left, steps
        there = find_lower_point(problem, x, found[1])
        if there is None:
            break
        x, more, _ = _drive_method(equation, problem, there)
        left, steps = norm(problem.residual(x)), steps + more
    if (found := lowest_curvature(problem, x)) is not None:
        equation.report.doubt = f"a maximum or saddle: the Hessian has the eigenvalue {found[0]:.3g}"
    return x, left, steps


def _drive_method(equation: Any, problem: SolverProblem, start: Any) -> tuple[Any, Any, Any]:
    """The solution of the method, its steps, and the norm of the residual if the state has it."""

    def watch(step: int, state: Any) -> None:
        residual = state.get("norm") if isinstance(state, dict) else None
        if is_array(residual):
            _note_step(equation, step, float(unwrap_array(residual)))

    state, steps = run_method(equation.method, problem, start, equation.max_steps, watch)
    return equation.method.value(state), steps, state.get("norm") if isinstance(state, dict) else None


def _solve_scalar(equation: Any, function: Callable[[Any], Any], start: Any) -> tuple[Any, Any] | None:
    """A scalar root in plain floats, where the caller named no method and secants are enough."""
    if type(start) is not np.ndarray or start.dtype.itemsize < 4:
        return None
    problem = SolverProblem(function, 1, start.dtype, equation.tolerance, equation.adjoint)
    found = solve_by_secants(problem, start, equation.fixed_point_map is not None)
    if found is None or len(found[1]) > equation.max_steps:
        return None
    x, history, slope = found
    for step, left in enumerate(history, 1):
        _note_step(equation, step, left)
    equation.report.method = "secants"
    if equation.fixed_point_map is not None and math.isfinite(slope):
        equation.report.contraction = abs(1 + slope)
    _add_counts(equation, problem, len(history))
    return x, np.abs(problem.residual_at_solution(x, True))


def _add_counts(equation: Any, problem: SolverProblem, steps: int) -> None:
    equation.report.functions += problem.functions
    equation.report.products += problem.products
    equation.report.steps = max(equation.report.steps, steps)


def _note_step(equation: Any, step: int, residual: float) -> None:
    """After each step: record the residual, from which the contraction is estimated, and call the callback."""
    history = equation.report.history
    history.append(residual)
    if len(history) > 2 and 0 < history[-1] < history[-3] < math.inf:
        equation.report.contraction = math.sqrt(history[-1] / history[-3])
    if equation.watch is not None:
        equation.watch(step, residual)

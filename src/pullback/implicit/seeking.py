"""Equation, start and parameters in, the root and its true residual out: what runs under an equation's batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.spec import spec_of
from ..ops import elementwise as pointwise
from ..transforms.border import bare_of
from ..transforms.rules import captured, carries
from ..transforms.staged import is_staged
from . import descent_methods
from .assurance import is_far, lowest_curvature, way_down
from .drive import drive
from .linear import norm
from .problem import Problem
from .single import found_by_secants

__all__ = ["sought"]

#: So often a search goes on from beside a maximum or saddle.
_ESCAPES = 5
_NO_ROOT = "the residual is small, but no root is near: the equation itself is small, or falls towards infinity"


def sought(equation: Any, start: Any, p: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The root as far as it was found, the norm of its residual, infinite where that is no number, and the steps."""
    function = equation.function
    if equation.scalar and equation.chosen and not equation.extras:
        found = _alone(equation, lambda x: function(x, *p), start)
        if found is not None:
            return (*found, np.asarray(equation.report.steps))
    spec = spec_of(start)
    problem = Problem(
        lambda x: equation.up(function(equation.down(x), *p)), spec.size, spec.dtype, equation.tolerance,
        equation.adjoint, namespace_on(spec.device),
    )  # fmt: skip
    for name, extra in equation.extras.items():
        setattr(problem, name, lambda x, f=extra: f(equation.down(x), *p))
    ours = type(equation.method).__module__.startswith(__package__)
    x, steps, left = _driven(equation, problem, equation.up(start))
    if is_staged(x) and ours and left is not None:  # our own methods hold the residual at their answer
        wrong = pointwise.logical_or(pointwise.isnan(left), is_far(problem, equation.up(start), x, left))
        return equation.down(x), pointwise.where(wrong, math.inf, left), steps
    residual = problem.at_answer(x, ours)
    if carries(residual) and (not carries(x) or residual.level > x.level):
        raise captured(equation.what)
    left = norm(residual)
    if not is_staged(steps, x):
        x, left, steps = _assured(equation, problem, equation.up(start), x, residual, steps)
        _count(equation, problem, steps)
    return equation.down(x), pointwise.where(pointwise.isnan(left), math.inf, left), steps


def _assured(equation: Any, problem: Problem, start: Any, x: Any, residual: Any, steps: int) -> tuple[Any, Any, int]:
    """The answer, its residual and the steps, after what speaks against it was looked into: where no root is near, the
    method goes on with a tolerance of its own; beside a maximum or a saddle it goes on from lower down.
    """
    left = norm(residual)
    far = is_far(problem, start, x, left, residual)
    if not is_array(x):
        if bool(bare_of(far).any()):
            equation.report.doubt = _NO_ROOT
        return x, left, steps
    if bool(far):
        wanted = problem.tolerance
        problem.tolerance = float(left) * math.sqrt(float(np.finfo(problem.dtype).eps))
        x, more, _ = _driven(equation, problem, x)
        problem.tolerance, steps = wanted, steps + more
        left = norm(problem.residual(x))
        equation.report.doubt = _NO_ROOT if bool(is_far(problem, x, x, left)) else ""
    if problem.objective is not None and _descends(equation.method):
        return _lowered(equation, problem, x, left, steps)
    return x, left, steps


def _descends(method: Any) -> bool:
    """Whether a method looks for minima; the others find whatever point has a gradient of zero."""
    return type(method).__module__ == descent_methods.__name__


def _lowered(equation: Any, problem: Problem, x: Any, left: Any, steps: int) -> tuple[Any, Any, int]:
    for _ in range(_ESCAPES):
        found = lowest_curvature(problem, x) if bool(left <= problem.tolerance) else None
        if found is None:
            return x, left, steps
        there = way_down(problem, x, found[1])
        if there is None:
            break
        x, more, _ = _driven(equation, problem, there)
        left, steps = norm(problem.residual(x)), steps + more
    if (found := lowest_curvature(problem, x)) is not None:
        equation.report.doubt = f"a maximum or saddle: the Hessian has the eigenvalue {found[0]:.3g}"
    return x, left, steps


def _driven(equation: Any, problem: Problem, start: Any) -> tuple[Any, Any, Any]:
    """The answer of the method, its steps, and the norm of the residual if the state tells."""

    def watch(step: int, state: Any) -> None:
        residual = state.get("norm") if isinstance(state, dict) else None
        if is_array(residual):
            _note(equation, step, float(bare_of(residual)))

    state, steps = drive(equation.method, problem, start, equation.max_steps, watch)
    return equation.method.value(state), steps, state.get("norm") if isinstance(state, dict) else None


def _alone(equation: Any, function: Callable[[Any], Any], start: Any) -> tuple[Any, Any] | None:
    """One number in plain floats, where nobody named a method and secants are enough."""
    if type(start) is not np.ndarray or start.dtype.itemsize < 4:
        return None
    problem = Problem(function, 1, start.dtype, equation.tolerance, equation.adjoint)
    found = found_by_secants(problem, start, equation.mapped is not None)
    if found is None or len(found[1]) > equation.max_steps:
        return None
    x, history, slope = found
    for step, left in enumerate(history, 1):
        _note(equation, step, left)
    equation.report.method = "secants"
    if equation.mapped is not None and math.isfinite(slope):
        equation.report.contraction = abs(1 + slope)
    _count(equation, problem, len(history))
    return x, np.abs(problem.at_answer(x, True))


def _count(equation: Any, problem: Problem, steps: int) -> None:
    equation.report.functions += problem.functions
    equation.report.products += problem.products
    equation.report.steps = max(equation.report.steps, steps)


def _note(equation: Any, step: int, residual: float) -> None:
    """After each step: keep the residual, from which the contraction is estimated, and tell the user."""
    history = equation.report.history
    history.append(residual)
    if len(history) > 2 and 0 < history[-1] < history[-3] < math.inf:
        equation.report.contraction = math.sqrt(history[-1] / history[-3])
    if equation.watch is not None:
        equation.watch(step, residual)

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
from .drive import drive
from .linear import norm
from .problem import Problem
from .single import found_by_secants

__all__ = ["sought"]


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
        return equation.down(x), pointwise.where(pointwise.isnan(left), math.inf, left), steps
    residual = problem.at_answer(x, ours)
    if carries(residual) and (not carries(x) or residual.level > x.level):
        raise captured(equation.what)
    left = norm(residual)
    if not is_staged(steps):
        _count(equation, problem, steps)
    return equation.down(x), pointwise.where(pointwise.isnan(left), math.inf, left), steps


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

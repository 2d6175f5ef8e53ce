"""The pullback of a root on bare arrays, where no higher derivative can follow.

What the rules of `implicit_equation` do in ops, with one run of the function for all of it. With F_x^T y = -bar, the
cotangents are the pullback of F along y; for a fixed point that of the map along y, with (I - J^T) y = bar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.spec import ones, spec_of
from ...arrays.tensor import wrap
from ...errors import ConvergenceError
from ...ops.elementwise import pointwise
from ...transforms.boundary import restrict_arguments
from ...transforms.forward import jvp
from ...transforms.reverse import Pullback
from ...transforms.stage import stage_with_captures
from ..solve_report import Report

#: Up to so many scalars, slopes along each cost less than a backward pass.
_MAX_SCALAR_VARIABLES = 4


def pull_root_eagerly(equation: Any, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
    """The cotangents of parameters, None for those that cannot be differentiated."""
    floats = [i for i, q in enumerate(p) if spec_of(q).inexact]
    function = restrict_arguments(equation.fixed_point_map or equation.function, (x, *p), [0, *(i + 1 for i in floats)])
    variables = [x, *(p[i] for i in floats)]
    if equation.scalar and len(variables) <= _MAX_SCALAR_VARIABLES and all(v.size == 1 for v in variables):
        slope, *along = (_slope_along(function, variables, i) for i in range(len(variables)))
        shares = _divide_by_slope(equation, slope, along, bar)
    else:
        # arguments of an op are never written to, so the variables need not be copied
        pullback = Pullback(lambda *v: [function(*v)], [wrap(v, spec_of(v)) for v in variables], None)
        shares = _pull_shares(equation, pullback, bar, x, p)
    found = dict(zip(floats, shares, strict=True))
    return [found.get(i) for i in range(len(p))]


def _pull_shares(equation: Any, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
    if equation.scalar:
        slope, *along = (share.value for share in pullback.pull([ones(spec_of(bar))], create_graph=False))
        return _divide_by_slope(equation, slope, along, bar)
    y = _solve_adjoint(equation, pullback, bar, x, p)
    others = range(1, len(pullback.variables()))
    return [share.value for share in pullback.pull([y], create_graph=False, only=others)]


def _solve_adjoint(equation: Any, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> Any:
    """y, by traced products: what they have in common is computed once."""

    def pull_once(v: Any) -> Any:
        return pullback.pull([v], create_graph=False, only=(0,))[0].value

    program, *_ = stage_with_captures(pull_once, bar, shared=True) or (pull_once,)
    operator = equation.operator().transpose()
    is_map = equation.fixed_point_map is not None
    product = (lambda v: pointwise.subtract(v, program(v))) if is_map else program
    right = bar if is_map else pointwise.negative(bar)
    return operator.solve_with(product, lambda v: operator.multiply(v, x, *p), right)


def _divide_by_slope(equation: Any, slope: Any, along: list[Any], bar: Any) -> list[Any]:
    """With one unknown, y is a quotient: the slope along it divides those along the parameters."""
    pivot = slope if equation.fixed_point_map is None else slope - 1
    y = -bar / pivot
    left = abs(float(bar + pivot * y)) / (abs(float(bar)) or 1.0)
    report = Report("division", equation.adjoint_tolerance, left, 1, products=1)
    report.amplification = abs(1 / float(pivot)) if pivot else None
    report.converged = left <= equation.adjoint_tolerance  # False for NaN, where the slope is zero
    equation.report.adjoint = report
    if equation.strict and not report.converged:
        raise ConvergenceError(
            f"{equation.what}: the derivative: the slope of the equation is {float(pivot):.3g}.\n{report}", report, y
        )
    return [np.asarray(share * y, share.dtype) for share in along]


def _slope_along(function: Callable[..., Any], variables: list[Any], i: int) -> Any:
    """The derivative of a function of scalars along one of them."""
    fixed = variables.copy()

    def vary_one(v: Any) -> Any:
        fixed[i] = v
        return function(*fixed)

    return jvp(vary_one, (variables[i],), (np.ones_like(variables[i]),))[1].reshape(variables[i].shape)

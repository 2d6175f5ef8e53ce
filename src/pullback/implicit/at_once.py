"""Root and its cotangent in, the cotangents of parameters out, for bare arrays: nobody will differentiate them again.

What the rules of `equation` do in ops, with one run of the function for all of it. With F_x^T y = -bar, the cotangents
are the pullback of F along y; for a fixed point that of the map along y, with (I - J^T) y = bar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.spec import ones, spec_of
from ..arrays.tensor import wrap
from ..errors import ConvergenceError
from ..ops import elementwise as pointwise
from ..transforms.border import at_places
from ..transforms.forward import jvp
from ..transforms.reverse import Pullback
from .closed import closed
from .report import Report

__all__ = ["pulled_at_once"]

#: Up to so many numbers, slopes along each cost less than a way back.
_FEW = 4


def pulled_at_once(equation: Any, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
    """The cotangents of parameters, None for those that cannot be differentiated."""
    floats = [i for i, q in enumerate(p) if spec_of(q).inexact]
    function = at_places(equation.mapped or equation.function, (x, *p), [0, *(i + 1 for i in floats)])
    variables = [x, *(p[i] for i in floats)]
    if equation.scalar and len(variables) <= _FEW and all(v.size == 1 for v in variables):
        slope, *along = (_slope(function, variables, i) for i in range(len(variables)))
        shares = _divided(equation, slope, along, bar)
    else:
        # nobody writes to what an op was given, so the variables need not be copied
        pullback = Pullback(lambda *v: [function(*v)], [wrap(v, spec_of(v)) for v in variables], None)
        shares = _pulled(equation, pullback, bar, x, p)
    found = dict(zip(floats, shares, strict=True))
    return [found.get(i) for i in range(len(p))]


def _pulled(equation: Any, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
    if equation.scalar:
        slope, *along = (share.value for share in pullback.pull([ones(spec_of(bar))], linked=False))
        return _divided(equation, slope, along, bar)
    y = _solved(equation, pullback, bar, x, p)
    others = range(1, len(pullback.variables()))
    return [share.value for share in pullback.pull([y], linked=False, only=others)]


def _solved(equation: Any, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> Any:
    """y, by products that are written down: what they have in common is computed once."""

    def pulled(v: Any) -> Any:
        return pullback.pull([v], linked=False, only=(0,))[0].value

    program, _ = closed(pulled, bar, shared=True) or (pulled, [])
    operator = equation.operator().turned()
    is_map = equation.mapped is not None
    product = (lambda v: pointwise.subtract(v, program(v))) if is_map else program
    right = bar if is_map else pointwise.negative(bar)
    return operator.solve_with(product, lambda v: operator.multiply(v, x, *p), right)


def _divided(equation: Any, slope: Any, along: list[Any], bar: Any) -> list[Any]:
    """With one unknown, y is a quotient: the slope along it divides those along the parameters."""
    pivot = slope if equation.mapped is None else slope - 1
    y = -bar / pivot
    left = abs(float(bar + pivot * y)) / (abs(float(bar)) or 1.0)
    report = Report("division", equation.adjoint_tolerance, left, 1, products=1)
    report.amplification = abs(1 / float(pivot)) if pivot else None
    report.converged = left <= equation.adjoint_tolerance  # NaN is not, where there is nothing to divide by
    equation.report.adjoint = report
    if equation.strict and not report.converged:
        raise ConvergenceError(
            f"{equation.what}: the derivative: the slope of the equation is {float(pivot):.3g}.\n{report}", report, y
        )
    return [np.asarray(share * y, share.dtype) for share in along]


def _slope(function: Callable[..., Any], variables: list[Any], i: int) -> Any:
    """The derivative of a function of numbers along one of them."""
    fixed = variables.copy()

    def along(v: Any) -> Any:
        fixed[i] = v
        return function(*fixed)

    return jvp(along, (variables[i],), (np.ones_like(variables[i]),))[1].reshape(variables[i].shape)

"""The pullback of a root on bare arrays, where no higher derivative can follow.

What `ImplicitEquation.pull` does in ops, with one run of the function for all of it. With F_x^T y = -bar, the
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
from .implicit_equation import ImplicitEquation

#: Up to so many scalars, slopes along each cost less than a backward pass.
_MAX_SCALAR_VARIABLES = 4


class EagerAdjoint:
    """The cotangent `bar` of the root x of an equation, to be pulled back to its parameters p."""

    __slots__ = ("_bar", "_equation", "_p", "_x")

    def __init__(self, equation: ImplicitEquation, bar: Any, x: Any, p: tuple[Any, ...]) -> None:
        self._equation, self._bar, self._x, self._p = equation, bar, x, p

    def pull(self) -> list[Any]:
        """The cotangents of parameters, None for those that cannot be differentiated."""
        equation, p = self._equation, self._p
        floats = [i for i, q in enumerate(p) if spec_of(q).inexact]
        variables = [self._x, *(p[i] for i in floats)]
        function = restrict_arguments(
            equation.fixed_point_map or equation.tangent_function, (self._x, *p), [0, *(i + 1 for i in floats)]
        )
        if equation.scalar and len(variables) <= _MAX_SCALAR_VARIABLES and all(v.size == 1 for v in variables):
            shares = self._divide_by_slope(*(_slope_along(function, variables, i) for i in range(len(variables))))
        else:
            # arguments of an op are never written to, so the variables need not be copied
            pullback = Pullback(lambda *v: [function(*v)], [wrap(v, spec_of(v)) for v in variables], None)
            shares = self._pull_recorded(pullback)
        found = dict(zip(floats, shares, strict=True))
        return [found.get(i) for i in range(len(p))]

    def _pull_recorded(self, pullback: Pullback) -> list[Any]:
        if self._equation.scalar:
            slopes = pullback.pull([ones(spec_of(self._bar))], create_graph=False)
            return self._divide_by_slope(*(slope.value for slope in slopes))
        y = self._solve_transposed(pullback)
        others = range(1, len(pullback.variables()))
        return [share.value for share in pullback.pull([y], create_graph=False, only=others)]

    def _solve_transposed(self, pullback: Pullback) -> Any:
        """y, by traced products: what they have in common is computed once."""

        def pull_once(v: Any) -> Any:
            return pullback.pull([v], create_graph=False, only=(0,))[0].value

        program, *_ = stage_with_captures(pull_once, self._bar, shared=True) or (pull_once,)
        operator = self._equation.operator().transpose()
        is_map = self._equation.fixed_point_map is not None
        product = (lambda v: pointwise.subtract(v, program(v))) if is_map else program
        right = self._bar if is_map else pointwise.negative(self._bar)
        return operator.solve_with(product, lambda v: operator.multiply(v, self._x, *self._p), right, self._x, *self._p)

    def _divide_by_slope(self, slope: Any, *along: Any) -> list[Any]:
        """With one unknown, y is a quotient: the slope along it divides those along the parameters."""
        equation, bar = self._equation, self._bar
        pivot = slope if equation.fixed_point_map is None else slope - 1
        y = -bar / pivot
        left = abs(float(bar + pivot * y)) / (abs(float(bar)) or 1.0)
        report = Report("division", equation.adjoint_tolerance, left, 1, products=1)
        report.amplification = abs(1 / float(pivot)) if pivot else None
        report.converged = left <= equation.adjoint_tolerance  # False for NaN, where the slope is zero
        equation.report.adjoint = report
        if equation.strict and not report.converged:
            raise ConvergenceError(
                f"{equation.what}: the derivative: the slope of the equation is {float(pivot):.3g}.\n{report}",
                report,
                y,
            )
        return [np.asarray(share * y, share.dtype) for share in along]


def _slope_along(function: Callable[..., Any], variables: list[Any], i: int) -> Any:
    """The derivative of a function of scalars along one of them."""
    vary_one = restrict_arguments(function, variables, [i])
    return jvp(vary_one, (variables[i],), (np.ones_like(variables[i]),))[1].reshape(variables[i].shape)

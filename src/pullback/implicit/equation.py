"""Equation and start in, root out; the derivative by the implicit function theorem, to any order and in both modes.

F(x, p) = 0 defines x(p): F_x dx + F_p dp = 0. So the tangent solves F_x dx = -F_p dp, and with F_x^T y = bar the
cotangent of p is the pullback of p -> F(x, p) along -y. How the root was found plays no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import ones, spec_of
from ..arrays.tensor import wrap
from ..errors import ConvergenceError
from ..ops import elementwise as pointwise
from ..ops.batching import lead
from ..ops.dispatch import apply
from ..ops.op import Op, Terms
from ..ops.shaping import expand_dims, squeeze
from ..transforms.batching import vmap
from ..transforms.border import at_places, bare_of
from ..transforms.forward import jvp
from ..transforms.reverse import Pullback, vjp
from ..transforms.rules import bare_results, captured, carries, custom_record
from .closed import closed
from .drive import drive, largest
from .linear import Operator, norm, pulled_along, solved
from .linear_methods import Auto, Neumann
from .report import Report
from .single import found_by_secants

__all__ = ["Equation", "Problem", "rooted"]


#: Up to so many numbers, slopes along each cost less than a way back.
_FEW = 4
#: A map that contracts at least so well needs no better method than its own steps.
_QUICK = 0.5


class Problem:
    """One equation for a solver: `residual(x)`, with the parameters in their places, and `tolerance` for its norm.

    `objective(x)` is the scalar whose gradient the residual is, for a minimum; `inner(x)` the vector whose squares are
    summed, for least squares; else None. `linear` solves linear systems. Evaluations are counted.
    """

    objective: Callable[[Any], Any] | None = None
    inner: Callable[[Any], Any] | None = None

    def __init__(self, residual: Callable[[Any], Any], size: int, dtype: Any, tolerance: float, linear: Any) -> None:
        self._residual = residual
        self.size = size
        self.dtype = dtype
        self.tolerance = tolerance
        self.linear = linear
        self.functions = 0
        self.products = 0
        self._latest: tuple[Any, Any] = None, None

    def residual(self, x: Any) -> Any:
        """F(x)."""
        self.functions += 1
        found = self._residual(x)
        self._latest = x, found
        return found

    def at_answer(self, x: Any, safe: bool) -> Any:
        """F(x) at the end. If that was the latest evaluation it need not be repeated, provided it is `safe` to say that
        nobody wrote to x in between.
        """
        latest, found = self._latest
        return found if safe and latest is x else self.residual(x)

    def push(self, x: Any, v: Any) -> tuple[Any, Any]:
        """F(x) and F'(x) v."""
        self.functions += 1
        self.products += 1
        found: tuple[Any, Any] = jvp(self._residual, (x,), (v,))
        return found

    def jacobian(self, x: Any) -> Any:
        """The matrix F'(x), all columns at once."""
        self.products += self.size
        columns: Any = vmap(lambda v: jvp(self._residual, (x,), (v,))[1], 0, 1)(np.eye(self.size, dtype=self.dtype))
        return columns


@dataclass(frozen=True, eq=False)
class Equation:
    """F(x, *p) on vectors, how to solve it and how to solve for its derivatives.

    `batches` lists for each batch around it the axes of (start, *parameters). The linear systems of derivatives are
    multiplied by `sign`: that of a fixed point is I - J then, near the unit matrix, which some methods need. A fixed
    point has the map itself in `mapped`: F(x, *p) = mapped(x, *p) - x. `chosen` says that nobody asked for the method,
    `scalar` that the unknown is a number; methods are given a vector all the same.
    """

    function: Callable[..., Any]
    method: Any
    adjoint: Any
    tolerance: float
    adjoint_tolerance: float
    max_steps: int
    what: str
    report: Report
    strict: bool = True
    watch: Callable[[int, Any], None] | None = None
    known: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Callable[..., Any]] = field(default_factory=dict)
    mapped: Callable[..., Any] | None = None
    chosen: bool = False
    scalar: bool = False
    size: int = 0
    batches: tuple[tuple[int | None, ...], ...] = ()

    @property
    def sign(self) -> float:
        """What the linear systems of derivatives are multiplied by."""
        return 1.0 if self.mapped is None else -1.0

    def residual(self, x: Any, *p: Any) -> Any:
        """F for all elements of all batches."""
        function = self.function
        for axes in self.batches:
            function = vmap(function, (0, *axes[1:]))
        return function(x, *p)

    def in_batch(self, axes: tuple[int | None, ...]) -> Equation:
        """The same for a batch of equations."""
        return replace(self, batches=(*self.batches, axes))

    def operator(self) -> Operator:
        """The Jacobian F_x as a matrix that depends on (x, *p)."""
        function = self.function

        def multiply(v: Any, x: Any, *p: Any) -> Any:
            return self._up(self.signed(jvp(lambda y: function(y, *p), (x,), (self._down(v),))[1]))

        def multiply_back(v: Any, x: Any, *p: Any) -> Any:
            return self._up(self.signed(vjp(lambda y: function(y, *p), x)[1](self._down(v))[0]))

        def prepare(back: bool, x: Any, *p: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
            if not back:
                return lambda v: multiply(v, x, *p), lambda v: multiply_back(v, x, *p)
            _, pull = vjp(lambda y: function(y, *p), x)  # f runs once, and each product is one way back
            return lambda v: multiply(v, x, *p), lambda v: self._up(self.signed(pull(self._down(v))[0]))

        reports = _Latest(self.report)
        inner = Operator(
            multiply, self._adjoint(), self.adjoint_tolerance, self.max_steps, f"{self.what}: the derivative",
            self.known, reports=reports, strict=self.strict, multiply_back=multiply_back, prepare=prepare,
        )  # fmt: skip
        for axes in self.batches:
            inner = inner.in_batch((0, 0, *axes[1:]))
        return inner

    def _up(self, x: Any) -> Any:
        """An unknown as a vector."""
        return expand_dims(x, -1) if self.scalar else x

    def _down(self, v: Any) -> Any:
        """A vector as an unknown."""
        return squeeze(v, -1) if self.scalar else v

    def solved_back(self, bar: Any, x: Any, *p: Any) -> Any:
        """y with F_x^T y = bar."""
        return self._down(solved(self.operator().turned(), self._up(self.signed(bar)), x, *p))

    def solved_forth(self, right: Any, x: Any, *p: Any) -> Any:
        """dx with F_x dx = right."""
        return self._down(solved(self.operator(), self._up(self.signed(right)), x, *p))

    def _adjoint(self) -> Any:
        """The method for derivatives. Where a map of many unknowns was seen to contract well, so does its transpose,
        and plain steps of it cost least.
        """
        seen, chosen = self.report.contraction, self.adjoint
        if not isinstance(chosen, Auto) or self.sign > 0 or self.size <= chosen.dense_up_to:
            return chosen
        return Neumann() if seen is not None and seen < _QUICK else chosen

    def signed(self, x: Any) -> Any:
        """A product or a right side of the linear system, with the sign of the system."""
        return x if self.sign == 1.0 else pointwise.negative(x)

    def pulled_at_once(self, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
        """The cotangents of parameters where nobody will differentiate them: the function runs once for all of it.

        With F_x^T y = -bar they are the pullback along y; for a fixed point, that of the map, with (I - J^T) y = bar.
        """
        floats = [i for i, q in enumerate(p) if spec_of(q).inexact]
        function = at_places(self.mapped or self.function, (x, *p), [0, *(i + 1 for i in floats)])
        variables = [x, *(p[i] for i in floats)]
        if self.scalar and len(variables) <= _FEW and all(v.size == 1 for v in variables):
            slope, *shares = (_slope(function, variables, i) for i in range(len(variables)))
            shares = self._divided(slope, shares, bar)
        else:
            # nobody writes to what an op was given, so the variables need not be copied
            pullback = Pullback(lambda *v: [function(*v)], [wrap(v, spec_of(v)) for v in variables], None)
            shares = self._pulled_back(pullback, bar, x, p)
        found = dict(zip(floats, shares, strict=True))
        return [found.get(i) for i in range(len(p))]

    def _pulled_back(self, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> list[Any]:
        if self.scalar:
            slope, *shares = (share.value for share in pullback.pull([ones(spec_of(bar))], linked=False))
            return self._divided(slope, shares, bar)
        y = self._solved_at_once(pullback, bar, x, p)
        others = range(1, len(pullback.variables()))
        return [share.value for share in pullback.pull([y], linked=False, only=others)]

    def _solved_at_once(self, pullback: Pullback, bar: Any, x: Any, p: tuple[Any, ...]) -> Any:
        """y, by products that are written down: what they have in common is computed once."""

        def pulled(v: Any) -> Any:
            return pullback.pull([v], linked=False, only=(0,))[0].value

        program, _ = closed(pulled, bar, shared=True) or (pulled, [])
        operator = self.operator().turned()
        product = program if self.mapped is None else lambda v: pointwise.subtract(v, program(v))
        right = pointwise.negative(bar) if self.mapped is None else bar
        return operator.solve_with(product, lambda v: operator.multiply(v, x, *p), right)

    def _divided(self, slope: Any, shares: list[Any], bar: Any) -> list[Any]:
        """With one unknown, y is a quotient: the slope along it divides those along the parameters."""
        pivot = slope if self.mapped is None else slope - 1
        y = -bar / pivot
        left = abs(float(bar + pivot * y)) / (abs(float(bar)) or 1.0)
        report = Report("division", self.adjoint_tolerance, left, 1, products=1)
        report.converged = left <= self.adjoint_tolerance  # NaN is not, where there is nothing to divide by
        self.report.adjoint = report
        if self.strict and not report.converged:
            raise ConvergenceError(
                f"{self.what}: the derivative: the slope of the equation is {float(pivot):.3g}.\n{report}", report, y
            )
        return [np.asarray(share * y, share.dtype) for share in shares]

    def solve(self, start: Any, *p: Any) -> Any:
        """The root for bare arrays, checked by its true residual."""
        run = self._solve_one()
        for axes in self.batches:
            run = vmap(run, axes)
        with np.errstate(all="ignore"):
            x, left = run(start, *p)
        report = self.report
        report.residual = float(largest(left))
        report.converged = report.residual <= self.tolerance
        if self.strict and not report.converged:
            raise ConvergenceError(f"{self.what}: no convergence.\n{report}", report, x)
        return x

    def _solve_one(self) -> Callable[..., Any]:
        def run(start: Any, *p: Any) -> Any:
            function = self.function
            if self.scalar and self.chosen:
                found = self._alone(lambda x: function(x, *p), start)
                if found is not None:
                    return found
            problem = Problem(
                lambda x: self._up(function(self._down(x), *p)), spec_of(start).size, spec_of(start).dtype,
                self.tolerance, self.adjoint,
            )  # fmt: skip
            for name, extra in self.extras.items():
                setattr(problem, name, lambda x, f=extra: f(self._down(x), *p))
            x, steps = self._driven(problem, self._up(start))
            residual = problem.at_answer(x, type(self.method).__module__.startswith(__package__))
            if carries(residual) and (not carries(x) or residual.level > x.level):
                raise captured(self.what)
            left = norm(residual)
            self._count(problem, steps)
            return self._down(x), pointwise.where(pointwise.isnan(left), math.inf, left)

        return run

    def _count(self, problem: Problem, steps: int) -> None:
        self.report.functions += problem.functions
        self.report.products += problem.products
        self.report.steps = max(self.report.steps, steps)

    def _driven(self, problem: Problem, start: Any) -> tuple[Any, int]:
        """The answer of the method, and its steps."""

        def watch(step: int, state: Any) -> None:
            residual = state.get("norm") if isinstance(state, dict) else None
            if is_array(residual):
                self._note(step, float(bare_of(residual)))

        state, steps = drive(self.method, problem, start, self.max_steps, watch)
        return self.method.value(state), steps

    def _alone(self, function: Callable[[Any], Any], start: Any) -> tuple[Any, Any] | None:
        """One number and its residual in plain floats, where nobody named a method and secants are enough."""
        if type(start) is not np.ndarray or start.dtype.itemsize < 4 or self.extras:
            return None
        problem = Problem(function, 1, start.dtype, self.tolerance, self.adjoint)

        found = found_by_secants(problem, start, self.mapped is not None)
        if found is None or len(found[1]) > self.max_steps:
            return None
        x, history, slope = found
        for step, left in enumerate(history, 1):
            self._note(step, left)
        self.report.method = "secants"
        if self.mapped is not None and math.isfinite(slope):
            self.report.contraction = abs(1 + slope)
        self._count(problem, len(history))
        return x, np.abs(problem.at_answer(x, True))

    def _note(self, step: int, residual: float) -> None:
        """After each step: keep the residual, from which the contraction is estimated, and tell the user."""
        history = self.report.history
        history.append(residual)
        if len(history) > 2 and 0 < history[-1] < history[-3] < math.inf:
            self.report.contraction = math.sqrt(history[-1] / history[-3])
        if self.watch is not None:
            self.watch(step, residual)


def _slope(function: Callable[..., Any], variables: list[Any], i: int) -> Any:
    """The derivative of a function of numbers along one of them."""
    fixed = variables.copy()

    def along(v: Any) -> Any:
        fixed[i] = v
        return function(*fixed)

    return jvp(along, (variables[i],), (np.ones_like(variables[i]),))[1].reshape(variables[i].shape)


class _Latest(list[Report]):
    """Keeps the latest report of a solve for a derivative where the user finds it."""

    def __init__(self, report: Report) -> None:
        list.__init__(self)
        self._report = report

    def append(self, report: Report) -> None:
        self._report.adjoint = report


def rooted(equation: Equation, start: Any, *p: Any) -> Any:
    """x with F(x, *p) = 0, differentiable in p to any order; the start has no derivative."""
    return apply(_root, start, *p, equation=equation)


def _pulled(bar: Any, out: Any, xs: tuple[Any, ...], equation: Equation) -> tuple[Any, ...]:
    p = xs[1:]
    if not p:
        return (None,)
    if not equation.batches and all(map(is_array, (bar, out, *p))):
        return (None, *equation.pulled_at_once(bar, out, p))
    y = equation.solved_back(bar, out, *p)
    return (None, *pulled_along(lambda *q: equation.residual(out, *q), p, pointwise.negative(y)))


def _pushed(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: Equation) -> Any:
    p = xs[1:]
    if not p:
        return None
    _, moved = jvp(lambda *q: equation.residual(out, *q), p, tangents[1:])
    return equation.solved_forth(pointwise.negative(moved), out, *p)


def _batched(size: int, axes: tuple[int | None, ...], *xs: Any, equation: Equation) -> tuple[Any, int]:
    start, *p = xs
    return rooted(equation.in_batch((0, *axes[1:])), lead(start, axes[0], size), *p), 0


_root: Op = custom_record(
    "root", ("*xs",), lambda xp, start, *p, equation: bare_results(equation.solve(start, *p), equation.what),
    Terms(_pulled, ("bar", "out", "xs", "equation")), Terms(_pushed, ("tangents", "out", "xs", "equation")),
    _batched, lambda start, *p, equation: start,
)  # fmt: skip

"""An equation as an op: its root, with derivatives by the implicit function theorem, of any order and in both modes.

F(x, p) = 0 defines x(p): F_x dx + F_p dp = 0. So the tangent solves F_x dx = -F_p dp, and with F_x^T y = bar the
cotangent of p is the pullback of p -> F(x, p) along -y. How the root was found plays no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...errors import ConvergenceError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.forms import Expand
from ...ops.op import Formula, Op
from ...ops.shape.reshaping import expand_dims, squeeze
from ...transforms.custom.rules import as_bare_results, make_custom_record
from ...transforms.forward import jvp
from ...transforms.reverse import vjp
from ...transforms.vectorize import vmap
from ..linear.methods import Auto, Neumann
from ..linear.operator import LinearOperator, pull_parameters, solve_operator
from ..linear.solution_cache import SolutionCache
from ..solve_report import Report
from ..solvers.method_loop import largest_over_batches
from .eager_pullback import pull_root_eagerly
from .run_solver import run_solver

#: A map that contracts at least so well needs no better method than its own steps.
_FAST_CONTRACTION = 0.5


@dataclass(frozen=True, eq=False)
class ImplicitEquation:
    """F(x, *p) on vectors, how to solve it and how to solve for its derivatives.

    `batches` lists for each batch around it the axes of (start, *parameters). The linear systems of derivatives are
    multiplied by `sign`: that of a fixed point is I - J then, near the identity, which some methods need. A fixed point
    has the map itself in `fixed_point_map`: F(x, *p) = fixed_point_map(x, *p) - x. With `is_default_method` the caller
    named no method, with `scalar` the unknown is a scalar; methods are given a vector all the same.
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
    fixed_point_map: Callable[..., Any] | None = None
    is_default_method: bool = False
    scalar: bool = False
    size: int = 0
    memory: SolutionCache = field(default_factory=SolutionCache)
    batches: tuple[tuple[int | None, ...], ...] = ()

    @property
    def sign(self) -> float:
        """What the linear systems of derivatives are multiplied by."""
        return 1.0 if self.fixed_point_map is None else -1.0

    def residual(self, x: Any, *p: Any) -> Any:
        """F, batched over all batches around the equation."""
        function = self.function
        for axes in self.batches:
            function = vmap(function, (0, *axes[1:]))
        return function(x, *p)

    def batch(self, axes: tuple[int | None, ...]) -> ImplicitEquation:
        """The same for a batch of equations."""
        return replace(self, batches=(*self.batches, axes))

    def operator(self) -> LinearOperator:
        """The Jacobian F_x as a matrix that depends on (x, *p)."""
        function = self.function

        def multiply(v: Any, x: Any, *p: Any) -> Any:
            return self.to_vector(self.apply_sign(jvp(lambda y: function(y, *p), (x,), (self.to_unknown(v),))[1]))

        def multiply_transposed(v: Any, x: Any, *p: Any) -> Any:
            return self.to_vector(self.apply_sign(vjp(lambda y: function(y, *p), x)[1](self.to_unknown(v))[0]))

        def prepare(is_transposed: bool, x: Any, *p: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
            if not is_transposed:
                return lambda v: multiply(v, x, *p), lambda v: multiply_transposed(v, x, *p)
            _, pull = vjp(lambda y: function(y, *p), x)  # f runs once, and each product is one backward pass
            return lambda v: multiply(v, x, *p), lambda v: self.to_vector(self.apply_sign(pull(self.to_unknown(v))[0]))

        reports = _LatestReport(self.report)
        inner = LinearOperator(
            multiply, self._choose_adjoint(), self.adjoint_tolerance, self.max_steps, f"{self.what}: the derivative",
            self.known | ({} if self.fixed_point_map is None else {"series": Neumann()}), reports=reports,
            strict=self.strict, multiply_transposed=multiply_transposed, prepare=prepare,
            memory=None if self.batches or self.scalar else self.memory,
        )  # fmt: skip
        for axes in self.batches:
            inner = inner.batch((0, 0, *axes[1:]))
        return inner

    def to_vector(self, x: Any) -> Any:
        """An unknown as a vector."""
        return expand_dims(x, -1) if self.scalar else x

    def to_unknown(self, v: Any) -> Any:
        """A vector as an unknown."""
        return squeeze(v, -1) if self.scalar else v

    def solve_transposed(self, bar: Any, x: Any, *p: Any) -> Any:
        """y with F_x^T y = bar."""
        return self.to_unknown(solve_operator(self.operator().transpose(), self.to_vector(self.apply_sign(bar)), x, *p))

    def solve_forward(self, right: Any, x: Any, *p: Any) -> Any:
        """dx with F_x dx = right."""
        return self.to_unknown(solve_operator(self.operator(), self.to_vector(self.apply_sign(right)), x, *p))

    def _choose_adjoint(self) -> Any:
        """The method for derivatives. Where a map of many unknowns contracts well, so does its transpose, and plain
        steps of it cost least.
        """
        seen, chosen = self.report.contraction, self.adjoint
        if not isinstance(chosen, Auto) or self.sign > 0 or self.size <= chosen.dense_up_to:
            return chosen
        return Neumann() if seen is not None and seen < _FAST_CONTRACTION else chosen

    def apply_sign(self, x: Any) -> Any:
        """A product or a right side of the linear system, with the sign of the system."""
        return x if self.sign == 1.0 else pointwise.negative(x)

    def solve(self, start: Any, *p: Any) -> Any:
        """The root for bare arrays, checked by its true residual."""

        with np.errstate(all="ignore"):
            x, left, _ = self._run_solver(start, *p)
        return self.check_converged(x, left)

    def _run_solver(self, start: Any, *p: Any) -> tuple[Any, Any, Any]:
        def run(start: Any, *p: Any) -> tuple[Any, Any, Any]:
            return run_solver(self, start, p)

        for axes in self.batches:
            run = vmap(run, axes)
        return run(start, *p)

    def check_converged(self, x: Any, left: Any, steps: Any = None) -> Any:
        """The root, if its residual is small enough, recorded in the report."""
        report = self.report
        report.residual = float(largest_over_batches(left))
        report.converged = report.residual <= self.tolerance and not report.doubt
        if steps is not None:
            report.steps = int(largest_over_batches(steps))
        if self.strict and not report.converged:
            raise ConvergenceError(f"{self.what}: no convergence.\n{report}", report, x)
        return x

    def stage_solve(self, start: Any, *p: Any) -> Any:
        """The search as a loop in a traced program, reported at its end; None where a callback wants to see each
        step.
        """
        if self.watch is not None:
            return None
        x, left, steps = self._run_solver(start, *p)
        return apply(_check_converged_op, x, left, steps, equation=self)


class _LatestReport(list[Report]):
    """Stores the latest report of a solve for a derivative in the user's report."""

    def __init__(self, report: Report) -> None:
        list.__init__(self)
        self._report = report

    def append(self, report: Report) -> None:
        self._report.adjoint = report


def find_root(equation: ImplicitEquation, start: Any, *p: Any) -> Any:
    """x with F(x, *p) = 0, differentiable in p to any order; the start is not differentiated."""
    return apply(_root_op, start, *p, equation=equation)


def _pull_root(bar: Any, out: Any, xs: tuple[Any, ...], equation: ImplicitEquation) -> tuple[Any, ...]:
    p = xs[1:]
    if not p:
        return (None,)
    is_bare = is_array if not equation.scalar else lambda x: type(x) is np.ndarray
    if not equation.batches and all(map(is_bare, (bar, out, *p))):
        return (None, *pull_root_eagerly(equation, bar, out, p))
    y = equation.solve_transposed(bar, out, *p)
    return (None, *pull_parameters(equation.residual, out, p, pointwise.negative(y)))


def _push_root(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: ImplicitEquation) -> Any:
    p = xs[1:]
    if not p:
        return None
    _, moved = jvp(lambda *q: equation.residual(out, *q), p, tangents[1:])
    return equation.solve_forward(pointwise.negative(moved), out, *p)


def _batch_root(size: int, axes: tuple[int | None, ...], *xs: Any, equation: ImplicitEquation) -> tuple[Any, int]:
    start, *p = xs
    return find_root(equation.batch((0, *axes[1:])), move_batch_first(start, axes[0], size), *p), 0


_check_converged_op: Op = make_custom_record(
    "settled", ("x", "left", "steps"), lambda xp, x, left, steps, equation: equation.check_converged(x, left, steps),
    None, None, None, lambda x, left, steps, equation: x,
)  # fmt: skip
_root_op: Op = replace(make_custom_record(
    "root", ("*xs",), lambda xp, start, *p, equation: as_bare_results(equation.solve(start, *p), equation.what),
    Formula(_pull_root, ("bar", "out", "xs", "equation")), Formula(_push_root, ("tangents", "out", "xs", "equation")),
    _batch_root, lambda start, *p, equation: start,
), form=Expand(lambda start, *p, equation: equation.stage_solve(start, *p)))  # fmt: skip

"""An equation F(x, p) = 0 on vectors, the linear systems of its derivatives, and the rules that follow from them.

The equation defines x(p): F_x dx + F_p dp = 0. So the tangent solves F_x dx = -F_p dp, and with F_x^T y = bar the
cotangent of p is the pullback of p -> F(x, p) along -y. How the root was found plays no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ConvergenceError
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import expand_dims, squeeze
from ...transforms.forward import jvp
from ...transforms.reverse import vjp
from ..linear.methods import Auto, Neumann, Structured
from ..linear.operator import LinearOperator, SolutionCache, pull_parameters, solve_operator, vmap_over
from ..solve_report import Report
from ..solvers.method_loop import largest_over_batches

#: A map that contracts at least so well needs no better method than its own steps.
_FAST_CONTRACTION = 0.5


@dataclass(frozen=True, eq=False)
class ImplicitEquation:
    """F(x, *p) on vectors, how to solve it and how to solve for its derivatives.

    `batches` lists for each batch around it the axes of (start, *parameters). A fixed point has the map itself in
    `fixed_point_map`: F(x, *p) = fixed_point_map(x, *p) - x. With `is_default_method` the caller named no method, with
    `scalar` the unknown is a scalar; methods are given a vector all the same.

    Where F has a corner at a solution, `differentiated` is a function with the same value whose derivatives count, and
    `explain(x, *p)` says why a linear system with them has no solution. A minimum with constraints has a `program`, and
    `solve_directly(is_transposed, v, x, *p)` solves its linear systems by their structure, for the method `Structured`.
    """

    function: Callable[..., Any]
    method: Any
    adjoint: Any
    tolerance: float
    adjoint_tolerance: float
    max_steps: int
    what: str
    report: Report = field(compare=False)
    strict: bool = True
    watch: Callable[[int, Any], None] | None = None
    known: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Callable[..., Any]] = field(default_factory=dict)
    fixed_point_map: Callable[..., Any] | None = None
    is_default_method: bool = False
    scalar: bool = False
    size: int = 0
    memory: SolutionCache = field(default_factory=SolutionCache, compare=False)
    batches: tuple[tuple[int | None, ...], ...] = ()
    program: Any = None
    differentiated: Callable[..., Any] | None = None
    explain: Callable[..., str] | None = None
    solve_directly: Callable[..., Any] | None = None

    @property
    def tangent_function(self) -> Callable[..., Any]:
        """F, as it is differentiated at a solution."""
        return self.differentiated or self.function

    def tangent_residual(self, x: Any, *p: Any) -> Any:
        """The same, batched over all batches around the equation."""
        return vmap_over(self.tangent_function, [(0, *axes[1:]) for axes in self.batches])(x, *p)

    def residual(self, x: Any, *p: Any) -> Any:
        """F, batched over all batches around the equation."""
        return vmap_over(self.function, [(0, *axes[1:]) for axes in self.batches])(x, *p)

    def batch(self, axes: tuple[int | None, ...]) -> ImplicitEquation:
        """The same for a batch of equations."""
        return replace(self, batches=(*self.batches, axes))

    def to_vector(self, x: Any) -> Any:
        """An unknown as a vector."""
        return expand_dims(x, -1) if self.scalar else x

    def to_unknown(self, v: Any) -> Any:
        """A vector as an unknown."""
        return squeeze(v, -1) if self.scalar else v

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

    def pull(self, bar: Any, x: Any, p: Sequence[Any]) -> list[Any]:
        """The cotangents of parameters at a root, None for those that cannot be differentiated."""
        y = self.to_unknown(solve_operator(self.operator().transpose(), self._as_right_side(bar), x, *p))
        return pull_parameters(self.tangent_residual, x, p, pointwise.negative(y))

    def push(self, tangents: Sequence[Any], x: Any, p: Sequence[Any]) -> Any:
        """The tangent of a root along those of its parameters."""
        _, moved = jvp(lambda *q: self.tangent_residual(x, *q), tuple(p), tuple(tangents))
        return self.to_unknown(solve_operator(self.operator(), self._as_right_side(pointwise.negative(moved)), x, *p))

    def operator(self) -> LinearOperator:
        """The Jacobian F_x as a matrix that depends on (x, *p). For a fixed point it is -F_x = I - J, near the
        identity, which some methods need; `_as_right_side` turns right sides alike.
        """
        function = self.tangent_function

        def multiply(v: Any, x: Any, *p: Any) -> Any:
            return self._as_right_side(jvp(lambda y: function(y, *p), (x,), (self.to_unknown(v),))[1])

        def transposed_at(x: Any, *p: Any) -> Callable[[Any], Any]:
            _, pull = vjp(lambda y: function(y, *p), x)  # f runs once, and each product is one backward pass
            return lambda v: self._as_right_side(pull(self.to_unknown(v))[0])

        def prepare(is_transposed: bool, *xp: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
            back = transposed_at(*xp) if is_transposed else lambda v: transposed_at(*xp)(v)
            return lambda v: multiply(v, *xp), back

        adjoint = self._choose_adjoint()
        inner = LinearOperator(
            multiply, adjoint, self.adjoint_tolerance, self.max_steps, f"{self.what}: the derivative",
            self.known | ({} if self.fixed_point_map is None else {"series": Neumann()}),
            reports=_LatestReport(self.report), strict=self.strict, prepare=prepare,
            memory=None if self.batches or self.scalar else self.memory, explain=self.explain,
            solve_directly=self.solve_directly if isinstance(adjoint, Structured) else None,
        )  # fmt: skip
        for axes in self.batches:
            inner = inner.batch((0, 0, *axes[1:]))
        return inner

    def _as_right_side(self, x: Any) -> Any:
        """A product or a right side of the linear system, as a vector with the sign of the system."""
        return self.to_vector(x if self.fixed_point_map is None else pointwise.negative(x))

    def _choose_adjoint(self) -> Any:
        """The method for derivatives. Where a map of many unknowns contracts well, so does its transpose, and plain
        steps of it cost least.
        """
        seen, chosen = self.report.contraction, self.adjoint
        if not isinstance(chosen, Auto) or self.fixed_point_map is None or self.size <= chosen.dense_up_to:
            return chosen
        return Neumann() if seen is not None and seen < _FAST_CONTRACTION else chosen


class _LatestReport(list[Report]):
    """Stores the latest report of a solve for a derivative in the user's report."""

    def __init__(self, report: Report) -> None:
        list.__init__(self)
        self._report = report

    def append(self, report: Report) -> None:
        self._report.adjoint = report

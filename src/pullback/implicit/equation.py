"""Equation and start in, root out; the derivative by the implicit function theorem, to any order and in both modes.

F(x, p) = 0 defines x(p): F_x dx + F_p dp = 0. So the tangent solves F_x dx = -F_p dp, and with F_x^T y = bar the
cotangent of p is the pullback of p -> F(x, p) along -y. How the root was found plays no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..errors import ConvergenceError
from ..ops import elementwise as pointwise
from ..ops.batching import lead
from ..ops.dispatch import apply
from ..ops.forms import Expand
from ..ops.op import Op, Terms
from ..ops.shaping import expand_dims, squeeze
from ..transforms.batching import vmap
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from ..transforms.rules import bare_results, custom_record
from .at_once import pulled_at_once
from .drive import largest
from .linear import Operator, pulled_along, solved
from .linear_methods import Auto, Neumann
from .memory import Solved
from .report import Report
from .seeking import sought

__all__ = ["Equation", "rooted"]


#: A map that contracts at least so well needs no better method than its own steps.
_QUICK = 0.5


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
    memory: Solved = field(default_factory=Solved)
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
            return self.up(self.signed(jvp(lambda y: function(y, *p), (x,), (self.down(v),))[1]))

        def multiply_back(v: Any, x: Any, *p: Any) -> Any:
            return self.up(self.signed(vjp(lambda y: function(y, *p), x)[1](self.down(v))[0]))

        def prepare(back: bool, x: Any, *p: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
            if not back:
                return lambda v: multiply(v, x, *p), lambda v: multiply_back(v, x, *p)
            _, pull = vjp(lambda y: function(y, *p), x)  # f runs once, and each product is one way back
            return lambda v: multiply(v, x, *p), lambda v: self.up(self.signed(pull(self.down(v))[0]))

        reports = _Latest(self.report)
        inner = Operator(
            multiply, self._adjoint(), self.adjoint_tolerance, self.max_steps, f"{self.what}: the derivative",
            self.known | ({} if self.mapped is None else {"series": Neumann()}), reports=reports,
            strict=self.strict, multiply_back=multiply_back, prepare=prepare,
            memory=None if self.batches or self.scalar else self.memory,
        )  # fmt: skip
        for axes in self.batches:
            inner = inner.in_batch((0, 0, *axes[1:]))
        return inner

    def up(self, x: Any) -> Any:
        """An unknown as a vector."""
        return expand_dims(x, -1) if self.scalar else x

    def down(self, v: Any) -> Any:
        """A vector as an unknown."""
        return squeeze(v, -1) if self.scalar else v

    def solved_back(self, bar: Any, x: Any, *p: Any) -> Any:
        """y with F_x^T y = bar."""
        return self.down(solved(self.operator().turned(), self.up(self.signed(bar)), x, *p))

    def solved_forth(self, right: Any, x: Any, *p: Any) -> Any:
        """dx with F_x dx = right."""
        return self.down(solved(self.operator(), self.up(self.signed(right)), x, *p))

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

    def solve(self, start: Any, *p: Any) -> Any:
        """The root for bare arrays, checked by its true residual."""

        with np.errstate(all="ignore"):
            x, left, _ = self._sought(start, *p)
        return self.settled(x, left)

    def _sought(self, start: Any, *p: Any) -> tuple[Any, Any, Any]:
        def run(start: Any, *p: Any) -> tuple[Any, Any, Any]:
            return sought(self, start, p)

        for axes in self.batches:
            run = vmap(run, axes)
        return run(start, *p)

    def settled(self, x: Any, left: Any, steps: Any = None) -> Any:
        """The root itself, if its residual is small enough; noted in the report."""
        report = self.report
        report.residual = float(largest(left))
        report.converged = report.residual <= self.tolerance and not report.doubt
        if steps is not None:
            report.steps = int(largest(steps))
        if self.strict and not report.converged:
            raise ConvergenceError(f"{self.what}: no convergence.\n{report}", report, x)
        return x

    def written(self, start: Any, *p: Any) -> Any:
        """The search as a loop in a program, which the report looks at when it is over; None where somebody wants to
        watch each step.
        """
        if self.watch is not None:
            return None
        x, left, steps = self._sought(start, *p)
        return apply(_settled, x, left, steps, equation=self)


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
    is_bare = is_array if not equation.scalar else lambda x: type(x) is np.ndarray
    if not equation.batches and all(map(is_bare, (bar, out, *p))):
        return (None, *pulled_at_once(equation, bar, out, p))
    y = equation.solved_back(bar, out, *p)
    return (None, *pulled_along(equation.residual, out, p, pointwise.negative(y)))


def _pushed(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: Equation) -> Any:
    p = xs[1:]
    if not p:
        return None
    _, moved = jvp(lambda *q: equation.residual(out, *q), p, tangents[1:])
    return equation.solved_forth(pointwise.negative(moved), out, *p)


def _batched(size: int, axes: tuple[int | None, ...], *xs: Any, equation: Equation) -> tuple[Any, int]:
    start, *p = xs
    return rooted(equation.in_batch((0, *axes[1:])), lead(start, axes[0], size), *p), 0


_settled: Op = custom_record(
    "settled", ("x", "left", "steps"), lambda xp, x, left, steps, equation: equation.settled(x, left, steps),
    None, None, None, lambda x, left, steps, equation: x,
)  # fmt: skip
_root: Op = replace(custom_record(
    "root", ("*xs",), lambda xp, start, *p, equation: bare_results(equation.solve(start, *p), equation.what),
    Terms(_pulled, ("bar", "out", "xs", "equation")), Terms(_pushed, ("tangents", "out", "xs", "equation")),
    _batched, lambda start, *p, equation: start,
), form=Expand(lambda start, *p, equation: equation.written(start, *p)))  # fmt: skip

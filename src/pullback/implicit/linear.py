"""Matrix, or function that multiplies by it, and right side in, solution out; its derivative is again such a solve.

With A x = b: dA x + A dx = db, so the tangent solves A dx = db - dA x. The cotangents follow from bar^T dx =
(A^-T bar)^T (db - dA x): with A^T y = bar, that of b is y and that of A is -y x^T, which for a function of parameters p
that multiplies by A(p) is the pullback of p -> A(p) x along -y. All of this is written in ops and in the solve itself,
so it holds to any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.scope import running
from ..arrays.spec import make_spec, spec_of
from ..errors import ConvergenceError
from ..ops import elementwise as pointwise
from ..ops import reducing
from ..ops.batching import lead
from ..ops.dispatch import apply
from ..ops.forms import Expand
from ..ops.op import Op, Terms
from ..ops.shaping import reshape
from ..ops.specialise import Symbol
from ..transforms.batching import vmap
from ..transforms.border import at_places, scalars_become_arrays
from ..transforms.control import cond
from ..transforms.forward import jvp
from ..transforms.linear import transposed
from ..transforms.reverse import Pullback
from ..transforms.rules import bare_results, custom_record
from ..transforms.staged import is_staged
from .drive import drive, largest
from .memory import Solved
from .report import Report

__all__ = ["Operator", "System", "norm", "pulled_along", "solved"]

#: Terms of the series that a compiled solve tries before a method that costs more.
_SERIES = 100


def norm(x: Any) -> Any:
    """The Euclidean norm of a vector, also where the squares of its elements are too small or too large for numbers."""
    if type(x) is np.ndarray:
        plain = np.sqrt(np.dot(x, x), dtype=x.dtype)
        if _SAFE[0] < plain < _SAFE[1]:
            return np.asarray(plain)
    if not spec_of(x).size:
        return reducing.sum(x)
    if type(x) is Symbol:  # the same choice in a program
        plain = pointwise.sqrt(reducing.sum(pointwise.square(x)))
        safe = pointwise.logical_and(pointwise.greater(plain, _SAFE[0]), pointwise.less(plain, _SAFE[1]))
        return cond(safe, lambda plain, x: plain, lambda plain, x: _scaled_norm(x), plain, x)
    return _scaled_norm(x)


def _scaled_norm(x: Any) -> Any:
    size = reducing.max(pointwise.abs(x))
    size = pointwise.where(pointwise.logical_and(size > 0, pointwise.isfinite(size)), size, 1.0)
    return pointwise.multiply(size, pointwise.sqrt(reducing.sum(pointwise.square(pointwise.divide(x, size)))))


#: Norms whose squares single precision holds too.
_SAFE = (1e-15, 1e15)


class System:
    """A linear system for a solver: `apply(v)` multiplies by the matrix, `apply_transposed(v)` by its transpose.

    `tolerance` is that of |b - A x| relative to |b|; `symmetric` and `definite` say what is known of the matrix,
    `precondition(v)` multiplies by something near its inverse; `xp` is the library of its arrays. Products are counted.
    """

    def __init__(
        self,
        multiply: Callable[[Any], Any],
        size: int,
        dtype: Any,
        tolerance: float,
        *,
        multiply_back: Callable[[Any], Any] | None = None,
        xp: Any = np,
        **known: Any,
    ) -> None:
        self.xp = xp
        self._multiply = multiply
        self._multiply_back = multiply_back
        self.size = size
        self.dtype = dtype
        self.tolerance = tolerance
        self.symmetric: bool = known.get("symmetric", False)
        self.definite: bool = known.get("definite", False)
        self.precondition: Callable[[Any], Any] | None = known.get("precondition")
        self.products = 0

    def apply(self, v: Any) -> Any:
        """A v."""
        self.products += 1
        return self._multiply(v)

    def apply_transposed(self, v: Any) -> Any:
        """A^T v."""
        self.products += 1
        if self._multiply_back is not None:
            return self._multiply_back(v)
        spec = make_spec((self.size,), self.dtype, spec_of(v).device)
        return transposed(lambda x: [self._multiply(x)], [spec], "the product with the matrix")([v])[0]

    def dense(self) -> Any:
        """The matrix, by as many products as it has columns, all at once."""
        self.products += self.size
        if self.size == 1:
            return reshape(self._multiply(self.xp.ones(1, self.dtype)), (1, 1))
        columns: Any = vmap(self._multiply, 0, 1)(self.xp.eye(self.size, dtype=self.dtype))
        return columns


@dataclass(frozen=True, eq=False)
class Operator:
    """The matrix A(p) as a function `multiply(v, *p)`, with all that is needed to solve with it and its transpose.

    `multiply_back(v, *p)` multiplies by the transpose; without it, that is found by transposing. `prepare(back, *p)`,
    if there is one, answers both as functions of v alone; the one that is meant does what does not depend on v once.
    `batches` lists for each batch around it the axes of (right side, *parameters); `back` says that the transpose is
    meant. Reports of solves are put into `reports`, solutions into `memory`, if there is one, to start from.
    """

    multiply: Callable[..., Any]
    solver: Any
    tolerance: float
    max_steps: int
    what: str
    known: dict[str, Any] = field(default_factory=dict)
    batches: tuple[tuple[int | None, ...], ...] = ()
    back: bool = False
    reports: list[Report] = field(default_factory=list)
    strict: bool = True
    multiply_back: Callable[..., Any] | None = None
    prepare: Callable[..., tuple[Callable[[Any], Any], Callable[[Any], Any]]] | None = None
    memory: Solved | None = None

    def product(self, v: Any, *p: Any) -> Any:
        """A(p) v, or A(p)^T v, for all elements of all batches."""
        function = self._back if self.back else self.multiply
        for axes in self.batches:
            function = vmap(function, axes)
        return function(v, *p)

    def _back(self, v: Any, *p: Any) -> Any:
        if self.multiply_back is not None:
            return self.multiply_back(v, *p)
        spec = make_spec(spec_of(v).shape, spec_of(v).dtype, spec_of(v).device)
        return transposed(lambda x: [self.multiply(x, *p)], [spec], self.what)([v])[0]

    def turned(self) -> Operator:
        """The transpose."""
        return replace(self, back=not self.back)

    def in_batch(self, axes: tuple[int | None, ...]) -> Operator:
        """The same for a batch of systems."""
        return replace(self, batches=(*self.batches, axes))

    def solve(self, b: Any, *p: Any) -> Any:
        """The solution for bare arrays, checked; the report says how it went."""
        report = Report(type(self.solver).__name__, self.tolerance)
        run = self._solve_one(report, self._prepared)
        for axes in self.batches:
            run = vmap(run, axes)
        with np.errstate(all="ignore"):
            return self._checked(report, *run(b, *p))

    def written(self, b: Any, *p: Any) -> Any:
        """The solve as a loop in a program, checked when it is over. Where the method asks for numbers but the matrix
        may be near the unit matrix, a plain series is tried first.
        """
        quick = self.known.get("series") if hasattr(self.solver, "choose") else None
        if quick is None or self.known.get("symmetric") or spec_of(b).shape[-1] <= self.solver.dense_up_to:
            return self._written(b, *p)
        series = replace(self, solver=quick, max_steps=_SERIES)
        x, left, grown, report = series._run(b, *p)
        return cond(
            reducing.all(pointwise.less_equal(left, self.tolerance)),
            lambda x, left, grown, b, *p: apply(_settled, x, left, grown, operator=self, report=report),
            lambda x, left, grown, b, *p: apply(_plain_solve, b, *p, operator=self),
            x, left, grown, b, *p,
        )  # fmt: skip

    def _written(self, b: Any, *p: Any) -> Any:
        x, left, grown, report = self._run(b, *p)
        return apply(_settled, x, left, grown, operator=self, report=report)

    def _run(self, b: Any, *p: Any) -> tuple[Any, Any, Any, Report]:
        report = Report(type(self.solver).__name__, self.tolerance)
        run = self._solve_one(report, self._prepared)
        for axes in self.batches:
            run = vmap(run, axes)
        return (*run(b, *p), report)

    def solve_with(self, forth: Callable[[Any], Any], back: Callable[[Any], Any], b: Any) -> Any:
        """The same for one system whose products, with the matrix that is meant and its transpose, are at hand."""
        report = Report(type(self.solver).__name__, self.tolerance)
        with np.errstate(all="ignore"):
            return self._checked(
                report, *self._solve_one(report, lambda p: (back, forth) if self.back else (forth, back))(b)
            )

    def _checked(self, report: Report, x: Any, left: Any, grown: Any) -> Any:
        report.residual = float(largest(left))
        report.amplification = float(largest(grown))
        report.converged = report.residual <= self.tolerance
        self.reports.append(report)
        if self.strict and not report.converged:
            raise ConvergenceError(f"{self.what}: the linear solve did not converge.\n{report}", report, x)
        return x

    def _solve_one(self, report: Report, prepared: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
        def run(b: Any, *p: Any) -> Any:
            forth, back = prepared(p)[:: -1 if self.back else 1]
            known = self.known if not self.back else self._known_back(b)
            spec = spec_of(b)
            system = System(
                forth, spec.size, spec.dtype, self.tolerance, multiply_back=back, xp=namespace_on(spec.device), **known
            )
            x, left = self._continued(report, system, b) or self._begun(report, system, b)
            report.products += system.products
            if hasattr(self.solver, "choose"):
                report.method = f"{type(self.solver).__name__} ({type(self.solver.choose(system)).__name__})"
            grown = pointwise.divide(norm(x), _not_zero(norm(b)))
            return x, pointwise.where(pointwise.isnan(left), math.inf, left), grown

        return run

    def _begun(self, report: Report, system: System, b: Any) -> tuple[Any, Any]:
        """The solution and its true residual, from zero on."""
        state, steps = drive(self.solver, system, b, self.max_steps)
        if not is_staged(steps):
            report.steps = max(report.steps, steps)
        x = self.solver.value(state)
        left = state["left"] if _is_known(self.solver, state) else _left(system, b, x)
        if self.memory is not None and type(b) is np.ndarray and type(x) is np.ndarray:
            self.memory.keep(self.back, b, x)
        return x, left

    def _continued(self, report: Report, system: System, b: Any) -> tuple[Any, Any] | None:
        """The same from what earlier solutions say: A x = b with x = start + d is A d = b - A start. None without a
        start that leads there.
        """
        start = self.memory.start(self.back, b) if self.memory is not None and type(b) is np.ndarray else None
        if start is None:
            return None
        rest = b - system.apply(start)
        share = float(norm(rest) / _not_zero(norm(b)))
        if not share < 1:
            return None
        report.note = "started from systems solved before"
        if share <= self.tolerance:
            return start, np.asarray(share)
        system.tolerance = self.tolerance / share
        state, report.steps = drive(self.solver, system, rest, self.max_steps)
        system.tolerance = self.tolerance
        x = start + self.solver.value(state)
        left = _left(system, b, x)
        return (x, left) if left <= self.tolerance else None

    def _known_back(self, b: Any) -> dict[str, Any]:
        """What is known of the transpose; a preconditioner is transposed too."""
        precondition = self.known.get("precondition")
        if precondition is None:
            return self.known
        spec = make_spec(spec_of(b).shape, spec_of(b).dtype, spec_of(b).device)
        turned = transposed(lambda v: [precondition(v)], [spec], "the preconditioner")
        return self.known | {"precondition": lambda v: turned([v])[0]}

    def _prepared(self, p: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        if self.prepare is not None:
            return self.prepare(self.back, *p)
        return lambda v: self.multiply(v, *p), lambda v: self._back(v, *p)


def _is_known(solver: Any, state: Any) -> bool:
    """Whether a state of one of our own methods holds the residual as computed at its answer."""
    if not type(solver).__module__.startswith(__package__):
        return False
    return is_staged(state["left"]) or (is_array(state["left"]) and bool(state["left"] < 1))


def _left(system: System, b: Any, x: Any) -> Any:
    """The true residual of a solution, relative to the right side."""
    return pointwise.divide(norm(pointwise.subtract(b, system.apply(x))), _not_zero(norm(b)))


def _not_zero(x: Any) -> Any:
    return pointwise.where(pointwise.equal(x, 0), 1.0, x)


def solved(operator: Operator, b: Any, *p: Any) -> Any:
    """x with A(p) x = b, differentiable in b and p to any order."""
    return apply(_solve, b, *p, operator=operator)


def _pulled(bar: Any, out: Any, xs: tuple[Any, ...], operator: Operator) -> tuple[Any, ...]:
    p = xs[1:]
    y = solved(operator.turned(), bar, *p)
    if not p:
        return (y,)
    return (y, *pulled_along(operator.product, out, p, pointwise.negative(y)))


def pulled_along(function: Callable[..., Any], out: Any, p: Sequence[Any], bar: Any) -> list[Any]:
    """The cotangents of the parameters of function(out, *p), None for those that cannot be differentiated. `out` is a
    variable like them, since it may belong to a transform that they do not.
    """
    floats = [i for i, x in enumerate(p) if spec_of(x).inexact]
    moving = at_places(function, (out, *p), [0, *(i + 1 for i in floats)])
    pullback = Pullback(
        lambda *xs: [scalars_become_arrays(moving(*xs), "solve")], [out, *(p[i] for i in floats)], running()
    )
    found = dict(zip(floats, pullback.pull([bar], only=range(1, len(floats) + 1)), strict=True))
    return [found.get(i) for i in range(len(p))]


def _pushed(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], operator: Operator) -> Any:
    b_dot, *p_dot = tangents
    p = xs[1:]
    if p:
        _, moved = jvp(lambda *q: operator.product(out, *q), p, tuple(p_dot))
        b_dot = pointwise.subtract(b_dot, moved)
    return solved(operator, b_dot, *p)


def _batched(size: int, axes: tuple[int | None, ...], *xs: Any, operator: Operator) -> tuple[Any, int]:
    b, *p = xs
    return solved(operator.in_batch((0, *axes[1:])), lead(b, axes[0], size), *p), 0


_settled: Op = custom_record(
    "linear_settled", ("x", "left", "grown"),
    lambda xp, x, left, grown, operator, report: operator._checked(report, x, left, grown),
    None, None, None, lambda x, left, grown, operator, report: x,
)  # fmt: skip
_plain_solve: Op = custom_record(
    "linear_solve", ("*xs",), lambda xp, b, *p, operator: bare_results(operator.solve(b, *p), operator.what),
    Terms(_pulled, ("bar", "out", "xs", "operator")), Terms(_pushed, ("tangents", "out", "xs", "operator")),
    _batched, lambda b, *p, operator: b,
)  # fmt: skip
_solve: Op = replace(_plain_solve, form=Expand(lambda b, *p, operator: operator.written(b, *p)))

"""The linear solve as an op: a function that multiplies by the matrix, and a derivative that is again such a solve.

With A x = b: dA x + A dx = db, so the tangent solves A dx = db - dA x. The cotangents follow from bar^T dx =
(A^-T bar)^T (db - dA x): with A^T y = bar, that of b is y and that of A is -y x^T, which for a function of parameters p
that multiplies by A(p) is the pullback of p -> A(p) x along -y. All of this is computed by ops and the solve itself,
so it holds to any order.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.scope import current_scope
from ...arrays.spec import make_spec, spec_of
from ...errors import ConvergenceError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.forms import Expand
from ...ops.op import Formula, Op
from ...ops.reduce import reductions
from ...ops.shape.reshaping import reshape
from ...program.ir import Symbol
from ...transforms.boundary import as_array_leaf, restrict_arguments
from ...transforms.control.branches_and_loops import cond
from ...transforms.control.staging import is_staged
from ...transforms.custom.rules import as_bare_results, make_custom_record
from ...transforms.forward import jvp
from ...transforms.linear_functions import transpose_linear
from ...transforms.reverse import Pullback
from ...transforms.vectorize import vmap
from ..late_checks import can_check_later, check_later
from ..solve_report import Report
from ..solvers.method_loop import PackageMethod, largest_over_batches, run_method

#: Terms of the series that a compiled solve tries before a method that costs more.
_MAX_SERIES_TERMS = 100
#: A system that is solved so far has a solution; what is left over is rounding.
_NEARLY_SOLVED = 1e-3
_ROUNDING = "It is solved but for rounding: the tolerance is too small, see Implicit(tol=...)."
#: Norms whose squares single precision holds too.
_SAFE_NORMS = (1e-15, 1e15)


def norm(x: Any) -> Any:
    """The Euclidean norm of a vector, also where the squares of its elements underflow or overflow."""
    if type(x) is np.ndarray:
        plain = np.sqrt(np.dot(x, x), dtype=x.dtype)
        if _SAFE_NORMS[0] < plain < _SAFE_NORMS[1]:
            return np.asarray(plain)
    if not spec_of(x).size:
        return reductions.sum(x)
    if type(x) is Symbol:  # the same choice in a program
        plain = pointwise.sqrt(reductions.sum(pointwise.square(x)))
        safe = pointwise.logical_and(pointwise.greater(plain, _SAFE_NORMS[0]), pointwise.less(plain, _SAFE_NORMS[1]))
        return cond(safe, lambda plain, x: plain, lambda plain, x: _scaled_norm(x), plain, x)
    return _scaled_norm(x)


def _scaled_norm(x: Any) -> Any:
    size = reductions.max(pointwise.abs(x))
    size = pointwise.where(pointwise.logical_and(size > 0, pointwise.isfinite(size)), size, 1.0)
    return pointwise.multiply(size, pointwise.sqrt(reductions.sum(pointwise.square(pointwise.divide(x, size)))))


def vmap_over(function: Callable[..., Any], batches: Sequence[tuple[int | None, ...]]) -> Callable[..., Any]:
    """A function for batches of batches, each given by the axes of the arguments."""
    for axes in batches:
        function = vmap(function, axes)
    return function


def _transpose_product(multiply: Callable[[Any], Any], like: Any, what: str) -> Callable[[Any], Any]:
    """The function that multiplies by A^T, from one that multiplies a vector like this one by A."""
    spec = make_spec(spec_of(like).shape, spec_of(like).dtype, spec_of(like).device)
    transposed = transpose_linear(lambda x: [multiply(x)], [spec], what)
    return lambda v: transposed([v])[0]


@dataclass(eq=False)
class LinearSystem:
    """A linear system for a solver: `apply(v)` multiplies by the matrix, `apply_transposed(v)` by its transpose.

    `tolerance` is that of |b - A x| relative to |b|; `symmetric` and `definite` say what is known of the matrix,
    `precondition(v)` multiplies by something near its inverse; where it is near the identity itself, `series` is the
    method that makes use of it. `xp` is NumPy or CuPy. Products are counted.
    """

    multiply: Callable[[Any], Any]
    size: int
    dtype: Any
    tolerance: float
    multiply_transposed: Callable[[Any], Any] | None = None
    xp: Any = np
    symmetric: bool = False
    definite: bool = False
    precondition: Callable[[Any], Any] | None = None
    series: Any = None
    products: int = field(default=0, init=False)

    def apply(self, v: Any) -> Any:
        """A v."""
        self.products += 1
        return self.multiply(v)

    def apply_transposed(self, v: Any) -> Any:
        """A^T v."""
        self.products += 1
        if self.multiply_transposed is not None:
            return self.multiply_transposed(v)
        return _transpose_product(self.multiply, v, "the product with the matrix")(v)

    def to_dense(self) -> Any:
        """The matrix, by as many products as it has columns, all at once."""
        self.products += self.size
        if self.size == 1:
            return reshape(self.multiply(self.xp.ones(1, self.dtype)), (1, 1))
        columns: Any = vmap(self.multiply, 0, 1)(self.xp.eye(self.size, dtype=self.dtype))
        return columns


#: How many systems are stored, for the matrix and for its transpose.
_CACHE_SIZE = 4
#: An initial guess is worth its product if it explains the right side but for this share.
_MAX_UNEXPLAINED_SHARE = 0.5


class SolutionCache:
    """Right sides and solutions of the latest systems with one matrix. Whether it is still the same matrix is for the
    caller to find out, by the residual of the guess.

    Derivatives of higher order solve again and again with one matrix, often for the very same right side: each order
    repeats the solves of the orders below it. A right side that is nearly a combination of earlier ones has nearly the
    same combination of their solutions as its own.
    """

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {True: [], False: []}

    def initial_guess(self, is_transposed: bool, b: Any) -> np.ndarray | None:
        """The initial guess for A x = b, or A^T x = b if `is_transposed`; None where no earlier solution helps."""
        pairs = [pair for pair in self._pairs[is_transposed] if pair[0].dtype == b.dtype and pair[0].shape == b.shape]
        if not pairs:
            return None
        known = np.stack([right for right, _ in pairs], 1)
        weights = np.linalg.lstsq(known, b, rcond=None)[0]
        if not np.linalg.norm(b - known @ weights) < _MAX_UNEXPLAINED_SHARE * np.linalg.norm(b):
            return None
        start: np.ndarray = np.stack([x for _, x in pairs], 1) @ weights
        return start

    def keep(self, is_transposed: bool, b: Any, x: Any) -> None:
        """Add a solved system."""
        if np.isfinite(b).all() and np.isfinite(x).all():
            self._pairs[is_transposed] = [*self._pairs[is_transposed][1 - _CACHE_SIZE :], (b, x)]


class ChoosingMethod(PackageMethod):
    """A method that is another one for each system: dense up to so many unknowns."""

    dense_up_to: int

    @abstractmethod
    def choose(self, system: LinearSystem) -> PackageMethod:
        """The method for a system."""


@dataclass(frozen=True, eq=False)
class LinearOperator:
    """The matrix A(p) as a function `multiply(v, *p)`, with all that is needed to solve with it and its transpose.

    `prepare(is_transposed, *p)`, if there is one, returns the products with the matrix and with its transpose as
    functions of v alone; the one in use computes once what does not depend on v. Without it, the second is found by
    transposing the first.
    `batches` lists for each batch around it the axes of (right side, *parameters); `is_transposed` means the transpose.
    Reports of solves are appended to `reports`, solutions to `memory`, if there is one, as initial guesses.
    `explain(*p)`, if there is one, says why a system has no solution; `solve_directly(is_transposed, v, *p)` is what a
    matrix of known structure has in place of a preconditioner.
    """

    multiply: Callable[..., Any]
    solver: Any
    tolerance: float
    max_steps: int
    what: str
    known: dict[str, Any] = field(default_factory=dict)
    batches: tuple[tuple[int | None, ...], ...] = ()
    is_transposed: bool = False
    reports: list[Report] = field(default_factory=list)
    strict: bool = True
    prepare: Callable[..., tuple[Callable[[Any], Any], Callable[[Any], Any]]] | None = None
    memory: SolutionCache | None = None
    explain: Callable[..., str] | None = None
    solve_directly: Callable[..., Any] | None = None

    def product(self, v: Any, *p: Any) -> Any:
        """A(p) v, or A(p)^T v, batched over all batches around it."""
        function = self._apply_transposed if self.is_transposed else self.multiply
        return vmap_over(function, self.batches)(v, *p)

    def _apply_transposed(self, v: Any, *p: Any) -> Any:
        if self.prepare is not None:
            return self.prepare(True, *p)[1](v)
        return _transpose_product(lambda x: self.multiply(x, *p), v, self.what)(v)

    def transpose(self) -> LinearOperator:
        """The transpose."""
        return replace(self, is_transposed=not self.is_transposed)

    def batch(self, axes: tuple[int | None, ...]) -> LinearOperator:
        """The same for a batch of systems."""
        return replace(self, batches=(*self.batches, axes))

    def solve(self, b: Any, *p: Any) -> Any:
        """The solution for bare arrays, checked; the report says how it went."""
        with np.errstate(all="ignore"):
            x, left, grown, report = self._run(b, *p)
            return self._check_converged(report, x, left, grown, p)

    def stage_solve(self, b: Any, *p: Any) -> Any:
        """The solve as a loop in a traced program, checked at its end. Where the method needs concrete values but the
        matrix may be near the identity, a plain series is tried first.
        """
        solver, quick = self.solver, self.known.get("series")
        is_small = not isinstance(solver, ChoosingMethod) or spec_of(b).shape[-1] <= solver.dense_up_to
        is_direct = quick is None or is_small or self.known.get("symmetric")
        running = self if is_direct else replace(self, solver=quick, max_steps=_MAX_SERIES_TERMS)
        x, left, grown, report = running._run(b, *p)
        if is_direct and can_check_later(x, self.strict):
            return check_later(x, left, f"{self.what}: the linear solve did not converge", report)
        if is_direct:
            return apply(_check_converged_op, x, left, grown, operator=self, report=report)
        return cond(
            reductions.all(pointwise.less_equal(left, self.tolerance)),
            lambda x, left, grown, b, *p: apply(_check_converged_op, x, left, grown, operator=self, report=report),
            lambda x, left, grown, b, *p: apply(_plain_solve_op, b, *p, operator=self),
            x, left, grown, b, *p,
        )  # fmt: skip

    def _run(self, b: Any, *p: Any) -> tuple[Any, Any, Any, Report]:
        report = Report(type(self.solver).__name__, self.tolerance)
        run = vmap_over(self._solve_one(report, self._prepare_products), self.batches)
        return (*run(b, *p), report)

    def solve_with(self, forth: Callable[[Any], Any], back: Callable[[Any], Any], b: Any, *p: Any) -> Any:
        """The same for one system whose products, with the matrix in use and its transpose, are given."""
        report = Report(type(self.solver).__name__, self.tolerance)
        with np.errstate(all="ignore"):
            products = (back, forth) if self.is_transposed else (forth, back)
            x, left, grown = self._solve_one(report, lambda p: products)(b, *p)
            return self._check_converged(report, x, left, grown, p)

    def _check_converged(self, report: Report, x: Any, left: Any, grown: Any, p: tuple[Any, ...] = ()) -> Any:
        report.residual = float(largest_over_batches(left))
        report.amplification = float(largest_over_batches(grown))
        report.converged = report.residual <= self.tolerance
        self.reports.append(report)
        if self.strict and not report.converged:
            why = self._explain_failure(report, p)
            raise ConvergenceError(f"{self.what}: the linear solve did not converge.{why}\n{report}", report, x)
        return x

    def _explain_failure(self, report: Report, p: tuple[Any, ...]) -> str:
        if self.explain is None:
            return ""
        if report.residual <= _NEARLY_SOLVED:
            return f"\n  {_ROUNDING}"
        return f"\n  {self.explain(*p)}" if p and not self.batches else ""

    def _solve_one(self, report: Report, prepared: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
        def run(b: Any, *p: Any) -> Any:
            forth, back = prepared(p)[:: -1 if self.is_transposed else 1]
            known = self._transposed_facts(b) if self.is_transposed else self.known
            if self.solve_directly is not None:
                direct, is_transposed = self.solve_directly, self.is_transposed
                known = known | {"precondition": lambda v: direct(is_transposed, v, *p)}
            spec = spec_of(b)
            system = LinearSystem(
                forth, spec.size, spec.dtype, self.tolerance, multiply_transposed=back, xp=namespace_on(spec.device),
                **known,
            )  # fmt: skip
            x, left = self._solve_from_memory(report, system, b) or self._solve_from_zero(report, system, b)
            report.products += system.products
            if isinstance(self.solver, ChoosingMethod):
                report.method = f"{type(self.solver).__name__} ({type(self.solver.choose(system)).__name__})"
            grown = pointwise.divide(norm(x), replace_zeros(norm(b)))
            return x, pointwise.where(pointwise.isnan(left), math.inf, left), grown

        return run

    def _solve_from_zero(self, report: Report, system: LinearSystem, b: Any) -> tuple[Any, Any]:
        """The solution and its true residual, from zero on."""
        state, steps = run_method(self.solver, system, b, self.max_steps)
        if not is_staged(steps):
            report.steps = max(report.steps, steps)
        x = self.solver.value(state)
        left = state["left"] if _has_true_residual(self.solver, state) else _relative_residual(system, b, x)
        if self.memory is not None and type(b) is np.ndarray and type(x) is np.ndarray:
            self.memory.keep(self.is_transposed, b, x)
        return x, left

    def _solve_from_memory(self, report: Report, system: LinearSystem, b: Any) -> tuple[Any, Any] | None:
        """The same from an initial guess by earlier solutions: A x = b with x = start + d is A d = b - A start. None
        without a guess that converges.
        """
        if self.memory is None or type(b) is not np.ndarray:
            return None
        start = self.memory.initial_guess(self.is_transposed, b)
        if start is None:
            return None
        rest = b - system.apply(start)
        share = float(norm(rest) / replace_zeros(norm(b)))
        if not share < 1:
            return None
        report.note = "started from systems solved before"
        if share <= self.tolerance:
            return start, np.asarray(share)
        system.tolerance = self.tolerance / share
        state, report.steps = run_method(self.solver, system, rest, self.max_steps)
        system.tolerance = self.tolerance
        x = start + self.solver.value(state)
        left = _relative_residual(system, b, x)
        return (x, left) if left <= self.tolerance else None

    def _transposed_facts(self, b: Any) -> dict[str, Any]:
        """What is known of the transpose; a preconditioner is transposed too."""
        precondition = self.known.get("precondition")
        if precondition is None:
            return self.known
        return self.known | {"precondition": _transpose_product(precondition, b, "the preconditioner")}

    def _prepare_products(self, p: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        if self.prepare is not None:
            return self.prepare(self.is_transposed, *p)
        return lambda v: self.multiply(v, *p), lambda v: self._apply_transposed(v, *p)


def _has_true_residual(solver: Any, state: Any) -> bool:
    """Whether a state of one of our own methods holds the residual computed at its solution."""
    if not isinstance(solver, PackageMethod):
        return False
    return is_staged(state["left"]) or (is_array(state["left"]) and bool(state["left"] < 1))


def _relative_residual(system: LinearSystem, b: Any, x: Any) -> Any:
    """The true residual of a solution, relative to the right side."""
    return pointwise.divide(norm(pointwise.subtract(b, system.apply(x))), replace_zeros(norm(b)))


def replace_zeros(x: Any) -> Any:
    """x, with one in the place of zero: a divisor."""
    return pointwise.where(pointwise.equal(x, 0), 1.0, x)


def solve_operator(operator: LinearOperator, b: Any, *p: Any) -> Any:
    """x with A(p) x = b, differentiable in b and p to any order."""
    return apply(_solve_op, b, *p, operator=operator)


def _pull_solve(bar: Any, out: Any, xs: tuple[Any, ...], operator: LinearOperator) -> tuple[Any, ...]:
    p = xs[1:]
    y = solve_operator(operator.transpose(), bar, *p)
    if not p:
        return (y,)
    return (y, *pull_parameters(operator.product, out, p, pointwise.negative(y)))


def pull_parameters(function: Callable[..., Any], out: Any, p: Sequence[Any], bar: Any) -> list[Any]:
    """The cotangents of the parameters of function(out, *p), None for those that cannot be differentiated. `out` is a
    variable like them, since it may belong to a transform that they do not.
    """
    floats = [i for i, x in enumerate(p) if spec_of(x).inexact]
    moving = restrict_arguments(function, (out, *p), [0, *(i + 1 for i in floats)])
    pullback = Pullback(
        lambda *xs: [as_array_leaf(moving(*xs), "solve")], [out, *(p[i] for i in floats)], current_scope()
    )
    found = dict(zip(floats, pullback.pull([bar], only=range(1, len(floats) + 1)), strict=True))
    return [found.get(i) for i in range(len(p))]


def _push_solve(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], operator: LinearOperator) -> Any:
    b_dot, *p_dot = tangents
    p = xs[1:]
    if p:
        _, moved = jvp(lambda *q: operator.product(out, *q), p, tuple(p_dot))
        b_dot = pointwise.subtract(b_dot, moved)
    return solve_operator(operator, b_dot, *p)


def _batch_solve(size: int, axes: tuple[int | None, ...], *xs: Any, operator: LinearOperator) -> tuple[Any, int]:
    b, *p = xs
    return solve_operator(operator.batch((0, *axes[1:])), move_batch_first(b, axes[0], size), *p), 0


_check_converged_op: Op = make_custom_record(
    "check_solution", ("x", "left", "grown"),
    lambda xp, x, left, grown, operator, report: operator._check_converged(report, x, left, grown),
    None, None, None, lambda x, left, grown, operator, report: x,
)  # fmt: skip
_plain_solve_op: Op = make_custom_record(
    "linear_solve", ("*xs",), lambda xp, b, *p, operator: as_bare_results(operator.solve(b, *p), operator.what),
    Formula(_pull_solve, ("bar", "out", "xs", "operator")), Formula(_push_solve, ("tangents", "out", "xs", "operator")),
    _batch_solve, lambda b, *p, operator: b,
)  # fmt: skip
_solve_op: Op = replace(_plain_solve_op, form=Expand(lambda b, *p, operator: operator.stage_solve(b, *p)))

"""The search for the root of an equation: its method runs, the solution is checked, and the report filled in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.backends import is_array, namespace_on
from ...arrays.origin import Trail, register_reader
from ...arrays.spec import spec_of
from ...arrays.value import Value, unwrap_array
from ...ops.elementwise import pointwise
from ...transforms.control.staging import is_staged
from ...transforms.custom.rules import captured_value_error, is_tracked
from ..linear.operator import norm, vmap_over
from ..solvers.method_loop import DescentMethod, PackageMethod, SolverProblem, run_method
from .constrained_doubt import find_doubt
from .implicit_equation import ImplicitEquation
from .verify_solution import find_lower_point, is_far, lowest_curvature

#: How often a search restarts beside a maximum or saddle.
_ESCAPES = 5
_NO_ROOT = "the residual is small, but no root is near: the equation itself is small, or falls towards infinity"
#: Of secants, each step must make |F| smaller by this factor at least: else the general method takes over.
_MIN_DECREASE = 0.5
#: The first step without a map, relative to the start: small, so that the second one is nearly Newton's.
_FIRST_STEP = 1e-4
#: The most steps; where secants work at all, fewer are enough.
_MAX_SECANTS = 30


class Search:
    """One search for the root of an equation, or for those of a batch of equations."""

    __slots__ = ("_equation", "_report")

    def __init__(self, equation: ImplicitEquation) -> None:
        self._equation = equation
        self._report = equation.report

    def run(self, start: Any, *p: Any) -> tuple[Any, Any, Any]:
        """The root as far as it was found, the norm of its residual, infinite where that is NaN, and the steps."""
        found: tuple[Any, Any, Any] = vmap_over(self._run_one, self._equation.batches)(start, *p)
        return found

    def _run_one(self, start: Any, *p: Any) -> tuple[Any, Any, Any]:
        equation = self._equation
        if equation.scalar and equation.is_default_method and not equation.extras:
            found = self._find_scalar_root(start, p)
            if found is not None:
                return (*found, np.asarray(self._report.steps))
        problem, first = self._pose(start, p), equation.to_vector(start)
        x, steps, left = self._drive_method(problem, first)
        is_ours = isinstance(equation.method, PackageMethod)
        if is_staged(x) and is_ours and left is not None:  # our own methods hold the residual at their solution
            wrong = pointwise.isnan(left) | is_far(problem, first, x, left)
            return equation.to_unknown(x), pointwise.where(wrong, math.inf, left), steps
        residual = problem.residual_at_solution(x, is_ours)
        if is_tracked(residual) and (not is_tracked(x) or residual.level > x.level):
            raise captured_value_error(equation.what)
        left = norm(residual)
        if not is_staged(steps, x):
            x, left, steps = self._verify_root(problem, first, x, residual, steps)
            self._add_counts(problem, steps)
        return equation.to_unknown(x), pointwise.where(pointwise.isnan(left), math.inf, left), steps

    def _pose(self, start: Any, p: tuple[Any, ...]) -> SolverProblem:
        equation, spec = self._equation, spec_of(start)
        on_vectors = {name: lambda x, f=f: f(equation.to_unknown(x), *p) for name, f in equation.extras.items()}
        return SolverProblem(
            lambda x: equation.to_vector(equation.function(equation.to_unknown(x), *p)), spec.size, spec.dtype,
            equation.tolerance, namespace_on(spec.device), program=equation.program, **on_vectors,
        )  # fmt: skip

    def _drive_method(self, problem: SolverProblem, start: Any) -> tuple[Any, Any, Any]:
        """The solution of the method, its steps, and the norm of the residual if the state has it."""

        def watch(step: int, state: Any) -> None:
            residual = state.get("norm") if isinstance(state, dict) else None
            if is_array(residual):
                self._note_step(step, float(unwrap_array(residual)))

        method = self._equation.method
        state, steps = run_method(method, problem, start, self._equation.max_steps, watch)
        return method.value(state), steps, state.get("norm") if isinstance(state, dict) else None

    def _verify_root(
        self, problem: SolverProblem, start: Any, x: Any, residual: Any, steps: int
    ) -> tuple[Any, Any, int]:
        """The solution, its residual and the steps, after the checks of `verify_solution`: where no root is near, it
        continues with a smaller tolerance; at a maximum or a saddle it restarts from a lower point.
        """
        if problem.program is not None:
            self._report.doubt = find_doubt(problem, x, norm(residual)) if is_array(x) else ""
            return x, norm(residual), steps
        left = norm(residual)
        far = is_far(problem, start, x, left, residual)
        if not is_array(x):
            if bool(unwrap_array(far).any()):
                self._report.doubt = _NO_ROOT
            return x, left, steps
        if bool(far):
            wanted = problem.tolerance
            problem.tolerance = float(left) * math.sqrt(problem.eps)
            x, more, _ = self._drive_method(problem, x)
            problem.tolerance, steps = wanted, steps + more
            left = norm(problem.residual(x))
            self._report.doubt = _NO_ROOT if bool(is_far(problem, x, x, left)) else ""
        # the other methods find any point with a gradient of zero
        if problem.objective is not None and isinstance(self._equation.method, DescentMethod):
            return self._escape_saddles(problem, problem.objective, x, left, steps)
        return x, left, steps

    def _escape_saddles(
        self, problem: SolverProblem, objective: Callable[[Any], Any], x: Any, left: Any, steps: int
    ) -> tuple[Any, Any, int]:
        for _ in range(_ESCAPES):
            found = lowest_curvature(problem, x) if bool(left <= problem.tolerance) else None
            if found is None:
                return x, left, steps
            there = find_lower_point(objective, x, found[1])
            if there is None:
                break
            x, more, _ = self._drive_method(problem, there)
            left, steps = norm(problem.residual(x)), steps + more
        if (found := lowest_curvature(problem, x)) is not None:
            self._report.doubt = f"a maximum or saddle: the Hessian has the eigenvalue {found[0]:.3g}"
        return x, left, steps

    def _find_scalar_root(self, start: Any, p: tuple[Any, ...]) -> tuple[Any, Any] | None:
        """A scalar root and its residual in plain floats, where the caller named no method and secants are enough."""
        equation = self._equation
        if type(start) is not np.ndarray or start.dtype.itemsize < 4:
            return None
        problem = SolverProblem(lambda x: equation.function(x, *p), 1, start.dtype, equation.tolerance)
        is_map = equation.fixed_point_map is not None
        found = _solve_by_secants(problem, start, is_map)
        if found is None or len(found[1]) > equation.max_steps:
            return None
        x, history, slope = found
        for step, left in enumerate(history, 1):
            self._note_step(step, left)
        self._report.method = "secants"
        if is_map and math.isfinite(slope):
            self._report.contraction = abs(1 + slope)
        self._add_counts(problem, len(history))
        return x, np.abs(problem.residual_at_solution(x, True))

    def _add_counts(self, problem: SolverProblem, steps: int) -> None:
        self._report.functions += problem.functions
        self._report.products += problem.products
        self._report.steps = max(self._report.steps, steps)

    def _note_step(self, step: int, residual: float) -> None:
        """After each step: record the residual, from which the contraction is estimated, and call the callback."""
        history = self._report.history
        history.append(residual)
        if len(history) > 2 and 0 < history[-1] < history[-3] < math.inf:
            self._report.contraction = math.sqrt(history[-1] / history[-3])
        if self._equation.watch is not None:
            self._equation.watch(step, residual)


def _solve_by_secants(
    problem: SolverProblem, start: np.ndarray, is_map: bool
) -> tuple[np.ndarray, list[float], float] | None:
    """The root of one equation in one unknown, |F| after each step and the last slope of F; None where that fails.

    The slope is that between the last two points, and the next point is where a line of this slope crosses zero:
    x - F (x - x_before) / (F - F_before). The first step is that of the map, x + F, or else a small one.
    """

    def evaluate(x: float) -> tuple[np.ndarray, float]:
        at = np.array(x, problem.dtype)
        residual = problem.residual(at)
        return at, math.nan if isinstance(residual, Value) else residual.item()

    at, here = evaluate(start.item())
    history: list[float] = []
    step, slope = here if is_map else _FIRST_STEP * max(1.0, abs(start.item())), math.nan
    while abs(here) > problem.tolerance and len(history) < _MAX_SECANTS:
        before, left = at.item(), here
        at, here = evaluate(before + step)
        moved = at.item() - before
        slope = (here - left) / moved if moved else 0.0
        # the first step is not judged: it only finds the slope
        if not math.isfinite(here) or slope == 0 or (history and abs(here) > _MIN_DECREASE * abs(left)):
            return None
        history.append(abs(here))
        step = -here / slope
    # a suspicious solution (see `verify_solution`) is left to the general method
    unsure = (not history and here != 0) or abs(at.item()) * problem.eps > problem.tolerance
    return (at, history, slope) if abs(here) <= problem.tolerance and not unsure else None


def _read_secants(trail: Trail, local: Mapping[str, Any]) -> None:
    trail.add_place(f"round {len(local.get('history', ()))} of the solver")


register_reader(_solve_by_secants, _read_secants)

"""Implicit Runge-Kutta pairs for stiff systems: each stage is an equation, solved by Newton's method.

The Jacobian is exact, and taken once for all stages of a step, which share their diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..implicit.solve_functions import root
from ..implicit.solvers.root_methods import Newton
from ..ops.elementwise import pointwise
from ..ops.linalg.determinants import slogdet
from ..ops.linalg.linear_systems import inv
from ..ops.placement import move
from ..ops.reduce import reductions
from ..transforms.forward import jvp
from ..transforms.vectorize import vmap
from .loops import run_loop
from .methods import Attempt, Method, Slope, Tolerance, combine, find_share, interpolate_cubic
from .tableaux import KVAERNO3, KVAERNO5, Tableau

#: Iterations of a stage, the relative correction (in units of rounding) after which they end, and the one above which
#: the step is rejected.
_ROUNDS, _ENOUGH, FAILED = 12, 8.0, 1e-6
#: How often its size a step errs by if a stage did not converge: it is rejected, and a shorter one is tried.
_UNUSABLE = 1e20
#: The stages that are differentiated are solved already: this is far above what is left of them.
_SOLVED = 1e-3


@final
@dataclass(frozen=True)
class Esdirk(Method):
    """The pair of a tableau with one number on the diagonal but for the first stage, and the weights as its last row:
    `Kvaerno3()` and `Kvaerno5()`. The Jacobian of f is a matrix, so it is for systems of up to some hundreds of
    unknowns.

    >>> import pullback as pb
    >>> pb.ode.Kvaerno5() == pb.ode.Esdirk(pb.ode.Kvaerno5().tableau)
    True
    """

    tableau: Tableau

    @property
    def order(self) -> int:  # type: ignore[override]
        """That of the tableau."""
        return self.tableau.order

    @property
    def error_order(self) -> int:  # type: ignore[override]
        """That of the solution it is compared with."""
        return self.tableau.error_order

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        """At least one for each stage: iterations, and the Jacobian, are not counted."""
        return len(self.tableau.b) - 1

    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any, tolerance: Tolerance) -> Attempt:
        slopes, is_solved, _ = self._solve_stages(f, t, y, slope, t_next - t)
        h = t_next - t
        end, error = y + combine(self.tableau.b, slopes) * h, combine(self.tableau.error, slopes) * h
        return Attempt(end, slopes[-1], reject_unsolved(is_solved, error, end))

    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        return y + combine(self.tableau.b, self._attach_stages(f, t, y, t_next)) * (t_next - t)

    def interpolate(self, f: Slope, t: Any, y: Any, t_next: Any, at: Any) -> Any:
        if self.order > 3:
            return self.advance(f, t, y, at)
        h = t_next - t
        slopes = self._attach_stages(f, t, y, t_next)
        end = y + combine(self.tableau.b, slopes) * h
        return interpolate_cubic(y, slopes[0], end, slopes[-1], h, find_share(at, t, h))

    def _solve_stages(self, f: Slope, t: Any, y: Any, slope: Any, h: Any) -> tuple[list[Any], Any, Any]:
        """The slopes of all stages, whether all of them converged, and the matrix they were solved with; without
        derivatives, but for that of f in y.
        """
        t, y, slope, h = (pointwise.stop_gradient(x) for x in (t, y, slope, h))
        inverse = invert_stage(f, t, y, h * self.tableau.diagonal)
        slopes, is_solved = [slope], None
        for row, c in zip(self.tableau.a[1:], self.tableau.c[1:], strict=True):
            base, time = y + combine(row[:-1], slopes) * h, t + h * c
            k, left = iterate_stage(f, time, base, h * self.tableau.diagonal, inverse, slopes[-1])
            good = pointwise.less(left, FAILED)  # false for NaN
            is_solved = good if is_solved is None else pointwise.logical_and(is_solved, good)
            slopes.append(k)
        return slopes, is_solved, inverse

    def _attach_stages(self, f: Slope, t: Any, y: Any, t_next: Any) -> list[Any]:
        """The same slopes with the derivatives of the equations that they solve."""
        h = t_next - t
        slopes = [f(t, y)]
        known, _, inverse = self._solve_stages(f, t, y, slopes[0], h)
        for row, c, k in zip(self.tableau.a[1:], self.tableau.c[1:], known[1:], strict=True):
            base, time = y + combine(row[:-1], slopes) * h, t + h * c
            slopes.append(attach_stage(f, time, base, h * self.tableau.diagonal, k, inverse))
        return slopes


def invert_stage(f: Slope, t: Any, y: Any, h: Any) -> Any:
    """The inverse of 1 - h f_y, the Jacobian of y - h f(t, y); NaN, which rejects the step, if there is none."""
    spec = spec_of(y)
    one = move(np.eye(spec.shape[0], dtype=spec.dtype), spec.device)
    rows = vmap(lambda e: jvp(lambda y: f(t, y), (y,), (e,))[1])(one)
    matrix = one - pointwise.stop_gradient(rows).T * h
    return inv(pointwise.where(pointwise.equal(slogdet(matrix).sign, 0), np.nan, matrix))


def iterate_stage(f: Slope, t: Any, base: Any, h: Any, inverse: Any, guess: Any) -> tuple[Any, Any]:
    """k = f(t, base + h k) by Newton's method with one matrix, and the last correction relative to k."""
    dtype = spec_of(base).dtype
    enough = _ENOUGH * float(np.finfo(dtype).eps)

    def correct(c: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, _, rounds = c
        change = inverse @ (k - pointwise.stop_gradient(f(t, base + k * h)))
        k = k - change
        return k, _largest(change) / _find_scale(base, h, k), rounds + 1

    def is_active(c: tuple[Any, Any, Any]) -> Any:
        return pointwise.logical_and(pointwise.greater(c[1], enough), pointwise.less(c[2], _ROUNDS))

    far, rounds = (move(x, spec_of(base).device) for x in (np.full((), np.inf, dtype), np.zeros((), np.int64)))
    first = (guess, far, rounds)
    k, left, _ = run_loop(is_active, correct, first)
    return k, left


def reject_unsolved(is_solved: Any, error: Any, end: Any) -> Any:
    """The error of a step. Errors are relative, so if its equations were not solved, it is larger than any state that
    iterations which diverge have led to.
    """
    return pointwise.where(is_solved, error, (pointwise.abs(end) + 1) * _UNUSABLE)


def _largest(x: Any) -> Any:
    return reductions.max(pointwise.abs(x))


def _find_scale(base: Any, h: Any, k: Any) -> Any:
    """What counts as large in a slope: itself, or what moves the state by as much as it is. Near an equilibrium slopes
    are rounding errors of large numbers.
    """
    size = pointwise.abs(h)
    of_state = _largest(base) / pointwise.where(pointwise.equal(size, 0), np.inf, size)
    return _largest(k) + of_state + float(np.finfo(spec_of(k).dtype).tiny)


def attach_stage(f: Slope, t: Any, base: Any, h: Any, k: Any, inverse: Any) -> Any:
    """k with its derivatives of any order, by the implicit function theorem; nothing is left to be solved. The equation
    is that of the correction, which is small, where the residual of a stiff one is not.
    """
    scale = pointwise.stop_gradient(_find_scale(base, h, k))
    return root(lambda k: (inverse @ (k - f(t, base + k * h))) / scale, k, solver=Newton(), tol=_SOLVED)


def Kvaerno3() -> Esdirk:
    """Kvaerno's L-stable pair of order 3(2), for stiff systems and coarse tolerances.

    >>> import numpy as np, pullback as pb
    >>> f = lambda t, y: -1e4 * (y - pb.cos(t))
    >>> solution = pb.ode.solve(f, 0.0, (0.0, 1.0), method=pb.ode.Kvaerno3())
    >>> bool(abs(solution.y - np.cos(1.0)) < 1e-3), solution.report.steps < 300
    (True, True)
    """
    return Esdirk(KVAERNO3)


def Kvaerno5() -> Esdirk:
    """Kvaerno's L-stable pair of order 5(4), for stiff systems.

    >>> import numpy as np, pullback as pb
    >>> f = lambda t, y: -1e4 * (y - pb.cos(t))
    >>> solution = pb.ode.solve(f, 0.0, (0.0, 1.0), method=pb.ode.Kvaerno5())
    >>> bool(abs(solution.y - np.cos(1.0)) < 1e-3), solution.report.steps < 100
    (True, True)
    """
    return Esdirk(KVAERNO5)

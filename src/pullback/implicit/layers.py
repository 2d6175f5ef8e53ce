"""A solver that somebody already has in, an implicit layer out: forward by the solver, derivative by the theorem."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ..arrays.checks import wants_functions
from ..arrays.trees import flatten, unflatten
from ..errors import ConvergenceError, GraphError
from ..ops import elementwise as pointwise
from ..ops.dispatch import apply
from ..ops.op import Op, Terms
from ..transforms.border import scalars_become_arrays
from ..transforms.forward import jvp
from ..transforms.rules import bare_results, carries, custom_record
from .drive import largest
from .equation import Equation
from .linear import norm, pulled_along
from .linear_methods import Auto
from .policies import checked_method, checked_tolerance
from .report import Report
from .vectors import Layout

__all__ = ["custom_fixed_point", "custom_root"]

Function = Callable[..., Any]


def custom_root(F: Function, *, adjoint: Any = None, tol: float = 1e-6) -> Callable[[Function], Function]:
    """A decorator for a solver of F(x, *params) = 0 that may be any code: SciPy, a C library, `solve_ivp`. The solver
    is given bare arrays and answers x; derivatives of every order are those of the equation, solved for by `adjoint`.

    The residual at the answer is checked: if its root mean square is above `tol`, `ConvergenceError` is raised.

    >>> import numpy as np, pullback as pb
    >>> from scipy import optimize
    >>> @pb.implicit.custom_root(lambda x, a: pb.cos(x) * a - x)
    ... def solver(a):
    ...     return optimize.root(lambda x: np.cos(x) * a - x, np.zeros(1), tol=1e-12).x
    >>> np.round(pb.grad(lambda a: pb.sum(solver(a)))(np.array([0.7])), 6)
    array([0.601948])
    """

    wants_functions("custom_root", F)
    checked_tolerance(tol, "custom_root: tol")
    adjoint = Auto() if adjoint is None else checked_method(adjoint, "custom_root: adjoint", "GMRES()")

    def decorate(solver: Function) -> Function:
        @functools.wraps(solver)
        def layer(*params: Any) -> Any:
            given, structure = flatten(params)
            box = _Box(F, solver, structure, adjoint, tol)
            vector = apply(_boxed, *(scalars_become_arrays(x, box.what) for x in given), equation=box)
            return box.layout.tree(vector)

        return layer

    return decorate


def custom_fixed_point(T: Function, *, adjoint: Any = None, tol: float = 1e-6) -> Callable[[Function], Function]:
    """Like `custom_root` for a solver of T(x, *params) = x.

    >>> import numpy as np, pullback as pb
    >>> @pb.implicit.custom_fixed_point(lambda x, b: 0.5 * x + b)
    ... def solver(b):
    ...     return 2.0 * b
    >>> np.round(pb.grad(solver)(3.0), 8)
    np.float64(2.0)
    """

    def equation(x: Any, *params: Any) -> Any:
        leaves, structure = flatten(x)
        after = flatten(T(x, *params))[0]
        return unflatten(structure, [pointwise.subtract(a, b) for a, b in zip(after, leaves, strict=True)])

    return custom_root(equation, adjoint=adjoint, tol=tol)


class _Box:
    """A solver of which nothing is known but the equation that its answers fulfil."""

    what = "custom_root"

    def __init__(self, F: Function, solver: Function, structure: Any, adjoint: Any, tol: float) -> None:
        self._F = F
        self._solver = solver
        self._structure = structure
        self._adjoint = adjoint
        self._tol = tol
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        """How x lies in a vector; known once the solver has run."""
        assert self._layout is not None
        return self._layout

    def run(self, p: tuple[Any, ...]) -> Any:
        """The answer of the solver as a vector, checked."""
        answer = self._solver(*unflatten(self._structure, p))
        self._layout, leaves = Layout.of(answer, self.what)
        x = bare_results(self._layout.joined(leaves), self.what)
        posed = self.posed()
        residual = posed.residual(x, *p)
        if carries(residual):
            raise GraphError(
                f"{self.what}: the equation uses a value that carries derivatives but is no parameter, so its gradient "
                "would be lost.\n  Pass it as a parameter of the solver."
            )
        left = float(largest(norm(residual)))
        posed.report.residual, posed.report.converged = left, left <= posed.tolerance
        if not posed.report.converged:
            raise ConvergenceError(f"{self.what}: the solver's answer does not fulfil the equation.\n{posed.report}",
                                   posed.report, self._layout.tree(x))  # fmt: skip
        return x

    def posed(self) -> Equation:
        """The equation on vectors."""
        layout = self.layout

        def on_vectors(x: Any, *q: Any) -> Any:
            return layout.vector(self._F(layout.tree(x), *unflatten(self._structure, q)), self.what)

        tolerance = self._tol * math.sqrt(max(layout.size, 1))
        return Equation(on_vectors, None, self._adjoint, tolerance, 1e-10, 1000, self.what, Report("solver", tolerance))


def _pulled(bar: Any, out: Any, xs: tuple[Any, ...], equation: _Box) -> list[Any]:
    posed = equation.posed()
    y = posed.solved_back(bar, out, *xs)
    return pulled_along(posed.residual, out, xs, pointwise.negative(y))


def _pushed(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: _Box) -> Any:
    posed = equation.posed()
    _, moved = jvp(lambda *q: posed.residual(out, *q), xs, tangents)
    return posed.solved_forth(pointwise.negative(moved), out, *xs)


_boxed: Op = custom_record(
    "custom_root", ("*xs",), lambda xp, *p, equation: equation.run(p),
    Terms(_pulled, ("bar", "out", "xs", "equation")), Terms(_pushed, ("tangents", "out", "xs", "equation")), None, None,
)  # fmt: skip

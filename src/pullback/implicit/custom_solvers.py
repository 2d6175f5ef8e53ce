"""`custom_root` and `custom_fixed_point`: any solver as a differentiable layer, by the implicit function theorem."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..arrays.argument_checks import check_functions
from ..arrays.trees import flatten, unflatten
from ..errors import ConvergenceError, GraphError
from ..ops.dispatch import apply
from ..ops.elementwise import pointwise
from ..ops.op import Formula, Op
from ..transforms.boundary import as_array_leaf
from ..transforms.custom.rules import as_bare_results, is_tracked, make_custom_record
from .equation.implicit_equation import ImplicitEquation
from .linear.methods import Auto
from .linear.operator import norm
from .option_checks import check_method, check_tolerance
from .solve_report import Report
from .solvers.method_loop import largest_over_batches
from .vector_layout import VectorLayout

Function = Callable[..., Any]


def custom_root(F: Function, *, adjoint: Any = None, tol: float = 1e-6) -> Callable[[Function], Function]:
    """A decorator for a solver of F(x, *params) = 0 that may be any code: SciPy, a C library, `solve_ivp`. The solver
    is given bare arrays and returns x; derivatives of every order are those of the equation, solved for by `adjoint`.

    The residual at the solution is checked: if its root mean square is above `tol`, `ConvergenceError` is raised.

    >>> import numpy as np, pullback as pb
    >>> from scipy import optimize
    >>> @pb.implicit.custom_root(lambda x, a: pb.cos(x) * a - x)
    ... def solver(a):
    ...     return optimize.root(lambda x: np.cos(x) * a - x, np.zeros(1), tol=1e-12).x
    >>> np.round(pb.grad(lambda a: pb.sum(solver(a)))(np.array([0.7])), 6)
    array([0.601948])
    """

    check_functions("custom_root", F)
    check_tolerance(tol, "custom_root: tol")
    adjoint = Auto() if adjoint is None else check_method(adjoint, "custom_root: adjoint", "GMRES()")

    def decorate(solver: Function) -> Function:
        @functools.wraps(solver)
        def layer(*params: Any) -> Any:
            given, structure = flatten(params)
            box = _ExternalSolver(F, solver, structure, adjoint, tol)
            vector = apply(_external_solve_op, *(as_array_leaf(x, box.what) for x in given), equation=box)
            return box.layout.to_tree(vector)

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


@dataclass(eq=False)
class _ExternalSolver:
    """A solver of which nothing is known but the equation that its solutions fulfil."""

    F: Function
    solver: Function
    structure: Any
    adjoint: Any
    tol: float
    #: That of x as a vector, known once the solver has run.
    layout: VectorLayout = field(init=False)
    what: ClassVar[str] = "custom_root"

    def run(self, p: tuple[Any, ...]) -> Any:
        """The solution of the solver as a vector, checked."""
        found = self.solver(*unflatten(self.structure, p))
        self.layout, leaves = VectorLayout.from_tree(found, self.what)
        x = as_bare_results(self.layout.join_leaves(leaves), self.what)
        posed = self.make_equation()
        residual = posed.residual(x, *p)
        if is_tracked(residual):
            raise GraphError(
                f"{self.what}: the equation uses a tracked value that is not a parameter, so its gradient "
                "would be lost.\n  Pass it as a parameter of the solver."
            )
        left = float(largest_over_batches(norm(residual)))
        posed.report.residual, posed.report.converged = left, left <= posed.tolerance
        if not posed.report.converged:
            raise ConvergenceError(f"{self.what}: the solver's result does not fulfil the equation.\n{posed.report}",
                                   posed.report, self.layout.to_tree(x))  # fmt: skip
        return x

    def make_equation(self) -> ImplicitEquation:
        """The equation on vectors."""
        layout = self.layout

        def on_vectors(x: Any, *q: Any) -> Any:
            return layout.to_vector(self.F(layout.to_tree(x), *unflatten(self.structure, q)), self.what)

        tolerance = self.tol * math.sqrt(max(layout.size, 1))
        return ImplicitEquation(
            on_vectors, None, self.adjoint, tolerance, 1e-10, 1000, self.what, Report("solver", tolerance)
        )


def _pull_external_solve(bar: Any, out: Any, xs: tuple[Any, ...], equation: _ExternalSolver) -> list[Any]:
    return equation.make_equation().pull(bar, out, xs)


def _push_external_solve(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], equation: _ExternalSolver) -> Any:
    return equation.make_equation().push(tangents, out, xs)


_external_solve_op: Op = replace(make_custom_record(
    "custom_root", ("*xs",), lambda xp, *p, equation: equation.run(p),
    Formula(_pull_external_solve, ("bar", "out", "xs", "equation")),
    Formula(_push_external_solve, ("tangents", "out", "xs", "equation")), None, None,
), autocast="high")  # fmt: skip

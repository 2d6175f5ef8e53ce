"""The solve of a minimum with constraints: its conditions as an equation for the op that finds roots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ...arrays.spec import make_spec, spec_of, zeros
from ...errors import ArgumentError, ConvergenceError
from ...ops.elementwise import pointwise
from ..cones.program_shape import ProgramShape
from ..derivative_policies import DerivativePolicy, Implicit
from ..equation.problem import Problem, SolveOptions, detach
from ..linear.methods import Auto, Structured
from ..option_checks import check_tolerance, default_tolerance
from ..solve_report import Solution
from ..solvers.constrained_steps import differentiate_conditions, push_variables
from ..solvers.method_loop import DescentMethod, SolverProblem
from ..vector_layout import VectorLayout
from .active_set import ActiveSet, name_dependent_rows
from .condensed import condensed_size, make_condensed_solve


class ConstrainedProblem(Protocol):
    """A program as `solve_program` takes it."""

    @property
    def what(self) -> str:
        """Its name in messages."""

    @property
    def layout(self) -> VectorLayout:
        """How x lies in a vector."""

    def measure(self, x: Any, params: tuple[Any, ...]) -> ProgramShape:
        """How many unknowns and conditions there are."""

    def conditions(self, shape: ProgramShape) -> Callable[..., Any]:
        """The function of (w, *params) that the shape describes."""

    def slopes(self, shape: ProgramShape) -> Callable[..., Any] | None:
        """The derivatives of the conditions by the variables, a row for each, as a function of (w, *params); None where
        they are found by moving the conditions.
        """

    def name_equation(self, row: int) -> str:
        """What the user calls an equation."""

    def name_inequality(self, row: int) -> str:
        """What the user calls an inequality."""

    def multipliers(self, y: Any, z: Any) -> dict[str, Any]:
        """Multipliers by name."""


Functions = dict[str, Callable[..., Any]]
#: Derivatives come from a matrix of up to so many rows: iterations do badly on saddles.
_MAX_DENSE_UNKNOWNS = 4000
#: Numbers up to so many tolerances of the solve count as zero where the active set is decided.
_MARGIN = 100.0


def solve_program(
    program: ConstrainedProblem, leaves: list[Any], x0: Any, params: tuple[Any, ...], options: SolveOptions,
    policy: DerivativePolicy, method: Any,
) -> Solution:  # fmt: skip
    """The solution, with its multipliers."""
    if not isinstance(policy, Implicit):
        raise ArgumentError(f"{program.what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")
    if isinstance(options.solver, DescentMethod):
        raise ArgumentError(
            f"{program.what}: {type(options.solver).__name__} knows no constraints.\n"
            "  Use pb.implicit.InteriorPoint() or PredictorCorrector(), or Newton() near the solution."
        )
    start = program.layout.join_leaves([detach(x) for x in leaves])
    shape = program.measure(start, params)
    tol = default_tolerance(program.layout.dtype) if options.tol is None else check_tolerance(options.tol, "tol")
    active_set = ActiveSet(
        shape, program.what, policy.weakly_active, _MARGIN * tol, program.name_inequality, program.name_equation
    )
    known = {"conditions": program.conditions(shape), "slopes": program.slopes(shape)}
    functions = {name: _forget_layout(f) for name, f in known.items() if f is not None}
    adjoint = Structured() if condensed_size(shape) <= _MAX_DENSE_UNKNOWNS else Auto(_MAX_DENSE_UNKNOWNS)
    spec = spec_of(start)
    multipliers = [zeros(make_spec((n,), spec.dtype, spec.device)) for n in (shape.equalities, shape.cones.length)]
    problem = Problem(
        program.what, functions, (x0, *multipliers), params, options, lambda size: method, False, False, shape,
        lambda opened: opened | _derive_equation(opened["conditions"], opened.get("slopes"), active_set), adjoint,
    )  # fmt: skip
    try:
        found = policy.solve(problem)
    except ConvergenceError as error:
        if isinstance(error.best, tuple) and len(error.best) == 3:
            error.best = error.best[0]
        raise
    x, y, z = found.value
    return replace(found, value=x, multipliers=program.multipliers(y, z))


def _forget_layout(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda w, layout, *p: function(w, *p)


def _derive_equation(
    conditions: Callable[..., Any], slopes: Callable[..., Any] | None, active_set: ActiveSet
) -> Functions:
    """What follows from the conditions: the equation, its form with an active set, how to solve systems with that, and
    the words for a failure.
    """
    shape = active_set.shape

    def equation(w: Any, *p: Any) -> Any:
        return shape.residual(conditions(w, *p), w)

    def differentiated(w: Any, *p: Any) -> Any:
        found = conditions(w, *p)
        apart = shape.cut_conditions(found)[2] - shape.cut_unknown(w)[2]
        return shape.residual(found, w, active_set.pieces(pointwise.stop_gradient(apart)))

    def explain(w: Any, *p: Any) -> str:
        return _explain_singular(conditions, active_set, w, p)

    def push(w: Any, *p: Any) -> Any:
        return push_variables(shape, lambda v: conditions(v, *p), w)

    solve = make_condensed_solve(conditions, slopes or push, active_set)
    return {"equation": equation, "differentiated": differentiated, "explain": explain, "solve_directly": solve}


def _explain_singular(conditions: Callable[..., Any], active_set: ActiveSet, w: Any, p: tuple[Any, ...]) -> str:
    """Why the conditions have no derivative at a solution."""
    shape: ProgramShape = active_set.shape
    problem = SolverProblem(
        lambda v: conditions(v, *p),
        shape.variables,
        w.dtype,
        0.0,
        program=shape,
        conditions=lambda v: conditions(v, *p),
    )
    derivatives = differentiate_conditions(problem, w)
    apart = shape.cut_conditions(conditions(w, *p))[2] - shape.cut_unknown(w)[2]
    names = name_dependent_rows(active_set, derivatives.equal, derivatives.inside, apart)
    if names:
        listed = ", ".join(names)
        return f"The slopes of active constraints depend on each other: {listed}; leave one out, or write an Equal."
    return "The minimum is not isolated: along some direction that the active constraints allow, nothing changes."

"""`fixed_point`, `root`, `argmin`, `least_squares`, and `solve`, whose forms return a report instead of raising."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict, Unpack

from ..arrays.argument_checks import advise_keyword, check_functions
from ..arrays.spec import spec_of
from ..arrays.trees import flatten
from ..errors import ArgumentError, ArgumentTypeError
from ..ops.elementwise import pointwise
from ..ops.fusion import cast_whole
from ..ops.reduce import reductions
from ..transforms.boundary import as_array_leaf
from ..transforms.reverse import grad, vjp
from .constrained.minimum import solve_program
from .constrained.program import ConstrainedProgram, check_bounds, check_constraints
from .constrained.quadratic import solve_qp
from .derivative_policies import DerivativePolicy, Implicit
from .equation.problem import Problem, SolveOptions, detach
from .solve_report import Solution
from .solvers.descent_methods import BFGS, LBFGS
from .solvers.fixed_point_methods import Accelerated
from .solvers.interior_point import InteriorPoint
from .solvers.least_squares_methods import LevenbergMarquardt
from .solvers.root_methods import Newton, NewtonKrylov
from .vector_layout import VectorLayout

Function = Callable[..., Any]

#: More unknowns than this, and no dense matrix of them is made by default.
_MAX_DENSE_UNKNOWNS = 200


class SolveKeywords(TypedDict, total=False):
    """What every form takes by name; `fixed_point` says what it means."""

    solver: Any
    derivative: Any
    tol: float | None
    max_steps: int
    callback: Callable[[int, Any], None] | None


def fixed_point(f: Function, x0: Any, *params: Any, **options: Unpack[SolveKeywords]) -> Any:
    """x with f(x, *params) = x, found from x0. Derivatives with respect to the parameters, and to whatever f closes
    over, are those of the equation: of any order, in both modes, in memory that does not depend on the steps. x0 has
    none.

    x and the parameters are trees of arrays. Options: `tol` is that of the root mean square of f(x) - x (1e-10, or
    1e-5 in single precision); if it is missed after `max_steps` (1000), or in a solve for a derivative,
    `ConvergenceError` is raised. `callback(step, residual)` is called after each step. `solver` and `derivative` are
    objects of `pb.implicit`: how to search, and how to differentiate.

    >>> import numpy as np, pullback as pb
    >>> x = pb.fixed_point(lambda x, b: 0.5 * x + b, 0.0, 3.0)
    >>> slope = pb.grad(lambda b: pb.fixed_point(lambda x, b: 0.5 * x + b, 0.0, b))(3.0)
    >>> float(np.round(x, 8)), float(np.round(slope, 8))
    (6.0, 2.0)
    """
    return solve_equation(_FIXED_POINT, True, f, x0, *params, **options).value


def root(f: Function, x0: Any, *params: Any, **options: Unpack[SolveKeywords]) -> Any:
    """x with f(x, *params) = 0, found from x0; f returns a tree like x. See `fixed_point` for what the rest means.

    >>> import numpy as np, pullback as pb
    >>> square_root = lambda a: pb.root(lambda x, a: x * x - a, 1.0, a)
    >>> float(np.round(square_root(4.0), 8)), float(np.round(pb.grad(square_root)(4.0), 8))
    (2.0, 0.25)
    """
    return solve_equation(_ROOT, True, f, x0, *params, **options).value


def argmin(
    f: Any,
    x0: Any = None,
    /,
    *params: Any,
    axis: int | None = None,
    keepdims: bool = False,
    bounds: Any = None,
    constraints: Any = (),
    **options: Unpack[SolveKeywords],
) -> Any:
    """Of a function, x at which the scalar f(x, *params) is least, near x0: where its gradient is zero. See
    `fixed_point` for what the rest means.

    `bounds` is a pair (lower, upper), each a number, a tree like x, or None, and `constraints` a list of
    `pb.implicit.Equal(g, value)`, `AtLeast(g, bound)`, `AtMost(g, bound)` and `NormAtMost(g, bound)`. Bounds, values
    and all that constraints close over are differentiated too. A solution whose active constraints are about to change
    has no derivative, see `Implicit(weakly_active=...)`.

    Of an array, the index of its minimum along an axis, or in the flattened array, as the array API has it.

    >>> import numpy as np, pullback as pb
    >>> center = lambda a: pb.argmin(lambda x, a: (x - a) ** 2 + 0.5 * x**2, 0.0, a)
    >>> float(np.round(center(3.0), 8)), float(np.round(pb.grad(center)(3.0), 8))
    (2.0, 0.66666667)
    >>> int(pb.argmin(np.array([2.0, 1.0, 3.0])))
    1
    """
    if not callable(f):
        return reductions.argmin(f, x0 if axis is None else axis, keepdims=keepdims)
    return _solve_minimum(True, f, x0, *params, bounds=bounds, constraints=constraints, **options).value


def least_squares(residual: Function, x0: Any, *params: Any, **options: Unpack[SolveKeywords]) -> Any:
    """x at which the sum of squares of residual(x, *params) is least, near x0. See `fixed_point`.

    >>> import numpy as np, pullback as pb
    >>> t, y = np.arange(4.0), np.array([1.0, 3.0, 5.0, 7.0])
    >>> np.round(pb.least_squares(lambda w, y: w[0] + w[1] * t - y, np.zeros(2), y), 6)
    array([1., 2.])
    """
    return solve_equation(_LEAST_SQUARES, True, residual, x0, *params, **options).value


def _solve_minimum(
    strict: bool, f: Function, x0: Any, /, *params: Any, bounds: Any = None, constraints: Any = (), **options: Any
) -> Solution:
    limits, rows = check_bounds("argmin", bounds), check_constraints("argmin", constraints)
    if limits[0] is None and limits[1] is None and not rows:
        return solve_equation(_ARGMIN, strict, f, x0, *params, **options)
    return solve_constrained(strict, f, x0, *params, bounds=limits, constraints=rows, **options)


@cast_whole("high")
def solve_constrained(
    strict: bool, f: Function, x0: Any, /, *params: Any, bounds: Any, constraints: Any, **options: Any
) -> Solution:
    chosen, policy = _parse_options("argmin", f, strict, options)
    layout, leaves = VectorLayout.from_tree(x0, "argmin")
    program = ConstrainedProgram("argmin", f, layout, bounds, constraints)
    if chosen.solver is None or isinstance(chosen.solver, InteriorPoint):
        x0 = layout.to_tree(program.find_start(layout.join_leaves([detach(x) for x in leaves]), params))
        leaves = flatten(x0)[0]
    return solve_program(program, leaves, x0, params, chosen, policy, InteriorPoint())


class _ProblemKind(NamedTuple):
    """What tells one kind of problem from another: its functions (x, layout, *params) on vectors, made of the user's
    on trees; its default method for so many unknowns; and whether the Jacobian of its equation is symmetric.
    """

    what: str
    pose: Callable[[Function], dict[str, Function]]
    choose_method: Callable[[int], Any]
    symmetric: bool


@cast_whole("high")
def solve_equation(kind: _ProblemKind, strict: bool, f: Function, x0: Any, /, *params: Any, **options: Any) -> Solution:
    chosen, policy = _parse_options(kind.what, f, strict, options)
    return policy.solve(
        Problem(kind.what, kind.pose(f), x0, params, chosen, kind.choose_method, kind.symmetric, kind is _FIXED_POINT)
    )


def _parse_options(what: str, f: Any, strict: bool, options: dict[str, Any]) -> tuple[SolveOptions, DerivativePolicy]:
    if unknown := options.keys() - SolveKeywords.__optional_keys__:
        hint = f"\n  pb.implicit.solve.{what} returns a report instead of raising." if "strict" in unknown else ""
        hint = hint or f"\n  {advise_keyword(min(unknown), SolveKeywords.__optional_keys__)}."
        raise ArgumentTypeError(f"{what}: unknown option {', '.join(sorted(unknown))}.{hint}")
    chosen = SolveOptions(**options, strict=strict)
    check_functions(what, f)
    if chosen.callback is not None:
        check_functions(f"{what}: callback", chosen.callback)
    policy = Implicit() if chosen.derivative is None else chosen.derivative
    if not isinstance(policy, DerivativePolicy):
        raise ArgumentError(f"{what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")
    return chosen, policy


def _pose_equation(what: str, f: Function) -> dict[str, Function]:
    return {"equation": lambda x, layout, *p: layout.to_vector(f(layout.to_tree(x), *p), what)}


def _pose_minimum(f: Function) -> dict[str, Function]:
    def objective(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return f(layout.to_tree(x), *p)

    def equation(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return grad(lambda y: objective(y, layout, *p))(x)

    return {"equation": equation, "objective": objective}


def _pose_least_squares(residual: Function) -> dict[str, Function]:
    def inner(x: Any, layout: VectorLayout, *p: Any) -> Any:
        leaves = [as_array_leaf(r, "least_squares") for r in flatten(residual(layout.to_tree(x), *p))[0]]
        return VectorLayout(None, [spec_of(r) for r in leaves]).join_leaves(leaves)

    def objective(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return pointwise.multiply(reductions.sum(pointwise.square(inner(x, layout, *p))), 0.5)

    def equation(x: Any, layout: VectorLayout, *p: Any) -> Any:  # the gradient J^T r
        value, pull = vjp(lambda y: inner(y, layout, *p), x)
        return pull(value)[0]

    return {"equation": equation, "objective": objective, "inner": inner}


_FIXED_POINT = _ProblemKind(
    "fixed_point", functools.partial(_pose_equation, "fixed_point"), lambda size: Accelerated(), False
)
_ROOT = _ProblemKind(
    "root",
    functools.partial(_pose_equation, "root"),
    lambda size: Newton() if size <= _MAX_DENSE_UNKNOWNS else NewtonKrylov(),
    False,
)
_ARGMIN = _ProblemKind("argmin", _pose_minimum, lambda size: BFGS() if size <= _MAX_DENSE_UNKNOWNS else LBFGS(), True)
_LEAST_SQUARES = _ProblemKind("least_squares", _pose_least_squares, lambda size: LevenbergMarquardt(), True)


class solve:
    """The same problems; returns a `Solution` with its report, converged or not, instead of raising.

    >>> import pullback as pb
    >>> found = pb.implicit.solve.fixed_point(lambda x: 0.99 * x + 0.01, 0.0, solver=pb.implicit.Picard(), max_steps=5)
    >>> found.report.converged, found.report.steps
    (False, 5)
    """

    fixed_point = staticmethod(functools.partial(solve_equation, _FIXED_POINT, False))
    root = staticmethod(functools.partial(solve_equation, _ROOT, False))
    argmin = staticmethod(functools.partial(_solve_minimum, False))
    qp = staticmethod(solve_qp)
    least_squares = staticmethod(functools.partial(solve_equation, _LEAST_SQUARES, False))

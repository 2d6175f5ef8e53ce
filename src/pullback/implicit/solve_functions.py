"""`fixed_point`, `root`, `argmin`, `least_squares`, and `solve`, whose forms return a report instead of raising."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.argument_checks import check_functions
from ..arrays.spec import spec_of
from ..arrays.trees import flatten, unflatten
from ..checkpoint.loops.checkpoint_loop import checkpoint_loop
from ..errors import ArgumentError
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions
from ..transforms.boundary import as_array_leaf
from ..transforms.reverse import grad, vjp
from .derivative_policies import OneStep, PhantomGradient, Unrolled
from .equation.solve_problem import SolveOptions, solve_problem, tolerance_of
from .solve_report import Report, Solution
from .solvers.descent_methods import BFGS, LBFGS, LevenbergMarquardt
from .solvers.fixed_point_methods import Accelerated
from .solvers.root_methods import Newton, NewtonKrylov
from .vector_layout import VectorLayout

Function = Callable[..., Any]

#: More unknowns than this, and no dense matrix of them is made by default.
_MAX_DENSE_UNKNOWNS = 200


def fixed_point(
    f: Function,
    x0: Any,
    *params: Any,
    solver: Any = None,
    derivative: Any = None,
    tol: float | None = None,
    max_steps: int = 1000,
    callback: Callable[[int, Any], None] | None = None,
) -> Any:
    """x with f(x, *params) = x, found from x0. Derivatives with respect to the parameters, and to whatever f closes
    over, are those of the equation: of any order, in both modes, in memory that does not depend on the steps. x0 has
    none.

    x and the parameters are trees of arrays. `tol` is that of the root mean square of f(x) - x (1e-10, or 1e-5 in
    single precision); if it is missed after `max_steps`, or in a solve for a derivative, `ConvergenceError` is raised.
    `callback(step, residual)` is called after each step. Solvers and ways to differentiate are in `pb.implicit`.

    >>> import numpy as np, pullback as pb
    >>> x = pb.fixed_point(lambda x, b: 0.5 * x + b, 0.0, 3.0)
    >>> slope = pb.grad(lambda b: pb.fixed_point(lambda x, b: 0.5 * x + b, 0.0, b))(3.0)
    >>> float(np.round(x, 8)), float(np.round(slope, 8))
    (6.0, 2.0)
    """
    return _solve_fixed_point(f, x0, params, SolveOptions(solver, derivative, tol, max_steps, callback, True)).value


def _check_functions(what: str, f: Any, options: SolveOptions) -> None:
    check_functions(what, f)
    if options.callback is not None:
        check_functions(f"{what}: callback", options.callback)


def _solve_fixed_point(f: Function, x0: Any, params: tuple[Any, ...], options: SolveOptions) -> Solution:
    _check_functions("fixed_point", f, options)
    policy = options.derivative
    if isinstance(policy, Unrolled):
        return _solve_unrolled(f, x0, params, policy, options)

    def apply_map(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return layout.to_vector(f(layout.to_tree(x), *p), "fixed_point")

    found = solve_problem(apply_map, x0, params, options, "fixed_point", lambda n: Accelerated())
    if isinstance(policy, OneStep):
        return _apply_steps(f, found, params, 1, 1.0)
    return (
        _apply_steps(f, found, params, policy.steps, policy.damping) if isinstance(policy, PhantomGradient) else found
    )


def _solve_unrolled(f: Function, x0: Any, params: tuple[Any, ...], policy: Unrolled, options: SolveOptions) -> Solution:
    layout, leaves = VectorLayout.from_tree(x0, "fixed_point")
    start = unflatten(layout.structure, leaves)
    empty = Solution(start, Report("Unrolled", tolerance_of(options, layout)))
    found = _apply_steps(f, empty, params, policy.steps, 1.0, policy.checkpoints)
    found.report.steps, found.report.note = (
        policy.steps,
        "steps of the map from the start; their residual was not computed",
    )
    return found


def _apply_steps(
    f: Function,
    found: Solution,
    params: tuple[Any, ...],
    steps: int,
    damping: float,
    checkpoints: int | None = None,
) -> Solution:
    """Steps of the map from a point that counts as a constant, on the tape, or with so many snapshots of them."""
    layout, leaves = VectorLayout.from_tree(found.value, "fixed_point")
    x = layout.join_leaves([pointwise.stop_gradient(leaf) for leaf in leaves])

    def step(i: Any, x: Any, *params: Any) -> Any:
        after = layout.to_vector(f(layout.to_tree(x), *params), "fixed_point")
        return after if damping == 1.0 else pointwise.add(x * (1 - damping), after * damping)

    if checkpoints is not None:
        return Solution(layout.to_tree(checkpoint_loop(step, x, steps, *params, snapshots=checkpoints)), found.report)
    for i in range(steps):
        x = step(i, x, *params)
    return Solution(layout.to_tree(x), found.report)


def root(
    f: Function,
    x0: Any,
    *params: Any,
    solver: Any = None,
    derivative: Any = None,
    tol: float | None = None,
    max_steps: int = 1000,
    callback: Callable[[int, Any], None] | None = None,
) -> Any:
    """x with f(x, *params) = 0, found from x0; f returns a tree like x. See `fixed_point` for what the rest means.

    >>> import numpy as np, pullback as pb
    >>> square_root = lambda a: pb.root(lambda x, a: x * x - a, 1.0, a)
    >>> float(np.round(square_root(4.0), 8)), float(np.round(pb.grad(square_root)(4.0), 8))
    (2.0, 0.25)
    """
    return _solve_root(f, x0, params, SolveOptions(solver, derivative, tol, max_steps, callback, True)).value


def _solve_root(f: Function, x0: Any, params: tuple[Any, ...], options: SolveOptions) -> Solution:
    _check_functions("root", f, options)

    def equation(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return layout.to_vector(f(layout.to_tree(x), *p), "root")

    return solve_problem(
        equation, x0, params, options, "root", lambda n: Newton() if n <= _MAX_DENSE_UNKNOWNS else NewtonKrylov()
    )


def argmin(
    f: Any,
    x0: Any = None,
    /,
    *params: Any,
    solver: Any = None,
    derivative: Any = None,
    tol: float | None = None,
    max_steps: int = 1000,
    callback: Callable[[int, Any], None] | None = None,
    axis: int | None = None,
    keepdims: bool = False,
) -> Any:
    """Of a function, x at which the scalar f(x, *params) is least, near x0: where its gradient is zero. See
    `fixed_point` for what the rest means.

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
    return _solve_argmin(f, x0, params, SolveOptions(solver, derivative, tol, max_steps, callback, True)).value


def _solve_argmin(f: Function, x0: Any, params: tuple[Any, ...], options: SolveOptions) -> Solution:
    _check_functions("argmin", f, options)

    def objective(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return f(layout.to_tree(x), *p)

    def equation(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return grad(lambda y: objective(y, layout, *p))(x)

    return solve_problem(
        equation, x0, params, options, "argmin", _choose_descent_method, objective=objective, symmetric=True
    )


def _choose_descent_method(size: int) -> Any:
    return BFGS() if size <= _MAX_DENSE_UNKNOWNS else LBFGS()


def least_squares(
    residual: Function,
    x0: Any,
    *params: Any,
    solver: Any = None,
    derivative: Any = None,
    tol: float | None = None,
    max_steps: int = 1000,
    callback: Callable[[int, Any], None] | None = None,
) -> Any:
    """x at which the sum of squares of residual(x, *params) is least, near x0. See `fixed_point`.

    >>> import numpy as np, pullback as pb
    >>> t, y = np.arange(4.0), np.array([1.0, 3.0, 5.0, 7.0])
    >>> np.round(pb.least_squares(lambda w, y: w[0] + w[1] * t - y, np.zeros(2), y), 6)
    array([1., 2.])
    """
    return _solve_least_squares(
        residual, x0, params, SolveOptions(solver, derivative, tol, max_steps, callback, True)
    ).value


def _solve_least_squares(residual: Function, x0: Any, params: tuple[Any, ...], options: SolveOptions) -> Solution:
    _check_functions("least_squares", residual, options)

    def inner(x: Any, layout: VectorLayout, *p: Any) -> Any:
        leaves = [as_array_leaf(r, "least_squares") for r in flatten(residual(layout.to_tree(x), *p))[0]]
        return VectorLayout(None, [spec_of(r) for r in leaves]).join_leaves(leaves)

    def objective(x: Any, layout: VectorLayout, *p: Any) -> Any:
        return pointwise.multiply(reductions.sum(pointwise.square(inner(x, layout, *p))), 0.5)

    def equation(x: Any, layout: VectorLayout, *p: Any) -> Any:  # the gradient J^T r
        value, pull = vjp(lambda y: inner(y, layout, *p), x)
        return pull(value)[0]

    return solve_problem(
        equation, x0, params, options, "least_squares", lambda n: LevenbergMarquardt(), objective=objective,
        inner=inner, symmetric=True,
    )  # fmt: skip


class solve:
    """The same problems; returns a `Solution` with its report, converged or not, instead of raising.

    >>> import pullback as pb
    >>> found = pb.implicit.solve.fixed_point(lambda x: 0.99 * x + 0.01, 0.0, solver=pb.implicit.Picard(), max_steps=5)
    >>> found.report.converged, found.report.steps
    (False, 5)
    """

    @staticmethod
    def fixed_point(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.fixed_point` without raising."""
        return _solve_fixed_point(f, x0, params, _parse_options(options, "fixed_point"))

    @staticmethod
    def root(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.root` without raising."""
        return _solve_root(f, x0, params, _parse_options(options, "root"))

    @staticmethod
    def argmin(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.argmin` without raising."""
        return _solve_argmin(f, x0, params, _parse_options(options, "argmin"))

    @staticmethod
    def least_squares(residual: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.least_squares` without raising."""
        return _solve_least_squares(residual, x0, params, _parse_options(options, "least_squares"))


def _parse_options(options: dict[str, Any], what: str) -> SolveOptions:
    known = {"solver": None, "derivative": None, "tol": None, "max_steps": 1000, "callback": None}
    unknown = options.keys() - known.keys()
    if unknown:
        raise ArgumentError(f"{what}: unknown option {', '.join(sorted(unknown))}.")
    return SolveOptions(**(known | options), strict=False)

"""Equation, start and parameters as trees in, the answer as a tree out: the public ways of posing a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConvergenceError
from ..ops import elementwise as pointwise
from ..ops import reducing
from ..transforms.border import at_places, scalars_become_arrays
from ..transforms.reverse import grad, vjp
from ..transforms.rules import carries
from .closed import closed
from .descent_methods import BFGS, LBFGS, LevenbergMarquardt
from .equation import Equation, rooted
from .fixed_point_methods import Accelerated
from .linear_methods import Auto
from .policies import (
    Implicit,
    OneStep,
    PhantomGradient,
    Unrolled,
    checked_steps,
    checked_tolerance,
    default_tolerance,
)
from .report import Report, Solution
from .root_methods import Newton, NewtonKrylov
from .vectors import Layout

__all__ = ["argmin", "fixed_point", "least_squares", "root", "solve"]

Function = Callable[..., Any]

#: More unknowns than this, and no dense matrix of them is made unless it is asked for.
_MANY = 200


@dataclass(frozen=True)
class _Wishes:
    """What a caller may say about a solve."""

    solver: Any
    derivative: Any
    tol: float | None
    max_steps: int
    callback: Callable[[int, Any], None] | None
    strict: bool


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
    return _fixed_point(f, x0, params, _Wishes(solver, derivative, tol, max_steps, callback, True)).value


def _fixed_point(f: Function, x0: Any, params: tuple[Any, ...], wishes: _Wishes) -> Solution:
    policy = wishes.derivative
    if isinstance(policy, Unrolled):
        return _unrolled(f, x0, params, policy.steps, 1.0, wishes)

    def mapped(x: Any, layout: Layout, *p: Any) -> Any:
        return layout.vector(f(layout.tree(x), *p), "fixed_point")

    found = _solved(mapped, x0, params, wishes, "fixed_point", lambda n: Accelerated())
    if isinstance(policy, OneStep):
        return _steps_at(f, found, params, 1, 1.0)
    return _steps_at(f, found, params, policy.steps, policy.damping) if isinstance(policy, PhantomGradient) else found


def _unrolled(f: Function, x0: Any, params: tuple[Any, ...], steps: int, damping: float, wishes: _Wishes) -> Solution:
    layout, leaves = Layout.of(x0, "fixed_point")
    start = unflatten(layout.structure, leaves)
    found = _steps_at(f, Solution(start, Report("Unrolled", _tolerance(wishes, layout))), params, steps, damping)
    found.report.steps, found.report.note = steps, "steps of the map from the start; their residual was not asked for"
    return found


def _steps_at(f: Function, found: Solution, params: tuple[Any, ...], steps: int, damping: float) -> Solution:
    """Steps of the map from a point that counts as a constant, on the tape."""
    layout, leaves = Layout.of(found.value, "fixed_point")
    x = layout.joined([pointwise.stop_gradient(leaf) for leaf in leaves])
    for _ in range(steps):
        after = layout.vector(f(layout.tree(x), *params), "fixed_point")
        x = after if damping == 1.0 else pointwise.add(x * (1 - damping), after * damping)
    return Solution(layout.tree(x), found.report)


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
    """x with f(x, *params) = 0, found from x0; f answers a tree like x. See `fixed_point` for what the rest means.

    >>> import numpy as np, pullback as pb
    >>> square_root = lambda a: pb.root(lambda x, a: x * x - a, 1.0, a)
    >>> float(np.round(square_root(4.0), 8)), float(np.round(pb.grad(square_root)(4.0), 8))
    (2.0, 0.25)
    """
    return _root(f, x0, params, _Wishes(solver, derivative, tol, max_steps, callback, True)).value


def _root(f: Function, x0: Any, params: tuple[Any, ...], wishes: _Wishes) -> Solution:
    def equation(x: Any, layout: Layout, *p: Any) -> Any:
        return layout.vector(f(layout.tree(x), *p), "root")

    return _solved(equation, x0, params, wishes, "root", lambda n: Newton() if n <= _MANY else NewtonKrylov())


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
        return reducing.argmin(f, x0 if axis is None else axis, keepdims=keepdims)
    return _argmin(f, x0, params, _Wishes(solver, derivative, tol, max_steps, callback, True)).value


def _argmin(f: Function, x0: Any, params: tuple[Any, ...], wishes: _Wishes) -> Solution:
    def objective(x: Any, layout: Layout, *p: Any) -> Any:
        return f(layout.tree(x), *p)

    def equation(x: Any, layout: Layout, *p: Any) -> Any:
        return grad(lambda y: objective(y, layout, *p))(x)

    return _solved(equation, x0, params, wishes, "argmin", _descent, objective=objective, symmetric=True)


def _descent(size: int) -> Any:
    return BFGS() if size <= _MANY else LBFGS()


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
    return _least_squares(residual, x0, params, _Wishes(solver, derivative, tol, max_steps, callback, True)).value


def _least_squares(residual: Function, x0: Any, params: tuple[Any, ...], wishes: _Wishes) -> Solution:
    def inner(x: Any, layout: Layout, *p: Any) -> Any:
        leaves = [scalars_become_arrays(r, "least_squares") for r in flatten(residual(layout.tree(x), *p))[0]]
        return Layout(None, [spec_of(r) for r in leaves]).joined(leaves)

    def objective(x: Any, layout: Layout, *p: Any) -> Any:
        return pointwise.multiply(reducing.sum(pointwise.square(inner(x, layout, *p))), 0.5)

    def equation(x: Any, layout: Layout, *p: Any) -> Any:  # the gradient J^T r
        value, pull = vjp(lambda y: inner(y, layout, *p), x)
        return pull(value)[0]

    return _solved(
        equation, x0, params, wishes, "least_squares", lambda n: LevenbergMarquardt(), objective=objective, inner=inner,
        symmetric=True,
    )  # fmt: skip


def _solved(
    equation: Function, x0: Any, params: tuple[Any, ...], wishes: _Wishes, what: str, choice: Callable[[int], Any],
    *, objective: Function | None = None, inner: Function | None = None, symmetric: bool = False,
) -> Solution:  # fmt: skip
    """Lay the problem out in vectors, find what it depends on, and run the op that solves it."""
    layout, leaves = Layout.of(x0, what, scalar=True)
    start = layout.joined([_constant(x) for x in leaves])
    given, structure = flatten(params)
    p = [scalars_become_arrays(x, what) for x in given]

    def on_vectors(function: Function) -> Function:
        return lambda x, *q: function(x, layout, *unflatten(structure, q))

    named = {"equation": equation, "objective": objective, "inner": inner}
    functions = {k: on_vectors(f) for k, f in named.items() if f is not None}
    quick = _as_it_stands(functions, start, p) if layout.scalar and wishes.solver is None else None
    opened, arguments = quick or _opened(functions, start, p)
    _check_policy(wishes.derivative, what)
    policy = wishes.derivative if isinstance(wishes.derivative, Implicit) else Implicit()
    method = choice(layout.size) if wishes.solver is None else wishes.solver
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("init", "step", "done", "value")):
        raise ArgumentError(f"{what}: solver must be one of pb.implicit, such as Newton(), got {method!r}.")
    tolerance = _tolerance(wishes, layout)
    report = Report(type(method).__name__, tolerance)
    mapped = opened.pop("equation")
    is_map = what == "fixed_point"
    posed = Equation(
        (lambda x, *q: pointwise.subtract(mapped(x, *q), x)) if is_map else mapped, method, policy.adjoint or Auto(), tolerance,
        policy.tol or wishes.tol or default_tolerance(layout.dtype), checked_steps(wishes.max_steps, what), what,
        report, wishes.strict, wishes.callback, {"symmetric": symmetric}, opened,
        mapped=mapped if is_map else None, chosen=wishes.solver is None, scalar=layout.scalar,
        size=layout.size,
    )  # fmt: skip
    try:
        found = rooted(posed, start, *arguments)
    except ConvergenceError as error:
        if spec_of(error.best).shape == layout.shape:
            error.best = layout.tree(error.best)
        raise
    if not isinstance(found, Value) and any(isinstance(x, Tensor) for x in (*leaves, *p)):
        found = wrap(found, spec_of(found))  # tensors in, tensors out
    return Solution(layout.tree(found), report)


def _constant(x: Any) -> Any:
    """A value of the start, which has no derivative."""
    return x.detach() if isinstance(x, Tensor) else pointwise.stop_gradient(x) if isinstance(x, Value) else x


def _opened(functions: dict[str, Function], start: Any, p: list[Any]) -> tuple[dict[str, Function], list[Any]]:
    """Functions of (x, *parameters) as functions of (x, *arguments), where arguments are all that they depend on."""
    written = {name: closed(lambda x, f=function: f(x, *p), start) for name, function in functions.items()}
    arguments: list[Any] = [] if all(written.values()) else list(p)
    opened: dict[str, Function] = {}
    for name, function in functions.items():
        program, found = written[name] or (function, p)
        first = len(arguments) if written[name] else 0
        arguments += found if written[name] else []
        opened[name] = _picking(program, first, first + len(found))
    return opened, arguments


def _as_it_stands(
    functions: dict[str, Function], start: Any, p: list[Any]
) -> tuple[dict[str, Function], list[Any]] | None:
    """The same for one number, whose function is evaluated faster than it is written down: one evaluation shows that it
    closes over nothing that carries derivatives. None where it does, or where values are not plain.
    """
    bare = [x.value if isinstance(x, Tensor) else x for x in p]
    if len(functions) > 1 or type(start) is not np.ndarray or any(isinstance(x, Value) for x in bare):
        return None
    ((name, function),) = functions.items()
    with np.errstate(all="ignore"):
        if isinstance(function(start, *bare), Value):
            return None
    moving = [i for i, x in enumerate(p) if carries(x)]
    return {name: at_places(function, (start, *bare), [0, *(i + 1 for i in moving)])}, [p[i] for i in moving]


def _picking(function: Function, first: int, last: int) -> Function:
    return lambda x, *q: function(x, *q[first:last])


def _check_policy(policy: Any, what: str) -> None:
    if policy is None or isinstance(policy, Implicit):
        return
    if what != "fixed_point" or not isinstance(policy, (Unrolled, OneStep, PhantomGradient)):
        raise ArgumentError(f"{what}: derivative must be pb.implicit.Implicit(...), got {policy!r}.")


def _tolerance(wishes: _Wishes, layout: Layout) -> float:
    """The tolerance of the norm, from that of the root mean square."""
    tol = default_tolerance(layout.dtype) if wishes.tol is None else checked_tolerance(wishes.tol, "tol")
    return tol * math.sqrt(max(layout.size, 1))


class solve:
    """The same problems, answered by a `Solution` with its report, converged or not, instead of raising.

    >>> import pullback as pb
    >>> found = pb.implicit.solve.fixed_point(lambda x: 0.99 * x + 0.01, 0.0, solver=pb.implicit.Picard(), max_steps=5)
    >>> found.report.converged, found.report.steps
    (False, 5)
    """

    @staticmethod
    def fixed_point(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.fixed_point` without raising."""
        return _fixed_point(f, x0, params, _wishes(options, "fixed_point"))

    @staticmethod
    def root(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.root` without raising."""
        return _root(f, x0, params, _wishes(options, "root"))

    @staticmethod
    def argmin(f: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.argmin` without raising."""
        return _argmin(f, x0, params, _wishes(options, "argmin"))

    @staticmethod
    def least_squares(residual: Function, x0: Any, *params: Any, **options: Any) -> Solution:
        """`pb.least_squares` without raising."""
        return _least_squares(residual, x0, params, _wishes(options, "least_squares"))


def _wishes(options: dict[str, Any], what: str) -> _Wishes:
    known = {"solver": None, "derivative": None, "tol": None, "max_steps": 1000, "callback": None}
    unknown = options.keys() - known.keys()
    if unknown:
        raise ArgumentError(f"{what}: unknown option {', '.join(sorted(unknown))}.")
    return _Wishes(**(known | options), strict=False)

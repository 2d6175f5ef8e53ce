"""Optimize, then discretize: derivatives of the equation, by further equations that are solved with steps of their own.

    s' = f_y s + f_p p'              forward, for the tangent s along y0' and p'
    a' = -f_y^T a,  g' = -f_p^T a    backward from a(t1) = bar, for the cotangents a(t0) of y0 and g(t0) of p

They are off by as much as their own steps err, whatever those of the solution were. Both are solves again, with the
same policy, so derivatives of every order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..arrays.trees import flatten
from ..implicit.option_checks import check_tolerance
from ..implicit.vector_layout import VectorLayout
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import reshape
from ..transforms.control.scan import scan
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from ..transforms.vectorize import vmap
from .forward_loop import len_of
from .problem import Outcome, Problem
from .solve_op import Call, DerivativePolicy, fill_tangents, solve_vectors
from .step_control import Tolerance


class _Parameters:
    """The arguments that can have derivatives, as one vector."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.arguments = arguments
        self.places = [i for i, x in enumerate(arguments) if spec_of(x).inexact]
        own = [arguments[i] for i in self.places]
        self.layout = VectorLayout(flatten(tuple(own))[1], [spec_of(x) for x in own]) if own else None
        self.size = 0 if self.layout is None else self.layout.size

    def fill(self, vector: Any) -> list[Any]:
        """All arguments, those that move from a vector."""
        filled = list(self.arguments)
        if self.layout is not None:
            for i, x in zip(self.places, self.layout.to_tree(vector), strict=True):
                filled[i] = x
        return filled

    def to_vector(self, dtype: Any) -> Any:
        """Those that move, as a vector."""
        if self.layout is None:
            return np.zeros(0, dtype)
        return self.layout.join_leaves([self.arguments[i] for i in self.places])

    def place(self, vector: Any) -> list[Any]:
        """Cotangents in their places among all arguments."""
        at = {} if self.layout is None else dict(zip(self.places, self.layout.to_tree(vector), strict=True))
        return [at.get(i) for i in range(len(self.arguments))]


def _push_one(call: Call, problem: Problem, dots: Sequence[Any], xs: Sequence[Any]) -> Any:
    """The tangent of a solution by the equation of its sensitivity."""
    y0, t0, t1, times, *arguments = xs
    dy0, dt0, dt1, dtimes, *moves = dots
    n, count = problem.size, len(arguments)
    f, moving = problem.function, [i for i, x in enumerate(arguments) if spec_of(x).inexact]

    def slope(t: Any, z: Any, *both: Any) -> Any:
        def of_moving(y: Any, *own: Any) -> Any:
            filled = list(both[:count])
            for i, x in zip(moving, own, strict=True):
                filled[i] = x
            return f(t, y, *filled)

        own = tuple(both[i] for i in moving)
        return concat(list(jvp(of_moving, (z[:n], *own), (z[n:], *both[count:]))))

    both = replace(problem, function=slope, size=2 * n, saves_states=False)
    start = concat([y0, dy0 - f(t0, y0, *arguments) * dt0])
    z = solve_vectors(Call(both, call.policy), start, t0, t1, times, *arguments, *(moves[i] for i in moving)).y
    if not problem.has_times:
        return z[n:] + f(t1, z[:n], *arguments) * dt1
    return vmap(lambda z, t, dt: z[n:] + f(t, z[:n], *arguments) * dt)(z, times, dtimes)


def _push_sensitivity(call: Call, problem: Problem, tangents: Sequence[Any], xs: Sequence[Any]) -> Any:
    dots = fill_tangents(tangents, xs)
    return call.in_batches(lambda dots, xs: _push_one(call, problem, dots, xs))(tuple(dots), tuple(xs))


def _pull_in_batches(rule: Callable[..., Any], call: Call, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """Cotangents by a rule for one element, in their places."""
    places = [i for i, x in enumerate(xs) if spec_of(x).inexact]

    def one(bar: Any, y: Any, xs: tuple[Any, ...]) -> list[Any]:
        found = rule(bar, y, xs)
        return [found[i] for i in places]

    at = dict(zip(places, call.in_batches(one)(bar, y, tuple(xs)), strict=True))
    return [at.get(i) for i in range(len(xs))]


@final
@dataclass(frozen=True)
class ContinuousAdjoint(DerivativePolicy):
    """By the adjoint equation, solved backward together with the state: nothing is saved but the solution, and the
    gradient is that of the equation, off by the error of the backward solve. The state is found again by going back,
    which is unstable where the system forgets its start (strong damping, stiffness). Tangents are those of
    `ForwardSensitivity`. `rtol` and `atol` are those of the backward solve, by default those of the solution.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.ContinuousAdjoint(rtol=1e-9)
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6)
    -0.135335
    """

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        _check_tolerances(self, "ContinuousAdjoint")

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return False

    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        return _push_sensitivity(call, _adjust(call.problem, self), tangents, xs)

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        problem = _adjust(call.problem, self)
        rule = _pull_times if problem.has_times else _pull_end
        return _pull_in_batches(lambda bar, y, xs: rule(call, problem, bar, y, xs), call, bar, done.y, xs)


def _go_back(call: Call, problem: Problem, state: tuple[Any, Any, Any], start: Any, end: Any, arguments: Any) -> Any:
    """(y, a, g) at the end, from those at the start."""
    n, f = problem.size, problem.function
    size = _Parameters(arguments).size

    def slope(t: Any, z: Any, *arguments: Any) -> Any:
        parameters = _Parameters(arguments)
        q = parameters.to_vector(problem.dtype)
        y_dot, back = vjp(lambda y, q: f(t, y, *parameters.fill(q)), z[:n], q)
        y_bar, q_bar = back(z[n : 2 * n])
        return concat([y_dot, -y_bar, -q_bar])

    whole = replace(problem, function=slope, size=2 * n + size, has_times=False, saves_states=False)
    none = np.zeros(0, problem.dtype)
    z = solve_vectors(Call(whole, call.policy), concat(list(state)), start, end, none, *arguments).y
    return z[:n], z[n : 2 * n], z[2 * n :]


def _pull_end(call: Call, problem: Problem, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    y0, t0, t1, times, *arguments = xs
    parameters = _Parameters(arguments)
    state = (y, bar, np.zeros(parameters.size, problem.dtype))
    _, a, g = _go_back(call, problem, state, t1, t0, arguments)
    f = problem.slope(tuple(arguments))
    return [a, -_dot(a, f(t0, y0)), _dot(bar, f(t1, y)), zeros(spec_of(times)), *parameters.place(g)]


def _pull_times(call: Call, problem: Problem, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """From saved time to saved time, each of which brings its cotangent; the state is set to the saved one there."""
    y0, t0, t1, times, *arguments = xs
    parameters = _Parameters(arguments)
    f = problem.slope(tuple(arguments))

    def step(c: tuple[Any, Any], x: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        a, g = c
        bar_k, y_k, start, end = x
        _, a, g = _go_back(call, problem, (y_k, a + bar_k, g), start, end, arguments)
        return (a, g), _dot(bar_k, f(start, y_k))

    first = (np.zeros(problem.size, problem.dtype), np.zeros(parameters.size, problem.dtype))
    ends = concat([reshape(t0, (1,)), times[: len_of(times) - 1]])
    (a, g), times_bar = scan(step, first, (bar, y, times, ends), reverse=True)
    return [a, -_dot(a, f(t0, y0)), zeros(spec_of(t1)), times_bar, *parameters.place(g)]


@final
@dataclass(frozen=True)
class ForwardSensitivity(DerivativePolicy):
    """By the equation of the sensitivities, solved along with the state: their error is held below `rtol` and `atol`
    (by default those of the solution). A gradient solves for all sensitivities at once, a state each for every number
    in y0 and the parameters: for few of these, and for tangents.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.ForwardSensitivity()
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6)
    -0.135335
    """

    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        _check_tolerances(self, "ForwardSensitivity")

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return False

    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        return _push_sensitivity(call, _adjust(call.problem, self), tangents, xs)

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        problem = _adjust(call.problem, self)
        return _pull_in_batches(lambda bar, y, xs: _pull_forward(call, problem, bar, y, xs), call, bar, done.y, xs)


def _pull_forward(call: Call, problem: Problem, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """The matrix of all sensitivities, times the cotangent."""
    y0, t0, t1, times, *arguments = xs
    n, width = problem.size, problem.size + _Parameters(arguments).size

    def slope(t: Any, z: Any, *arguments: Any) -> Any:
        parameters = _Parameters(arguments)
        q, y = parameters.to_vector(problem.dtype), z[:n]

        def along(s: Any, e: Any) -> Any:
            return jvp(lambda y, q: problem.function(t, y, *parameters.fill(q)), (y, q), (s, e))[1]

        directions = np.eye(width, width - n, -n, problem.dtype)
        rows = vmap(along)(reshape(z[n:], (width, n)), directions)
        return concat([problem.function(t, y, *arguments), reshape(rows, (width * n,))])

    whole = replace(problem, function=slope, size=n + width * n, saves_states=False)
    start = concat([y0, np.eye(width, n, dtype=problem.dtype).reshape(-1)])
    z = solve_vectors(Call(whole, call.policy), start, t0, t1, times, *arguments).y
    f = problem.slope(tuple(arguments))

    def contract(z: Any, bar: Any) -> Any:
        return reductions.sum(reshape(z[n:], (width, n)) * bar, axis=1)

    if problem.has_times:
        found = reductions.sum(vmap(contract)(z, bar), axis=0)
        times_bar, t1_bar = vmap(lambda bar, t, y: _dot(bar, f(t, y)))(bar, times, y), zeros(spec_of(t1))
    else:
        found, times_bar, t1_bar = contract(z, bar), zeros(spec_of(times)), _dot(bar, f(t1, y))
    y_bar = getitem(found, slice(0, n))
    return [y_bar, -_dot(y_bar, f(t0, y0)), t1_bar, times_bar, *_Parameters(arguments).place(found[n:])]


def _dot(a: Any, b: Any) -> Any:
    return reductions.sum(pointwise.multiply(a, b))


def _check_tolerances(policy: Any, what: str) -> None:
    for name in ("rtol", "atol"):
        if getattr(policy, name) is not None:
            check_tolerance(getattr(policy, name), f"{what}: {name}")


def _adjust(problem: Problem, policy: Any) -> Problem:
    """The problem with the tolerances of a policy."""
    now = problem.tolerance
    rtol = now.rtol if policy.rtol is None else policy.rtol
    return replace(problem, tolerance=Tolerance(rtol, now.atol if policy.atol is None else policy.atol))

"""Optimize, then discretize: derivatives of the equation, by further equations that are solved with steps of their own.

    s' = f_y s + f_p p'              forward, for the tangent s along y0' and p'
    a' = -f_y^T a,  g' = -f_p^T a    backward from a(t1) = bar, for the cotangents a(t0) of y0 and g(t0) of p

They are off by as much as their own steps err, whatever those of the solution were. Both are solves again, with the
same policy, so derivatives of every order follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of, zeros
from ..ops.index.indexing import getitem
from ..ops.reduce import reductions
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import reshape
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from ..transforms.vectorize import vmap
from .adjoint_sweep import sweep_adjoint
from .further_equations import (
    SENSITIVITIES,
    FurtherSolves,
    Parameters,
    adjust_tolerance,
    dot,
    pull_in_batches,
    solve_further,
)
from .policies import Call
from .problem import Outcome, Problem

_GOING_BACK = "the solve backward in time (pb.ode.InterpolatedAdjoint() is stable where this is not)"


@final
@dataclass(frozen=True)
class ContinuousAdjoint(FurtherSolves):
    """By the adjoint equation, solved backward together with the state: nothing is saved but the solution, and the
    gradient is that of the equation, off by the error of the backward solve. The state is found again by going back,
    which is unstable where the system forgets its start (strong damping, stiffness): an error if another state is found
    there. Tangents are those of `ForwardSensitivity`. `rtol` and `atol` are those of the backward solve, by default
    those of the solution.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.ContinuousAdjoint(rtol=1e-9)
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6)
    -0.135335
    """

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return False

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        problem = adjust_tolerance(call.problem, self)
        return pull_in_batches(lambda bar, y, xs: _pull_one(call, problem, bar, y, xs), call, bar, done.y, xs)


def _go_back(call: Call, problem: Problem, state: Any, known: Any, start: Any, end: Any, arguments: Any) -> Any:
    """(y, a, g) at the end, as a vector, from that at the start; y there is known, so that a solve that lost its way
    is noticed.
    """
    n, f = problem.size, problem.function
    size = Parameters(arguments).size

    def slope(t: Any, z: Any, *given: Any) -> Any:
        parameters = Parameters(given[:-1])
        q = parameters.to_vector(problem)
        y_dot, back = vjp(lambda y, q: f(t, y, *parameters.fill(q)), z[:n], q)
        y_bar, q_bar = back(z[n : 2 * n])
        return concat([y_dot, -y_bar, -q_bar])

    whole = problem.further(slope, 2 * n + size, _GOING_BACK, has_times=False, knows_end=True)
    none = problem.place(np.zeros(0, problem.dtype))
    return solve_further(call, whole, state, start, end, none, *arguments, known)


def _pull_one(call: Call, problem: Problem, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """The cotangents of one element; at each saved time the state is set to the saved one."""

    def go_back(z: Any, y: Any, known: Any, start: Any, end: Any) -> Any:
        return _go_back(call, problem, concat([y, z]), known, start, end, xs[4:])[problem.size :]

    return sweep_adjoint(problem, go_back, bar, y, xs)


@final
@dataclass(frozen=True)
class ForwardSensitivity(FurtherSolves):
    """By the equation of the sensitivities, solved along with the state: their error is held below `rtol` and `atol`
    (by default those of the solution). A gradient solves for all sensitivities at once, a state each for every number
    in y0 and the parameters: for few of these, and for tangents.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.ForwardSensitivity()
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6)
    -0.135335
    """

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return False

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        problem = adjust_tolerance(call.problem, self)
        return pull_in_batches(lambda bar, y, xs: _pull_forward(call, problem, bar, y, xs), call, bar, done.y, xs)


def _pull_forward(call: Call, problem: Problem, bar: Any, y: Any, xs: Sequence[Any]) -> list[Any]:
    """The matrix of all sensitivities, times the cotangent."""
    y0, t0, t1, times, *arguments = xs
    n, width = problem.size, problem.size + Parameters(arguments).size

    def slope(t: Any, z: Any, *arguments: Any) -> Any:
        parameters = Parameters(arguments)
        q, y = parameters.to_vector(problem), z[:n]

        def along(s: Any, e: Any) -> Any:
            return jvp(lambda y, q: problem.function(t, y, *parameters.fill(q)), (y, q), (s, e))[1]

        directions = problem.place(np.eye(width, width - n, -n, problem.dtype))
        rows = vmap(along)(reshape(z[n:], (width, n)), directions)
        return concat([problem.function(t, y, *arguments), reshape(rows, (width * n,))])

    whole = problem.further(slope, n + width * n, SENSITIVITIES)
    start = concat([y0, problem.place(np.eye(width, n, dtype=problem.dtype).reshape(-1))])
    z = solve_further(call, whole, start, t0, t1, times, *arguments)
    f = problem.slope(tuple(arguments))

    def contract(z: Any, bar: Any) -> Any:
        return reductions.sum(reshape(z[n:], (width, n)) * bar, axis=1)

    if problem.has_times:
        found = reductions.sum(vmap(contract)(z, bar), axis=0)
        times_bar, t1_bar = vmap(lambda bar, t, y: dot(bar, f(t, y)))(bar, times, y), zeros(spec_of(t1))
    else:
        found, times_bar, t1_bar = contract(z, bar), zeros(spec_of(times)), dot(bar, f(t1, y))
    y_bar = getitem(found, slice(0, n))
    return [y_bar, -dot(y_bar, f(t0, y0)), t1_bar, times_bar, *Parameters(arguments).place(found[n:])]

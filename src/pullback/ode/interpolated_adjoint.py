"""The adjoint equation along the saved solution: nothing is solved backward but the cotangents.

    a' = -f_y(t, y(t))^T a,  g' = -f_p(t, y(t))^T a,      y(t) from the dense output of the solve

The pullback P(x, b) of a solve S is an op, and its derivatives are those of the tangent J(x; c) of S, which is a solve
of the sensitivities, with the same policy. Since <c, P(x, b)> = <J(x; c), b>,

    pull of P along c        = the gradient of <J(x; c), b> with respect to x and b
    push of P along x', b'   = P(x, b') + the gradient of <J(x; x'), b> with respect to x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import Spec, ones, spec_of, zeros
from ..ops.dispatch import apply
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.shape.arrange import concat
from ..ops.shape.reshaping import reshape
from ..transforms.reverse import vjp
from .adjoint_sweep import sweep_adjoint
from .dense import find_steps, read_state
from .differentiable import Differentiable
from .further_equations import FurtherSolves, Parameters, adjust_tolerance, dot, push_sensitivity, solve_further
from .policies import Call, fill_tangents
from .problem import Outcome, Problem
from .pull_op import make_pull_op

#: What the pullback reads of a solve: the solution, grid, states and counts.
_RECORD = 4


@final
@dataclass(frozen=True)
class InterpolatedAdjoint(FurtherSolves):
    """By the adjoint equation, solved backward, with the state read from the dense output of the solve: stable where a
    system forgets its start, as stiff and damped ones do, unlike `ContinuousAdjoint`. It holds a state per step. The
    gradient is that of the equation, off by the errors of the backward solve and of the dense output. Tangents are
    those of `ForwardSensitivity`. `rtol` and `atol` are those of the backward solve, by default those of the solution.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.InterpolatedAdjoint()
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6)
    -0.135335
    """

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return True

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        found = apply(_pull_op, bar, done.y, done.grid, done.states, done.counts, *xs, call=call)
        return Differentiable(xs).place(found)


def _go_back(
    call: Call, problem: Problem, record: Sequence[Any], z: Any, span: tuple[Any, Any], ahead: Any, rest: Any
) -> Any:
    """(a, g) at the end of a span, from those at its start."""
    n = problem.size

    def slope(t: Any, z: Any, grid: Any, states: Any, counts: Any, ahead: Any, *arguments: Any) -> Any:
        parameters = Parameters(arguments)
        # stages of some methods lie beyond the end of their step, and before the start of the solve nothing is known
        start = getitem(grid, 0)
        at = pointwise.where(pointwise.less((t - start) * ahead, 0), start, t)
        place = getitem(find_steps(grid, counts, ahead, reshape(at, (1,))), 0)
        y = read_state(problem, (grid, states, counts), place, at, arguments)
        q = parameters.to_vector(problem)
        _, back = vjp(lambda y, q: problem.function(t, y, *parameters.fill(q)), y, q)
        return concat([-x for x in back(z[:n])])

    size = n + Parameters(rest).size
    whole = problem.further(slope, size, "the solve of its adjoint equation", has_times=False)
    none = problem.place(np.zeros(0, problem.dtype))
    return solve_further(call, whole, z, *span, none, *record, ahead, *rest)


def _pull_one(call: Call, problem: Problem, bar: Any, y: Any, record: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    ahead = pointwise.sign(xs[2] - xs[1])

    def go_back(z: Any, y: Any, known: Any, start: Any, end: Any) -> Any:
        return _go_back(call, problem, record, z, (start, end), ahead, xs[4:])

    return sweep_adjoint(problem, go_back, bar, y, xs)


def _pull_value(call: Call, xs: Sequence[Any]) -> tuple[Any, ...]:
    bar, y, *record = xs[: 1 + _RECORD]
    values = xs[1 + _RECORD :]
    problem, moving = adjust_tolerance(call.problem, call.policy), Differentiable(values)

    def one(bar: Any, y: Any, record: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        return moving.select(_pull_one(call, problem, bar, y, record, values))

    return tuple(call.in_batches(one)(bar, y, tuple(record), tuple(values)))


def _pair_with_tangent(call: Call, moving: Differentiable, along: Sequence[Any]) -> Callable[..., Any]:
    """<J(x; c), b> as a function of b and of what can move of x."""
    problem, tangents = adjust_tolerance(call.problem, call.policy), moving.place(along)

    def pair(bar: Any, *own: Any) -> Any:
        return dot(push_sensitivity(call, problem, tangents, moving.fill(own)), bar)

    return pair


def _pull_pullback(bar: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    moving = Differentiable(xs[1 + _RECORD :])
    along = [zeros(b) if isinstance(b, Spec) else b for b in bar]
    out, back = vjp(_pair_with_tangent(call, moving, along), xs[0], *moving.own)
    bar_bar, *cotangents = back(ones(spec_of(out)))
    return bar_bar, *(None,) * _RECORD, *moving.place(cotangents)


def _push_pullback(tangents: tuple[Any, ...], xs: tuple[Any, ...], call: Call) -> Any:
    moving = Differentiable(xs[1 + _RECORD :])
    bar_dot, *_ = fill_tangents(tangents[:1], xs[:1])
    pair = _pair_with_tangent(call, moving, fill_tangents(moving.select(tangents[1 + _RECORD :]), moving.own))
    out, back = vjp(lambda *own: pair(xs[0], *own), *moving.own)
    moved = apply(_pull_op, bar_dot, *xs[1:], call=call)
    return tuple(a + b for a, b in zip(moved, back(ones(spec_of(out))), strict=True))


_pull_op = make_pull_op("solve_ode_adjoint", _RECORD, _pull_value, _pull_pullback, _push_pullback)

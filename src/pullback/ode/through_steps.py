"""Discretize, then optimize: the derivative of the accepted steps themselves, by saved states or from snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from ..implicit.option_checks import check_positive_count
from ..ops.dispatch import apply
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from .differentiable import Differentiable
from .policies import Call, DerivativePolicy, fill_tangents
from .problem import Outcome
from .pull_op import make_pull_op
from .replay import replay, sweep_back
from .snapshots import count_snapshots

#: If the states of all steps that there may be take more than this, they are recomputed instead.
_MOST_STATE_BYTES = 64 << 20
#: The parts of an `Outcome` that a backward pass reads, after its y.
_RECORD = 6


@final
@dataclass(frozen=True)
class ThroughSteps(DerivativePolicy):
    """The derivative of the steps that were taken, their sizes being constants: exact for the numbers computed, of any
    order, in both modes. This is the default.

    The backward pass reads the states of accepted steps, which takes `max_steps` states of memory, as long as these are
    at most 64 MiB. With `snapshots`, the solve holds so many states, spread anew as steps are added, and the backward
    pass takes steps again from there, as few as these allow, in compiled code and in each element of a batch too.
    Beyond 64 MiB it does so with about the square root of twice `max_steps`. A second derivative is that of all steps.

    >>> import numpy as np, pullback as pb
    >>> policy = pb.ode.ThroughSteps(snapshots=5)
    >>> end = lambda k: pb.ode.solve(lambda t, y, k: -k * y, 1.0, (0.0, 1.0), k, derivative=policy).y
    >>> round(float(pb.grad(end)(2.0)), 6), round(-float(np.exp(-2.0)), 6)
    (-0.135335, -0.135335)
    """

    snapshots: int | None = None

    def __post_init__(self) -> None:
        if self.snapshots is not None:
            check_positive_count(self.snapshots, "ThroughSteps: snapshots")

    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        return self.snapshots is None and state_bytes * max_steps <= _MOST_STATE_BYTES

    def count_held(self, max_steps: int) -> int:
        return self.snapshots or count_snapshots(max_steps)

    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        moving, run = _restrict(call, done, xs)
        given = fill_tangents(moving.select(tangents), moving.own)
        return jvp(run, moving.own, tuple(given))[1]

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        return Differentiable(xs).place(apply(_pull_op, bar, *done[1 : 1 + _RECORD], *xs, call=call))


def _as_outcome(record: Sequence[Any]) -> Outcome:
    """What a loop left, as far as a backward pass reads it."""
    grid, states, places, counts, choices, held = record
    return Outcome(None, grid, states, places, counts, choices, held, None, None, None)


def _restrict(call: Call, done: Outcome, xs: Sequence[Any]) -> tuple[Differentiable, Callable[..., Any]]:
    """The arguments that can have derivatives, and the replayed solution as a function of them."""
    moving = Differentiable(xs)
    record = tuple(done[1 : 1 + _RECORD])
    run = call.in_batches(lambda record, *values: replay(call.problem, _as_outcome(record), *values))

    def of_moving(*own: Any) -> Any:
        return run(record, *moving.fill(own))

    return moving, of_moving


def _pull_value(call: Call, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents, from the states that the loop kept."""
    bar, record, values = xs[0], xs[1 : 1 + _RECORD], xs[1 + _RECORD :]
    done = _as_outcome(record)
    problem = call.problem
    if not problem.saves_states and not problem.snapshots:
        return _pull_by_replay(call, bar, done, values)

    def one(bar: Any, record: tuple[Any, ...], *values: Any) -> list[Any]:
        found = sweep_back(call.problem, _as_outcome(record), bar, *values)
        return [x for x in found if x is not None]

    return tuple(call.in_batches(one)(bar, tuple(record), *values))


def _pull_by_replay(call: Call, bar: Any, done: Outcome, values: Sequence[Any]) -> tuple[Any, ...]:
    moving, run = _restrict(call, done, values)
    return tuple(vjp(run, *moving.own)[1](bar))


def _pull_slowly(call: Call, xs: Sequence[Any]) -> tuple[list[int], Callable[..., Any]]:
    """The pullback as a function that can itself be differentiated, of the cotangent and of what can move."""
    record, values = xs[1 : 1 + _RECORD], xs[1 + _RECORD :]
    moving = Differentiable(values)

    def run(bar: Any, *own: Any) -> Any:
        return _pull_by_replay(call, bar, _as_outcome(record), moving.fill(own))

    return [0, *(1 + _RECORD + i for i in moving.places)], run


def _push_pullback(tangents: tuple[Any, ...], xs: tuple[Any, ...], call: Call) -> Any:
    places, run = _pull_slowly(call, xs)
    given = [xs[i] for i in places]
    return tuple(jvp(run, tuple(given), tuple(fill_tangents([tangents[i] for i in places], given)))[1])


def _pull_pullback(bar: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    places, run = _pull_slowly(call, xs)
    out, back = vjp(run, *(xs[i] for i in places))
    found = dict(zip(places, back(tuple(fill_tangents(bar, out))), strict=True))
    return tuple(found.get(i) for i in range(len(xs)))


_pull_op = make_pull_op("solve_ode_pull", _RECORD, _pull_value, _pull_pullback, _push_pullback)

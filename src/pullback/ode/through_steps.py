"""Discretize, then optimize: the derivative of the accepted steps themselves, by saved states or from snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from ..arrays.spec import Spec, spec_of
from ..implicit.option_checks import check_positive_count
from ..ops.batching import move_batch_first
from ..ops.dispatch import apply
from ..ops.forms import Expand
from ..ops.op import Formula, Op
from ..transforms.control.staging import is_staging
from ..transforms.custom.rules import make_custom_record
from ..transforms.forward import jvp
from ..transforms.reverse import vjp
from .problem import Outcome
from .replay import replay, replay_with_snapshots, sweep_back
from .solve_op import Call, DerivativePolicy, fill_tangents

#: If the states of all steps that there may be take more than this, they are recomputed instead.
_MOST_STATE_BYTES = 64 << 20
#: The parts of an `Outcome` that a backward pass reads, after its y.
_RECORD = 4


@final
@dataclass(frozen=True)
class ThroughSteps(DerivativePolicy):
    """The derivative of the steps that were taken, their sizes being constants: exact for the numbers computed, of any
    order, in both modes. This is the default.

    The backward pass reads the states of accepted steps, which takes `max_steps` states of memory, as long as these are
    at most 64 MiB. Beyond, and with `snapshots`, it holds so many states, between each two saved times, and takes steps
    again, as few as possible; in compiled code it holds 33, whatever was asked for. A batch that is not compiled holds
    the tape of all steps then.

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

    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        moving, run = _restrict(call, done, xs)
        given = fill_tangents([tangents[i] for i in moving], [xs[i] for i in moving])
        return jvp(run, tuple(xs[i] for i in moving), tuple(given))[1]

    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        moving = _float_places(xs)
        found = apply(_pull_op, bar, *done[1 : 1 + _RECORD], *xs, call=call)
        at = dict(zip(moving, found, strict=True))
        return [at.get(i) for i in range(len(xs))]


def _as_outcome(record: Sequence[Any]) -> Outcome:
    """What a loop left, as far as a backward pass reads it."""
    grid, states, places, counts = record
    return Outcome(None, grid, states, places, counts, None)


def _float_places(xs: Sequence[Any]) -> list[int]:
    return [i for i, x in enumerate(xs) if spec_of(x).inexact]


def _restrict(call: Call, done: Outcome, xs: Sequence[Any]) -> tuple[list[int], Callable[..., Any]]:
    """Which arguments can move, and the replayed solution as a function of them."""
    moving = _float_places(xs)
    record = tuple(done[1 : 1 + _RECORD])
    run = call.in_batches(lambda record, *values: replay(call.problem, _as_outcome(record), *values))

    def of_moving(*values: Any) -> Any:
        filled = list(xs)
        for i, x in zip(moving, values, strict=True):
            filled[i] = x
        return run(record, *filled)

    return moving, of_moving


def _pull_value(call: Call, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents, by the cheapest way that the memory allows."""
    bar, record, values = xs[0], xs[1 : 1 + _RECORD], xs[1 + _RECORD :]
    done = _as_outcome(record)
    problem, policy = call.problem, call.policy
    if problem.saves_states:
        return tuple(x for x in call.in_batches(_sweep(call))(bar, tuple(record), *values))
    can_count = not call.depth and type(done.counts) is np.ndarray and not is_staging()
    if isinstance(policy, ThroughSteps) and can_count:
        return _pull_by_snapshots(call, policy.snapshots, bar, done, values)
    return _pull_by_replay(call, bar, done, values)


def _sweep(call: Call) -> Callable[..., Any]:
    def one(bar: Any, record: tuple[Any, ...], *values: Any) -> list[Any]:
        done = _as_outcome(record)
        return [x for x in sweep_back(call.problem, done, bar, values[1:4], values[4:]) if x is not None]

    return one


def _pull_by_snapshots(
    call: Call, snapshots: int | None, bar: Any, done: Outcome, values: Sequence[Any]
) -> tuple[Any, ...]:
    moving = _float_places(values)

    def run(*own: Any) -> Any:
        filled = list(values)
        for i, x in zip(moving, own, strict=True):
            filled[i] = x
        return replay_with_snapshots(call.problem, done, snapshots, filled[0], filled[1:4], *filled[4:])

    return tuple(vjp(run, *(values[i] for i in moving))[1](bar))


def _pull_by_replay(call: Call, bar: Any, done: Outcome, values: Sequence[Any]) -> tuple[Any, ...]:
    moving, run = _restrict(call, done, values)
    return tuple(vjp(run, *(values[i] for i in moving))[1](bar))


def _pull_slowly(call: Call, xs: Sequence[Any]) -> tuple[list[int], Callable[..., Any]]:
    """The pullback as a function that can itself be differentiated, of the cotangent and of what can move."""
    record, values = xs[1 : 1 + _RECORD], xs[1 + _RECORD :]
    moving = _float_places(values)

    def run(bar: Any, *own: Any) -> Any:
        filled = list(values)
        for i, x in zip(moving, own, strict=True):
            filled[i] = x
        return _pull_by_replay(call, bar, _as_outcome(record), filled)

    return [0, *(1 + _RECORD + i for i in moving)], run


def _push_pullback(tangents: tuple[Any, ...], xs: tuple[Any, ...], call: Call) -> Any:
    places, run = _pull_slowly(call, xs)
    given = [xs[i] for i in places]
    return tuple(jvp(run, tuple(given), tuple(fill_tangents([tangents[i] for i in places], given)))[1])


def _pull_pullback(bar: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    places, run = _pull_slowly(call, xs)
    out, back = vjp(run, *(xs[i] for i in places))
    found = dict(zip(places, back(tuple(fill_tangents(bar, out))), strict=True))
    return tuple(found.get(i) for i in range(len(xs)))


def _batch_pullback(size: int, axes: tuple[int | None, ...], *xs: Any, call: Call) -> Any:
    moved = [move_batch_first(x, axis, size) for x, axis in zip(xs, axes, strict=True)]
    found = apply(_pull_op, *moved, call=call.batch())
    return found, (0,) * len(found)


def _find_pull_specs(*specs: Spec, call: Call) -> tuple[Spec, ...]:
    return tuple(s for s in specs[1 + _RECORD :] if s.inexact)


def _pull_bare(xp: Any, *xs: Any, call: Call) -> Any:
    return tuple(xp.asarray(x) for x in _pull_value(call, xs))


_pull_op: Op = replace(make_custom_record(
    "solve_ode_pull", ("*xs",), _pull_bare, Formula(_pull_pullback, ("bar", "xs", "call")),
    Formula(_push_pullback, ("tangents", "xs", "call")), _batch_pullback, _find_pull_specs,
), form=Expand(lambda *xs, call: _pull_value(call, xs)))  # fmt: skip

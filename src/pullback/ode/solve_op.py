"""A solve as an op: its value is that of the loop over steps, its derivatives are those of a policy.

In a batch every element has steps of its own: the op then has leading axes, and `depth` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec, zeros
from ..ops.dispatch import apply
from ..ops.elementwise import pointwise
from ..ops.forms import Check, Expand
from ..ops.index.indexing import getitem
from ..ops.op import Formula, Op
from ..transforms.custom.rules import as_bare_results, make_custom_record
from .event_derivatives import pull_events, push_events
from .events import count_slots
from .forward_loop import integrate
from .policies import Call, apply_to_batch
from .problem import Outcome, Status
from .report import check_outcome

#: The place of the times of events among the results of a solve.
_FOUND = Outcome._fields.index("found")


def solve_vectors(call: Call, y0: Any, t0: Any, t1: Any, times: Any, *arguments: Any) -> Outcome:
    """The solution with its derivatives."""
    return Outcome(*apply(_solve_op, y0, t0, t1, times, *arguments, call=call))


def _run(call: Call, xs: Sequence[Any]) -> Outcome:
    def one(*values: Any) -> tuple[Any, ...]:
        return tuple(integrate(call.problem, *values))

    with np.errstate(all="ignore"):  # steps that overflow are rejected
        return Outcome(*call.in_batches(one)(*xs))


def _solve_bare(xp: Any, *xs: Any, call: Call) -> Any:
    done = _run(call, xs)
    if call.problem.strict:
        check_outcome(done.counts, done.numbers, call.problem.purpose)
    return as_bare_results(tuple(done._replace(states=_freeze(done.states))), "ode.solve")


def _freeze(states: Any) -> Any:
    """States that the loop kept in an array of its own, as they are: a copy would double them, and touch rows for steps
    that were never taken.
    """
    if type(states) is np.ndarray and states.base is None:
        states.flags.writeable = False
    return states


def _stage_solve(*xs: Any, call: Call) -> Any:
    done = _run(call, xs)
    if not call.problem.strict:
        return tuple(done)
    status = getitem(done.counts, (..., 2))
    arrived = pointwise.logical_or(
        pointwise.equal(status, int(Status.DONE)), pointwise.equal(status, int(Status.STOPPED))
    )
    failed = pointwise.logical_not(arrived)
    # it reads what it says alone: states that no backward pass asks for are not kept for it
    # a gradient may use the counts and not the state, so that either asks for the check
    y, counts = (
        apply(_check_op, x, failed, done.counts, done.numbers, purpose=call.problem.purpose)
        for x in (done.y, done.counts)
    )
    return tuple(done._replace(y=y, counts=counts))


def _check_bare(xp: Any, x: Any, failed: Any, counts: Any, numbers: Any, purpose: str) -> Any:
    check_outcome(counts, numbers, purpose)
    return x


def _find_specs(*specs: Spec, call: Call) -> tuple[Spec, ...]:
    problem, y0, times = call.problem, specs[0], specs[3]
    batch, device = y0.shape[: call.depth], y0.device
    count = times.shape[-1]

    def of(shape: tuple[int, ...], dtype: Any) -> Spec:
        return make_spec((*batch, *shape), dtype, device)

    found = count_slots(problem.events) + 1 if problem.events else 0
    rows = count + found
    return (
        of((rows, problem.size), problem.dtype) if problem.has_times or problem.events else y0,
        of((problem.max_steps + 1,), problem.dtype),
        of((problem.kept_states, problem.method.count_numbers(problem.size)), problem.dtype),
        of((rows,), np.int64), of((3,), np.int64),
        of((problem.max_steps if problem.method.has_choices else 0,), np.int64),
        of((3, problem.snapshots), np.int64), of((2,), problem.dtype),
        of((found,), problem.dtype), of((len(problem.events),), np.int64),
    )  # fmt: skip


def _pull(bar: Any, out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    y_bar, found_bar = bar[0], bar[_FOUND]
    if isinstance(y_bar, Spec) and isinstance(found_bar, Spec):
        return (None,) * len(xs)
    y_bar, found_bar = (zeros(x) if isinstance(x, Spec) else x for x in (y_bar, found_bar))
    if call.problem.events:
        return tuple(pull_events(call, (y_bar, found_bar), Outcome(*out), xs))
    return tuple(call.policy.pull(call, y_bar, Outcome(*out), xs))


def _push(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    if call.problem.events:
        y_dot, found_dot = push_events(call, tangents, Outcome(*out), xs)
        return y_dot, *(None,) * 7, found_dot, None
    return call.policy.push(call, tangents, Outcome(*out), xs), *(None,) * 9


def _batch(size: int, axes: tuple[int | None, ...], *xs: Any, call: Call) -> Any:
    return apply_to_batch(_solve_op, size, axes, xs, call)


_check_op: Op = make_custom_record(
    "check_solve", ("x", "failed", "counts", "numbers"), _check_bare, None, None, None,
    lambda *specs, purpose: specs[0], Check(),
)  # fmt: skip
_solve_op: Op = replace(make_custom_record(
    "solve_ode", ("*xs",), _solve_bare, Formula(_pull, ("bar", "out", "xs", "call")),
    Formula(_push, ("tangents", "out", "xs", "call")), _batch, _find_specs,
), form=Expand(_stage_solve))  # fmt: skip

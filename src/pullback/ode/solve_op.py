"""A solve as an op: its value is that of the loop over steps, its derivatives are those of a policy.

In a batch every element has steps of its own: the op then has leading axes, and `depth` counts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..ops.batching import move_batch_first
from ..ops.dispatch import apply
from ..ops.forms import Expand
from ..ops.op import Formula, Op
from ..transforms.custom.rules import as_bare_results, make_custom_record
from ..transforms.vectorize import vmap
from .forward_loop import integrate
from .problem import Outcome, Problem
from .report import check_outcome


class DerivativePolicy(ABC):
    """How a solution is differentiated."""

    @abstractmethod
    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        """Whether the loop is to keep the states of all accepted steps."""

    @abstractmethod
    def push(self, call: Call, tangents: Sequence[Any], done: Outcome, xs: Sequence[Any]) -> Any:
        """The tangent of the solution."""

    @abstractmethod
    def pull(self, call: Call, bar: Any, done: Outcome, xs: Sequence[Any]) -> Sequence[Any]:
        """The cotangents of y0, t0, t1, the times and the arguments; None for zero."""


@dataclass(frozen=True, eq=False)
class Call:
    """A problem, the policy of its derivatives, and how many batches are around it."""

    problem: Problem
    policy: DerivativePolicy
    depth: int = 0

    def in_batches(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one element as one of all."""
        for _ in range(self.depth):
            function = vmap(function)
        return function

    def batch(self) -> Call:
        """The same in one more batch."""
        return replace(self, depth=self.depth + 1)


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
        check_outcome(done)
    return as_bare_results(tuple(done), "ode.solve")


def _stage_solve(*xs: Any, call: Call) -> Any:
    done = _run(call, xs)
    if not call.problem.strict:
        return tuple(done)
    return (apply(_check_op, *done), *done[1:])


def _check_bare(xp: Any, *done: Any) -> Any:
    check_outcome(Outcome(*done))
    return done[0]


def _find_specs(*specs: Spec, call: Call) -> tuple[Spec, ...]:
    problem, y0, times = call.problem, specs[0], specs[3]
    batch, device = y0.shape[: call.depth], y0.device
    count = times.shape[-1]

    def of(shape: tuple[int, ...], dtype: Any) -> Spec:
        return make_spec((*batch, *shape), dtype, device)

    return (
        of((count, problem.size), problem.dtype) if problem.has_times else y0,
        of((problem.max_steps + 1,), problem.dtype),
        of((problem.max_steps if problem.saves_states else 0, problem.size), problem.dtype),
        of((count,), np.int64), of((3,), np.int64), of((2,), problem.dtype),
    )  # fmt: skip


def _pull(bar: Any, out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    if isinstance(bar[0], Spec):
        return (None,) * len(xs)
    return tuple(call.policy.pull(call, bar[0], Outcome(*out), xs))


def _push(tangents: tuple[Any, ...], out: Any, xs: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    return call.policy.push(call, tangents, Outcome(*out), xs), *(None,) * 5


def _batch(size: int, axes: tuple[int | None, ...], *xs: Any, call: Call) -> Any:
    moved = [move_batch_first(x, axis, size) for x, axis in zip(xs, axes, strict=True)]
    return apply(_solve_op, *moved, call=call.batch()), (0,) * 6


def fill_tangents(tangents: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    """Tangents, zeros where there are none, for the values that can have one."""
    return [zeros(spec_of(x)) if d is None or isinstance(d, Spec) else d for d, x in zip(tangents, xs, strict=True)]


_check_op: Op = make_custom_record(
    "check_solve", ("*done",), _check_bare, None, None, None, lambda *specs: specs[0]
)  # fmt: skip
_solve_op: Op = replace(make_custom_record(
    "solve_ode", ("*xs",), _solve_bare, Formula(_pull, ("bar", "out", "xs", "call")),
    Formula(_push, ("tangents", "out", "xs", "call")), _batch, _find_specs,
), form=Expand(_stage_solve))  # fmt: skip

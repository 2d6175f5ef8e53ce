"""What a policy of derivatives must do, and what it is called with: a problem within batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..arrays.spec import Spec, spec_of, zeros
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..ops.batching import move_batch_first
from ..ops.dispatch import apply
from ..ops.op import Op
from ..program.ir import Symbol
from ..transforms.vectorize import vmap
from .problem import Outcome, Problem


class DerivativePolicy(ABC):
    """How a solution is differentiated."""

    @abstractmethod
    def saves_states(self, state_bytes: int, max_steps: int) -> bool:
        """Whether the loop is to keep the states of all accepted steps."""

    def count_held(self, max_steps: int) -> int:
        """How many states the loop is to hold where it does not keep all."""
        return 0

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


def apply_to_batch(op: Op, size: int, axes: Sequence[int | None], xs: Sequence[Any], call: Call) -> Any:
    """The batching rule of an op on a call: the op in one more batch, whose results have its axis first."""
    moved = [move_batch_first(x, axis, size) for x, axis in zip(xs, axes, strict=True)]
    found = apply(op, *moved, call=call.batch())
    return found, (0,) * len(found)


def fill_tangents(tangents: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
    """Tangents, zeros where there are none, for the values that can have one."""
    return [zeros(spec_of(x)) if d is None or isinstance(d, Spec) else d for d, x in zip(tangents, xs, strict=True)]


def may_be_pulled(x: Any) -> bool:
    """Whether a backward pass may reach a value: a tape or a program lies in it."""
    while isinstance(x, Value):
        if type(x) is Symbol or (type(x) is Tensor and x.node is not None):
            return True
        x = next(iter(x.parts()), None)
    return False

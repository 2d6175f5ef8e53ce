"""A method and a problem in, the last state out: the loop that all solvers share.

A method is a small final class with `init(problem, start)`, `step(problem, state)`, `done(problem, state)` and
`value(state)`; a state is a tree of arrays. Written in ops, so that a batch of problems runs as one: each element goes
on until it is done by itself, and then stays as it is; and so that a program has it as a loop. A method that has a
better loop there than that of its steps says so by `written(problem, state, max_steps)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..arrays.trees import flatten
from ..ops import elementwise as pointwise
from ..transforms.batching import Batched
from ..transforms.border import bare_of
from ..transforms.control import while_loop
from ..transforms.staged import is_staged

__all__ = ["Method", "drive", "largest"]


class Method(Protocol):
    """What a solver does; `done` answers one boolean, or one by element."""

    def init(self, problem: Any, start: Any) -> Any:
        """The first state."""

    def step(self, problem: Any, state: Any) -> Any:
        """The next state."""

    def done(self, problem: Any, state: Any) -> Any:
        """Whether the state is good enough."""

    def value(self, state: Any) -> Any:
        """The answer as far as the state has it."""


def drive(
    method: Method, problem: Any, start: Any, max_steps: int, watch: Callable[[int, Any], None] | None = None
) -> tuple[Any, Any]:
    """The state in which the method is done, or that of the last step allowed; and the number of steps.

    `watch(step, state)` is called after each step, not in batches. In a program that is being written down the number
    of steps is a value of it.
    """
    state = method.init(problem, start)
    leaves = flatten(state)[0]
    if is_staged(*leaves) and hasattr(method, "written"):
        found: tuple[Any, Any] = method.written(problem, state, max_steps)
        return found
    if is_staged(*leaves) or any(isinstance(x, Batched) for x in leaves):
        return _by_element(method, problem, state, max_steps)
    for steps in range(max_steps):
        if bool(method.done(problem, state)):
            return state, steps
        state = method.step(problem, state)
        if watch is not None:
            watch(steps + 1, state)
    return state, max_steps


def _by_element(method: Method, problem: Any, state: Any, max_steps: int) -> tuple[Any, Any]:
    def goes_on(carry: tuple[Any, Any]) -> Any:
        count, state = carry
        return pointwise.logical_and(
            pointwise.less(count, max_steps), pointwise.logical_not(method.done(problem, state))
        )

    def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        count, state = carry
        return count + 1, method.step(problem, state)

    count, state = while_loop(goes_on, step, (0, state))
    return state, count if is_staged(count) else int(largest(count))


def largest(x: Any) -> Any:
    """The largest element of a value over all batches, as a number."""
    return bare_of(x).max()

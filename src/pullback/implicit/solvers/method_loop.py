"""The loop that all solvers share: a method and a problem in, the last state out.

A method is a small final class with `init(problem, start)`, `step(problem, state)`, `done(problem, state)` and
`value(state)`; a state is a tree of arrays. Written in ops, so that a batch of problems runs as one: each element
continues until it is done, and then stays unchanged; and so that it can be traced as a loop. A method with a better
traced loop than that of its steps has `stage_solve(problem, state, max_steps)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...arrays.trees import flatten
from ...arrays.value import unwrap_array
from ...ops.elementwise import pointwise
from ...transforms.control.branches_and_loops import while_loop
from ...transforms.control.staging import is_staged
from ...transforms.vectorize import Batched


class Method(Protocol):
    """The protocol of a solver; `done` returns one boolean, or one by element."""

    def init(self, problem: Any, start: Any) -> Any:
        """The first state."""

    def step(self, problem: Any, state: Any) -> Any:
        """The next state."""

    def done(self, problem: Any, state: Any) -> Any:
        """Whether the state is good enough."""

    def value(self, state: Any) -> Any:
        """The solution as far as the state has it."""


def run_method(
    method: Method, problem: Any, start: Any, max_steps: int, watch: Callable[[int, Any], None] | None = None
) -> tuple[Any, Any]:
    """The state in which the method is done, or that of the last step allowed; and the number of steps.

    `watch(step, state)` is called after each step, not in batches. While tracing the number of steps is a symbol.
    """
    state = method.init(problem, start)
    leaves = flatten(state)[0]
    if is_staged(*leaves) and hasattr(method, "stage_solve"):
        found: tuple[Any, Any] = method.stage_solve(problem, state, max_steps)
        return found
    if is_staged(*leaves) or any(isinstance(x, Batched) for x in leaves):
        return _run_by_element(method, problem, state, max_steps)
    for steps in range(max_steps):
        if bool(method.done(problem, state)):
            return state, steps
        state = method.step(problem, state)
        if watch is not None:
            watch(steps + 1, state)
    return state, max_steps


def _run_by_element(method: Method, problem: Any, state: Any, max_steps: int) -> tuple[Any, Any]:
    def is_active(carry: tuple[Any, Any]) -> Any:
        count, state = carry
        return pointwise.logical_and(
            pointwise.less(count, max_steps), pointwise.logical_not(method.done(problem, state))
        )

    def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        count, state = carry
        return count + 1, method.step(problem, state)

    count, state = while_loop(is_active, step, (0, state))
    return state, count if is_staged(count) else int(largest_over_batches(count))


def largest_over_batches(x: Any) -> Any:
    """The largest element of a value over all batches, as a number."""
    return unwrap_array(x).max()

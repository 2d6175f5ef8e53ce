"""What all solvers share: the problem that they see, the protocol of a method, and the loop over its steps.

A method is a small final class with `init(problem, start)`, `step(problem, state)`, `done(problem, state)` and
`value(state)`; a state is a tree of arrays. Written in ops, so that a batch of problems runs as one: each element
continues until it is done, and then stays unchanged; and so that it can be traced as a loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...arrays.origin import register_round
from ...arrays.timing import ITERATION, span
from ...arrays.trees import flatten
from ...arrays.value import unwrap_array
from ...ops.elementwise import pointwise
from ...transforms.control.branches_and_loops import while_loop
from ...transforms.control.staging import is_staged
from ...transforms.forward import jvp
from ...transforms.vectorize import Batched, vmap

State = dict[str, Any]


@dataclass(eq=False)
class SolverProblem:
    """One equation for a solver: a `function`, with the parameters in their places, and `tolerance` for its norm.

    `objective(x)` is the scalar whose gradient the residual is, for a minimum; `inner(x)` the vector whose squares are
    summed, for least squares; else None. A minimum with constraints has a `program`, the shape of its unknowns, and
    `conditions(w)`, the vector that it describes; `slopes(w)`, where they are known, are the derivatives of that by the
    variables. `xp` is NumPy or CuPy. Evaluations are counted.
    """

    function: Callable[[Any], Any]
    size: int
    dtype: Any
    tolerance: float
    xp: Any = np
    objective: Callable[[Any], Any] | None = None
    inner: Callable[[Any], Any] | None = None
    program: Any = None
    conditions: Any = None
    slopes: Callable[[Any], Any] | None = None
    functions: int = field(default=0, init=False)
    products: int = field(default=0, init=False)
    _latest: tuple[Any, Any] = field(default=(None, None), init=False)

    def residual(self, x: Any) -> Any:
        """F(x)."""
        self.functions += 1
        found = self.function(x)
        self._latest = x, found
        return found

    def residual_at_solution(self, x: Any, safe: bool) -> Any:
        """F(x) at the end. If that was the latest evaluation it is not repeated, if it is `safe` to assume that x
        was not written to in between.
        """
        latest, found = self._latest
        return found if safe and latest is x else self.residual(x)

    def push(self, x: Any, v: Any) -> tuple[Any, Any]:
        """F(x) and F'(x) v."""
        self.functions += 1
        self.products += 1
        found: tuple[Any, Any] = jvp(self.function, (x,), (v,))
        return found

    def jacobian(self, x: Any, function: Callable[[Any], Any] | None = None) -> Any:
        """The matrix F'(x), all columns at once; or that of another function."""
        self.products += self.size
        moving = self.function if function is None else function
        columns: Any = vmap(lambda v: jvp(moving, (x,), (v,))[1], 0, 1)(self.identity())
        return columns

    def identity(self) -> Any:
        """The unit matrix in the space of the unknown."""
        return self.xp.eye(self.size, dtype=self.dtype)

    @property
    def eps(self) -> float:
        """The rounding of the unknown, relative to it."""
        return float(np.finfo(self.dtype).eps)


@runtime_checkable
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


class PackageMethod(ABC):
    """A method of this package: a state holds the true residual at its solution, and no array is written to."""

    @abstractmethod
    def init(self, problem: Any, start: Any) -> State:
        """The first state."""

    @abstractmethod
    def step(self, problem: Any, state: State) -> State:
        """The next state."""


@runtime_checkable
class StagedMethod(Protocol):
    """A method with a better traced loop than that of its steps."""

    def stage_solve(self, problem: Any, state: Any, max_steps: int) -> tuple[Any, Any]:
        """The last state and the number of steps, in a traced program."""


class DescentMethod(PackageMethod):
    """A method that looks for minima, and not for any point with a gradient of zero."""


def run_method(
    method: Method, problem: Any, start: Any, max_steps: int, watch: Callable[[int, Any], None] | None = None
) -> tuple[Any, Any]:
    """The state in which the method is done, or that of the last step allowed; and the number of steps.

    `watch(step, state)` is called after each step, not in batches. While tracing the number of steps is a symbol.
    """
    state = method.init(problem, start)
    leaves = flatten(state)[0]
    if is_staged(*leaves) and isinstance(method, StagedMethod):
        return method.stage_solve(problem, state, max_steps)
    if is_staged(*leaves) or any(isinstance(x, Batched) for x in leaves):
        return _run_by_element(method, problem, state, max_steps)
    for steps in range(max_steps):
        if bool(method.done(problem, state)):
            return state, steps
        with span(ITERATION, type(method).__name__):
            state = method.step(problem, state)
        if watch is not None:
            watch(steps + 1, state)
    return state, max_steps


register_round(run_method, "steps", "the solver")


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

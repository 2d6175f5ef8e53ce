"""Methods for fixed points of contractions, by evaluations of F(x) = f(x) - x alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul, outer
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import sum as total
from ...ops.shape.reshaping import astype
from ...transforms.control.branches_and_loops import while_loop
from ..linear.operator import norm
from ..option_checks import check_positive_count, check_share
from .method_loop import PackageMethod, SolverProblem, State
from .method_tools import append_row, current_point, empty_rows, fit_dense

#: A residual that grows by more than this in one step says that the memory is of no use here.
_GROWTH = 10.0


@final
@dataclass(frozen=True)
class Picard(PackageMethod):
    """x + damping * F(x), again and again: converges if the damped map contracts, by that factor a step.

    >>> import numpy as np, pullback as pb
    >>> x = pb.fixed_point(pb.cos, 1.0, solver=pb.implicit.Picard())
    >>> float(np.round(x, 6))
    0.739085
    """

    damping: float = 1.0

    def __post_init__(self) -> None:
        check_share(self.damping, "Picard: damping")

    def init(self, problem: SolverProblem, start: Any) -> State:
        return self._state_at(problem, start)

    def step(self, problem: SolverProblem, state: State) -> State:
        move = state["residual"] if self.damping == 1 else self.damping * state["residual"]
        return self._state_at(problem, pointwise.add(state["x"], move))

    def _state_at(self, problem: SolverProblem, x: Any) -> State:
        residual = problem.residual(x)
        return {"x": x, "residual": residual, "norm": norm(residual)}

    def done(self, problem: SolverProblem, state: State) -> Any:
        # An iterate that is not finite never becomes finite again: there is nothing to wait for.
        size = state["norm"]
        return (size <= problem.tolerance) | ~pointwise.isfinite(size)

    value = staticmethod(current_point)


def _is_done(problem: SolverProblem, state: State) -> Any:
    """Whether the residual is small, or no further step can help."""
    size = state["norm"]
    return (size <= problem.tolerance) | state["stuck"] | ~pointwise.isfinite(size)


@final
@dataclass(frozen=True)
class Anderson(PackageMethod):
    """Picard's step from the combination of the last iterates whose residual would be least if F were linear.

    With differences of iterates dx_i and of residuals dF_i, gamma = argmin |F - sum_i gamma_i dF_i|, and the next is
    x + damping F - sum_i gamma_i (dx_i + damping dF_i). Where that fails the memory is emptied, so that the next step
    is Picard's.

    >>> import numpy as np, pullback as pb
    >>> x = pb.fixed_point(pb.cos, 1.0, solver=pb.implicit.Anderson(memory=2))
    >>> float(np.round(x, 6))
    0.739085
    """

    memory: int = 5
    regularization: float = 1e-10
    damping: float = 1.0

    def __post_init__(self) -> None:
        check_positive_count(self.memory, "Anderson: memory")
        check_share(self.damping, "Anderson: damping")
        if not isinstance(self.regularization, (int, float)) or not 0 <= self.regularization < np.inf:
            raise ArgumentError(f"Anderson: regularization must not be negative, got {self.regularization!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        residual = problem.residual(start)
        empty = empty_rows(start, self.memory)
        return {
            "x": start, "residual": residual, "norm": norm(residual), "steps": empty, "changes": empty,
            "filled": problem.xp.asarray(False), "stuck": problem.xp.asarray(False),
        }  # fmt: skip

    def step(self, problem: SolverProblem, state: State) -> State:
        x, residual, steps, changes = (state[name] for name in ("x", "residual", "steps", "changes"))
        gamma = self._weights(problem, changes, residual)
        there = x + self.damping * residual - matmul(gamma, steps + self.damping * changes)
        found = problem.residual(there)
        size = norm(found)
        finite = pointwise.isfinite(size)
        useful = finite & (size <= _GROWTH * state["norm"])
        empty = empty_rows(x, self.memory)
        if isinstance(useful, np.bool_) and useful:  # a shortcut, where there is nothing to choose by element
            memory = {"steps": append_row(steps, there - x), "changes": append_row(changes, found - residual)}
            return {"x": there, "residual": found, "norm": size, **memory, "filled": useful, "stuck": state["stuck"]}
        return {
            "x": pointwise.where(finite, there, x),
            "residual": pointwise.where(finite, found, residual),
            "norm": pointwise.where(finite, size, state["norm"]),
            "steps": pointwise.where(useful, append_row(steps, there - x), empty),
            "changes": pointwise.where(useful, append_row(changes, found - residual), empty),
            "filled": useful,
            "stuck": pointwise.logical_not(finite | state["filled"]),
        }

    def _weights(self, problem: SolverProblem, changes: Any, residual: Any) -> Any:
        """gamma by normal equations. Rows are scaled to length one first: later ones are smaller by orders of
        magnitude, and just those matter. Rows of zeros, not filled yet, get no weight.
        """
        lengths = pointwise.sqrt(total(pointwise.square(changes), 1))
        scale = 1 / pointwise.where(pointwise.equal(lengths, 0), 1.0, lengths)
        products = matmul(changes, changes.T) * outer(scale, scale)
        ridge = max(self.regularization, 10 * problem.eps) * problem.xp.eye(self.memory, dtype=problem.dtype)
        return scale * fit_dense(products + ridge, scale * matmul(changes, residual))

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class Accelerated(PackageMethod):
    """Picard's steps as long as each makes the residual smaller by the factor `plain_below`, Anderson's from then on: a
    map that contracts well needs no memory, which costs more than a step of it.

    >>> import numpy as np, pullback as pb
    >>> x = pb.fixed_point(pb.cos, 1.0, solver=pb.implicit.Accelerated())
    >>> float(np.round(x, 6))
    0.739085
    """

    memory: int = 5
    plain_below: float = 0.5

    def __post_init__(self) -> None:
        check_positive_count(self.memory, "Accelerated: memory")
        check_share(self.plain_below, "Accelerated: plain_below")

    def init(self, problem: SolverProblem, start: Any) -> State:
        return Anderson(self.memory).init(problem, start) | {"plain": problem.xp.asarray(True)}

    def step(self, problem: SolverProblem, state: State) -> State:
        if isinstance(state["x"], np.ndarray) and state["plain"]:  # with an empty memory, Anderson's step is Picard's
            there = state["x"] + state["residual"]
            found = problem.residual(there)
            size = norm(found)
            if isinstance(found, np.ndarray) and size < self.plain_below * state["norm"]:
                return state | {"x": there, "residual": found, "norm": size}
        after = Anderson(self.memory).step(problem, state)
        plain = state["plain"] & (after["norm"] < self.plain_below * state["norm"])
        empty = empty_rows(state["x"], self.memory)
        return after | {
            "steps": pointwise.where(plain, empty, after["steps"]),
            "changes": pointwise.where(plain, empty, after["changes"]),
            "plain": plain,
        }

    def stage_solve(self, problem: SolverProblem, state: State, max_steps: int) -> tuple[State, Any]:
        """The last state and the number of steps, in a traced program: first a loop of Picard's steps, which carries no
        memory along, then one of Anderson's.
        """

        def is_active(count: Any, state: State) -> Any:
            return (count < max_steps) & pointwise.logical_not(_is_done(problem, {"stuck": False, **state}))

        def picard_step(carry: Any) -> Any:
            count, here, _ = carry
            there = here["x"] + here["residual"]
            found = problem.residual(there)
            size = norm(found)
            good = size < self.plain_below * here["norm"]
            new = {"x": there, "residual": found, "norm": size}
            chosen = {name: pointwise.where(good, new[name], here[name]) for name in new}
            return count + astype(good, count.dtype), chosen, good

        here = {name: state[name] for name in ("x", "residual", "norm")}
        start = (np.asarray(0), here, problem.xp.asarray(True))
        count, here, _ = while_loop(lambda c: c[2] & is_active(c[0], c[1]), picard_step, start)
        step = Anderson(self.memory).step
        rest = {name: x for name, x in (state | here).items() if name != "plain"}
        found: tuple[Any, Any] = while_loop(
            lambda c: is_active(*c), lambda c: (c[0] + 1, step(problem, c[1])), (count, rest)
        )
        return found[1], found[0]

    done = staticmethod(_is_done)
    value = staticmethod(current_point)

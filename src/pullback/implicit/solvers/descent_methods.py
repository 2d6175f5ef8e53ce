"""Descent methods for minima: steps that reduce the objective, wherever they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul, outer
from ...ops.elementwise import pointwise
from ..linear.operator import norm
from ..option_checks import check_positive_count
from .line_search import CURVATURE, begin_descent, ensure_descent, is_descent_done, search_line
from .method_loop import DescentMethod, SolverProblem, State
from .method_tools import append_row, current_point, dot, empty_rows


def _first_step_length(size: Any) -> Any:
    """The length of a first step, of which only the direction is known: it goes no further than one."""
    return 1 / pointwise.where(pointwise.greater(size, 1), size, pointwise.add(0 * size, 1))


def _measure_step(problem: SolverProblem, before: State, after: State) -> tuple[Any, Any, Any, Any]:
    """The step s, the change y of the gradient, the curvature s^T y, one where it says nothing, and whether it does."""
    s, y = after["x"] - before["x"], after["residual"] - before["residual"]
    bent = dot(s, y)
    usable = bent > problem.eps * norm(s) * norm(y)
    return s, y, pointwise.where(usable, bent, 1.0), usable


def _step_by_estimate(problem: SolverProblem, state: State, newton_step: Any) -> State:
    """The state after a step by an estimate of the inverse Hessian; one that fails starts anew, or ends the search if
    it had just started.
    """
    first = pointwise.where(state["fresh"], _first_step_length(state["norm"]), 1.0)
    after = search_line(problem, state, ensure_descent(newton_step, state["residual"]), first, CURVATURE)
    return after | {"fresh": after["stuck"], "stuck": after["stuck"] & state["fresh"]}


@final
@dataclass(frozen=True)
class GradientDescent(DescentMethod):
    """Steps along the negative gradient: of the given `rate`, or, without one, of the length that fits the last step
    best (s^T s / s^T y), shortened until the objective falls.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: (x[0] - 1) ** 2 + 10 * x[1] ** 2
    >>> np.round(pb.argmin(f, np.array([3.0, 1.0]), solver=pb.implicit.GradientDescent()), 6) + 0.0
    array([1., 0.])
    """

    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and (not isinstance(self.rate, (int, float)) or not 0 < self.rate < np.inf):
            raise ArgumentError(f"GradientDescent: rate must be a positive number or None, got {self.rate!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        state = begin_descent(problem, start)
        return state | {"length": _first_step_length(state["norm"])}

    def step(self, problem: SolverProblem, state: State) -> State:
        if self.rate is not None:
            return begin_descent(problem, state["x"] - self.rate * state["residual"]) | {"length": state["length"]}
        after = search_line(problem, state, -state["residual"], state["length"], np.inf)
        s, _, bent, usable = _measure_step(problem, state, after)
        return after | {"length": pointwise.where(usable, dot(s, s) / bent, 2 * state["length"])}

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class BFGS(DescentMethod):
    """Newton's method for a minimum with an inverse Hessian H that is learnt from the steps, always positive definite.

    With s the step, y the change of the gradient and r = 1 / s^T y: H' = (1 - r s y^T) H (1 - r y s^T) + r s s^T.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: (x[0] - 1) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> np.round(pb.argmin(f, np.array([-1.2, 1.0]), solver=pb.implicit.BFGS()), 6)
    array([1., 1.])
    """

    def init(self, problem: SolverProblem, start: Any) -> State:
        return begin_descent(problem, start) | {"inverse": problem.identity(), "fresh": problem.xp.asarray(True)}

    def step(self, problem: SolverProblem, state: State) -> State:
        H = state["inverse"]
        after = _step_by_estimate(problem, state, -matmul(H, state["residual"]))
        s, y, bent, usable = _measure_step(problem, state, after)
        learned = pointwise.where(usable, self._update_inverse(H, s, y, bent, state["fresh"]), H)
        return after | {"inverse": pointwise.where(after["fresh"], problem.identity(), learned)}

    def _update_inverse(self, H: Any, s: Any, y: Any, bent: Any, fresh: Any) -> Any:
        """H' multiplied out; the identity is first scaled to the curvature that was found."""
        H = pointwise.where(fresh, bent / pointwise.maximum(dot(y, y), float(np.finfo(H.dtype).tiny)), 1.0) * H
        Hy = matmul(H, y)
        along = outer(s, Hy)
        return H - (along + along.T) / bent + (1 + dot(y, Hy) / bent) / bent * outer(s, s)

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class LBFGS(DescentMethod):
    """BFGS whose inverse Hessian is given by the last `memory` steps and changes of the gradient, for many unknowns.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: pb.sum((x - np.arange(4.0)) ** 4 + (x - np.arange(4.0)) ** 2)
    >>> np.round(pb.argmin(f, np.zeros(4), solver=pb.implicit.LBFGS(memory=3)), 6) + 0.0
    array([0., 1., 2., 3.])
    """

    memory: int = 10

    def __post_init__(self) -> None:
        check_positive_count(self.memory, "LBFGS: memory")

    def init(self, problem: SolverProblem, start: Any) -> State:
        empty = empty_rows(start, self.memory)
        weights, one = problem.xp.zeros(self.memory, problem.dtype), problem.xp.ones((), problem.dtype)
        return begin_descent(problem, start) | {
            "steps": empty, "changes": empty, "weights": weights, "scale": one, "fresh": problem.xp.asarray(True)
        }  # fmt: skip

    def step(self, problem: SolverProblem, state: State) -> State:
        after = _step_by_estimate(problem, state, -self._multiply_inverse(state, state["residual"]))
        failed = after["fresh"]
        s, y, bent, usable = _measure_step(problem, state, after)
        learned = {
            name: pointwise.where(usable, append_row(state[name], new), state[name])
            for name, new in (("steps", s), ("changes", y), ("weights", 1 / bent))
        }
        kept = {name: pointwise.where(failed, 0 * state[name], new) for name, new in learned.items()}
        scale = pointwise.where(usable, bent / pointwise.where(usable, dot(y, y), 1.0), state["scale"])
        return after | kept | {"scale": pointwise.where(failed, 1.0, scale)}

    def _multiply_inverse(self, state: State, v: Any) -> Any:
        """H v: the factors (1 - r y s^T) from the newest on, the scaled identity, and the factors back again, each with
        its term r s s^T. Rows that are not filled have weight zero.
        """
        rows = [(state["steps"][i], state["changes"][i], state["weights"][i]) for i in range(self.memory)]
        shares = []
        for s, y, weight in reversed(rows):
            shares.append(weight * dot(s, v))
            v = v - shares[-1] * y
        v = state["scale"] * v
        for (s, y, weight), share in zip(rows, reversed(shares), strict=True):
            v = v + (share - weight * dot(y, v)) * s
        return v

    done = staticmethod(is_descent_done)
    value = staticmethod(current_point)

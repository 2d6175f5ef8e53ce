"""Methods for roots of F(x) = 0, by the Jacobian or an estimate of it; steps are shortened until they help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...errors import ArgumentError
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import max as largest
from ...ops.reduce.reductions import sum as total
from ...ops.shape.arrange import stack
from ...ops.shape.reshaping import squeeze
from ...transforms.control.branches_and_loops import cond, while_loop
from ...transforms.vectorize import Batched
from ..linear.krylov import GMRES
from ..linear.operator import LinearSystem, norm
from ..option_checks import check_positive_count
from .method_loop import PackageMethod, SolverProblem, State, run_method
from .method_tools import append_row, current_point, empty_rows, fit_dense

#: A step of length t must reduce |F| by this share of t at least.
_DECREASE = 1e-4
#: How many norms of F a step is compared with.
_WINDOW = 10
#: How many lengths of a step must reduce the last norm itself: 1, 1/2, ...
_STRICT = 4
#: How often a step is halved before the method gives up.
_HALVINGS = 40
#: The same for a step that has something better behind it.
_FEW_HALVINGS = 6
#: The least that a linear solve inside Newton's method must achieve.
_LOOSEST_FORCING = 0.5
#: How many steps it may take; one that is cut off is a direction all the same.
_LINEAR_STEPS = 200


def is_done(problem: SolverProblem, state: State) -> Any:
    """Whether the residual is small, or no step makes it smaller."""
    return (state["norm"] <= problem.tolerance) | state["stuck"]


def state_at(problem: SolverProblem, start: Any) -> State:
    """What the methods here know of their first point; `past` are the norms of the last ones."""
    residual = problem.residual(start)
    size = norm(residual)
    return {
        "x": start, "residual": residual, "norm": size, "stuck": problem.xp.asarray(False),
        "past": stack([size] * _WINDOW),
    }  # fmt: skip


def backtrack(
    problem: SolverProblem, state: State, direction: Any, strict: int = _STRICT, halvings: Any = _HALVINGS
) -> State:
    """The state after a step along a direction, halved until |F| is small enough; stuck where it never is.

    The first `strict` lengths must make |F| fall. Along a curved valley it has to rise before it can fall, and steps
    that never let it creep: so after them it starts again from length one, and must only fall below the largest of the
    last few norms.
    """
    x, least, before = state["x"], state["norm"], largest(state["past"])

    def try_length(tries: Any, t: Any) -> tuple[Any, ...]:
        there = x + t * direction
        found = problem.residual(there)
        return tries, t, there, found, norm(found)

    def is_too_long(carry: tuple[Any, ...]) -> Any:
        tries, t, _, _, size = carry
        bound = pointwise.where(pointwise.less(tries, strict), least, before)
        is_enough = size <= (1 - _DECREASE * t) * bound
        return pointwise.logical_not(is_enough) & pointwise.less(tries, halvings)

    def shorten(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        tries = carry[0] + 1
        return try_length(tries, pointwise.where(pointwise.equal(tries, strict), 1.0, 0.5 * carry[1]))

    _, _, there, found, size = while_loop(is_too_long, shorten, try_length(0, problem.xp.ones((), problem.dtype)))
    better = size < before
    return {
        "x": pointwise.where(better, there, x),
        "residual": pointwise.where(better, found, state["residual"]),
        "norm": pointwise.where(better, size, state["norm"]),
        "stuck": pointwise.logical_not(better),
        "past": pointwise.where(better, append_row(state["past"], size), state["past"]),
    }


@final
@dataclass(frozen=True)
class Newton(PackageMethod):
    """x - F'(x)^-1 F(x) with the whole Jacobian, shortened where |F| would not fall: near a root the number of correct
    digits doubles at each step. For up to some hundred unknowns.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 10.0, solver=pb.implicit.Newton())
    >>> float(np.round(x, 6))
    1.259921
    """

    def init(self, problem: SolverProblem, start: Any) -> State:
        return state_at(problem, start)

    def step(self, problem: SolverProblem, state: State) -> State:
        return backtrack(problem, state, -fit_dense(problem.jacobian(state["x"]), state["residual"]))

    done = staticmethod(is_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class NewtonKrylov(PackageMethod):
    """Newton's method without a matrix: steps by a Krylov method from products F'(x) v, each only as exact as it pays.

    With |F - F'd| <= eta |F| the residual falls by eta or so; eta follows the square of what the last step achieved, so
    that the first steps are cheap and the last ones converge fast. `inner` is a linear method, GMRES by default.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - np.arange(1.0, 4.0), np.ones(3), solver=pb.implicit.NewtonKrylov())
    >>> np.round(x, 6)
    array([1.      , 1.259921, 1.44225 ])
    """

    inner: Any = None

    def init(self, problem: SolverProblem, start: Any) -> State:
        return state_at(problem, start) | {"forcing": problem.xp.asarray(_LOOSEST_FORCING, problem.dtype)}

    def step(self, problem: SolverProblem, state: State) -> State:
        x, before, forcing = state["x"], state["norm"], state["forcing"]
        system = LinearSystem(lambda v: problem.push(x, v)[1], problem.size, problem.dtype, forcing, xp=problem.xp)
        method = self.inner or GMRES()
        found, _ = run_method(method, system, pointwise.negative(state["residual"]), _LINEAR_STEPS)
        after = backtrack(problem, state, method.value(found))
        gained = after["norm"] / pointwise.where(pointwise.equal(before, 0), 1.0, before)
        finest = 10 * problem.eps
        return after | {"forcing": pointwise.clip_to(0.9 * gained * gained, finest, _LOOSEST_FORCING)}

    done = staticmethod(is_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class Broyden(PackageMethod):
    """Newton's method with an inverse Jacobian H that is learnt from the steps: no products with F' but one at a start
    or a restart. With s the step and y the change of F, H' = H + (s - H y) s^T H / (s^T H y) has H' y = s.

    H is a multiple of the identity, the best one for F itself, and the last `memory` corrections u v^T. Where a step
    does not help, H starts anew there; its first direction reduces |F| unless F' F is orthogonal to F.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 1.0, solver=pb.implicit.Broyden())
    >>> float(np.round(x, 6))
    1.259921
    """

    memory: int = 10

    def __post_init__(self) -> None:
        check_positive_count(self.memory, "Broyden: memory")

    def init(self, problem: SolverProblem, start: Any) -> State:
        state = state_at(problem, start)
        empty = empty_rows(start, self.memory)
        scale = _best_multiple(problem, start, state["residual"])
        return state | {"scale": scale, "left": empty, "right": empty, "fresh": problem.xp.asarray(True)}

    def step(self, problem: SolverProblem, state: State) -> State:
        x, residual, scale, left, right, fresh = (
            state[name] for name in ("x", "residual", "scale", "left", "right", "fresh")
        )
        direction = pointwise.negative(scale * residual + matmul(matmul(right, residual), left))
        after = backtrack(problem, state, direction, 0, pointwise.where(fresh, _HALVINGS, _FEW_HALVINGS))
        failed = after["stuck"]
        s, y = after["x"] - x, after["residual"] - residual
        found = scale * y + matmul(matmul(right, y), left)
        across = scale * s + matmul(matmul(left, s), right)
        slope = total(s * found)
        usable = pointwise.abs(slope) > problem.eps * norm(s) * norm(found)
        correction = pointwise.where(usable, (s - found) / pointwise.where(usable, slope, 1.0), 0 * s)
        empty = empty_rows(x, self.memory)
        return after | {
            "scale": cond(failed, lambda a, b, c: _best_multiple(problem, a, b), lambda a, b, c: c, x, residual, scale),
            "left": pointwise.where(failed, empty, append_row(left, correction)),
            "right": pointwise.where(failed, empty, append_row(right, across)),
            "fresh": failed,
            "stuck": failed & fresh,
        }

    done = staticmethod(is_done)
    value = staticmethod(current_point)


def _best_multiple(problem: SolverProblem, x: Any, residual: Any) -> Any:
    """The number a with |F - a F' F| least; -1, the step of a fixed point, where there is none."""
    product = problem.push(x, residual)[1]
    size = total(pointwise.square(product))
    usable = (size > 0) & pointwise.isfinite(size)
    best = total(residual * product) / pointwise.where(usable, size, 1.0)
    return pointwise.where(usable, best, -1.0)


@final
@dataclass(frozen=True)
class Chord(PackageMethod):
    """Newton's method with the Jacobian of the start for all steps: one matrix, and then a product with its inverse a
    step. For starts near the root.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 1.2, solver=pb.implicit.Chord())
    >>> float(np.round(x, 6))
    1.259921
    """

    def init(self, problem: SolverProblem, start: Any) -> State:
        return state_at(problem, start) | {"inverse": fit_dense(problem.jacobian(start), problem.identity())}

    def step(self, problem: SolverProblem, state: State) -> State:
        inverse = state["inverse"]
        direction = -matmul(inverse, state["residual"])
        return backtrack(problem, state, direction) | {"inverse": inverse}

    done = staticmethod(is_done)
    value = staticmethod(current_point)


@final
@dataclass(frozen=True)
class Bisection(PackageMethod):
    """The root of one equation in one unknown between `low` and `high`, where the function has opposite signs: halves
    the interval at each step. A start inside of it is tried first.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 0.0, solver=pb.implicit.Bisection(0, 2))
    >>> float(np.round(x, 6))
    1.259921
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not all(isinstance(x, (int, float)) and np.isfinite(x) for x in ends) or not self.low < self.high:
            raise ArgumentError(f"Bisection: wants finite numbers low < high, got {self.low!r} and {self.high!r}.")

    def init(self, problem: SolverProblem, start: Any) -> State:
        if problem.size != 1:
            raise ArgumentError(f"Bisection: wants one unknown, got {problem.size}.\n  Use Newton for several.")
        low, high = (problem.xp.full(1, x, problem.dtype) for x in (self.low, self.high))
        at_low, at_high = problem.residual(low), problem.residual(high)
        x = pointwise.where((low <= start) & (start <= high), start, 0.5 * low + 0.5 * high)
        x = pointwise.where(pointwise.equal(at_low, 0), low, pointwise.where(pointwise.equal(at_high, 0), high, x))
        crosses = pointwise.sign(at_low) * pointwise.sign(at_high) <= 0
        if not isinstance(crosses, Batched) and not crosses.all():
            raise ArgumentError(
                f"Bisection: the function has the same sign at both ends: {at_low[0]:.3g} at {self.low} and "
                f"{at_high[0]:.3g} at {self.high}.\n  Give an interval in which it changes its sign."
            )
        return state_at(problem, x) | {
            "low": low, "high": high, "sign": pointwise.sign(at_low),
            "stuck": squeeze(pointwise.logical_not(crosses), 0),
        }  # fmt: skip

    def step(self, problem: SolverProblem, state: State) -> State:
        below = pointwise.equal(pointwise.sign(state["residual"]), state["sign"])
        low = pointwise.where(below, state["x"], state["low"])
        high = pointwise.where(below, state["high"], state["x"])
        x = 0.5 * low + 0.5 * high
        stuck = state["stuck"] | squeeze((x <= low) | (x >= high), 0)
        return state_at(problem, x) | {"low": low, "high": high, "sign": state["sign"], "stuck": stuck}

    done = staticmethod(is_done)
    value = staticmethod(current_point)

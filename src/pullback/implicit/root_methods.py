"""Equation F(x) = 0 in, its root out, by its Jacobian or something near it; steps are shortened until they help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import make_spec, spec_of, zeros
from ..errors import ArgumentError
from ..ops import elementwise as pointwise
from ..ops.arranging import concat, stack
from ..ops.batching import lead
from ..ops.contracting import matmul
from ..ops.dispatch import apply
from ..ops.op import Op
from ..ops.reducing import max as largest
from ..ops.reducing import sum as total
from ..ops.shaping import expand_dims, squeeze
from ..transforms.batching import Batched
from ..transforms.control import cond, while_loop
from ..transforms.rules import custom_record
from .drive import drive
from .krylov import GMRES
from .linear import System, norm

__all__ = ["Bisection", "Broyden", "Chord", "Newton", "NewtonKrylov", "densely_solved"]

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
_LOOSEST = 0.5
#: How many steps it may take; one that is cut off is a direction all the same.
_LINEAR_STEPS = 200


def checked_count(value: Any, what: str) -> None:
    """Raise unless a parameter is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{what} must be a positive integer, got {value!r}.")


def memory_of(x: Any, rows: int) -> Any:
    """Zeros for so many vectors like x."""
    spec = spec_of(x)
    return zeros(make_spec((rows, *spec.shape), spec.dtype, spec.device))


def remembered(rows: Any, row: Any) -> Any:
    """Rows without the oldest, which is the first, and with a new one at the end."""
    return concat([rows[1:], expand_dims(row, 0)])


def densely_solved(matrix: Any, right: Any) -> Any:
    """The solution of a dense system for a vector, or for the columns of a matrix; the shortest of the best ones where
    the matrix is singular. It has no derivative: solvers run on values alone.
    """
    if spec_of(right).ndim == 2:
        return apply(_dense, matrix, right)
    return squeeze(apply(_dense, matrix, expand_dims(right, 1)), 1)


def eliminated(xp: Any, matrix: Any, right: Any) -> Any:
    """The same for bare arrays, or stacks of them: one singular matrix says nothing about the others."""
    try:
        found = xp.linalg.solve(matrix, right)
        if xp is not np and not xp.isfinite(found).all():  # CuPy does not say that a matrix is singular
            found = xp.where(xp.isfinite(found).all((-2, -1), keepdims=True), found, _best(xp, matrix, right))
        return found
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return _best(xp, matrix, right)
        return xp.stack([eliminated(xp, a, b) for a, b in zip(matrix, right, strict=True)])


def _best(xp: Any, matrix: Any, right: Any) -> Any:
    try:
        return xp.linalg.pinv(matrix) @ right
    except np.linalg.LinAlgError:  # it holds something that is not finite
        return xp.full_like(right, np.nan)


def _batched(size: int, axes: tuple[int | None, ...], matrix: Any, right: Any) -> tuple[Any, int]:
    return apply(_dense, lead(matrix, axes[0], size), lead(right, axes[1], size)), 0


_dense: Op = custom_record(
    "dense_solve", ("matrix", "right"), eliminated, None, None, _batched, lambda matrix, right: right
)


def settled(problem: Any, state: dict[str, Any]) -> Any:
    """Whether the residual is small, or no step makes it smaller."""
    return (state["norm"] <= problem.tolerance) | state["stuck"]


def where_it_is(state: dict[str, Any]) -> Any:
    """The answer so far."""
    return state["x"]


def at_start(problem: Any, start: Any) -> dict[str, Any]:
    """What the methods here know of their first point; `past` are the norms of the last ones."""
    residual = problem.residual(start)
    size = norm(residual)
    return {
        "x": start, "residual": residual, "norm": size, "stuck": problem.xp.asarray(False),
        "past": stack([size] * _WINDOW),
    }  # fmt: skip


def backtracked(
    problem: Any, state: dict[str, Any], direction: Any, strict: int = _STRICT, halvings: Any = _HALVINGS
) -> dict[str, Any]:
    """The state after a step along a direction, halved until |F| is small enough; stuck where it never is.

    The first `strict` lengths must make |F| fall. Along a curved valley it has to rise before it can fall, and steps
    that never let it creep: so after them it starts again from length one, and must only fall below the largest of the
    last few norms.
    """
    x, least, before = state["x"], state["norm"], largest(state["past"])

    def trial(tries: Any, t: Any) -> tuple[Any, ...]:
        there = x + t * direction
        found = problem.residual(there)
        return tries, t, there, found, norm(found)

    def too_far(carry: tuple[Any, ...]) -> Any:
        tries, t, _, _, size = carry
        bound = pointwise.where(pointwise.less(tries, strict), least, before)
        enough = pointwise.less_equal(size, (1 - _DECREASE * t) * bound)
        return pointwise.logical_and(pointwise.logical_not(enough), pointwise.less(tries, halvings))

    def shorter(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        tries = carry[0] + 1
        return trial(tries, pointwise.where(pointwise.equal(tries, strict), 1.0, 0.5 * carry[1]))

    _, _, there, found, size = while_loop(too_far, shorter, trial(0, problem.xp.ones((), problem.dtype)))
    better = pointwise.less(size, before)
    return {
        "x": pointwise.where(better, there, x),
        "residual": pointwise.where(better, found, state["residual"]),
        "norm": pointwise.where(better, size, state["norm"]),
        "stuck": pointwise.logical_not(better),
        "past": pointwise.where(better, remembered(state["past"], size), state["past"]),
    }


@final
@dataclass(frozen=True)
class Newton:
    """x - F'(x)^-1 F(x) with the whole Jacobian, shortened where |F| would not fall: near a root the number of correct
    digits doubles at each step. For up to some hundred unknowns.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 10.0, solver=pb.implicit.Newton())
    >>> float(np.round(x, 6))
    1.259921
    """

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        return at_start(problem, start)

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        return backtracked(problem, state, -densely_solved(problem.jacobian(state["x"]), state["residual"]))

    done = staticmethod(settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class NewtonKrylov:
    """Newton's method without a matrix: steps by a Krylov method from products F'(x) v, each only as exact as it pays.

    With |F - F'd| <= eta |F| the residual falls by eta or so; eta follows the square of what the last step achieved, so
    that the first steps are cheap and the last ones converge fast. `inner` is a linear method, GMRES by default.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - np.arange(1.0, 4.0), np.ones(3), solver=pb.implicit.NewtonKrylov())
    >>> np.round(x, 6)
    array([1.      , 1.259921, 1.44225 ])
    """

    inner: Any = None

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        return at_start(problem, start) | {"forcing": problem.xp.asarray(_LOOSEST, problem.dtype)}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        x, before, forcing = state["x"], state["norm"], state["forcing"]
        system = System(lambda v: problem.push(x, v)[1], problem.size, problem.dtype, forcing, xp=problem.xp)
        method = self.inner or GMRES()
        found, _ = drive(method, system, pointwise.negative(state["residual"]), _LINEAR_STEPS)
        after = backtracked(problem, state, method.value(found))
        gained = after["norm"] / pointwise.where(pointwise.equal(before, 0), 1.0, before)
        finest = 10 * float(np.finfo(problem.dtype).eps)
        return after | {"forcing": pointwise.clip_to(0.9 * gained * gained, finest, _LOOSEST)}

    done = staticmethod(settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class Broyden:
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
        checked_count(self.memory, "Broyden: memory")

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        state = at_start(problem, start)
        empty = memory_of(start, self.memory)
        scale = _best_multiple(problem, start, state["residual"])
        return state | {"scale": scale, "left": empty, "right": empty, "fresh": problem.xp.asarray(True)}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        x, residual, scale, left, right, fresh = (
            state[name] for name in ("x", "residual", "scale", "left", "right", "fresh")
        )
        direction = pointwise.negative(scale * residual + matmul(matmul(right, residual), left))
        after = backtracked(problem, state, direction, 0, pointwise.where(fresh, _HALVINGS, _FEW_HALVINGS))
        failed = after["stuck"]
        s, y = after["x"] - x, after["residual"] - residual
        found = scale * y + matmul(matmul(right, y), left)
        across = scale * s + matmul(matmul(left, s), right)
        slope = total(s * found)
        usable = pointwise.greater(pointwise.abs(slope), float(np.finfo(problem.dtype).eps) * norm(s) * norm(found))
        correction = pointwise.where(usable, (s - found) / pointwise.where(usable, slope, 1.0), 0 * s)
        empty = memory_of(x, self.memory)
        return after | {
            "scale": cond(failed, lambda a, b, c: _best_multiple(problem, a, b), lambda a, b, c: c, x, residual, scale),
            "left": pointwise.where(failed, empty, remembered(left, correction)),
            "right": pointwise.where(failed, empty, remembered(right, across)),
            "fresh": failed,
            "stuck": pointwise.logical_and(failed, fresh),
        }

    done = staticmethod(settled)
    value = staticmethod(where_it_is)


def _best_multiple(problem: Any, x: Any, residual: Any) -> Any:
    """The number a with |F - a F' F| least; -1, the step of a fixed point, where there is none."""
    product = problem.push(x, residual)[1]
    size = total(pointwise.square(product))
    usable = pointwise.logical_and(pointwise.greater(size, 0), pointwise.isfinite(size))
    best = total(residual * product) / pointwise.where(usable, size, 1.0)
    return pointwise.where(usable, best, -1.0)


@final
@dataclass(frozen=True)
class Chord:
    """Newton's method with the Jacobian of the start for all steps: one matrix, and then a product with its inverse a
    step. For starts near the root.

    >>> import numpy as np, pullback as pb
    >>> x = pb.root(lambda x: x**3 - 2, 1.2, solver=pb.implicit.Chord())
    >>> float(np.round(x, 6))
    1.259921
    """

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        identity = problem.xp.eye(problem.size, dtype=problem.dtype)
        return at_start(problem, start) | {"inverse": densely_solved(problem.jacobian(start), identity)}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        inverse = state["inverse"]
        direction = pointwise.negative(matmul(inverse, state["residual"]))
        return backtracked(problem, state, direction) | {"inverse": inverse}

    done = staticmethod(settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class Bisection:
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

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        if problem.size != 1:
            raise ArgumentError(f"Bisection: wants one unknown, got {problem.size}.\n  Use Newton for several.")
        low, high = (problem.xp.full(1, x, problem.dtype) for x in (self.low, self.high))
        at_low, at_high = problem.residual(low), problem.residual(high)
        inside = pointwise.logical_and(pointwise.less_equal(low, start), pointwise.less_equal(start, high))
        x = pointwise.where(inside, start, 0.5 * low + 0.5 * high)
        x = pointwise.where(pointwise.equal(at_low, 0), low, pointwise.where(pointwise.equal(at_high, 0), high, x))
        crosses = pointwise.less_equal(pointwise.sign(at_low) * pointwise.sign(at_high), 0)
        if not isinstance(crosses, Batched) and not crosses.all():
            raise ArgumentError(
                f"Bisection: the function has the same sign at both ends: {at_low[0]:.3g} at {self.low} and "
                f"{at_high[0]:.3g} at {self.high}.\n  Give an interval in which it changes its sign."
            )
        return at_start(problem, x) | {
            "low": low, "high": high, "sign": pointwise.sign(at_low),
            "stuck": squeeze(pointwise.logical_not(crosses), 0),
        }  # fmt: skip

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        below = pointwise.equal(pointwise.sign(state["residual"]), state["sign"])
        low = pointwise.where(below, state["x"], state["low"])
        high = pointwise.where(below, state["high"], state["x"])
        x = 0.5 * low + 0.5 * high
        narrow = pointwise.logical_or(pointwise.less_equal(x, low), pointwise.greater_equal(x, high))
        stuck = pointwise.logical_or(state["stuck"], squeeze(narrow, 0))
        return at_start(problem, x) | {"low": low, "high": high, "sign": state["sign"], "stuck": stuck}

    done = staticmethod(settled)
    value = staticmethod(where_it_is)

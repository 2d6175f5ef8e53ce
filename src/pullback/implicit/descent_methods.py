"""Gradient F(x) = 0 in, minimum out: steps that reduce the objective, or the sum of squares, wherever they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import make_spec
from ..errors import ArgumentError
from ..ops import elementwise as pointwise
from ..ops.arranging import concat
from ..ops.batching import lead
from ..ops.contracting import matmul, outer
from ..ops.dispatch import apply
from ..ops.op import Op
from ..ops.reducing import sum as total
from ..ops.shaping import astype, expand_dims, squeeze
from ..transforms.batching import vmap
from ..transforms.control import while_loop
from ..transforms.forward import jvp
from ..transforms.rules import custom_record
from .linear import norm
from .root_methods import checked_count, eliminated, memory_of, remembered, where_it_is

__all__ = ["BFGS", "GaussNewton", "GradientDescent", "LBFGS", "LevenbergMarquardt"]

#: A step of length t must reduce the objective by this share of what its slope promises.
_DECREASE = 1e-4
#: The slope along the step must become this much flatter; without it the step was too short to learn from.
_FLATTER = 0.9
#: How many lengths a search tries.
_TRIALS = 40


def _dot(a: Any, b: Any) -> Any:
    return total(a * b)


def _merit(problem: Any, x: Any) -> Any:
    """What is to be minimised: the objective, half the sum of squares, or zero where neither is known."""
    objective, inner = getattr(problem, "objective", None), getattr(problem, "inner", None)
    if objective is not None:
        return astype(objective(x), problem.dtype)
    if inner is not None:
        return astype(0.5 * total(pointwise.square(inner(x))), problem.dtype)
    return 0 * total(x)


def _begun(problem: Any, start: Any) -> dict[str, Any]:
    gradient, merit = problem.residual(start), _merit(problem, start)
    return {
        "x": start, "residual": gradient, "norm": norm(gradient), "merit": merit, "height": pointwise.abs(merit),
        "stuck": problem.xp.asarray(False),
    }  # fmt: skip


def _rounding(problem: Any, state: dict[str, Any]) -> Any:
    """By how much two values of the objective may differ for no reason. The largest one so far stands for the terms
    that it is the sum of: they may cancel at the minimum.
    """
    return 16 * float(np.finfo(problem.dtype).eps) * state["height"]


def _moved(state: dict[str, Any], found: dict[str, Any], good: Any) -> dict[str, Any]:
    """The state at a new point where that is good, stuck elsewhere."""
    after = {name: pointwise.where(good, found[name], state[name]) for name in ("x", "residual", "merit")}
    height = pointwise.maximum(state["height"], pointwise.abs(after["merit"]))
    return after | {"norm": norm(after["residual"]), "height": height, "stuck": pointwise.logical_not(good)}


def _settled(problem: Any, state: dict[str, Any]) -> Any:
    """Whether the gradient is small, or nothing more can be done about it."""
    over = pointwise.logical_or(state["stuck"], pointwise.logical_not(pointwise.isfinite(state["norm"])))
    return pointwise.logical_or(pointwise.less_equal(state["norm"], problem.tolerance), over)


def _searched(problem: Any, state: dict[str, Any], direction: Any, first: Any, flatter: float) -> dict[str, Any]:
    """The state after a step along a direction of descent, of a length that is neither too long nor too short.

    Too long: the objective does not fall enough. Where it differs by no more than rounding, the slopes decide, so that
    the gradient can become smaller than the objective can show; so they do where there is no objective. Too short: the
    slope is still nearly what it was. Lengths are doubled until one is too long, and then bisected.
    """
    x, before = state["x"], state["merit"]
    slope = _dot(state["residual"], direction)
    known = getattr(problem, "objective", None) is not None or getattr(problem, "inner", None) is not None
    rounding = _rounding(problem, state)

    def too_long(t: Any, merit: Any, slope_there: Any) -> Any:
        falls = pointwise.less_equal(merit, before + _DECREASE * t * slope) if known else problem.xp.asarray(False)
        level = pointwise.less_equal(merit, before + rounding)
        gentle = pointwise.less_equal(slope_there, -0.8 * slope)
        return pointwise.logical_not(pointwise.logical_or(falls, pointwise.logical_and(level, gentle)))

    def trial(t: Any, low: Any, high: Any, tries: Any) -> dict[str, Any]:
        there = x + t * direction
        gradient = problem.residual(there)
        merit, slope_there = _merit(problem, there), _dot(gradient, direction)
        long = too_long(t, merit, slope_there)
        short = pointwise.logical_and(pointwise.logical_not(long), pointwise.less(slope_there, flatter * slope))
        return {
            "t": t, "low": pointwise.where(long, low, t), "high": pointwise.where(long, t, high), "tries": tries,
            "x": there, "residual": gradient, "merit": merit, "long": long, "short": short,
        }  # fmt: skip

    def goes_on(c: dict[str, Any]) -> Any:
        return pointwise.logical_and(pointwise.logical_or(c["long"], c["short"]), pointwise.less(c["tries"], _TRIALS))

    def again(c: dict[str, Any]) -> dict[str, Any]:
        low, high = c["low"], c["high"]
        t = pointwise.where(pointwise.isinf(high), 2 * low, 0.5 * (low + high))
        return trial(t, low, high, c["tries"] + 1)

    zero, infinity = problem.xp.zeros((), problem.dtype), problem.xp.full((), np.inf, problem.dtype)
    found = while_loop(goes_on, again, trial(first, zero, infinity, 0))
    return _moved(state, found, pointwise.logical_not(found["long"]))


def _short_of_one(size: Any) -> Any:
    """The length of a first step, of which only the direction is known: it goes no further than one."""
    return 1 / pointwise.where(pointwise.greater(size, 1), size, pointwise.add(0 * size, 1))


def _descending(direction: Any, gradient: Any) -> Any:
    """The direction, or that of steepest descent where it does not go down."""
    return pointwise.where(pointwise.less(_dot(direction, gradient), 0), direction, pointwise.negative(gradient))


def _curved(s: Any, y: Any, precision: float) -> tuple[Any, Any]:
    """s^T y, and whether it is large enough to say something about the curvature."""
    bent = _dot(s, y)
    return bent, pointwise.greater(bent, precision * norm(s) * norm(y))


@final
@dataclass(frozen=True)
class GradientDescent:
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

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        state = _begun(problem, start)
        return state | {"length": _short_of_one(state["norm"])}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        if self.rate is not None:
            return _begun(problem, state["x"] - self.rate * state["residual"]) | {"length": state["length"]}
        after = _searched(problem, state, pointwise.negative(state["residual"]), state["length"], np.inf)
        s, y = after["x"] - state["x"], after["residual"] - state["residual"]
        bent, usable = _curved(s, y, float(np.finfo(problem.dtype).eps))
        best = _dot(s, s) / pointwise.where(usable, bent, 1.0)
        return after | {"length": pointwise.where(usable, best, 2 * state["length"])}

    done = staticmethod(_settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class BFGS:
    """Newton's method for a minimum with an inverse Hessian H that is learnt from the steps, always positive definite.

    With s the step, y the change of the gradient and r = 1 / s^T y: H' = (1 - r s y^T) H (1 - r y s^T) + r s s^T.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: (x[0] - 1) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    >>> np.round(pb.argmin(f, np.array([-1.2, 1.0]), solver=pb.implicit.BFGS()), 6)
    array([1., 1.])
    """

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        identity = problem.xp.eye(problem.size, dtype=problem.dtype)
        return _begun(problem, start) | {"inverse": identity, "fresh": problem.xp.asarray(True)}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        H, fresh, gradient = state["inverse"], state["fresh"], state["residual"]
        direction = _descending(pointwise.negative(matmul(H, gradient)), gradient)
        first = pointwise.where(fresh, _short_of_one(state["norm"]), 1.0)
        after = _searched(problem, state, direction, first, _FLATTER)
        identity, failed = problem.xp.eye(problem.size, dtype=problem.dtype), after["stuck"]
        s, y = after["x"] - state["x"], after["residual"] - gradient
        bent, usable = _curved(s, y, float(np.finfo(problem.dtype).eps))
        inverse = self._learnt(H, s, y, pointwise.where(usable, bent, 1.0), fresh)
        return after | {
            "inverse": pointwise.where(failed, identity, pointwise.where(usable, inverse, H)),
            "fresh": failed,
            "stuck": pointwise.logical_and(failed, fresh),
        }

    def _learnt(self, H: Any, s: Any, y: Any, bent: Any, fresh: Any) -> Any:
        """H' multiplied out; the identity is first scaled to the curvature that was found."""
        H = pointwise.where(fresh, bent / pointwise.maximum(_dot(y, y), float(np.finfo(H.dtype).tiny)), 1.0) * H
        Hy = matmul(H, y)
        along = outer(s, Hy)
        return H - (along + along.T) / bent + (1 + _dot(y, Hy) / bent) / bent * outer(s, s)

    done = staticmethod(_settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class LBFGS:
    """BFGS whose inverse Hessian is given by the last `memory` steps and changes of the gradient, for many unknowns.

    >>> import numpy as np, pullback as pb
    >>> f = lambda x: pb.sum((x - np.arange(4.0)) ** 4 + (x - np.arange(4.0)) ** 2)
    >>> np.round(pb.argmin(f, np.zeros(4), solver=pb.implicit.LBFGS(memory=3)), 6) + 0.0
    array([0., 1., 2., 3.])
    """

    memory: int = 10

    def __post_init__(self) -> None:
        checked_count(self.memory, "LBFGS: memory")

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        empty = memory_of(start, self.memory)
        weights, one = problem.xp.zeros(self.memory, problem.dtype), problem.xp.ones((), problem.dtype)
        return _begun(problem, start) | {
            "steps": empty, "changes": empty, "weights": weights, "scale": one, "fresh": problem.xp.asarray(True)
        }  # fmt: skip

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        fresh, gradient = state["fresh"], state["residual"]
        direction = _descending(pointwise.negative(self._multiplied(state, gradient)), gradient)
        first = pointwise.where(fresh, _short_of_one(state["norm"]), 1.0)
        after = _searched(problem, state, direction, first, _FLATTER)
        failed = after["stuck"]
        s, y = after["x"] - state["x"], after["residual"] - gradient
        bent, usable = _curved(s, y, float(np.finfo(problem.dtype).eps))
        size = pointwise.where(usable, _dot(y, y), 1.0)
        news = {"steps": s, "changes": y, "weights": 1 / pointwise.where(usable, bent, 1.0)}
        kept = {
            name: pointwise.where(
                failed, 0 * state[name], pointwise.where(usable, remembered(state[name], new), state[name])
            )
            for name, new in news.items()
        }
        scale = pointwise.where(failed, 1.0, pointwise.where(usable, bent / size, state["scale"]))
        return after | kept | {"scale": scale, "fresh": failed, "stuck": pointwise.logical_and(failed, fresh)}

    def _multiplied(self, state: dict[str, Any], v: Any) -> Any:
        """H v: the factors (1 - r y s^T) from the newest on, the scaled identity, and the factors back again, each with
        its term r s s^T. Rows that are not filled have weight zero.
        """
        rows = [(state["steps"][i], state["changes"][i], state["weights"][i]) for i in range(self.memory)]
        shares = []
        for s, y, weight in reversed(rows):
            shares.append(weight * _dot(s, v))
            v = v - shares[-1] * y
        v = state["scale"] * v
        for (s, y, weight), share in zip(rows, reversed(shares), strict=True):
            v = v + (share - weight * _dot(y, v)) * s
        return v

    done = staticmethod(_settled)
    value = staticmethod(where_it_is)


def _inner(problem: Any, what: str) -> Any:
    found = getattr(problem, "inner", None)
    if found is None:
        raise ArgumentError(f"{what}: wants a sum of squares.\n  Pose the problem with pb.least_squares, or use BFGS.")
    return found


def _expanded(problem: Any, x: Any, what: str) -> tuple[Any, Any]:
    """The residuals r(x) and their Jacobian."""
    inner = _inner(problem, what)
    problem.products += problem.size
    identity = problem.xp.eye(problem.size, dtype=problem.dtype)
    return inner(x), vmap(lambda v: jvp(inner, (x,), (v,))[1], 0, 1)(identity)


def _fitted(matrix: Any, right: Any) -> Any:
    """The vector that the matrix takes closest to the right side. It has no derivative."""
    return squeeze(apply(_fit, matrix, expand_dims(right, 1)), 1)


def _by_rotations(xp: Any, matrix: Any, right: Any) -> Any:
    if matrix.shape[-2] < matrix.shape[-1]:
        matrix = xp.where(xp.isfinite(matrix).all((-2, -1), keepdims=True), matrix, 0)
        return xp.linalg.pinv(matrix) @ right
    q, r = xp.linalg.qr(matrix)
    return eliminated(xp, r, q.swapaxes(-1, -2) @ right)


_fit: Op = custom_record(
    "least_squares_fit", ("matrix", "right"), _by_rotations, None, None,
    lambda size, axes, matrix, right: (apply(_fit, lead(matrix, axes[0], size), lead(right, axes[1], size)), 0),
    lambda matrix, right: make_spec((*matrix.shape[:-2], matrix.shape[-1], right.shape[-1]), right.dtype, right.device),
)  # fmt: skip


@final
@dataclass(frozen=True)
class GaussNewton:
    """For least squares: the step that would end it if the residuals were linear, shortened until their squares fall.

    >>> import numpy as np, pullback as pb
    >>> r = lambda x: pb.stack([1 - x[0], 10 * (x[1] - x[0] ** 2)])
    >>> np.round(pb.least_squares(r, np.array([-1.2, 1.0]), solver=pb.implicit.GaussNewton()), 6)
    array([1., 1.])
    """

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        _inner(problem, "GaussNewton")
        return _begun(problem, start)

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        r, J = _expanded(problem, state["x"], "GaussNewton")
        direction = _descending(pointwise.negative(_fitted(J, r)), state["residual"])
        return _searched(problem, state, direction, problem.xp.ones((), problem.dtype), np.inf)

    done = staticmethod(_settled)
    value = staticmethod(where_it_is)


@final
@dataclass(frozen=True)
class LevenbergMarquardt:
    """For least squares: a step d minimises |r + J d|^2 + damping |D d|^2, with D the largest lengths of the columns of
    J so far; the damping grows until the step reduces the sum of squares, and falls as the linear model proves right.

    >>> import numpy as np, pullback as pb
    >>> t = np.linspace(0, 1, 5)
    >>> y = 2 * np.exp(-3 * t)
    >>> solver = pb.implicit.LevenbergMarquardt()
    >>> np.round(pb.least_squares(lambda w: w[0] * pb.exp(-w[1] * t) - y, np.ones(2), solver=solver), 6)
    array([2., 3.])
    """

    damping: float = 1e-3

    def __post_init__(self) -> None:
        if not isinstance(self.damping, (int, float)) or not 0 < self.damping < np.inf:
            raise ArgumentError(f"LevenbergMarquardt: damping must be a positive number, got {self.damping!r}.")

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        _inner(problem, "LevenbergMarquardt")
        lengths = problem.xp.zeros(problem.size, problem.dtype)
        return _begun(problem, start) | {"damping": problem.xp.asarray(self.damping, problem.dtype), "lengths": lengths}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        r, J = _expanded(problem, state["x"], "LevenbergMarquardt")
        lengths = pointwise.maximum(state["lengths"], pointwise.sqrt(total(pointwise.square(J), 0)))
        D = pointwise.where(pointwise.equal(lengths, 0), 1.0, lengths)
        right = concat([pointwise.negative(r), 0 * D])
        rounding = _rounding(problem, state)

        def trial(damping: Any, tries: Any) -> dict[str, Any]:
            d = _fitted(
                concat([J, problem.xp.eye(problem.size, dtype=problem.dtype) * (pointwise.sqrt(damping) * D)]), right
            )
            there = state["x"] + d
            gradient, merit = problem.residual(there), _merit(problem, there)
            promised = 0.5 * (_dot(r, r) - total(pointwise.square(r + matmul(J, d))))
            kept = (state["merit"] - merit) / pointwise.where(pointwise.greater(promised, 0), promised, 1.0)
            level = pointwise.logical_and(
                pointwise.less_equal(merit, state["merit"] + rounding), pointwise.less(norm(gradient), state["norm"])
            )
            good = pointwise.logical_or(pointwise.greater(kept, _DECREASE), level)
            return {
                "damping": damping, "tries": tries, "x": there, "residual": gradient, "merit": merit, "kept": kept,
                "good": good,
            }  # fmt: skip

        found = while_loop(
            lambda c: pointwise.logical_and(pointwise.logical_not(c["good"]), pointwise.less(c["tries"], _TRIALS)),
            lambda c: trial(4 * c["damping"], c["tries"] + 1),
            trial(state["damping"], 0),
        )
        damping = _relaxed(found["damping"], found["kept"], problem.dtype)
        return _moved(state, found, found["good"]) | {"damping": damping, "lengths": lengths}

    done = staticmethod(_settled)
    value = staticmethod(where_it_is)


def _relaxed(damping: Any, kept: Any, dtype: Any) -> Any:
    """Less damping where the step kept what the model promised (kept = 1), more where it did not: between a tenth and
    twice of it.
    """
    factor = pointwise.clip_to(1 - (2 * kept - 1) * (2 * kept - 1) * (2 * kept - 1), 0.1, 2.0)
    return pointwise.maximum(
        damping * pointwise.where(pointwise.isnan(factor), 1.0, factor), float(np.finfo(dtype).tiny) * 1e6
    )

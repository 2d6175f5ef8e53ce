"""Descent methods for minima and least squares: steps that reduce the objective, wherever they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ...arrays.spec import make_spec
from ...errors import ArgumentError
from ...ops.batching import move_batch_first
from ...ops.contract.matrix_products import matmul, outer
from ...ops.dispatch import apply
from ...ops.elementwise import pointwise
from ...ops.op import Op
from ...ops.reduce.reductions import sum as total
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims, squeeze
from ...transforms.control.branches_and_loops import while_loop
from ...transforms.custom.rules import make_custom_record
from ...transforms.forward import jvp
from ...transforms.vectorize import vmap
from ..derivative_policies import check_positive_count
from ..linear.operator import norm
from .root_methods import append_row, current_point, empty_rows, solve_or_fit

#: A step of length t must reduce the objective by this share of what its slope promises.
_DECREASE = 1e-4
#: The slope along the step must become this much flatter; without it the step was too short to learn from.
_CURVATURE = 0.9
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


def _initial_state(problem: Any, start: Any) -> dict[str, Any]:
    gradient, merit = problem.residual(start), _merit(problem, start)
    return {
        "x": start, "residual": gradient, "norm": norm(gradient), "merit": merit, "height": pointwise.abs(merit),
        "stuck": problem.xp.asarray(False),
    }  # fmt: skip


def _rounding_error(problem: Any, state: dict[str, Any]) -> Any:
    """By how much two values of the objective may differ for no reason. The largest one so far stands for the terms
    that it is the sum of: they may cancel at the minimum.
    """
    return 16 * float(np.finfo(problem.dtype).eps) * state["height"]


def _move_where(state: dict[str, Any], found: dict[str, Any], good: Any) -> dict[str, Any]:
    """The state at a new point where that is good, stuck elsewhere."""
    after = {name: pointwise.where(good, found[name], state[name]) for name in ("x", "residual", "merit")}
    height = pointwise.maximum(state["height"], pointwise.abs(after["merit"]))
    return after | {"norm": norm(after["residual"]), "height": height, "stuck": pointwise.logical_not(good)}


def _is_done(problem: Any, state: dict[str, Any]) -> Any:
    """Whether the gradient is small, or nothing more can be done about it."""
    over = pointwise.logical_or(state["stuck"], pointwise.logical_not(pointwise.isfinite(state["norm"])))
    return pointwise.logical_or(pointwise.less_equal(state["norm"], problem.tolerance), over)


def _search_line(problem: Any, state: dict[str, Any], direction: Any, first: Any, flatter: float) -> dict[str, Any]:
    """The state after a step along a direction of descent, of a length that is neither too long nor too short.

    Too long: the objective does not fall enough. Where it differs by no more than rounding, the slopes decide, so that
    the gradient can become smaller than the objective can show; so they do where there is no objective. Too short: the
    slope is still nearly what it was. Lengths are doubled until one is too long, and then bisected.
    """
    x, before = state["x"], state["merit"]
    slope = _dot(state["residual"], direction)
    known = getattr(problem, "objective", None) is not None or getattr(problem, "inner", None) is not None
    rounding = _rounding_error(problem, state)

    def too_long(t: Any, merit: Any, slope_there: Any) -> Any:
        falls = pointwise.less_equal(merit, before + _DECREASE * t * slope) if known else problem.xp.asarray(False)
        level = pointwise.less_equal(merit, before + rounding)
        gentle = pointwise.less_equal(slope_there, -0.8 * slope)
        return pointwise.logical_not(pointwise.logical_or(falls, pointwise.logical_and(level, gentle)))

    def try_length(t: Any, low: Any, high: Any, tries: Any) -> dict[str, Any]:
        there = x + t * direction
        gradient = problem.residual(there)
        merit, slope_there = _merit(problem, there), _dot(gradient, direction)
        long = too_long(t, merit, slope_there)
        short = pointwise.logical_and(pointwise.logical_not(long), pointwise.less(slope_there, flatter * slope))
        return {
            "t": t, "low": pointwise.where(long, low, t), "high": pointwise.where(long, t, high), "tries": tries,
            "x": there, "residual": gradient, "merit": merit, "long": long, "short": short,
        }  # fmt: skip

    def needs_trial(c: dict[str, Any]) -> Any:
        return pointwise.logical_and(pointwise.logical_or(c["long"], c["short"]), pointwise.less(c["tries"], _TRIALS))

    def try_next(c: dict[str, Any]) -> dict[str, Any]:
        low, high = c["low"], c["high"]
        t = pointwise.where(pointwise.isinf(high), 2 * low, 0.5 * (low + high))
        return try_length(t, low, high, c["tries"] + 1)

    zero, infinity = problem.xp.zeros((), problem.dtype), problem.xp.full((), np.inf, problem.dtype)
    found = while_loop(needs_trial, try_next, try_length(first, zero, infinity, 0))
    return _move_where(state, found, pointwise.logical_not(found["long"]))


def _first_step_length(size: Any) -> Any:
    """The length of a first step, of which only the direction is known: it goes no further than one."""
    return 1 / pointwise.where(pointwise.greater(size, 1), size, pointwise.add(0 * size, 1))


def _ensure_descent(direction: Any, gradient: Any) -> Any:
    """The direction, or that of steepest descent where it does not go down."""
    return pointwise.where(pointwise.less(_dot(direction, gradient), 0), direction, pointwise.negative(gradient))


def _measure_curvature(s: Any, y: Any, precision: float) -> tuple[Any, Any]:
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
        state = _initial_state(problem, start)
        return state | {"length": _first_step_length(state["norm"])}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        if self.rate is not None:
            return _initial_state(problem, state["x"] - self.rate * state["residual"]) | {"length": state["length"]}
        after = _search_line(problem, state, pointwise.negative(state["residual"]), state["length"], np.inf)
        s, y = after["x"] - state["x"], after["residual"] - state["residual"]
        bent, usable = _measure_curvature(s, y, float(np.finfo(problem.dtype).eps))
        best = _dot(s, s) / pointwise.where(usable, bent, 1.0)
        return after | {"length": pointwise.where(usable, best, 2 * state["length"])}

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


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
        return _initial_state(problem, start) | {"inverse": identity, "fresh": problem.xp.asarray(True)}

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        H, fresh, gradient = state["inverse"], state["fresh"], state["residual"]
        direction = _ensure_descent(pointwise.negative(matmul(H, gradient)), gradient)
        first = pointwise.where(fresh, _first_step_length(state["norm"]), 1.0)
        after = _search_line(problem, state, direction, first, _CURVATURE)
        identity, failed = problem.xp.eye(problem.size, dtype=problem.dtype), after["stuck"]
        s, y = after["x"] - state["x"], after["residual"] - gradient
        bent, usable = _measure_curvature(s, y, float(np.finfo(problem.dtype).eps))
        inverse = self._update_inverse(H, s, y, pointwise.where(usable, bent, 1.0), fresh)
        return after | {
            "inverse": pointwise.where(failed, identity, pointwise.where(usable, inverse, H)),
            "fresh": failed,
            "stuck": pointwise.logical_and(failed, fresh),
        }

    def _update_inverse(self, H: Any, s: Any, y: Any, bent: Any, fresh: Any) -> Any:
        """H' multiplied out; the identity is first scaled to the curvature that was found."""
        H = pointwise.where(fresh, bent / pointwise.maximum(_dot(y, y), float(np.finfo(H.dtype).tiny)), 1.0) * H
        Hy = matmul(H, y)
        along = outer(s, Hy)
        return H - (along + along.T) / bent + (1 + _dot(y, Hy) / bent) / bent * outer(s, s)

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


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
        check_positive_count(self.memory, "LBFGS: memory")

    def init(self, problem: Any, start: Any) -> dict[str, Any]:
        empty = empty_rows(start, self.memory)
        weights, one = problem.xp.zeros(self.memory, problem.dtype), problem.xp.ones((), problem.dtype)
        return _initial_state(problem, start) | {
            "steps": empty, "changes": empty, "weights": weights, "scale": one, "fresh": problem.xp.asarray(True)
        }  # fmt: skip

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        fresh, gradient = state["fresh"], state["residual"]
        direction = _ensure_descent(pointwise.negative(self._multiply_inverse(state, gradient)), gradient)
        first = pointwise.where(fresh, _first_step_length(state["norm"]), 1.0)
        after = _search_line(problem, state, direction, first, _CURVATURE)
        failed = after["stuck"]
        s, y = after["x"] - state["x"], after["residual"] - gradient
        bent, usable = _measure_curvature(s, y, float(np.finfo(problem.dtype).eps))
        size = pointwise.where(usable, _dot(y, y), 1.0)
        news = {"steps": s, "changes": y, "weights": 1 / pointwise.where(usable, bent, 1.0)}
        kept = {
            name: pointwise.where(
                failed, 0 * state[name], pointwise.where(usable, append_row(state[name], new), state[name])
            )
            for name, new in news.items()
        }
        scale = pointwise.where(failed, 1.0, pointwise.where(usable, bent / size, state["scale"]))
        return after | kept | {"scale": scale, "fresh": failed, "stuck": pointwise.logical_and(failed, fresh)}

    def _multiply_inverse(self, state: dict[str, Any], v: Any) -> Any:
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

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


def _require_inner(problem: Any, what: str) -> Any:
    found = getattr(problem, "inner", None)
    if found is None:
        raise ArgumentError(f"{what}: wants a sum of squares.\n  Pose the problem with pb.least_squares, or use BFGS.")
    return found


def _linearize_residuals(problem: Any, x: Any, what: str) -> tuple[Any, Any]:
    """The residuals r(x) and their Jacobian."""
    inner = _require_inner(problem, what)
    problem.products += problem.size
    identity = problem.xp.eye(problem.size, dtype=problem.dtype)
    return inner(x), vmap(lambda v: jvp(inner, (x,), (v,))[1], 0, 1)(identity)


def _fit_least_squares(matrix: Any, right: Any) -> Any:
    """The vector that the matrix takes closest to the right side. It has no derivative."""
    return squeeze(apply(_least_squares_fit_op, matrix, expand_dims(right, 1)), 1)


def _solve_by_qr(xp: Any, matrix: Any, right: Any) -> Any:
    if matrix.shape[-2] < matrix.shape[-1]:
        matrix = xp.where(xp.isfinite(matrix).all((-2, -1), keepdims=True), matrix, 0)
        return xp.linalg.pinv(matrix) @ right
    q, r = xp.linalg.qr(matrix)
    return solve_or_fit(xp, r, q.swapaxes(-1, -2) @ right)


_least_squares_fit_op: Op = make_custom_record(
    "least_squares_fit", ("matrix", "right"), _solve_by_qr, None, None,
    lambda size, axes, *xs: (
        apply(_least_squares_fit_op, *(move_batch_first(x, axis, size) for x, axis in zip(xs, axes, strict=True))), 0,
    ),
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
        _require_inner(problem, "GaussNewton")
        return _initial_state(problem, start)

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        r, J = _linearize_residuals(problem, state["x"], "GaussNewton")
        direction = _ensure_descent(pointwise.negative(_fit_least_squares(J, r)), state["residual"])
        return _search_line(problem, state, direction, problem.xp.ones((), problem.dtype), np.inf)

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


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
        _require_inner(problem, "LevenbergMarquardt")
        lengths = problem.xp.zeros(problem.size, problem.dtype)
        return _initial_state(problem, start) | {
            "damping": problem.xp.asarray(self.damping, problem.dtype),
            "lengths": lengths,
        }

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]:
        r, J = _linearize_residuals(problem, state["x"], "LevenbergMarquardt")
        lengths = pointwise.maximum(state["lengths"], pointwise.sqrt(total(pointwise.square(J), 0)))
        D = pointwise.where(pointwise.equal(lengths, 0), 1.0, lengths)
        right = concat([pointwise.negative(r), 0 * D])
        rounding = _rounding_error(problem, state)

        def try_damping(damping: Any, tries: Any) -> dict[str, Any]:
            d = _fit_least_squares(
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
            lambda c: try_damping(4 * c["damping"], c["tries"] + 1),
            try_damping(state["damping"], 0),
        )
        damping = _update_damping(found["damping"], found["kept"], problem.dtype)
        return _move_where(state, found, found["good"]) | {"damping": damping, "lengths": lengths}

    done = staticmethod(_is_done)
    value = staticmethod(current_point)


def _update_damping(damping: Any, kept: Any, dtype: Any) -> Any:
    """Less damping where the step did what the model promised (kept = 1), more where it did not: between a tenth and
    twice of it.
    """
    factor = pointwise.clip_to(1 - (2 * kept - 1) * (2 * kept - 1) * (2 * kept - 1), 0.1, 2.0)
    return pointwise.maximum(
        damping * pointwise.where(pointwise.isnan(factor), 1.0, factor), float(np.finfo(dtype).tiny) * 1e6
    )

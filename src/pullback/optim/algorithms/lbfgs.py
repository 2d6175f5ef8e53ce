"""L-BFGS, with an optional strong Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import leaves_matching
from ...errors import ArgumentError
from ...implicit.vector_layout import VectorLayout
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.functions import clip
from ...ops.reduce.reductions import sum as total
from ...ops.shape.arrange import concat
from ...ops.shape.reshaping import astype, expand_dims
from ...transforms.control.branches_and_loops import while_loop
from ..leaves import cast_like, check_rate, select_if, zero_step_count
from ..rule import Rule, State, wrong_state_error

#: The constants c1 (sufficient decrease) and c2 (curvature) of the Wolfe conditions.
_SUFFICIENT_DECREASE, _CURVATURE = 1e-4, 0.9


@picklable
def lbfgs(lr: Any = 1.0, memory: int = 10, line_search: bool = True, trials: int = 25) -> Rule:
    """L-BFGS (Liu and Nocedal, 1989): steps by the curvature seen in the last `memory` steps. The step size is `lr`,
    or, with `line_search`, satisfies the strong Wolfe conditions, in at most so many trials from `lr` on.

    The search wants the loss and the function: `rule.update(grads, state, params, value=loss, value_and_grad=f)`, where
    `f(params)` returns (loss, gradients).

    >>> import numpy as np, pullback as pb
    >>> f = pb.value_and_grad(lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)
    >>> rule, x = pb.optim.lbfgs(), np.array([-1.2, 1.0])
    >>> state = rule.init(x)
    >>> for _ in range(40):
    ...     value, grads = f(x)
    ...     updates, state = rule.update(grads, state, x, value=value, value_and_grad=f)
    ...     x = pb.optim.apply_updates(x, updates)
    >>> x.round(6)
    array([1., 1.])
    """
    length, count = check_rate(lr, "lbfgs: lr"), check_count(memory, "lbfgs: memory")
    tries = check_count(trials, "lbfgs: trials")

    def start(params: Any) -> State:
        layout, leaves = VectorLayout.from_tree(params, "lbfgs")
        xp, n = namespace_on(spec_of(leaves[0]).device), layout.size
        rows = {name: xp.zeros((count, n), layout.dtype) for name in ("moved", "turned")}
        last = {name: xp.zeros(n, layout.dtype) for name in ("point", "gradient")}
        return State(zero_step_count(leaves), {**rows, **last, "inverse": xp.zeros(count, layout.dtype)})

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        if not isinstance(state, State) or "turned" not in state.slots:
            raise wrong_state_error("lbfgs", state, "a State")
        layout, leaves = VectorLayout.from_tree(params, "lbfgs")
        x, g = layout.join_leaves(leaves), layout.join_leaves(leaves_matching(layout.structure, grads, "lbfgs"))
        rows = _update_history(state, x, g)
        first = pointwise.equal(state.steps, 0)
        direction = _direction(rows, g)
        # the first step knows no curvature: its 1-norm is at most 1
        short = pointwise.minimum(1, 1 / pointwise.maximum(total(pointwise.abs(g)), 1e-30))
        t = cast_like(length(state.steps) if callable(length) else length, x)
        t = pointwise.where(first, short, 1) * t
        if line_search:
            t = _search_step_length(layout, x, g, direction, t, tries, extra)
        slots = {**rows, "point": x, "gradient": g}
        return layout.to_tree(t * direction), State(pointwise.add(state.steps, 1), slots)

    return Rule("lbfgs", start, advance)


def _update_history(state: State, x: Any, g: Any) -> dict[str, Any]:
    """The last pairs of step s and change of gradient y, oldest first, with 1 / s.y; a pair that shows no positive
    curvature is left out, and 0 marks a row that is empty.
    """
    s, y = x - state.slots["point"], g - state.slots["gradient"]
    sy = total(s * y)
    shows = pointwise.greater(sy, 1e-10 * total(y * y))
    new = pointwise.logical_and(pointwise.greater(state.steps, 0), shows)
    inverse = expand_dims(1 / pointwise.where(new, sy, 1), axis=0)
    rows = {"moved": expand_dims(s, axis=0), "turned": expand_dims(y, axis=0), "inverse": inverse}
    return {n: select_if(new, concat([state.slots[n][1:], row], axis=0), state.slots[n]) for n, row in rows.items()}


def _direction(rows: dict[str, Any], g: Any) -> Any:
    """-H g, where H is the inverse Hessian that the pairs make of gamma I, each by
    (I - r s y^T) H (I - r y s^T) + r s s^T with r = 1 / s.y: the two-loop recursion.
    """
    count = spec_of(rows["inverse"]).shape[0]
    pairs = [(rows["moved"][i], rows["turned"][i], rows["inverse"][i]) for i in range(count)]
    q, weights = g, []
    for s, y, r in reversed(pairs):
        weights.append(r * total(s * q))
        q = q - weights[-1] * y
    _, y, r = pairs[-1]
    yy = total(y * y)
    known = pointwise.logical_and(pointwise.greater(r, 0), pointwise.greater(yy, 0))
    below = pointwise.where(known, r * yy, 1)
    q = pointwise.where(known, 1 / below, 1) * q  # gamma = s.y / y.y, the curvature of the newest pair
    for (s, y, r), a in zip(pairs, reversed(weights), strict=True):
        q = q + (a - r * total(y * q)) * s
    return -q


def _search_step_length(
    layout: VectorLayout, x: Any, g: Any, direction: Any, first: Any, tries: int, extra: Mapping[str, Any]
) -> Any:
    function, value = extra.get("value_and_grad"), extra.get("value")
    if function is None or value is None:
        raise ArgumentError(
            "lbfgs: the line search wants the loss and its function: update(grads, state, params, value=loss, "
            "value_and_grad=f).\n  Without a search: lbfgs(lr, line_search=False)."
        )

    def along(t: Any) -> tuple[Any, Any]:
        """The loss and its slope at a step size."""
        loss, grads = function(layout.to_tree(x + t * direction))
        return astype(as_value(loss), layout.dtype), total(layout.to_vector(grads, "lbfgs: value_and_grad") * direction)

    return strong_wolfe(along, astype(as_value(value), layout.dtype), total(g * direction), first, tries)


def strong_wolfe(along: Callable[[Any], tuple[Any, Any]], value: Any, slope: Any, first: Any, trials: int) -> Any:
    """A step size t with f(t) <= f(0) + 1e-4 t f'(0) and |f'(t)| <= 0.9 |f'(0)|, where `along(t)` is (f(t), f'(t)).

    The bracket from `low`, the best step so far with sufficient decrease, to `high` always holds such steps; while
    there is no `high`, steps double. If the trials run out, it returns `low`, which is 0 if no step decreased enough.
    """
    zero = 0 * (value + slope + first)
    no, one = pointwise.not_equal(zero, zero + 0), zero + 1
    state = {
        "t": zero + first, "low": zero, "f_low": zero + value, "slope_low": zero + slope,
        "high": zero, "f_high": zero + value, "slope_high": zero + slope,
        "bounded": no, "done": no, "left": one * trials,
    }  # fmt: skip

    def should_continue(s: dict[str, Any]) -> Any:
        return pointwise.logical_and(pointwise.logical_not(s["done"]), pointwise.greater(s["left"], 0))

    def trial(s: dict[str, Any]) -> dict[str, Any]:
        f, d = along(s["t"])
        over = pointwise.greater(f, value + _SUFFICIENT_DECREASE * s["t"] * slope)
        poor = pointwise.logical_or(over, pointwise.greater_equal(f, s["f_low"]))
        poor = pointwise.logical_or(poor, pointwise.logical_not(pointwise.isfinite(f)))
        flat = pointwise.less_equal(pointwise.abs(d), -_CURVATURE * slope)
        done = pointwise.logical_and(pointwise.logical_not(poor), flat)
        # a good step whose slope points away from `high` makes the old `low` the other end
        away = pointwise.where(s["bounded"], d * (s["high"] - s["low"]), d)
        turns = pointwise.logical_and(pointwise.logical_not(poor), pointwise.greater_equal(away, 0))

        def update_ends(name: str, new: Any) -> tuple[Any, Any]:
            low, high = s[f"{name}low"], s[f"{name}high"]
            high = pointwise.where(poor, new, pointwise.where(turns, low, high))
            return pointwise.where(poor, low, new), high

        after = dict(s)
        for name, new in (("", s["t"]), ("f_", f), ("slope_", d)):
            after[f"{name}low"], after[f"{name}high"] = update_ends(name, new)
        bounded = pointwise.logical_or(s["bounded"], pointwise.logical_or(poor, turns))
        after |= {"bounded": bounded, "done": done, "left": s["left"] - 1}
        following = pointwise.where(bounded, _cubic_minimizer(after), 2 * s["t"])
        return after | {"t": pointwise.where(done, s["t"], following)}

    return while_loop(should_continue, trial, state)["low"]


def _cubic_minimizer(s: dict[str, Any]) -> Any:
    """Where the cubic through both ends, with their slopes, is least; not too near an end, halfway if it has none."""
    a, b = s["low"], s["high"]
    width = pointwise.where(pointwise.equal(a, b), 1, b - a)
    rise = 3 * (s["f_high"] - s["f_low"]) / width
    p = s["slope_low"] + s["slope_high"] - rise
    square = p * p - s["slope_low"] * s["slope_high"]
    real = pointwise.greater(square, 0)
    q = pointwise.sqrt(pointwise.where(real, square, 1))
    q = pointwise.where(pointwise.greater(width, 0), q, -q)
    below = s["slope_high"] - s["slope_low"] + 2 * q
    good = pointwise.logical_and(real, pointwise.logical_and(pointwise.isfinite(below), pointwise.not_equal(below, 0)))
    share = 1 - (s["slope_high"] + q - p) / pointwise.where(good, below, 1)
    return a + pointwise.where(good, clip(share, 0.1, 0.9), 0.5) * (b - a)

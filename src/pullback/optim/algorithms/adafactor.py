"""Adafactor: second moments factored into one value a row and one a column."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...arrays.spec import make_spec, spec_of, zeros
from ...ops.elementwise import pointwise
from ...ops.reduce.reductions import mean
from ...ops.shape.reshaping import expand_dims
from ..leaves import (
    abs_squared,
    cast_like,
    check_rate,
    check_setting,
    check_settings,
    require_real,
    safe_sqrt,
    steps_as_float64,
    zeros_like,
)
from ..rule import Rule, leafwise_rule, named_chain

Slots = dict[str, Any]


@picklable
def adafactor(
    lr: Any = 0.01, decay: Any = 0.8, eps: tuple[Any, Any] = (1e-30, 1e-3), clip: Any = 1.0, weight_decay: Any = 0.0
) -> Rule:
    """Steps over root mean squares, of which arrays of two and more axes keep only the means over the last two
    (Shazeer and Stern, 2018). The rate, min(lr, 1/sqrt(t)) or a schedule, is relative to the size of the parameter.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adafactor(), np.ones((2, 3))
    >>> state = rule.init(w)
    >>> rule.update(np.ones((2, 3)), state, w)[0][0].round(6)
    array([-0.01, -0.01, -0.01])
    >>> state[0].slots["row"].shape, state[0].slots["column"].shape
    ((2,), (3,))
    """
    lr = check_rate(lr, "adafactor: lr")
    power, limit, wd = check_settings("adafactor", decay=decay, clip=clip, weight_decay=weight_decay)
    tiny, least = (check_setting(e, "adafactor: eps") for e in eps)

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        t = steps_as_float64(t)
        now = lr(t - 1) if callable(lr) else lr
        relative = now if callable(lr) else pointwise.minimum(now, 1 / pointwise.sqrt(t))
        v, after = _update_mean_squares(abs_squared(g) + cast_like(tiny, p), slots, cast_like(1 - t**-power, p))
        update = g / pointwise.sqrt(v)
        update = update / pointwise.maximum(1, _rms(update) / cast_like(limit, p))
        size = cast_like(relative, p) * pointwise.maximum(cast_like(least, p), _rms(p))
        return -(size * update) - cast_like(now * wd, p) * p, after

    return named_chain("adafactor", leafwise_rule("adafactor", _initial_slots, step))


def _initial_slots(p: Any) -> Slots:
    require_real(p, "adafactor")
    spec = spec_of(p)

    def zeros_of(*shape: int) -> Any:
        return zeros(make_spec(shape, spec.dtype, spec.device))

    if spec.ndim < 2:
        return {"row": zeros_of(0), "column": zeros_of(0), "square": zeros_like(p)}
    rows, columns = spec.shape[:-1], (*spec.shape[:-2], spec.shape[-1])
    return {"row": zeros_of(*rows), "column": zeros_of(*columns), "square": zeros_of(0)}


def _update_mean_squares(new: Any, slots: Slots, b: Any) -> tuple[Any, Slots]:
    """The decaying means after a step, and the squares they represent.

    The matrix r c^T / mean(r) has the row means r and, since mean(r) = mean(c), the column means c: of all that do,
    the nearest in the generalized Kullback-Leibler divergence.
    """
    if spec_of(new).ndim < 2:
        v = b * slots["square"] + (1 - b) * new
        return v, slots | {"square": v}
    r = b * slots["row"] + (1 - b) * mean(new, axis=-1)
    c = b * slots["column"] + (1 - b) * mean(new, axis=-2)
    v = expand_dims(r / mean(r, axis=-1, keepdims=True), axis=-1) * expand_dims(c, axis=-2)
    return v, slots | {"row": r, "column": c}


def _rms(x: Any) -> Any:
    """The root mean square, with derivative 0 at 0."""
    return safe_sqrt(mean(pointwise.square(x)))

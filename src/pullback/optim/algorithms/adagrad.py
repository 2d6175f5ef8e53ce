"""AdaGrad, RMSProp and AdaDelta: steps scaled by the size of past gradients."""

from __future__ import annotations

from typing import Any

from ...arrays.picklable import picklable
from ...ops.elementwise import pointwise
from ..leaves import (
    abs_squared,
    cast_like,
    check_setting,
    check_settings,
    is_zero,
    real_zeros_like,
    safe_sqrt,
    zeros_like,
)
from ..rule import Rule, leafwise_rule
from ..transformations.scaling import descend

Slots = dict[str, Any]


@picklable
def adagrad(lr: Any, eps: Any = 1e-10, initial: Any = 0.0, weight_decay: Any = 0.0) -> Rule:
    """Steps over the root of the sum of all squares so far, which starts at `initial` (Duchi et al., 2011).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adagrad(0.1), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0].round(6)
    array([-0.1,  0.1])
    """
    eps, first = check_settings("adagrad", eps=eps, initial=initial)

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        v = slots["square"] + abs_squared(g)
        return g / (safe_sqrt(v) + cast_like(eps, p)), {"square": v}

    def start(p: Any) -> Slots:
        return {"square": cast_like(first, p) + real_zeros_like(p)}

    return descend("adagrad", lr, leafwise_rule("adagrad", start, step, counted=False, flat=True), weight_decay)


@picklable
def rmsprop(
    lr: Any, decay: Any = 0.99, eps: Any = 1e-8, centered: bool = False, momentum: Any = 0.0, weight_decay: Any = 0.0
) -> Rule:
    """Steps over the root of a decaying mean of squares, less the square of the mean if `centered` (Hinton, 2012;
    Graves, 2013); with a momentum, a decaying sum of such steps.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.rmsprop(0.1, decay=0.75), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0].round(6)
    array([-0.2,  0.2])
    """
    b, eps = check_setting(decay, "rmsprop: decay", 0, 1, open_end=True), check_setting(eps, "rmsprop: eps")
    moves = not is_zero(momentum)
    mu = check_setting(momentum, "rmsprop: momentum", 0, 1)

    def start(p: Any) -> Slots:
        found = {"square": real_zeros_like(p)}
        found |= {"mean": zeros_like(p)} if centered else {}
        return found | ({"momentum": zeros_like(p)} if moves else {})

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        b_, rest = cast_like(b, p), cast_like(1 - b, p)
        after = {"square": b_ * slots["square"] + rest * abs_squared(g)}
        v = after["square"]
        if centered:
            after["mean"] = b_ * slots["mean"] + rest * g
            v = pointwise.maximum(v - abs_squared(after["mean"]), 0)
        update = g / (safe_sqrt(v) + cast_like(eps, p))
        if moves:
            update = after["momentum"] = cast_like(mu, p) * slots["momentum"] + update
        return update, after

    return descend("rmsprop", lr, leafwise_rule("rmsprop", start, step, counted=False, flat=True), weight_decay)


@picklable
def adadelta(lr: Any = 1.0, decay: Any = 0.9, eps: Any = 1e-6, weight_decay: Any = 0.0) -> Rule:
    """Steps over the root mean square of gradients, times that of past steps (Zeiler, 2012).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adadelta(), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0].round(5)
    array([-0.00316])
    """
    b, eps = check_setting(decay, "adadelta: decay", 0, 1, open_end=True), check_setting(eps, "adadelta: eps")

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        b_, rest, e = cast_like(b, p), cast_like(1 - b, p), cast_like(eps, p)
        v = b_ * slots["square"] + rest * abs_squared(g)
        update = pointwise.sqrt(slots["moved"] + e) / pointwise.sqrt(v + e) * g
        return update, {"square": v, "moved": b_ * slots["moved"] + rest * abs_squared(update)}

    def start(p: Any) -> Slots:
        return {"square": real_zeros_like(p), "moved": real_zeros_like(p)}

    return descend("adadelta", lr, leafwise_rule("adadelta", start, step, counted=False, flat=True), weight_decay)

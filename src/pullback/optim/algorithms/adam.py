"""Adam and its variants."""

from __future__ import annotations

from typing import Any

from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...ops.elementwise import pointwise
from ..leaves import abs_squared, cast_like, check_setting, real_zeros_like, safe_sqrt, steps_as_float64, zeros_like
from ..rule import Rule, leafwise_rule
from ..transformations.scaling import descend, descend_decoupled

Slots = dict[str, Any]


def _check_settings(name: str, betas: tuple[Any, Any], eps: Any) -> tuple[Any, Any, Any]:
    a, b = (check_setting(x, f"{name}: beta{i}", 0, 1, open_end=True) for i, x in enumerate(betas, 1))
    return a, b, check_setting(eps, f"{name}: eps")


def _initial_slots(p: Any) -> Slots:
    return {"mean": zeros_like(p), "square": real_zeros_like(p)}


def _update_moments(g: Any, slots: Slots, p: Any, a: Any, b: Any) -> Slots:
    """m = a m + (1 - a) g and v = b v + (1 - b) |g|^2, in the precision of the parameter."""
    mean = cast_like(a, p) * slots["mean"] + cast_like(1 - a, p) * g
    return {"mean": mean, "square": cast_like(b, p) * slots["square"] + cast_like(1 - b, p) * abs_squared(g)}


def _bias_correction(beta: Any, t: Any) -> Any:
    """1 - beta^t: the weight of what a mean that started at zero has seen so far."""
    return 1 - beta ** steps_as_float64(t)


def _corrected_root(square: Any, b: Any, t: Any, p: Any) -> Any:
    """The root of the mean of squares that has been seen."""
    return safe_sqrt(square) * cast_like(pointwise.sqrt(_bias_correction(b, t)) ** -1, p)


@picklable
def scale_by_adam(betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, amsgrad: bool = False) -> Rule:
    """The direction of Adam, before learning rate and weight decay; with `amsgrad` over the largest mean of
    squares so far.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.scale_by_adam(eps=0.0), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0]
    array([ 1., -1.])
    """
    a, b, eps = _check_settings("adam", betas, eps)

    def start(p: Any) -> Slots:
        return _initial_slots(p) | ({"largest": real_zeros_like(p)} if amsgrad else {})

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _update_moments(g, slots, p, a, b)
        if amsgrad:
            after["largest"] = pointwise.maximum(slots["largest"], after["square"])
        v = after["largest" if amsgrad else "square"]
        down = _corrected_root(v, b, t, p) + cast_like(eps, p)
        return after["mean"] * cast_like(_bias_correction(a, t) ** -1, p) / down, after

    return leafwise_rule("adam", start, step, flat=True)


@picklable
def adam(
    lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, amsgrad: bool = False, weight_decay: Any = 0.0
) -> Rule:
    """Adam (Kingma and Ba, 2015); weight decay is part of the gradient (L2 regularization).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adam(0.1, eps=0.0), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0]
    array([-0.1,  0.1])
    """
    return descend("adam", lr, scale_by_adam(betas, eps, amsgrad), weight_decay)


@picklable
def adamw(
    lr: Any,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 0.01,
    amsgrad: bool = False,
    mask: Any = None,
) -> Rule:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): by `lr * weight_decay` of the weights in each
    step, where `mask` is True.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adamw(0.1, weight_decay=0.5), np.ones(1)
    >>> rule.update(np.zeros(1), rule.init(w), w)[0]
    array([-0.05])
    """
    return descend_decoupled("adamw", lr, scale_by_adam(betas, eps, amsgrad), weight_decay, mask)


@picklable
def adamax(lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0) -> Rule:
    """Adam over the decaying maximum of the gradient's size in place of its mean square (Kingma and Ba, 2015).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adamax(0.1), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0].round(3)
    array([-0.1,  0.1])
    """
    a, b, eps = _check_settings("adamax", betas, eps)

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        m = cast_like(a, p) * slots["mean"] + cast_like(1 - a, p) * g
        u = pointwise.maximum(cast_like(b, p) * slots["largest"], pointwise.abs(g) + cast_like(eps, p))
        return m * cast_like(_bias_correction(a, t) ** -1, p) / u, {"mean": m, "largest": u}

    scaled = leafwise_rule("adamax", lambda p: {"mean": zeros_like(p), "largest": real_zeros_like(p)}, step, flat=True)
    return descend("adamax", lr, scaled, weight_decay)


@picklable
def nadam(
    lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, momentum_decay: Any = 4e-3, weight_decay: Any = 0.0
) -> Rule:
    """Adam with Nesterov's momentum (Dozat, 2016), whose weight grows over the steps.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.nadam(0.1), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0].round(3)
    array([-0.106])
    """
    a, b, eps = _check_settings("nadam", betas, eps)
    growth = check_setting(momentum_decay, "nadam: momentum_decay")

    def start(p: Any) -> Slots:
        one = namespace_on(spec_of(p).device).ones(())  # the product of the weights so far, in float64
        return _initial_slots(p) | {"product": one}

    def weight(t: Any) -> Any:
        return a * (1 - 0.5 * 0.96 ** (growth * t))

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _update_moments(g, slots, p, a, b)
        t = steps_as_float64(t)
        now, soon = weight(t), weight(t + 1)
        after["product"] = slots["product"] * now
        down = _corrected_root(after["square"], b, t, p) + cast_like(eps, p)
        from_gradient = cast_like((1 - now) / (1 - after["product"]), p) * g
        blend = from_gradient + cast_like(soon / (1 - after["product"] * soon), p) * after["mean"]
        return blend / down, after

    return descend("nadam", lr, leafwise_rule("nadam", start, step, flat=True), weight_decay)


@picklable
def radam(lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0) -> Rule:
    """Adam that starts as momentum until the mean of squares can be trusted (Liu et al., 2020).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.radam(0.1), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0]
    array([-0.1])
    """
    a, b, eps = _check_settings("radam", betas, eps)
    limit = 2 / (1 - b) - 1

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _update_moments(g, slots, p, a, b)
        t = steps_as_float64(t)
        # the length of a plain mean with the variance of the decaying one; above 4 its variance is known
        length = limit - 2 * t * b**t / _bias_correction(b, t)
        trusted = pointwise.greater(length, 5)
        n = pointwise.where(trusted, length, 6.0)
        r = pointwise.sqrt((n - 4) * (n - 2) * limit / ((limit - 4) * (limit - 2) * n))
        down = safe_sqrt(after["square"]) + cast_like(eps, p)
        scaled = cast_like(r * pointwise.sqrt(_bias_correction(b, t)), p) / down
        mean = after["mean"] * cast_like(_bias_correction(a, t) ** -1, p)
        return pointwise.where(trusted, mean * scaled, mean), after

    return descend("radam", lr, leafwise_rule("radam", _initial_slots, step, flat=True), weight_decay)

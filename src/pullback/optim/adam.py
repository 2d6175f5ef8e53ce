"""Gradients in, steps scaled by decaying means of them and of their squares out: Adam and its relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.backends import namespace_on
from ..arrays.remade import remade
from ..arrays.spec import spec_of
from ..ops import elementwise as pointwise
from .leaves import fitted, float_steps, number, real_zeros, root, squared, zeros_like
from .rule import Rule, leafwise, named
from .scaling import decay_of, scale_by_learning_rate

__all__ = ["adam", "adamax", "adamw", "nadam", "radam", "scale_by_adam"]

Slots = dict[str, Any]


def _settings(name: str, betas: tuple[Any, Any], eps: Any) -> tuple[Any, Any, Any]:
    a, b = betas
    return (
        number(a, f"{name}: beta1", 0, 1, open_end=True),
        number(b, f"{name}: beta2", 0, 1, open_end=True),
        number(eps, f"{name}: eps"),
    )


def _start(p: Any) -> Slots:
    return {"mean": zeros_like(p), "square": real_zeros(p)}


def _moments(g: Any, slots: Slots, p: Any, a: Any, b: Any) -> Slots:
    """m = a m + (1 - a) g and v = b v + (1 - b) |g|^2, in the precision of the parameter."""
    a, b = fitted(a, p), fitted(b, p)
    return {"mean": a * slots["mean"] + (1 - a) * g, "square": b * slots["square"] + (1 - b) * squared(g)}


def _missing(beta: Any, t: Any) -> Any:
    """1 - beta^t: the weight of what a mean that started at zero has seen so far."""
    return 1 - beta ** float_steps(t)


@remade
def scale_by_adam(betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, amsgrad: bool = False) -> Rule:
    """The direction of Adam, before learning rate and decay of weights; with `amsgrad` over the largest mean of
    squares so far.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.scale_by_adam(eps=0.0), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0]
    array([ 1., -1.])
    """
    a, b, eps = _settings("adam", betas, eps)

    def start(p: Any) -> Slots:
        return _start(p) | ({"largest": real_zeros(p)} if amsgrad else {})

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _moments(g, slots, p, a, b)
        if amsgrad:
            after["largest"] = pointwise.maximum(slots["largest"], after["square"])
        v = after["largest" if amsgrad else "square"]
        down = root(v) * fitted(pointwise.sqrt(_missing(b, t)) ** -1, p) + fitted(eps, p)
        return after["mean"] * fitted(_missing(a, t) ** -1, p) / down, after

    return leafwise("adam", start, step)


@remade
def adam(
    lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, amsgrad: bool = False, weight_decay: Any = 0.0
) -> Rule:
    """Adam (Kingma and Ba, 2015); the decay of weights is part of the gradient, as in the paper's time.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adam(0.1, eps=0.0), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0]
    array([-0.1,  0.1])
    """
    return named("adam", *decay_of(weight_decay), scale_by_adam(betas, eps, amsgrad), scale_by_learning_rate(lr))


@remade
def adamw(
    lr: Any,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 0.01,
    amsgrad: bool = False,
    mask: Any = None,
) -> Rule:
    """Adam with weights that decay apart from the gradient (Loshchilov and Hutter, 2019): by `lr * weight_decay` of
    themselves in each step, where `mask` is True.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adamw(0.1, weight_decay=0.5), np.ones(1)
    >>> rule.update(np.zeros(1), rule.init(w), w)[0]
    array([-0.05])
    """
    direction = scale_by_adam(betas, eps, amsgrad)
    return named("adamw", direction, *decay_of(weight_decay, mask), scale_by_learning_rate(lr))


def _relative(name: str, start: Callable[[Any], Slots], step: Any, lr: Any, weight_decay: Any) -> Rule:
    return named(name, *decay_of(weight_decay), leafwise(name, start, step), scale_by_learning_rate(lr))


@remade
def adamax(lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0) -> Rule:
    """Adam over the decaying maximum of the gradient's size in place of its mean square (Kingma and Ba, 2015).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adamax(0.1), np.zeros(2)
    >>> rule.update(np.array([3.0, -0.2]), rule.init(w), w)[0].round(3)
    array([-0.1,  0.1])
    """
    a, b, eps = _settings("adamax", betas, eps)

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        m = fitted(a, p) * slots["mean"] + (1 - fitted(a, p)) * g
        u = pointwise.maximum(fitted(b, p) * slots["largest"], pointwise.abs(g) + fitted(eps, p))
        return m * fitted(_missing(a, t) ** -1, p) / u, {"mean": m, "largest": u}

    return _relative("adamax", lambda p: {"mean": zeros_like(p), "largest": real_zeros(p)}, step, lr, weight_decay)


@remade
def nadam(
    lr: Any,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    momentum_decay: Any = 4e-3,
    weight_decay: Any = 0.0,
) -> Rule:
    """Adam with Nesterov's momentum (Dozat, 2016), whose weight grows over the steps.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.nadam(0.1), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0].round(3)
    array([-0.106])
    """
    a, b, eps = _settings("nadam", betas, eps)
    pace = number(momentum_decay, "nadam: momentum_decay")

    def start(p: Any) -> Slots:
        one = namespace_on(spec_of(p).device).ones(())  # the product of the weights so far, in float64
        return _start(p) | {"product": one}

    def weight(t: Any) -> Any:
        return a * (1 - 0.5 * 0.96 ** (pace * t))

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _moments(g, slots, p, a, b)
        t = float_steps(t)
        now, soon = weight(t), weight(t + 1)
        after["product"] = slots["product"] * now
        down = root(after["square"]) * fitted(pointwise.sqrt(_missing(b, t)) ** -1, p) + fitted(eps, p)
        fresh = fitted((1 - now) / (1 - after["product"]), p) * g
        blend = fresh + fitted(soon / (1 - after["product"] * soon), p) * after["mean"]
        return blend / down, after

    return _relative("nadam", start, step, lr, weight_decay)


@remade
def radam(lr: Any, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0) -> Rule:
    """Adam that starts as momentum until the mean of squares can be trusted (Liu et al., 2020).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.radam(0.1), np.zeros(1)
    >>> rule.update(np.ones(1), rule.init(w), w)[0]
    array([-0.1])
    """
    a, b, eps = _settings("radam", betas, eps)
    limit = 2 / (1 - b) - 1

    def step(g: Any, slots: Slots, p: Any, t: Any) -> tuple[Any, Slots]:
        after = _moments(g, slots, p, a, b)
        t = float_steps(t)
        # the length of a plain mean with the variance of the decaying one; above 4 its variance is known
        length = limit - 2 * t * b**t / _missing(b, t)
        trusted = pointwise.greater(length, 5)
        n = pointwise.where(trusted, length, 6.0)
        r = pointwise.sqrt((n - 4) * (n - 2) * limit / ((limit - 4) * (limit - 2) * n))
        down = root(after["square"]) + fitted(eps, p)
        scaled = fitted(r * pointwise.sqrt(_missing(b, t)), p) / down
        mean = after["mean"] * fitted(_missing(a, t) ** -1, p)
        return pointwise.where(trusted, mean * scaled, mean), after

    return _relative("radam", _start, step, lr, weight_decay)

"""Gradients in, gradients within bounds out; centred, and with noise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.remade import remade
from ..arrays.spec import spec_of
from ..arrays.trees import flatten, map_tree, unflatten
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from ..ops.functions import clip
from ..ops.random import fold_in, key, normal
from ..ops.reducing import mean
from ..ops.reducing import sum as total
from .leaves import fitted, float_steps, norm, number, real_only, root, squared
from .rule import Rule, leafwise, named, stateless
from .scaling import scale_by_learning_rate

__all__ = [
    "adaptive_clip", "add_noise", "centralise", "clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm",
    "sgld",
]  # fmt: skip


def global_norm(tree: Any) -> Any:
    """The root of the sum of squares over all leaves, with derivative 0 at 0.

    >>> import numpy as np, pullback as pb
    >>> pb.optim.global_norm({"w": np.array([3.0]), "b": np.array([4.0])})
    array(5.)
    """
    squares = [total(squared(as_value(x))) for x in flatten(tree)[0]]
    return root(functools.reduce(pointwise.add, squares)) if squares else 0.0


def _at_most(length: Any, bound: Any) -> Any:
    """The factor that brings a length down to a bound, 1 where it is below. A NaN stays one."""
    over = pointwise.greater(length, bound)
    return pointwise.where(over, bound / pointwise.where(over, length, 1), length * 0 + 1)


@remade
def clip_by_value(limit: Any) -> Rule:
    """Bring each element into -limit .. limit.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_value(1.0), np.zeros(3)
    >>> rule.update(np.array([3.0, 0.5, -2.0]), rule.init(w), w)[0]
    array([ 1. ,  0.5, -1. ])
    """
    bound = number(limit, "clip_by_value: limit")

    def of_leaf(g: Any, p: Any) -> Any:
        real_only(p, "clip_by_value")
        b = fitted(bound, p)
        return clip(g, -b, b)

    return stateless("clip_by_value", of_leaf)


@remade
def clip_by_norm(limit: Any) -> Rule:
    """Shorten the gradient of each parameter to a norm of at most `limit`.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_norm(1.0), [np.zeros(2), np.zeros(1)]
    >>> rule.update([np.array([3.0, 4.0]), np.array([0.5])], rule.init(w), w)[0]
    [array([0.6, 0.8]), array([0.5])]
    """
    bound = number(limit, "clip_by_norm: limit")
    return stateless("clip_by_norm", lambda g, p: _at_most(norm(g), fitted(bound, p)) * g)


@remade
def clip_by_global_norm(limit: Any) -> Rule:
    """Shorten the gradient of all parameters together to a norm of at most `limit`, keeping its direction.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_global_norm(1.0), [np.zeros(1), np.zeros(1)]
    >>> rule.update([np.array([3.0]), np.array([4.0])], rule.init(w), w)[0]
    [array([0.6]), array([0.8])]
    """
    bound = number(limit, "clip_by_global_norm: limit")

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        factor = _at_most(global_norm(grads), bound)
        return map_tree(lambda g: as_value(fitted(factor, g) * g), grads), state

    return Rule("clip_by_global_norm", lambda params: (), advance)


@remade
def adaptive_clip(limit: Any = 0.01, eps: Any = 1e-3) -> Rule:
    """Shorten the gradient of each unit (all but the last axis; of vectors, each element) to `limit` times the norm of
    its weights, taken as at least `eps` (Brock et al., 2021).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adaptive_clip(0.1), np.ones((4, 1))
    >>> rule.update(np.full((4, 1), 5.0), rule.init(w), w)[0].T
    array([[0.1, 0.1, 0.1, 0.1]])
    """
    share, least = number(limit, "adaptive_clip: limit"), number(eps, "adaptive_clip: eps")

    def of_leaf(g: Any, p: Any) -> Any:
        axes = tuple(range(spec_of(p).ndim - 1))
        units = [root(total(squared(x), axis=axes, keepdims=True)) if axes else root(squared(x)) for x in (p, g)]
        return _at_most(units[1], fitted(share, p) * pointwise.maximum(units[0], fitted(least, p))) * g

    return stateless("adaptive_clip", of_leaf)


@remade
def centralise() -> Rule:
    """Take from each gradient of two and more axes its mean over all axes but the last (Yong et al., 2020).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.centralise(), np.zeros((2, 1))
    >>> rule.update(np.array([[1.0], [3.0]]), rule.init(w), w)[0].T
    array([[-1.,  1.]])
    """

    def of_leaf(g: Any, p: Any) -> Any:
        axes = tuple(range(spec_of(p).ndim - 1))
        return g - mean(g, axis=axes, keepdims=True) if axes else g

    return stateless("centralise", of_leaf)


def _with_noise(name: str, seed: int, deviation: Callable[[Any], Any]) -> Rule:
    """Add normal noise: the key of a step is that of the seed and the step, so a run can be taken up again."""

    def start(params: Any) -> Any:
        for p in flatten(params)[0]:
            real_only(p, name)
        return inner.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        _, state = inner.advance(grads, state, params, extra)
        leaves, structure = flatten(grads)
        now = fold_in(key(seed), state.steps)
        size = deviation(float_steps(state.steps - 1))
        noisy = []
        for i, g in enumerate(leaves):
            spec = spec_of(g)
            drawn = normal(size=spec.shape, key=fold_in(now, i), dtype=spec.dtype)
            noisy.append(g + fitted(size, g) * drawn)
        return unflatten(structure, noisy), state

    inner = leafwise(name, lambda p: {}, lambda g, slots, p, t: (g, {}))
    return Rule(name, start, advance)


@remade
def add_noise(eta: Any, gamma: Any = 0.55, seed: int = 0) -> Rule:
    """Add normal noise of variance eta / (1 + t)^gamma to gradients (Neelakantan et al., 2015).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.add_noise(0.0), np.zeros(2)
    >>> rule.update(np.ones(2), rule.init(w), w)[0]
    array([1., 1.])
    """
    eta, gamma = number(eta, "add_noise: eta"), number(gamma, "add_noise: gamma")
    return _with_noise("add_noise", seed, lambda t: pointwise.sqrt(eta / (1 + t) ** gamma))


@remade
def sgld(lr: Any, temperature: Any = 1.0, seed: int = 0) -> Rule:
    """Langevin dynamics (Welling and Teh, 2011): descent with normal noise of variance 2 lr temperature, which samples
    from exp(-loss / temperature) if the rate falls.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.sgld(0.1, temperature=0.0), np.zeros(2)
    >>> rule.update(np.ones(2), rule.init(w), w)[0]
    array([-0.1, -0.1])
    """
    heat = number(temperature, "sgld: temperature")

    def deviation(t: Any) -> Any:
        return pointwise.sqrt(2 * heat * as_value(lr(t) if callable(lr) else lr))

    return named("sgld", scale_by_learning_rate(lr), _with_noise("sgld", seed, deviation))

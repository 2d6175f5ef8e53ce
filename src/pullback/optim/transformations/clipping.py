"""Gradient clipping, centralization and noise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, map_tree, unflatten
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.functions import clip
from ...ops.fusion import cast_whole
from ...ops.random import fold_in, key, normal
from ...ops.reduce.reductions import mean
from ...ops.reduce.reductions import sum as total
from ..leaves import (
    abs_squared,
    cast_like,
    check_setting,
    check_settings,
    l2_norm,
    require_real,
    safe_sqrt,
    steps_as_float64,
    widen,
)
from ..rule import Rule, leafwise_rule, named_chain, stateless_rule
from .scaling import scale_by_learning_rate


@cast_whole("promote")
def global_norm(tree: Any) -> Any:
    """The root of the sum of squares over all leaves, with derivative 0 at 0.

    >>> import numpy as np, pullback as pb
    >>> pb.optim.global_norm({"w": np.array([3.0]), "b": np.array([4.0])})
    array(5.)
    """
    squares = [total(abs_squared(widen(as_value(x)))) for x in flatten(tree)[0]]
    return safe_sqrt(functools.reduce(pointwise.add, squares)) if squares else 0.0


def _clip_factor(length: Any, bound: Any) -> Any:
    """The factor that scales a norm down to a bound, 1 where it is below. A NaN stays one."""
    over = pointwise.greater(length, bound)
    return pointwise.where(over, bound / pointwise.where(over, length, 1), length * 0 + 1)


@picklable
def clip_by_value(limit: Any) -> Rule:
    """Bring each element into -limit .. limit.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_value(1.0), np.zeros(3)
    >>> rule.update(np.array([3.0, 0.5, -2.0]), rule.init(w), w)[0]
    array([ 1. ,  0.5, -1. ])
    """
    bound = check_setting(limit, "clip_by_value: limit")

    def clip_leaf(g: Any, p: Any) -> Any:
        require_real(p, "clip_by_value")
        b = cast_like(bound, p)
        return clip(g, -b, b)

    return stateless_rule("clip_by_value", clip_leaf, flat=True)


@picklable
def clip_by_norm(limit: Any) -> Rule:
    """Scale down the gradient of each parameter to a norm of at most `limit`.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_norm(1.0), [np.zeros(2), np.zeros(1)]
    >>> rule.update([np.array([3.0, 4.0]), np.array([0.5])], rule.init(w), w)[0]
    [array([0.6, 0.8]), array([0.5])]
    """
    bound = check_setting(limit, "clip_by_norm: limit")

    def clip_leaf(g: Any, p: Any) -> Any:
        return _clip_factor(l2_norm(g), cast_like(bound, p)) * g

    return stateless_rule("clip_by_norm", clip_leaf, flat=True)


@picklable
def clip_by_global_norm(limit: Any) -> Rule:
    """Scale down the gradient of all parameters together to a norm of at most `limit`, keeping its direction.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.clip_by_global_norm(1.0), [np.zeros(1), np.zeros(1)]
    >>> rule.update([np.array([3.0]), np.array([4.0])], rule.init(w), w)[0]
    [array([0.6]), array([0.8])]
    """
    bound = check_setting(limit, "clip_by_global_norm: limit")

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        factor = _clip_factor(global_norm(grads), bound)
        return map_tree(lambda g: as_value(cast_like(factor, widen(g)) * widen(g)), grads), state

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        return [(rule, state)] * len(flatten(params)[0])

    rule = Rule("clip_by_global_norm", lambda params: (), advance, split, joint_folds=1)
    return rule


@picklable
def adaptive_clip(limit: Any = 0.01, eps: Any = 1e-3) -> Rule:
    """Scale down the gradient of each unit (all but the last axis; of vectors, each element) to `limit` times the norm
    of its weights, taken as at least `eps` (Brock et al., 2021).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.adaptive_clip(0.1), np.ones((4, 1))
    >>> rule.update(np.full((4, 1), 5.0), rule.init(w), w)[0].T
    array([[0.1, 0.1, 0.1, 0.1]])
    """
    share, least = check_settings("adaptive_clip", limit=limit, eps=eps)

    def clip_leaf(g: Any, p: Any) -> Any:
        axes = tuple(range(spec_of(p).ndim - 1))
        of_p, of_g = (safe_sqrt(total(abs_squared(x), axis=axes, keepdims=True)) for x in (p, g))
        return _clip_factor(of_g, cast_like(share, p) * pointwise.maximum(of_p, cast_like(least, p))) * g

    return stateless_rule("adaptive_clip", clip_leaf)


@picklable
def centralize() -> Rule:
    """Subtract from each gradient of two and more axes its mean over all axes but the last (Yong et al., 2020).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.centralize(), np.zeros((2, 1))
    >>> rule.update(np.array([[1.0], [3.0]]), rule.init(w), w)[0].T
    array([[-1.,  1.]])
    """

    def clip_leaf(g: Any, p: Any) -> Any:
        axes = tuple(range(spec_of(p).ndim - 1))
        return g - mean(g, axis=axes, keepdims=True) if axes else g

    return stateless_rule("centralize", clip_leaf)


def _noise_rule(name: str, seed: int, deviation: Callable[[Any], Any]) -> Rule:
    """Add normal noise: the key of a step is that of the seed and the step, so a run can be resumed."""

    def start(params: Any) -> Any:
        for p in flatten(params)[0]:
            require_real(p, name)
        return inner.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        _, state = inner.advance(grads, state, params, extra)
        leaves, structure = flatten(grads)
        now = fold_in(key(seed), state.steps)
        size = deviation(steps_as_float64(state.steps - 1))

        def add_to(i: int, g: Any) -> Any:
            g = widen(g)
            drawn = normal(size=spec_of(g).shape, key=fold_in(now, i), dtype=spec_of(g).dtype)
            return g + cast_like(size, g) * drawn

        return unflatten(structure, [add_to(i, g) for i, g in enumerate(leaves)]), state

    inner = leafwise_rule(name, lambda p: {}, lambda g, slots, p, t: (g, {}))
    return Rule(name, start, advance)


@picklable
def add_noise(eta: Any, gamma: Any = 0.55, seed: int = 0) -> Rule:
    """Add normal noise of variance eta / (1 + t)^gamma to gradients (Neelakantan et al., 2015).

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.add_noise(0.0), np.zeros(2)
    >>> rule.update(np.ones(2), rule.init(w), w)[0]
    array([1., 1.])
    """
    eta, gamma = check_settings("add_noise", eta=eta, gamma=gamma)
    return _noise_rule("add_noise", seed, lambda t: pointwise.sqrt(eta / (1 + t) ** gamma))


@picklable
def sgld(lr: Any, temperature: Any = 1.0, seed: int = 0) -> Rule:
    """Langevin dynamics (Welling and Teh, 2011): descent with normal noise of variance 2 lr temperature, which samples
    from exp(-loss / temperature) if the rate falls.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.sgld(0.1, temperature=0.0), np.zeros(2)
    >>> rule.update(np.ones(2), rule.init(w), w)[0]
    array([-0.1, -0.1])
    """
    heat = check_setting(temperature, "sgld: temperature")

    def deviation(t: Any) -> Any:
        return pointwise.sqrt(2 * heat * as_value(lr(t) if callable(lr) else lr))

    return named_chain("sgld", scale_by_learning_rate(lr), _noise_rule("sgld", seed, deviation))

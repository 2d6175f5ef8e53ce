"""Scaling: by a number, a learning rate or a plateau of the loss; and weight decay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, map_tree
from ...errors import ArgumentError
from ...ops.dispatch import as_value
from ...ops.elementwise import pointwise
from ...ops.shape.reshaping import astype
from ..leaves import cast_like, check_rate, check_setting, check_settings, is_zero, widen, zero_step_count
from ..rule import Rule, State, check_state, named_chain, stateless_rule
from .masking import masked


@picklable
def scale(factor: Any) -> Rule:
    """Multiply updates by a number.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.scale(-0.5)
    >>> rule.update(np.ones(2), rule.init(np.zeros(2)), np.zeros(2))[0]
    array([-0.5, -0.5])
    """
    return stateless_rule("scale", lambda g, p: pointwise.multiply(cast_like(factor, p), g), flat=True)


@picklable
def scale_by_learning_rate(lr: Any) -> Rule:
    """Multiply updates by -lr, where lr is a number or a schedule: a function of the number of steps taken so far.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.scale_by_learning_rate(pb.optim.schedules.exponential(0.1, decay=0.5))
    >>> w = np.zeros(1)
    >>> _, state = rule.update(np.ones(1), rule.init(w), w)
    >>> rule.update(np.ones(1), state, w)[0]
    array([-0.05])
    """
    lr = check_rate(lr, "scale_by_learning_rate: lr")
    if not callable(lr):
        return stateless_rule("learning rate", lambda g, p: pointwise.multiply(cast_like(-lr, p), g), flat=True)

    def start(params: Any) -> State:
        return State(zero_step_count(flatten(params)[0]), {})

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, "learning rate")
        now = -as_value(lr(state.steps))
        updates = map_tree(lambda g: as_value(pointwise.multiply(cast_like(now, widen(g)), widen(g))), grads)
        return updates, State(pointwise.add(state.steps, 1), {})

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        return [(rule, state)] * len(flatten(params)[0])

    rule = Rule("learning rate", start, advance, split)
    return rule


@picklable
def add_decayed_weights(weight_decay: Any, mask: Any = None) -> Rule:
    """Add `weight_decay` times the parameter to each update; put after the scaling of Adam this decouples the decay
    from the gradient, before it the decay is part of the gradient. `mask` is a tree of bools like the parameters (or
    its upper part), or a function that makes one: True where weights decay.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.add_decayed_weights(0.1, mask={"w": True, "b": False})
    >>> params = {"w": np.ones(1), "b": np.ones(1)}
    >>> rule.update({"w": np.zeros(1), "b": np.zeros(1)}, rule.init(params), params)[0]
    {'w': array([0.1]), 'b': array([0.])}
    """
    decay = check_setting(weight_decay, "add_decayed_weights: weight_decay")
    rule = stateless_rule("weight decay", lambda g, p: g + cast_like(decay, p) * p, flat=True)
    return rule if mask is None else masked(rule, mask)


def descend(name: str, lr: Any, direction: Rule | None, weight_decay: Any = 0.0, momentum: Rule | None = None) -> Rule:
    """Steps against a direction (None: the gradient) at a rate; the decay of the weights is part of the gradient."""
    decay = None if is_zero(weight_decay) else add_decayed_weights(weight_decay)
    rules = (decay, direction, momentum, scale_by_learning_rate(lr))
    return named_chain(name, *(rule for rule in rules if rule is not None))


def descend_decoupled(name: str, lr: Any, direction: Rule, weight_decay: Any, mask: Any, *after: Rule) -> Rule:
    """Steps against a direction at a rate, and weights that decay beside it, where the mask is True."""
    decay = [] if is_zero(weight_decay) else [add_decayed_weights(weight_decay, mask)]
    return named_chain(name, direction, *decay, *after, scale_by_learning_rate(lr))


@picklable
def reduce_on_plateau(
    factor: Any = 0.1,
    patience: int = 10,
    threshold: Any = 1e-4,
    cooldown: int = 0,
    least: Any = 0.0,
    larger_is_better: bool = False,
) -> Rule:
    """Scale updates by a number that starts at 1 and is multiplied by `factor` when `patience` values in a row were no
    better than the best by a share of `threshold`; then `cooldown` values are not judged. Put it last in a chain and
    give it the value to judge: `rule.update(grads, state, params, value=loss)`.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.reduce_on_plateau(0.5, patience=1), np.zeros(1)
    >>> state = rule.init(w)
    >>> for loss in (1.0, 1.0, 1.0):
    ...     updates, state = rule.update(np.ones(1), state, w, value=loss)
    >>> updates
    array([0.5])
    """
    factor = check_setting(factor, "reduce_on_plateau: factor", 0, 1)
    least, share = check_settings("reduce_on_plateau", least=least, threshold=threshold)
    wait = check_count(patience, "reduce_on_plateau: patience", 0)
    rest = check_count(cooldown, "reduce_on_plateau: cooldown", 0)
    sign = -1.0 if larger_is_better else 1.0

    def start(params: Any) -> State:
        leaves = flatten(params)[0]
        xp = namespace_on(spec_of(leaves[0]).device if leaves else "cpu")
        counts = {"bad": zero_step_count(leaves), "resting": zero_step_count(leaves)}
        return State((), {"best": xp.full((), math.inf), "scale": xp.ones(()), **counts})

    def update_plateau(slots: dict[str, Any], value: Any) -> dict[str, Any]:
        value, best = sign * astype(as_value(value), float), slots["best"]
        known = pointwise.isfinite(best)
        size = pointwise.abs(pointwise.where(known, best, 0.0))
        better = pointwise.less(value, pointwise.where(known, best, math.inf) - share * size)
        bad = pointwise.where(better, 0, slots["bad"] + 1)
        resting = pointwise.maximum(slots["resting"] - 1, 0)
        bad = pointwise.where(pointwise.greater(slots["resting"], 0), 0, bad)
        over = pointwise.greater(bad, wait)
        scale = slots["scale"]
        return {
            "best": pointwise.where(better, value, best),
            "scale": pointwise.where(over, pointwise.maximum(scale * factor, least), scale),
            "bad": pointwise.where(over, 0, bad),
            "resting": pointwise.where(over, rest, resting),
        }

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, "reduce_on_plateau")
        if extra.get("value") is None:
            raise ArgumentError("reduce_on_plateau: wants the loss: update(grads, state, params, value=loss).")
        slots = update_plateau(state.slots, extra["value"])
        updates = map_tree(lambda g: as_value(cast_like(slots["scale"], widen(g)) * widen(g)), grads)
        return updates, State((), slots)

    return Rule("reduce_on_plateau", start, advance)

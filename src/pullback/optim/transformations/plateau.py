"""`reduce_on_plateau`: updates that shrink while the loss does not fall."""

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
from ..leaves import cast_like, check_setting, check_settings, zero_step_count
from ..rule import Rule, State, check_state


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
        return map_tree(lambda g: as_value(cast_like(slots["scale"], g) * g), grads), State((), slots)

    return Rule("reduce_on_plateau", start, advance)

"""`one_bit_adam`: Adam whose momentum travels as signs, once its mean of squares is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays.argument_checks import check_count
from ..arrays.picklable import picklable
from ..arrays.trees import flatten, leaf_paths, unflatten
from ..ops.collective.collectives import total
from ..ops.collective.world import current_world
from ..ops.dispatch import as_value
from ..ops.elementwise import pointwise
from ..optim.leaves import (
    abs_squared,
    cast_like,
    check_setting,
    require_real,
    safe_sqrt,
    split_by_structure,
    steps_as_float64,
    widen,
    zero_step_count,
    zero_update,
)
from ..optim.rule import Rule, State, check_state
from ..optim.transformations.scaling import descend_decoupled
from ..transforms.control.branches_and_loops import cond
from .aggregation import compare_replicas, sum_leaves, weigh_leaves
from .codecs.codec import Codec, run_codecs
from .codecs.feedback import error_feedback
from .codecs.sign_bits import one_bit


@picklable
def one_bit_adam(
    lr: Any,
    warmup: int,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 0.0,
    *,
    finite: bool = True,
    check_every: int = 100,
) -> Rule:
    """1-bit Adam (Tang et al., 2021). In the first `warmup` steps gradients are summed over ranks and Adam steps with
    the sum. Then the mean of squares stays as it is, and ranks send the signs of their momentum, with error feedback:
    32 times fewer bytes than float32. The mean of squares must have settled by then: a fifth of all steps is usual.

    It takes each rank's own gradients, and stands in place of `chain(aggregate(), adam(lr))`; gradients are summed, not
    averaged, and `weight`, `finite` and `check_every` are those of `aggregate`. Weights decay as in `adamw`.

    >>> import numpy as np, pullback as pb
    >>> from pullback.distributed import one_bit_adam
    >>> rule = one_bit_adam(0.1, warmup=1)
    >>> def steps():
    ...     w, g = np.zeros(3), np.array([1.0, -2.0, 3.0])
    ...     state = rule.init(w)
    ...     for _ in range(2):
    ...         updates, state = rule.update(g, state, w)
    ...         w = pb.optim.apply_updates(w, updates)
    ...     return w.round(3).tolist()
    >>> pb.distributed.run(steps, 2)
    [[-0.2, 0.2, -0.2], [-0.2, 0.2, -0.2]]
    """
    warm, every = check_count(warmup, "one_bit_adam: warmup"), check_count(check_every, "one_bit_adam: check_every", 0)
    a, b = (check_setting(x, f"one_bit_adam: beta{i}", 0, 1, open_end=True) for i, x in enumerate(betas, 1))
    small = check_setting(eps, "one_bit_adam: eps")
    codec = error_feedback(one_bit())

    def start(params: Any) -> State:
        leaves, structure = flatten(params)
        for p in leaves:
            require_real(p, "one_bit_adam")
        zeros = [zero_update(p) for p in leaves]
        slots = {"mean": zeros, "square": [zero_update(p) for p in leaves], "codec": [codec.init(z) for z in zeros]}
        return State(zero_step_count(leaves), {name: unflatten(structure, column) for name, column in slots.items()})

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, "one_bit_adam")
        if every:
            compare_replicas(params, state.steps, every)
        leaves, structure = flatten(grads)
        shares = _find_shares(leaves, extra.get("weight"))
        names = tuple(f"gradient of params{path}" for path in leaf_paths(structure)) if finite else ()
        what = "one_bit_adam: state and gradients"
        slots = {name: split_by_structure(structure, tree, what) for name, tree in state.slots.items()}
        after = cond(
            pointwise.less(state.steps, warm),
            lambda: _sum_gradients(shares, slots, a, b, names),
            lambda: _sum_momenta(shares, slots, a, codec, state.steps, names),
        )
        t = pointwise.add(state.steps, 1)
        seen = 1 - a ** steps_as_float64(t), 1 - b ** steps_as_float64(pointwise.minimum(t, warm))
        updates = [_direction(m, v, *seen, small) for m, v in zip(after["mean"], after["square"], strict=True)]
        new = {name: unflatten(structure, column) for name, column in after.items()}
        return unflatten(structure, updates), State(t, new)

    return descend_decoupled("one_bit_adam", lr, Rule("one_bit_adam", start, advance), weight_decay, None)


Slots = dict[str, list[Any]]


def _find_shares(leaves: list[Any], weight: Any) -> list[Any]:
    """This rank's shares of the gradients, in float32 at least."""
    wide = [widen(g) for g in leaves]
    return wide if weight is None else weigh_leaves(wide, pointwise.divide(weight, total(as_value(weight))))


def _sum_gradients(shares: list[Any], slots: Slots, a: Any, b: Any, names: tuple[str, ...]) -> Slots:
    """A step of Adam's moments by the sum of the gradients."""
    sums = sum_leaves(shares, names)
    means = [cast_like(a, g) * m + cast_like(1 - a, g) * g for g, m in zip(sums, slots["mean"], strict=True)]
    squares = [
        cast_like(b, g) * v + cast_like(1 - b, g) * abs_squared(g) for g, v in zip(sums, slots["square"], strict=True)
    ]
    return {"mean": means, "square": squares, "codec": slots["codec"]}


def _sum_momenta(shares: list[Any], slots: Slots, a: Any, codec: Codec, step: Any, names: tuple[str, ...]) -> Slots:
    """The momentum as the sum of the ranks' own, which travel as signs: divided by the root of the mean of squares,
    since the one size that all signs have would be a leap for a parameter whose gradients are small.
    """
    ranks, roots = current_world().size, [safe_sqrt(v) for v in slots["square"]]
    own = [
        _divide_known(cast_like(a, g) * (m / ranks) + cast_like(1 - a, g) * g, root)
        for g, m, root in zip(shares, slots["mean"], roots, strict=True)
    ]
    coded = run_codecs([codec] * len(own), own, slots["codec"], step, names)
    means = [c.total * root for c, root in zip(coded, roots, strict=True)]
    return {"mean": means, "square": slots["square"], "codec": [c.state for c in coded]}


def _divide_known(x: Any, root: Any) -> Any:
    """x over a root; 0 where that is 0, since no gradient was seen there."""
    is_known = pointwise.greater(root, 0)
    return pointwise.where(is_known, x / pointwise.where(is_known, root, 1), 0)


def _direction(mean: Any, square: Any, for_mean: Any, for_square: Any, eps: Any) -> Any:
    """The step of Adam before the learning rate; of what was seen so far, the means have such parts."""
    root = safe_sqrt(square) * cast_like(pointwise.sqrt(for_square) ** -1, square)
    return mean * cast_like(1 / for_mean, mean) / (root + cast_like(eps, square))

"""`aggregate`: gradients of each rank in, their sum over all ranks out, as a rule of `pb.optim`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays.argument_checks import check_count
from ..arrays.picklable import picklable
from ..arrays.spec import spec_of
from ..arrays.trees import flatten, leaf_paths, unflatten
from ..ops.collective.agreement import replicas_op
from ..ops.collective.collectives import total
from ..ops.collective.many import totals_op
from ..ops.collective.world import current_world
from ..ops.dispatch import apply, as_value
from ..ops.elementwise import pointwise
from ..ops.shape.reshaping import astype
from ..optim.leaves import split_by_structure, zero_step_count
from ..optim.rule import Rule, State, check_state
from .codecs.codec import Codec, check_codec, run_codecs


@picklable
def aggregate(codec: Codec | None = None, *, finite: bool = True, check_every: int = 100) -> Rule:
    """Sum gradients over all ranks, in front of a rule: `chain(aggregate(), adam(1e-3))`. What follows it in a chain,
    such as `clip_by_global_norm`, sees the gradient of the whole loss, and takes the same step on all ranks.

    Gradients are summed, not averaged: divide the loss by the number of samples on all ranks
    (`pb.distributed.total(n)`). Or give `update` a `weight=`, as many as this rank has samples: then each rank's
    gradient is that of its own mean, and the result is that of the mean over all samples.

    A `codec` sends them in fewer bytes. With `finite`, a sum with a NaN or an infinity raises
    `pb.errors.NonFiniteError` on all ranks, which names the ranks and parameters it comes from. Every `check_every`
    steps the parameters are compared over ranks (0: never); one that differs raises `pb.errors.ReplicaDriftError`.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.chain(pb.distributed.aggregate(), pb.optim.sgd(0.5))
    >>> def step():
    ...     w, g = np.zeros(2), np.full(2, 1.0 + pb.distributed.rank())
    ...     return rule.update(g, rule.init(w), w)[0].tolist()
    >>> pb.distributed.run(step, 2)
    [[-1.5, -1.5], [-1.5, -1.5]]
    """
    if codec is not None:
        check_codec(codec, "aggregate")
    every = check_count(check_every, "aggregate: check_every", 0)

    def start(params: Any) -> State:
        leaves, structure = flatten(params)
        slots = {} if codec is None else {"codec": unflatten(structure, [codec.init(p) for p in leaves])}
        return State(zero_step_count(leaves), slots)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, State]:
        state = check_state(state, "aggregate")
        leaves, structure = flatten(grads)
        names = tuple(f"gradient of params{path}" for path in leaf_paths(structure))
        if every:
            compare_replicas(params, state.steps, every)
        weight = extra.get("weight")
        if weight is not None:
            leaves = weigh_leaves(leaves, weight)
        slots: dict[str, Any] = {}
        if codec is None:
            sums = sum_leaves(leaves, names if finite else ())
        else:
            states = split_by_structure(structure, state.slots["codec"], "aggregate: state and gradients")
            coded = run_codecs([codec] * len(leaves), leaves, states, state.steps, names if finite else ())
            sums = [c.total for c in coded]
            slots = {"codec": unflatten(structure, [c.state for c in coded])}
        if weight is not None:
            whole = total(as_value(weight))
            sums = [pointwise.divide(g, astype(whole, spec_of(g).dtype)) for g in sums]
        return unflatten(structure, sums), State(pointwise.add(state.steps, 1), slots)

    return Rule("aggregate", start, advance)


def weigh_leaves(leaves: list[Any], weight: Any) -> list[Any]:
    """Gradients times a number."""
    return [pointwise.multiply(g, astype(as_value(weight), spec_of(g).dtype)) for g in leaves]


def compare_replicas(params: Any, steps: Any, every: int) -> None:
    """Every so many steps, raise if parameters are not the same on all ranks."""
    if current_world().size > 1:
        leaves, structure = flatten(params)
        names = tuple(f"params{path}" for path in leaf_paths(structure))
        apply(replicas_op, steps, *leaves, ranks=current_world().size, every=every, names=names)


def sum_leaves(leaves: list[Any], names: tuple[str, ...] = ()) -> list[Any]:
    """The sums of arrays over ranks, in one meeting; with names, those that are not finite raise."""
    if not leaves:
        return []
    return list(apply(totals_op, *leaves, ranks=current_world().size, names=names))

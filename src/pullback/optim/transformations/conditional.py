"""Rules that step conditionally: once for several gradients, or only if they are finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.argument_checks import check_count
from ...arrays.picklable import picklable
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, map_tree
from ...errors import ArgumentError
from ...ops.collective.collectives import all_ranks
from ...ops.collective.world import world_size
from ...ops.concrete import is_concrete, strip_derivatives
from ...ops.elementwise import pointwise
from ..leaves import all_finite, select_if, zero_step_count, zero_update
from ..rule import Rule, State, check_rule, check_state_pair, find_loss_scales, split_around


def _choose_tree(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """One of two trees. Where the condition is traced, in a compiled step or a batch, both are computed."""
    if is_concrete(condition):
        return yes() if bool(strip_derivatives(condition)) else no()
    return select_tree(condition, yes(), no())


def select_tree(condition: Any, yes: Any, no: Any) -> Any:
    """One of two trees, leaf by leaf, without looking at the condition."""
    return map_tree(lambda a, b: select_if(condition, a, b), yes, no)


def step_if_finite(grads: Any, step: Callable[[Any], Any], skip: Callable[[], Any]) -> tuple[Any, Any]:
    """Whether all gradients are finite, on all ranks; and what `step(grads)` returns if they are, else what `skip`
    returns. The condition is looked at only where that is free, on the CPU: on a GPU it would wait for the device.
    Elsewhere both run, the step on zeros where it is not taken.
    """
    finite = all_finite(flatten(grads)[0])
    if world_size() > 1:  # gradients may be each rank's own, and the step a collective
        finite = all_ranks(finite)
    if is_concrete(finite) and spec_of(finite).device == "cpu":
        return finite, _choose_tree(finite, lambda: step(grads), skip)
    return finite, select_tree(finite, step(map_tree(lambda g: pointwise.where(finite, g, 0), grads)), skip())


@picklable
def multi_steps(rule: Rule, every: int) -> Rule:
    """Add up gradients and let the rule step with their mean every so many updates; in between, updates are zero.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.multi_steps(pb.optim.sgd(1.0), every=2), np.zeros(1)
    >>> first, state = rule.update(np.array([1.0]), rule.init(w), w)
    >>> first, rule.update(np.array([3.0]), state, w)[0]
    (array([0.]), array([-2.]))
    """
    every = check_count(every, "multi_steps: every")
    check_rule(rule, "multi_steps")

    def start(params: Any) -> Any:
        return State(zero_step_count(flatten(params)[0]), {"sum": map_tree(zero_update, params)}), rule.start(params)

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = check_state_pair(state, "multi_steps")
        t = pointwise.add(mine.steps, 1)
        added = map_tree(pointwise.add, mine.slots["sum"], grads, what="multi_steps: state and gradients")

        def step() -> Any:
            updates, after = rule.advance(map_tree(lambda a: a / every, added), inner, params, extra)
            return updates, map_tree(zero_update, params), after

        def wait() -> Any:
            return map_tree(zero_update, params), added, inner

        updates, total, after = _choose_tree(pointwise.equal(t % every, 0), step, wait)
        return updates, (State(t, {"sum": total}), after)

    split = split_around(rule, lambda inner: multi_steps(inner, every))
    return Rule("multi_steps", start, advance, split, rule.joint_folds)


@picklable
def apply_if_finite(rule: Rule) -> Rule:
    """The rule where all gradients are finite; where one is not, updates are zero and the state stays as it was. The
    first part of its state counts, in `steps`, the updates that were skipped.

    >>> import numpy as np, pullback as pb
    >>> rule, w = pb.optim.apply_if_finite(pb.optim.sgd(1.0)), np.zeros(1)
    >>> updates, state = rule.update(np.array([np.nan]), rule.init(w), w)
    >>> updates, int(state[0].steps)
    (array([0.]), 1)
    """

    check_rule(rule, "apply_if_finite")

    def start(params: Any) -> Any:
        inner = rule.start(params)
        if find_loss_scales(inner):
            raise ArgumentError(
                "apply_if_finite: scaled inside of it would never see an overflow, and its scale never shrink.\n"
                "  Leave apply_if_finite out: scaled skips such steps itself."
            )
        return State(zero_step_count(flatten(params)[0]), {}), inner

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        mine, inner = check_state_pair(state, "apply_if_finite")

        def skip() -> Any:
            return map_tree(zero_update, params), inner, pointwise.add(mine.steps, 1)

        def step(grads: Any) -> Any:
            return *rule.advance(grads, inner, params, extra), mine.steps

        _, (updates, after, skipped) = step_if_finite(grads, step, skip)
        return updates, (State(skipped, {}), after)

    return Rule("apply_if_finite", start, advance, split_around(rule, apply_if_finite), 1 + rule.joint_folds)

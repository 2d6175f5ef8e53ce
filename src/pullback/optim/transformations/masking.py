"""Rules for some of the parameters: by mask, or by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.picklable import picklable
from ...arrays.trees import broadcast_prefix, flatten, leaf_paths, unflatten
from ...errors import ArgumentError
from ..leaves import zeros_like
from ..rule import Rule, check_rule, stateless_rule, wrong_state_error


@picklable
def multi_transform(rules: Mapping[Any, Rule], labels: Any) -> Rule:
    """One rule for each label. `labels` is a tree like the parameters (or its upper part) with a label for each, or a
    function of the parameters that makes one.

    >>> import numpy as np, pullback as pb
    >>> rules = {"fast": pb.optim.sgd(1.0), "slow": pb.optim.sgd(0.1)}
    >>> rule = pb.optim.multi_transform(rules, {"head": "fast", "body": "slow"})
    >>> params = {"head": np.zeros(1), "body": [np.zeros(1)]}
    >>> rule.update({"head": np.ones(1), "body": [np.ones(1)]}, rule.init(params), params)[0]
    {'head': array([-1.]), 'body': [array([-0.1])]}
    """
    for rule in rules.values():
        check_rule(rule, "multi_transform")
    return _rule_by_label("multi_transform", rules, labels)


def _rule_by_label(what: str, rules: Mapping[Any, Rule], labels: Any) -> Rule:
    def partition_leaves(params: Any) -> tuple[Any, list[str], dict[Any, list[int]]]:
        """The structure, the name of each leaf, and which leaves have which label."""
        _, structure = flatten(params)
        given = broadcast_prefix(labels(params) if callable(labels) else labels, params, f"{what}: labels")
        missing = sorted({repr(x) for x in given if x not in rules})
        if missing:
            there = ", ".join(map(repr, rules))
            raise ArgumentError(f"{what}: no rule for the label {', '.join(missing)}; there are {there}.")
        return structure, leaf_paths(structure), {x: [i for i, y in enumerate(given) if y == x] for x in rules}

    def check(state: Any) -> None:
        if not isinstance(state, dict) or set(state) != {str(x) for x in rules}:
            raise wrong_state_error(what, state, "a dict by label")

    def start(params: Any) -> Any:
        leaves = flatten(params)[0]
        _, names, places = partition_leaves(params)
        return {str(x): rules[x].start({names[i]: leaves[i] for i in places[x]}) for x in rules}

    def advance(grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> tuple[Any, Any]:
        structure, names, places = partition_leaves(params)
        leaves, given = flatten(params)[0], flatten(grads)[0]
        check(state)
        updates, after = list(given), {}
        for x, rule in rules.items():
            mine, own = ({names[i]: tree[i] for i in places[x]} for tree in (leaves, given))
            found, after[str(x)] = rule.advance(own, state[str(x)], mine, extra)
            for i in places[x]:
                updates[i] = found[names[i]]
        return unflatten(structure, updates), after

    def split(params: Any, state: Any) -> list[tuple[Rule, Any]]:
        check(state)
        _, names, places = partition_leaves(params)
        leaves = flatten(params)[0]
        found: dict[int, tuple[Rule, Any]] = {}
        for x, rule in rules.items():
            own = {names[i]: leaves[i] for i in places[x]}
            order = flatten({names[i]: i for i in places[x]})[0]  # a dict is flattened by its keys
            assert rule.split is not None
            found |= zip(order, rule.split(own, state[str(x)]), strict=True)
        return [found[i] for i in range(len(leaves))]

    # a sum over all parameters would be one over those of a label
    is_flat = all(rule.split is not None and not rule.joint_folds for rule in rules.values())
    return Rule(what, start, advance, split if is_flat else None)


@picklable
def masked(rule: Rule, mask: Any | Callable[[Any], Any]) -> Rule:
    """The rule for parameters where the mask is True; the gradients of the others are passed on as they are.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.masked(pb.optim.scale(2.0), {"w": True, "b": False})
    >>> params = {"w": np.zeros(1), "b": np.zeros(1)}
    >>> rule.update({"w": np.ones(1), "b": np.ones(1)}, rule.init(params), params)[0]
    {'w': array([2.]), 'b': array([1.])}
    """
    check_rule(rule, "masked")
    return _rule_by_label("masked", {True: rule, False: stateless_rule("nothing", lambda g, p: g, flat=True)}, mask)


@picklable
def freeze(mask: Any | Callable[[Any], Any]) -> Rule:
    """Parameters where the mask is True stay as they are. Put it last in a chain.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.optim.chain(pb.optim.sgd(1.0), pb.optim.freeze([True, False]))
    >>> w = [np.zeros(1), np.zeros(1)]
    >>> rule.update([np.ones(1), np.ones(1)], rule.init(w), w)[0]
    [array([0.]), array([-1.])]
    """
    return masked(stateless_rule("freeze", lambda g, p: zeros_like(p), flat=True), mask)

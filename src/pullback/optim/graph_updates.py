"""A rule's step in a graph built by hand; its state becomes variables of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..arrays.trees import flatten, leaf_paths, unflatten
from ..errors import ArgumentError
from ..graph.builder_lines import GraphValue
from ..ops.elementwise import pointwise

if TYPE_CHECKING:
    from .rule import Rule


def graph_updates(rule: Rule, pairs: Sequence[tuple[Any, Any]], extra: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """A step of a rule, recorded in the graph that the variables belong to."""
    pairs = [_check_pair(pair, rule.name) for pair in pairs]
    if not pairs:
        raise ArgumentError(f"{rule.name}: updates of no variables; give pairs of (variable, gradient).")
    builder = pairs[0][0].builder
    names = [builder.variable_name(w, f"{rule.name}: updates") for w, _ in pairs]
    if len(set(names)) < len(names):
        raise ArgumentError(f"{rule.name}: updates: a variable is given twice among {', '.join(names)}.")
    leaves, structure = flatten(rule.init({n: builder.read(n) for n in names}))
    labels = [rule.name + _slot_name(path) for path in leaf_paths(structure)]
    slots = [builder.variable(_unique_name(builder, n), x) for n, x in zip(labels, leaves, strict=True)]
    params = {w.name: w for w, _ in pairs}
    grads = {w.name: g for w, g in pairs}
    found, after = rule.update(grads, unflatten(structure, slots), params, **extra)
    changed = [(w, pointwise.add(w, found[name])) for name, w in params.items()]
    return changed + list(zip(slots, flatten(after)[0], strict=True))


def _check_pair(pair: Any, name: str) -> tuple[GraphValue, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], GraphValue):
        raise ArgumentError(
            f"{name}: updates takes pairs of (variable of a graph, gradient), got {pair!r}.\n"
            "  For tensors, use pb.optim.Optimizer."
        )
    return pair[0], pair[1]


def _slot_name(path: str) -> str:
    """`[0].slots['m']['w']` as `[0].slots.m.w`."""
    return path.replace("['", ".").replace("']", "")


def _unique_name(builder: Any, name: str) -> str:
    taken, found, more = {*builder.placeholders, *builder.variables}, name, 1
    while found in taken:
        more += 1
        found = f"{name} ({more})"
    return found

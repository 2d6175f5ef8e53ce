"""Activations on the tape: how much of each is flat, and which units are dead.

Activations are found, not listed. A call of an elementwise function is a connected group of nodes made by one line of
the user; its derivative is the rules of these nodes run on ones. It is an activation if it depends on
one tracked array, is not linear in it, and flattens out: an op of it has a derivative of zero far from the origin (and
a bounded one everywhere), or the derivative is exactly zero here for some elements, as it is for a bound.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.call_site import is_package_code
from ...arrays.exchange import to_numpy
from ...arrays.node import Node
from ...arrays.spec import Spec, ones
from ...ops.dispatch import apply
from ...ops.op import OUT, Op
from ...tape.cotangents import accumulate, strip_mask
from ...tape.pull import pull
from ...tape.sweep import order_deepest_first
from ...transforms.reverse import vjp
from .parameters import Limits

#: Where a function that flattens out is flat to single precision.
_FAR = 40.0


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """One activation: its ops, the user's line, the share of elements where it is flat, how many of its units (places
    in the axes after the first, over which examples lie) are flat for nearly all examples (`stuck`) and how many pass
    no gradient for any (`dead`), and the verdict: "", "saturated", "dead".
    """

    name: str
    line: str
    shape: tuple[int, ...]
    flat: float
    stuck: int
    dead: int
    units: int
    state: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shape = "x".join(map(str, self.shape)) or "one"
        units = f"{self.stuck} of {self.units}", f"{self.dead} of {self.units}"
        return self.name, shape, f"{self.flat:.0%}", *units, self.state, self.line


def activation_rows(root: Node, limits: Limits) -> tuple[ActivationRow, ...]:
    """A row for each activation behind a node, in the order they were computed."""
    found = (_activation_row(call, limits) for group in _group_by_line(root) for call in _split_calls(group))
    return tuple(row for row in found if row is not None)


def _group_by_line(root: Node) -> list[list[Node]]:
    """Connected nodes of elementwise ops made by one line, deepest first in each. A node whose line is in this package
    is inside a function that the user called, so it belongs to its consumer.
    """

    def is_one(node: Node, parent: Node, top: Node) -> bool:
        return _is_made_by_package(parent) or (parent.code, parent.lasti) == (top.code, top.lasti)

    order = [n for n in order_deepest_first([root]) if not n.is_leaf and _is_pointwise(n)]
    return _join_with_parents(order, is_one)


def _join_with_parents(order: list[Node], is_one: Callable[[Node, Node, Node], bool]) -> list[list[Node]]:
    """Nodes that come deepest first, joined with those parents for which `is_one(node, parent, top of the group)`."""
    head: dict[Node, Node] = {n: n for n in order}
    for node in order:  # a node's group is known before its parents are visited
        top = _find_root(head, node)
        for parent in node.parents:
            if parent in head and is_one(node, parent, top):
                head[_find_root(head, parent)] = top
    groups: dict[Node, list[Node]] = {}
    for node in order:
        groups.setdefault(_find_root(head, node), []).append(node)
    return list(groups.values())[::-1]


def _is_made_by_package(node: Node) -> bool:
    """Whether a function of this package made the node. A module's `forward` does not count: it makes many calls."""
    return node.code is not None and is_package_code(node.code) and node.code.co_name != "forward"


def _find_root(head: dict[Node, Node], node: Node) -> Node:
    while head[node] is not node:
        head[node] = head[head[node]]  # path compression
        node = head[node]
    return node


def _is_pointwise(node: Node) -> bool:
    return isinstance(node.spec, Spec) and node.rule.op.family == "elementwise" and node.kept is not None


def _split_calls(group: list[Node]) -> list[list[Node]]:
    """The group itself if one array enters it. Otherwise several calls were made by one line, as in a module that a
    line of the user's calls: they are split where values are only joined (a bias is added). A group that several arrays
    still enter is split into the ops that flatten out, if all their inputs go through them.
    """
    if len(_group_inputs(group)) == 1:
        return [group]
    parts = _join_with_parents(
        [n for n in group if _is_nonlinear(n) or len(set(n.parents)) == 1], lambda node, parent, top: True
    )
    found = []
    for part in parts:
        if len(_group_inputs(part)) == 1:
            found.append(part)
        else:
            uses = Counter(p for n in part for p in n.parents)
            found += [[n] for n in part[::-1] if _saturates(n.rule.op) and not _is_bypassed(n, uses, set(part))]
    return found


def _is_bypassed(node: Node, uses: Counter[Node], inside: set[Node]) -> bool:
    """Whether an op's input, maybe scaled, also bypasses it, as around the sigmoid of a gate."""
    while len(node.parents) == 1:
        (node,) = node.parents
        if uses[node] > 1:
            return True
        if node not in inside:
            break
    return False


def _group_inputs(group: Sequence[Node]) -> list[Node]:
    inside = set(group)
    return list(dict.fromkeys(p for n in group for p in n.parents if p not in inside))


def _activation_row(group: Sequence[Node], limits: Limits) -> ActivationRow | None:
    entries, last = _group_inputs(group), group[0]
    if len(entries) != 1 or entries[0].spec.shape != last.spec.shape or not last.spec.size:
        return None
    if not any(_is_nonlinear(n) for n in group):
        return None
    slope = _slope_magnitudes(group, entries[0])
    if slope is None or not (any(_saturates(n.rule.op) for n in group) or np.any(slope == 0)):
        return None
    by_unit = slope if slope.ndim > 1 else slope[None]
    stuck = int(np.sum(np.mean(by_unit < limits.flat, axis=0) >= limits.nearly))
    dead, units = int(np.sum(np.all(by_unit == 0, axis=0))), by_unit[0].size
    state = "dead" if dead >= limits.much * units else "saturated" if stuck >= limits.much * units else ""
    names = " ".join(dict.fromkeys(n.name for n in reversed(group) if _is_nonlinear(n)))
    flat = float(np.mean(slope < limits.flat))
    return ActivationRow(names, last.where(), last.spec.shape, flat, stuck, dead, units, state)


def _is_nonlinear(node: Node) -> bool:
    """Whether the derivative depends on the argument itself, by what the rule saves."""
    return any(at == OUT or at in node.rule.needs for at in node.rule.keeps)


def _slope_magnitudes(group: Sequence[Node], entry: Node) -> Any:
    """|derivative| of the last value by the argument, element by element; None if it is zero."""
    bars: dict[Node, Any] = {group[0]: ones(group[0].spec)}
    for node in group:
        bar = bars.pop(node, None)
        if bar is None:
            continue
        for parent, share in zip(node.parents, pull(node, bar, None, False), strict=True):
            if share is not None:
                bars[parent] = accumulate(bars[parent], share) if parent in bars else share
    found = bars.get(entry)
    return None if found is None else np.abs(to_numpy(strip_mask(found), "gradient_report"))


@functools.cache
def _saturates(op: Op) -> bool:
    """Whether an op of one argument has no derivative far from the origin, to one side at least, and a small one to the
    other: exp, whose derivative grows without bound, is no activation.
    """
    if len(op.args) != 1 or op.args[0].startswith("*"):
        return False
    at = np.array([-_FAR, _FAR])
    try:
        with np.errstate(all="ignore"):
            slope = vjp(lambda x: apply(op, x), at)[1](np.ones(2))[0]
    except Exception:  # an op that needs settings, or is not made for real numbers, does not saturate
        return False
    return bool(np.any(np.abs(slope) < 1e-6) and np.all(np.abs(slope) < _FAR))

"""How a gradient tape watches a tensor: its own node on the tensor, and how that is removed."""

from __future__ import annotations

import weakref
from typing import Any

from ...arrays.node import Node, NodeCall, leaf_node
from ...arrays.tensor import Tensor
from ...ops.elementwise import pointwise

_OVERLAY_RULE = pointwise.positive.op.rule((0,), 1)


class WatchMark:
    """One tensor as one tape, the `owner`, sees it: the node that the tape put there, and the node `before`.

    Another tape may put a node over ours, and tapes may end in any order. So a mark stores the one `below`, and
    a tensor whose mark is removed gets the newest node below it that still counts. Tensors are held weakly.
    """

    __slots__ = ("__weakref__", "before", "below", "final_node", "node", "open", "owner", "tensor")

    def __init__(self, x: Tensor, node: Node, before: Node | None, owner: weakref.ref[Any]) -> None:
        self.tensor = weakref.ref(x)
        self.node, self.before, self.owner = node, before, owner
        self.below = mark_at(before)
        self.final_node: Node | None = None
        self.open = True
        _marks[id(node)] = self

    @staticmethod
    def for_variable(x: Tensor, owner: weakref.ref[Any]) -> WatchMark:
        """The mark of a leaf that stays one."""
        assert x.node is not None
        return WatchMark(x, x.node, None, owner)

    @staticmethod
    def attach(x: Tensor, owner: weakref.ref[Any]) -> WatchMark:
        """Make an untracked tensor a leaf; over the node of a tracked one put a step that changes nothing, so that the
        owner's gradient ends there while others see through it.
        """
        before = x.node
        if before is None:
            x.requires_grad_()
        else:
            x.node = _make_overlay(x, before)
        assert x.node is not None
        return WatchMark(x, x.node, before, owner)

    def current_node(self) -> Node | None:
        """The node of the tensor for the owner: ours, or a newer one if the tensor was rebound to a new value since;
        None if that value is a constant.
        """
        x = self.tensor()
        if x is None or not self.open:
            return self.final_node or self.node
        node = x.node
        while (other := mark_at(node)) is not None and other is not self:
            node = other.before
        return node

    def remove_mark(self) -> None:
        """Restore the node that was there before. The owner remembers its node of the tensor."""
        if not self.open:
            return
        self.final_node, self.open = self.current_node(), False
        node, below = self.before, self.below
        # Tapes that ended since ours began left their nodes for us to skip.
        while below is not None and not below.open:
            node, below = below.before, below.below
        x = self.tensor()
        if x is not None and (x.node is self.node or (x.node is None and _is_leaf_of(node, x))):
            x.node = node  # the second case: an update of a parameter under no_grad keeps its leaf

    def renew(self) -> WatchMark | None:
        """For a variable: a new leaf from which nothing has been computed yet, with the hooks of the old one."""
        x = self.tensor()
        if x is None or self.current_node() is not self.node:
            return None
        if x.node is not self.node:  # another tape's node lies over ours and needs it
            return self
        x.node = leaf_node(x)
        # Hooks and the line of creation belong to the variable, not to what was recorded.
        x.node.call, x.node.code, x.node.lasti = self.node.call, self.node.code, self.node.lasti
        return WatchMark.for_variable(x, self.owner)


#: From a node to the mark it belongs to, as long as the mark lives. Tapes look here in a query; ops never do.
_marks: weakref.WeakValueDictionary[int, WatchMark] = weakref.WeakValueDictionary()


def mark_at(node: Node | None) -> WatchMark | None:
    """The mark whose node this is."""
    return None if node is None else _marks.get(id(node))


def is_marked_by_others(roots: list[Node], mine: set[Node]) -> bool:
    """Whether the roots were computed from a leaf, or from what an open tape watches, that is not among `mine`."""
    found = list(dict.fromkeys(roots))
    seen = set(found)
    for node in found:  # grows during the loop
        if node.rule is None:
            if node not in mine and node.kept() is not None:
                return True
        elif node.rule is _OVERLAY_RULE and node not in mine and (mark := mark_at(node)) is not None and mark.open:
            return True
        for parent in node.parents:
            if parent not in seen:
                seen.add(parent)
                found.append(parent)
    return False


def _make_overlay(x: Tensor, before: Node) -> Node:
    node = Node()
    node.rule, node.parents, node.kept, node.spec = _OVERLAY_RULE, (before,), (), x.spec
    node.order, node.call, node.bar = before.order + 1, NodeCall((x.spec,), {}), None
    node.code, node.lasti = before.code, before.lasti
    return node


def _is_leaf_of(node: Node | None, x: Tensor) -> bool:
    return node is not None and node.is_leaf and node.kept() is x

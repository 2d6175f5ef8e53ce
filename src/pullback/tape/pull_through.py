"""The chain rule through a function whose graph was not recorded: its ops run again and are pulled back one by one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any

from ..arrays.node import Node, leaf_node
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor, wrap
from ..settings import override_modes
from .cotangents import accumulate
from .pull import pull


def pull_through(
    function: Callable[..., Sequence[Any]], bars: Sequence[Any], args: list[Any], some: Sequence[int]
) -> list[Any]:
    """The shares of some arguments from cotangents of a function's results, None for those without; masks of
    cotangents become masks of shares.
    """
    linked = any(type(x) is Tensor and x.node is not None for x in args)
    moving = [args[i] if linked else _make_leaf(args[i]) for i in some]
    for i, x in zip(some, moving, strict=True):
        args[i] = x
    with override_modes(grad=True, instruments=None):
        outs = function(*args)
    table: dict[Node, Any] = {}
    for out, bar in zip(outs, bars, strict=False):
        if bar is not None and type(out) is Tensor and out.node is not None:
            _add(table, out.node, bar)
    ends = {x.node for x in args if type(x) is Tensor}  # beyond them is the graph that others pull through
    for node in _nodes_between(table, ends):
        bar = table.pop(node, None)
        if bar is not None:
            for parent, share in zip(node.parents, pull(node, bar, None, linked), strict=True):
                if share is not None:
                    _add(table, parent, share)
    # an argument given twice has one node, whose cotangent is that of both: the first place gets it
    return [table.pop(x.node, None) if type(x) is Tensor and x.node is not None else None for x in moving]


def _make_leaf(x: Any) -> Tensor:
    leaf = wrap(x.value if type(x) is Tensor else x, spec_of(x))
    leaf.node = leaf_node(leaf)
    return leaf


def _add(table: dict[Node, Any], node: Node, share: Any) -> None:
    table[node] = accumulate(table[node], share) if node in table else share


def _nodes_between(roots: Iterable[Node], ends: Container[Node | None]) -> list[Node]:
    """The nodes that lead to the roots, deepest first, as far as the ends, which are left out."""
    found = [node for node in roots if node not in ends]
    seen = set(found)
    for node in found:  # grows during the loop
        for parent in node.parents:
            if parent not in seen and parent not in ends:
                seen.add(parent)
                found.append(parent)
    return sorted(found, key=attrgetter("order"), reverse=True)

"""Nodes that a tape watches in, the living steps that hang on them out, as a list and as text."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

from ...arrays.node import Node
from ...ops.keeping import Kept
from ...ops.record import PartRule
from .marks import mark_at

__all__ = ["living_steps", "table"]

_MOST_LINES = 100


def living_steps(watched: Iterable[Node]) -> list[Node]:
    """The steps that hang on the watched nodes and still keep what they need, parents first.

    Nodes know their parents only, and an index of children would cost every op. So the living ones are taken from the
    garbage collector, in one pass over all its objects for each look.
    """
    reached = set(watched)
    alive = [x for x in gc.get_objects() if type(x) is Node and hasattr(x, "lasti")]  # which is set last
    found = []
    for node in sorted(alive, key=lambda node: node.order):
        if node not in reached and any(parent in reached for parent in node.parents):
            reached.add(node)
            if node.kept is not None and type(node.rule) is not PartRule and mark_at(node) is None:
                found.append(node)
    return found


def table(steps: list[Node]) -> tuple[int, list[str]]:
    """The bytes that the steps keep, each array once, and a line for each: op, result, bytes, the user's line."""
    kept = {id(value): size for node in steps for value, size in _kept(node.kept)}
    rows = [("op", "result", "bytes", "line"), *map(_row, steps[:_MOST_LINES])]
    first, second, third = (max(len(row[i]) for row in rows) for i in range(3))
    lines = [f"  {op:{first}s}  {result:{second}s}  {size:>{third}s}  {line}" for op, result, size, line in rows]
    if len(steps) > _MOST_LINES:
        lines.append(f"  and {len(steps) - _MOST_LINES} more")
    return sum(kept.values()), lines


def _row(node: Node) -> tuple[str, str, str, str]:
    result = ", ".join(map(str, node.spec)) if isinstance(node.spec, tuple) else str(node.spec)
    return node.name, result, str(sum(size for _, size in _kept(node.kept))), node.where()


def _kept(kept: Any) -> Iterator[tuple[Any, int]]:
    """Each value that is kept, with its bytes."""
    for value in kept or ():
        if type(value) is tuple:
            yield from _kept(value)
        elif not isinstance(value, (bool, int, float, complex)):
            yield value, value.spec.nbytes if isinstance(value, Kept) else value.nbytes

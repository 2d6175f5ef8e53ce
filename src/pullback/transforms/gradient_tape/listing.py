"""The live nodes that depend on what a tape watches, as a list and as text."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any

from ...arrays.node import Node
from ...arrays.text import text_table
from ...ops.op import PartRule
from ...ops.saved_values import SavedValue
from .watch_marks import mark_at

_MAX_LINES = 100


def live_steps(watched: Iterable[Node]) -> list[Node]:
    """The nodes that depend on the watched ones and still hold their saved values, parents first.

    Nodes know their parents only, and an index of children would cost every op. So the live ones are taken from the
    garbage collector, in one pass over all its objects for each listing. That is for debugging: CPython cannot finish a
    tuple that another thread is building at that moment.
    """
    reached = set(watched)
    alive = [x for x in gc.get_objects() if type(x) is Node and hasattr(x, "lasti")]  # which is set last
    found = []
    # Parents have lower orders than their children, so one pass reaches everything.
    for node in sorted(alive, key=lambda node: node.order):
        if node not in reached and any(parent in reached for parent in node.parents):
            reached.add(node)
            if node.kept is not None and type(node.rule) is not PartRule and mark_at(node) is None:
                found.append(node)
    return found


def format_table(steps: list[Node]) -> tuple[int, list[str]]:
    """The bytes that the nodes save, each array once, and a line for each: op, result, bytes, the user's line."""
    kept = {id(value): size for node in steps for value, size in _kept_values(node.kept)}
    rows = [("op", "result", "bytes", "line"), *map(_format_row, steps[:_MAX_LINES])]
    lines = [f"  {line}" for line in text_table(rows, right=(2,)).splitlines()]
    if len(steps) > _MAX_LINES:
        lines.append(f"  and {len(steps) - _MAX_LINES} more")
    return sum(kept.values()), lines


def _format_row(node: Node) -> tuple[str, str, str, str]:
    result = ", ".join(map(str, node.spec)) if isinstance(node.spec, tuple) else str(node.spec)
    return node.name, result, str(sum(size for _, size in _kept_values(node.kept))), node.where()


def _kept_values(kept: Any) -> Iterator[tuple[Any, int]]:
    """Each saved value, with its bytes."""
    for value in kept or ():
        if type(value) is tuple:
            yield from _kept_values(value)
        elif not isinstance(value, (bool, int, float, complex)):
            yield value, value.spec.nbytes if isinstance(value, SavedValue) else value.nbytes

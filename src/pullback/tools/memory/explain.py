"""`explain`: the values a tensor's graph keeps for backward, each once, with the nodes that keep it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from ...arrays.html_text import html_block, html_table
from ...arrays.memory_ledger import owner_of
from ...arrays.node import Node
from ...arrays.tensor import Tensor
from ...arrays.text import format_bytes, text_table
from ...checkpoint.budget.value_recipes import EvictableValue
from ...errors import ArgumentError
from ...ops.op import OUT
from ...ops.saved_values import SavedValue
from ...tape.cotangents import arrays_in
from ...tape.sweep import order_deepest_first
from ..render.tables import rich_table

_HEAD = ("bytes", "keepers", "value", "holder", "kept by", "line")


@dataclass(frozen=True, slots=True)
class KeptValue:
    """One piece of memory that the graph keeps: `keepers` are (op, which argument or "out", line), `holder` is
    "parameter" if a leaf has it anyway, "kept", or "packed" if it was packed and its bytes are elsewhere.
    """

    nbytes: int
    what: str
    holder: str
    keepers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a graph keeps. `total` counts each piece of memory once, `parameters` is the part that leaves have anyway;
    `released` nodes no longer keep anything.
    """

    total: int
    parameters: int
    nodes: int
    released: int
    values: tuple[KeptValue, ...]

    def by_op(self) -> dict[str, int]:
        """Bytes by the first op that keeps them, without parameters; the largest first."""
        return self._sum_by(0)

    def by_line(self) -> dict[str, int]:
        """Bytes by the line of the first op that keeps them, without parameters; the largest first."""
        return self._sum_by(2)

    def _sum_by(self, at: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        for value in self.values:
            if value.holder == "kept":
                found[value.keepers[0][at]] += value.nbytes
        return dict(found.most_common())

    def json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def table(self, rows: int = 30) -> str:
        """The values as plain text, the largest first."""
        head = (
            f"{self.nodes} nodes keep {format_bytes(self.total)}, of which parameters {format_bytes(self.parameters)}"
            + (f"; {self.released} nodes are released" if self.released else "")
        )
        return head + "\n" + text_table([_HEAD, *self._table_rows(rows)], right=(0, 1))

    def _table_rows(self, rows: int) -> list[tuple[str, ...]]:
        return [
            (
                format_bytes(v.nbytes),
                str(len(v.keepers)),
                v.what,
                v.holder,
                ", ".join(_keeper_names(v)),
                v.keepers[0][2],
            )
            for v in self.values[:rows]
        ]

    def __rich__(self) -> Any:
        return rich_table(f"kept {format_bytes(self.total)}", _HEAD, self._table_rows(30))

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        rows = html_table(_HEAD, self._table_rows(len(self.values)), numbers=(0, 1))
        return html_block(self.table(0).partition("\n")[0], rows)


def _keeper_names(value: KeptValue) -> list[str]:
    return [f"{op}({argument})" for op, argument, _ in value.keepers[:3]] + ["…"] * (len(value.keepers) > 3)


def explain(loss: Any) -> Explanation:
    """Every value that the graph of a tensor keeps for the backward pass: bytes, the ops that keep it, and their lines.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor(np.ones(1000), requires_grad=True)
    >>> found = pb.memory.explain(pb.sum(pb.sin(pb.exp(x))))
    >>> found.total, [(v.nbytes, v.keepers[0][:2]) for v in found.values]
    (8000, [(8000, ('sin', 'x'))])
    """
    if not isinstance(loss, Tensor) or loss.node is None:
        raise ArgumentError("memory.explain: wants a tensor that was computed from one that requires its gradient.")
    nodes = order_deepest_first([loss.node])
    leaves = _leaf_owner_ids(nodes)
    found: dict[int, list[Any]] = {}
    released = 0
    for node in nodes:
        if node.is_leaf:
            continue
        if node.kept is None:
            released += 1
            continue
        for position, value in zip(node.rule.keeps, node.kept, strict=True):
            keeper = (node.name, _argument_name(node, position), node.where())
            for part in value if type(value) is tuple else (value,):
                _collect(found, part, keeper, leaves)
    values = tuple(sorted((KeptValue(n, w, h, tuple(k)) for _, n, w, h, k in found.values()), key=lambda v: -v.nbytes))
    total = sum(v.nbytes for v in values)
    parameters = sum(v.nbytes for v in values if v.holder == "parameter")
    return Explanation(total, parameters, sum(not n.is_leaf for n in nodes), released, values)


def _leaf_owner_ids(nodes: list[Node]) -> set[int]:
    tensors = [node.kept() for node in nodes if node.is_leaf]
    return {id(owner_of(a)) for t in tensors if t is not None for a in arrays_in(t)}


def _argument_name(node: Node, position: int) -> str:
    return "out" if position == OUT else str(node.rule.op.argument(position)).lstrip("*")


def _collect(found: dict[int, list[Any]], value: Any, keeper: tuple[str, str, str], leaves: set[int]) -> None:
    """Entries are [owner (so that its id stays valid), bytes, description, holder, keepers]."""
    if isinstance(value, SavedValue):
        there = value.array if type(value) is EvictableValue else None
        if there is None:
            found.setdefault(id(value), [value, 0, str(value.spec), "packed", []])[-1].append(keeper)
            return
        value = there
    for array in arrays_in(value):
        owner = owner_of(array)
        holder = "parameter" if id(owner) in leaves else "kept"
        what = f"{array.dtype}{list(array.shape)}"
        found.setdefault(id(owner), [owner, int(owner.nbytes), what, holder, []])[-1].append(keeper)

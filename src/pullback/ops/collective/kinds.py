"""Which values ranks have in common, and which are their own: a common value that a rank uses by itself must go through
`shared`, or its gradient lacks the shares of the other ranks.

Bare arrays say nothing of themselves, but what a tape has recorded does: a result of `total`, `whole` or `broadcast` is
common, and so is what is computed of it, until it passes through `shared` or `part`. A sum over ranks of such a value
would be wrong in its derivatives alone, so it is refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from ...arrays.call_site import user_line
from ...arrays.node import Node
from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...errors import WorldError
from ...settings import modes
from ..op import Op

#: How often the calls of one line are checked, unless they are traced: each check walks over the graph.
_CHECKS_A_LINE = 8
_checked: Counter[Any] = Counter()


def check_kind(op: Op, x: Any) -> None:
    """Raise if a tracked value is common where an op takes one of this rank's own."""
    if not isinstance(x, Value) or op.kinds is None or op.kinds[0] == "common":
        return
    if modes().staging is None:
        line = user_line(sys._getframe(1))
        if _checked[line] >= _CHECKS_A_LINE:
            return
        _checked[line] += 1
    found = next(filter(None, map(_find_common, _tape_nodes(x))), None)
    if found is not None:
        raise WorldError(
            f"{op.name}: its argument depends on a value that all ranks have in common, the result of {found.name}\n"
            f"  at {found.where()}\n"
            "  and is not each rank's own: the gradient would lack the shares of the other ranks.\n"
            "  Put pb.distributed.shared around that value."
        )


def _tape_nodes(x: Any) -> list[Node]:
    """The nodes of the tapes that a value is on, also below other transforms."""
    if not isinstance(x, Value):
        return []
    own = [x.node] if isinstance(x, Tensor) and x.node is not None else []
    return own + [node for part in x.parts() for node in _tape_nodes(part)]


def _find_common(node: Node) -> Node | None:
    """The node of a common value that a value depends on, without one in between that makes it a rank's own."""
    stack, seen = [node], {node}
    while stack:
        here = stack.pop()
        op = getattr(here.rule, "op", None)
        kinds = None if op is None else op.kinds
        if kinds is not None:
            if kinds[1] == "common":
                return here
            continue
        new = [parent for parent in here.parents if parent not in seen]
        seen.update(new)
        stack += new
    return None

"""What NumPy would take for a view of another array, and the refusal to write to it: here a slice is its own value.

In NumPy `row -= 1` changes the array that `row` was cut from. Values never change, so it would change `row` alone, and
a program that relies on the other would compute a wrong number. A slice remembers the tensors it was cut from, weakly:
if none of them lives any more, no program can tell the difference, and writing is as good as in NumPy.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ref

from ..errors import GraphError
from .value import Value

#: References to a value that a variable here and the call of `getrefcount` hold.
_HERE = 2

__all__ = ["as_view", "is_view", "refuse_write"]


def as_view(out: Any, source: Any) -> Any:
    """A result that shares its elements with the source in NumPy, noted as such."""
    if isinstance(out, Value) and out is not source and isinstance(source, Value):
        out._sources = (ref(source), *getattr(source, "_sources", ()))
    return out


def is_view(x: Any) -> bool:
    """Whether a value was cut from one that a variable still holds."""
    for reference in getattr(x, "_sources", ()):
        source = reference()
        if source is None:
            continue
        kept = source.kept_references()
        if not kept or sys.getrefcount(source) > kept + _HERE:
            return True
    return False


def refuse_write(what: str) -> GraphError:
    return GraphError(
        f"{what}: this is a slice (a row, a reshape, a transpose) of another tensor, which in NumPy would change too. "
        "Here a slice is a value of its own, so that would be lost.\n"
        "  To change the tensor, write to it: y[i] -= v, or y = pb.set_at(y, i, v).\n"
        "  To change the slice alone, copy it first: r = y[i].copy(), or write r = r - v."
    )

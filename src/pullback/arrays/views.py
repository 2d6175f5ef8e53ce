"""Slices that NumPy would treat as views, and the refusal to write to them: here a slice is its own value.

In NumPy `row -= 1` changes the array that `row` was cut from. Values never change, so it would change `row` alone, and
a program that relies on NumPy's behavior would compute a wrong result. A slice holds weak references to
the tensors it was cut from: if none of them is alive, no program can tell the difference, and writing is allowed.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ref

from ..errors import GraphError
from .value import Value

#: References held by a local variable here and by the call of `getrefcount`.
_LOCAL_REFERENCES = 2


def as_view(out: Any, source: Any) -> Any:
    """Mark a result that in NumPy would be a view of the source."""
    return as_tensor_view(out, source) if isinstance(out, Value) and isinstance(source, Value) else out


def as_tensor_view(out: Any, source: Any) -> Any:
    """The same for values."""
    if out is not source:
        older = getattr(source, "_sources", None)
        out._sources = (ref(source),) if older is None else (ref(source), *older)
    return out


def is_view(x: Any) -> bool:
    """Whether a value is a slice of one that a variable still holds."""
    for reference in getattr(x, "_sources", ()):
        source = reference()
        if source is None:
            continue
        kept = source.kept_references()
        if not kept or sys.getrefcount(source) > kept + _LOCAL_REFERENCES:
            return True
    return False


def view_write_error(what: str) -> GraphError:
    return GraphError(
        f"{what}: this is a slice (a row, a reshape, a transpose) of another tensor, which in NumPy would change too. "
        "Here a slice is a value of its own, so the write would be lost.\n"
        "  To change the tensor, write to it: y[i] -= v, or y = pb.set_at(y, i, v).\n"
        "  To change the slice alone, copy it first: r = y[i].copy(), or write r = r - v."
    )

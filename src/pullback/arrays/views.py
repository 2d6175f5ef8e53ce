"""Slices that NumPy would treat as views, and the refusal to write to them: here a slice is its own value.

In NumPy `row -= 1` changes the array that `row` was cut from. Values never change, so it would change `row` alone, and
a program that relies on NumPy's behavior would compute a wrong result. A slice holds weak references to
the tensors it was cut from: if none of them is alive, no program can tell the difference, and writing is allowed.

So it is on a tape of the user's. In a function that a transform runs, which may be a function of arrays, slices are the
windows that they are in NumPy: a write to a slice goes to the tensor (`write_through`), and after each write to it the
slices that are still alive (`living_views`) are cut again, which costs nothing where there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from ..errors import GraphError
from .buffers import current_run
from .value import Value

#: A function of a tensor that returns the slice.
Cut = Callable[[Any], Any]

#: References held by a local variable here and by the call of `getrefcount`.
_LOCAL_REFERENCES = 2


def as_view(out: Any, source: Any, cut: Cut, may_copy: bool = False) -> Any:
    """Mark a result that in NumPy would be a view of the source, and that `cut(source)` returns. If it `may_copy`, as a
    reshape of what is not contiguous, it is marked where NumPy would not.
    """
    if not isinstance(out, Value) or not isinstance(source, Value):
        return out
    return out if may_copy and _copies(source, cut) else as_tensor_view(out, source, cut)


def _copies(source: Value, cut: Cut) -> bool:
    """Whether NumPy's array in place of the source would be copied, found out by an array of its strides."""
    if current_run.get() is None:
        return False
    shown = array_laid_out_as(source)
    return not np.may_share_memory(shown, cut(shown))


def array_laid_out_as(source: Value) -> Any:
    """An array of some numbers, with the strides of NumPy's array in place of a value."""
    root, before = source, None
    for reference, first in getattr(source, "_cuts", ()):
        if (owner := reference()) is not None:
            root, before = owner, first  # the last is the first that was made
    value: Any = root
    axes: list[int | None] = []
    while isinstance(value, Value) and (parts := value.parts()):
        axes.append(getattr(value, "axis", None))
        value = parts[0]
    if type(value) is np.ndarray and value.size:
        for axis in reversed(axes):  # an element of a batch
            value = value if axis is None else value[(slice(None),) * axis + (0,)]
    is_known = type(value) is np.ndarray and value.shape == root.spec.shape
    plain = np.empty_like(value, np.int8) if is_known else np.empty(root.spec.shape, np.int8)
    return plain if before is None else before(plain)


def as_tensor_view(out: Any, source: Any, cut: Cut) -> Any:
    """The same for values."""
    if out is not source:
        older = getattr(source, "_sources", None)
        out._sources = (ref(source),) if older is None else (ref(source), *older)
        # without axes they are numbers in NumPy
        if out.spec.shape and source.spec.shape and current_run.get() is not None:
            _link(out, source, cut)
    return out


def _link(view: Value, source: Value, cut: Cut) -> None:
    """Let a view be cut again when its source, or what that was cut from, is written to."""
    cuts = [(ref(source), cut), *((root, _then(before, cut)) for root, before in getattr(source, "_cuts", ()))]
    view._cuts = cuts
    reference = ref(view)
    for root, _ in cuts:
        owner = root()
        if owner is None:
            continue
        views = getattr(owner, "_views", None)
        if views is None:
            owner._views = views = []
        elif len(views) > 32 and not len(views) & (len(views) - 1):
            views[:] = [other for other in views if other() is not None]
        views.append(reference)


def _then(first: Cut, second: Cut) -> Cut:
    return lambda x: second(first(x))


def write_through(view: Value, new: Any) -> bool:
    """Write a whole view into what it was cut from, which cuts it and others again; False if it is not linked to that,
    or is no selection of its elements.
    """
    for reference, cut in reversed(getattr(view, "_cuts", ())):
        root = reference()
        if root is None:
            continue
        if root.spec.dtype != view.spec.dtype or not root.spec.shape:
            return False
        numbers = np.arange(root.spec.size).reshape(root.spec.shape)
        places = cut(numbers)
        counts = np.bincount(places.ravel(), minlength=root.spec.size)
        if counts.max(initial=0) > 1 or not np.array_equal(cut(numbers + 1), places + 1):
            return False
        root[np.unravel_index(places, root.spec.shape)] = new
        return True
    return False


def is_linked(view: Value) -> bool:
    """Whether a write to a view may reach what it was cut from."""
    return any(reference() is not None for reference, _ in getattr(view, "_cuts", ()))


def unlink(view: Value) -> None:
    """Do not cut a view again: it is a temporary value that no variable holds."""
    if hasattr(view, "_cuts"):
        view._cuts = []


def living_views(source: Value) -> list[tuple[Value, Cut]]:
    """The views of a value that follow a write to it, and how each is cut."""
    if current_run.get() is None:
        return []
    views = [view for reference in getattr(source, "_views", ()) if (view := reference()) is not None]
    # a program that was traced may keep values of its trace
    running = [view for view in views if view.scope is None or view.scope.open]
    return [(view, cut) for view in running for root, cut in view._cuts if root() is source]


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

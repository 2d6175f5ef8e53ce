"""The constants of a program that is being traced: values as they were at the point of use."""

from __future__ import annotations

import weakref
from collections.abc import Set
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.memory_ledger import owner_of
from ..arrays.protect import as_immutable, seal_array
from ..arrays.tensor import Tensor, copy_variable
from ..settings import modes


class Constants:
    """The constants of a program being traced, each with its value at the point of use: the
    user's function may write to an array, or rebind a tensor, in its next line. `live` holds the ids of
    arrays that are reread at each run, so they are used directly.
    """

    __slots__ = ("_kept", "_live", "_origins", "numbers")

    def __init__(self, live: Set[int] = frozenset()) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._origins: dict[int, tuple[Any, weakref.ref[Any]]] = {}
        self._live = live
        self.numbers: list[Tensor] = []  # tensors whose concrete values the function read

    def keep(self, x: Any) -> Any:
        """An immutable stand-in for x; the same one as long as x is unchanged."""
        if (type(x) is not Tensor and not is_array(x)) or self.owns(x):
            return x
        if self.is_live(x):
            return x
        found = self._kept.get(id(x))
        if found is not None and found[0]() is x and is_unchanged(x, found[1]):
            return found[1]
        kept = copy_variable(x) if type(x) is Tensor else as_immutable(x)
        if is_array(kept) and kept is not x:
            seal_array(kept)  # so that a tape that saves it need not copy it again
        self._kept[id(x)] = weakref.ref(x), kept
        self._origins[id(kept)] = kept, weakref.ref(x)
        trace = modes().tracing
        if trace is not None and trace.constants not in (None, self):
            trace.constants.adopt(kept, x)
        return kept

    def adopt(self, kept: Any, x: Any) -> None:
        """Know a stand-in of a program traced inside of this one, which reads the original as well."""
        self._origins[id(kept)] = kept, weakref.ref(self.origin(x))

    def is_live(self, x: Any) -> bool:
        """Whether an array is reread at each run, or a view of one that is."""
        return id(x) in self._live or id(owner_of(x)) in self._live

    def owns(self, x: Any) -> bool:
        """Whether x is a stand-in, which never changes."""
        return id(x) in self._origins and self._origins[id(x)][0] is x

    def origin(self, kept: Any) -> Any:
        """The original of a stand-in, if it is still alive and unchanged; else the stand-in."""
        x = self._origins[id(kept)][1]() if id(kept) in self._origins else None
        return x if x is not None and is_unchanged(x, kept) else kept


def is_unchanged(x: Any, kept: Any) -> bool:
    """Whether a tensor or an array has the value of its stand-in."""
    if Tensor in (type(x), type(kept)):
        return type(x) is type(kept) and x.value is kept.value and x.node is kept.node
    return x is kept or _is_bitwise_equal(x, kept)


def _is_bitwise_equal(x: Any, other: Any) -> bool:
    """Whether two arrays are equal to the last bit, signs of zeros and NaN payloads included."""
    if x.shape != other.shape or x.dtype != other.dtype:
        return False
    if not isinstance(x, np.ndarray):
        return bool((x == other).all())
    return bool(x.tobytes() == other.tobytes())

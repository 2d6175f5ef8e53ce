"""Snapshots of tensors and attributes: what a run changes outside of itself, so that it can be undone.

Rebinding a tensor is reported (`Tensor.rebind`), and so is setting a module's attribute; objects of
the user's classes do not report, so their attributes are copied before a run and compared after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable
from typing import Any

from ...arrays.tensor import Tensor
from .reach import Reach

#: The saved value of an attribute that did not exist.
_MISSING = object()


class StateSnapshot:
    """The values of some tensors and attributes, each as first recorded."""

    __slots__ = ("_attributes", "_copies", "_tensors")

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[weakref.ref[Tensor], tuple[Any, ...]]] = {}
        self._attributes: dict[tuple[int, str], tuple[Callable[[], Any], Any]] = {}
        self._copies: list[tuple[Any, dict[str, Any]]] = []

    def note_reached(self, reach: Reach) -> None:
        """Record what a function can reach, and may read or change."""
        for tensor in reach.tensors:
            self.note_tensor(tensor)
        self.note_objects(reach.objects)

    def note_objects(self, objects: Iterable[Any]) -> None:
        """Record all attributes of user objects; `finish` keeps those that were set."""
        self._copies = [(holder, dict(vars(holder))) for holder in objects]

    def note_tensor(self, tensor: Tensor) -> None:
        found = self._tensors.get(id(tensor))
        if found is None or found[0]() is not tensor:
            self._tensors[id(tensor)] = weakref.ref(tensor), (tensor.value, tensor.spec, tensor.node, tensor.status)

    def note_attribute(self, holder: Any, name: str) -> None:
        self._note(holder, name, vars(holder).get(name, _MISSING))

    def _note(self, holder: Any, name: str, value: Any) -> None:
        found = self._attributes.get((id(holder), name))
        if found is None or found[0]() is not holder:
            self._attributes[id(holder), name] = _reference_to(holder), value

    def finish(self, passed: Container[int]) -> None:
        """End of the run: keep what is still alive and changed, except tensors passed in or out."""
        for key, (reference, _) in list(self._tensors.items()):
            if reference() is None or key in passed:
                del self._tensors[key]
        for holder, before in self._copies:
            now = vars(holder)
            for name in (*before, *(name for name in now if name not in before)):
                self._note(holder, name, before.get(name, _MISSING))
        self._copies = []
        for place, (holding, value) in list(self._attributes.items()):
            if _current_attribute(holding(), place[1]) is value:
                del self._attributes[place]

    def restore(self) -> StateSnapshot:
        """Restore everything; returns a snapshot of the state until now, to be restored in turn. Unchanged tensors
        are left alone: other threads may use them.
        """
        now = StateSnapshot()
        for reference, state in self._tensors.values():
            tensor = reference()
            if tensor is not None and (
                tensor.value is not state[0] or tensor.node is not state[2] or tensor.status != state[3]
            ):
                now.note_tensor(tensor)
                tensor.value, tensor.spec, tensor.node, tensor._status = state
        for (_, name), (holding, value) in self._attributes.items():
            holder = holding()
            if holder is not None:
                now.note_attribute(holder, name)
                _set_attribute(holder, name, value)
        return now


def _reference_to(holder: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(holder)
    except TypeError:
        return lambda: holder


def _current_attribute(holder: Any, name: str) -> Any:
    return _MISSING if holder is None else vars(holder).get(name, _MISSING)


def _set_attribute(holder: Any, name: str, value: Any) -> None:
    """Bypasses the class's own `__setattr__`, which would report it as the user's change."""
    if value is _MISSING:
        vars(holder).pop(name, None)
    else:
        vars(holder)[name] = value

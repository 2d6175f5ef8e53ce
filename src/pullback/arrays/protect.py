"""Memory a user may still write to in, memory the tape can trust out: by copy, or by a lock while it is needed."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

__all__ = ["locked", "read_only", "settled"]

_guard = threading.Lock()
_locks: dict[int, _Lock] = {}
_released: deque[_Lock] = deque()


class _Lock:
    """How many kept values need one array, and which arrays over its memory were writeable before."""

    __slots__ = ("array", "count", "writeable")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.count = 0
        self.writeable: list[Any] = []

    def close(self, array: Any) -> None:
        if array.flags.writeable:
            self.writeable.append(array)
            array.flags.writeable = False

    def open(self) -> None:
        for array in self.writeable:  # the owner first: a view may be written to only if its owner may
            array.flags.writeable = True


class _Holder:
    """The base of a locked view. NumPy folds chains of bases that are arrays but stops here, so views of the
    view keep this object alive too, and the array is given back when the last of them is gone.
    """

    __slots__ = ("__array_interface__", "_lock", "_view")

    def __init__(self, view: Any, lock: _Lock) -> None:
        interface = dict(view.__array_interface__)
        interface["data"] = (interface["data"][0], True)
        self.__array_interface__ = interface
        self._view = view
        self._lock = lock

    def __del__(self) -> None:
        _released.append(self._lock)
        _settle()


def _settle() -> None:
    """Open what was released. The collector may run `__del__` anywhere, also where the guard is held; then whoever
    holds it settles afterwards.
    """
    while _released and _guard.acquire(blocking=False):
        try:
            while _released:
                lock = _released.popleft()
                lock.count -= 1
                if lock.count == 0:
                    _locks.pop(id(lock.array), None)
                    lock.open()
        finally:
            _guard.release()


def locked(array: Any) -> Any:
    """A read-only view; the array itself cannot be written while the view, or a view of it, lives."""
    if not isinstance(array, np.ndarray):
        return array
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    with _guard:
        lock = _locks.get(id(owner))
        if lock is None:
            lock = _locks[id(owner)] = _Lock(owner)
        lock.count += 1
        lock.close(owner)
        lock.close(array)
    _settle()
    return np.asarray(_Holder(array, lock))


def settled(array: Any) -> Any:
    """An array nobody can write to any more: itself where that is certain, else a copy."""
    flags = getattr(array, "flags", None)
    if flags is None or isinstance(array, np.generic):
        return array
    if getattr(flags, "writeable", True) or array.base is not None:
        return array.copy()
    return array


def read_only(array: Any) -> Any:
    """A view through which nothing can be written, where the library has such a thing."""
    view = array.view()
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view

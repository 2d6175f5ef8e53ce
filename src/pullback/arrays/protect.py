"""Memory a user may still write to in, memory the tape can trust out: by copy, or by a lock while it is needed."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from typing import Any

import numpy as np

from .backends import is_array

__all__ = ["base_of", "lent", "locked", "owned_copy", "read_only", "settled"]

#: What NumPy puts between an array and its view by `as_strided`.
_Strided: Any = type(np.lib.stride_tricks.as_strided(np.empty(1)).base)

_guard = threading.Lock()
_locks: dict[int, _Lock] = {}
_released: deque[_Lock] = deque()


class _Lock:
    """How many kept values need the memory of one owner, and which arrays over it could be written to before."""

    __slots__ = ("count", "owner", "writeable")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.count = 0
        self.writeable: list[Any] = []

    def close(self, array: Any) -> None:
        if array.flags.writeable:
            self.writeable.append(array)
            array.flags.writeable = False

    def open(self) -> None:
        """A view can be made writeable only while its owner is, also if the owner itself was read-only before."""
        self.owner.flags.writeable = True
        for array in self.writeable:
            array.flags.writeable = True
        if not any(array is self.owner for array in self.writeable):
            self.owner.flags.writeable = False


class _Lent:
    """Stands between an array and our read-only view of it. NumPy folds chains of bases that are arrays but stops here,
    so every view of the view leads back to the array that the user holds.
    """

    __slots__ = ("__array_interface__", "view")

    def __init__(self, view: Any) -> None:
        interface = dict(view.__array_interface__)
        interface["data"] = (interface["data"][0], True)
        self.__array_interface__ = interface
        self.view = view


class _Locked(_Lent):
    """The same of a locked array, which is given back when the last view is gone."""

    __slots__ = ("_lock",)

    def __init__(self, view: Any, lock: _Lock) -> None:
        _Lent.__init__(self, view)
        self._lock = lock

    def __del__(self) -> None:
        _released.append(self._lock)
        _settle()


def _over(lent: _Lent) -> Any:
    array, dtype = np.asarray(lent), lent.view.dtype
    return array if array.dtype == dtype else array.view(dtype)  # the interface has no name for bfloat16


def lent(array: Any) -> Any:
    """A read-only view for a tensor that shares an array with the user, from which `locked` finds the array again."""
    return _over(_Lent(array)) if isinstance(array, np.ndarray) else array


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
                    _locks.pop(id(lock.owner), None)
                    lock.open()
        finally:
            _guard.release()


def locked(array: Any) -> Any:
    """A read-only view; the array itself cannot be written while the view, or a view of it, lives. Where that cannot be
    had for certain, a copy.
    """
    if not is_array(array):
        return array
    chain = _chain(array)
    if chain is None:
        return owned_copy(array)
    if not chain:
        return read_only(array)
    with _guard:
        owner = chain[0]
        lock = _locks.get(id(owner))
        if lock is None:
            lock = _locks[id(owner)] = _Lock(owner)
        lock.count += 1
        for each in chain:
            lock.close(each)
    _settle()
    return _over(_Locked(array, lock))


def _chain(array: Any) -> list[Any] | None:
    """The arrays through which memory can be written, its owner first; none if nothing can write to it; None if that is
    not known: memory of another library, of a GPU, of an object that lends a buffer.
    """
    if not isinstance(array, np.ndarray):
        return None
    chain = [array]
    while (base := base_of(array)) is not None:
        if isinstance(array.base, _Strided) and array.flags.writeable:
            return None  # NumPy would not let it be given back
        if isinstance(base, (bytes, mmap.mmap)):
            return [] if memoryview(base).readonly else None
        if not isinstance(base, np.ndarray):
            return None
        chain.insert(0, base)
        array = base
    return chain if array.flags.owndata else None


def base_of(array: Any) -> Any:
    """What the memory of an array was taken from, through what stands between a view by strides or a lock and it."""
    base = array.base
    if isinstance(base, _Lent):
        return base.view
    return base.base if isinstance(base, _Strided) else base


def owned_copy(array: Any) -> Any:
    """A copy that lies in memory as the array does, and cannot be written to where the library has such a thing."""
    copy = array.copy(order="K")
    if isinstance(copy, np.ndarray):
        copy.flags.writeable = False
    return copy


def settled(array: Any) -> Any:
    """An array that cannot be written to any more: itself where that is certain, else a copy."""
    flags = getattr(array, "flags", None)
    if flags is None or isinstance(array, np.generic):
        return array
    if getattr(flags, "writeable", True) or array.base is not None or id(array) in _locks:  # a lock is given back
        return array.copy(order="K")
    return array


def read_only(array: Any) -> Any:
    """A view through which nothing can be written, where the library has such a thing."""
    view = array.view()
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view

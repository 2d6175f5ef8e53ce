"""Protecting values on the tape from writes through the user's arrays: by a copy, or by a lock while needed."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import numpy as np

from .backends import copy_array, is_array
from .dtypes import NARROW_NAMES
from .finalizers import FinalizerQueue

#: The base object NumPy puts between an array and its view made by `as_strided`.
_Strided: Any = type(np.lib.stride_tricks.as_strided(np.empty(1)).base)

_locks: dict[int, _Lock] = {}
#: Arrays of a GPU, which cannot be locked, that only the package refers to.
_sealed: dict[int, weakref.ref[Any]] = {}


class _Lock:
    """How many saved values need one owner's memory, and which arrays over it were writeable before the lock."""

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


class _SharedBase:
    """The base between an array and our read-only view of it. NumPy collapses chains of bases that are arrays
    but stops here, so every view of the view still leads to the user's array.
    """

    __slots__ = ("__array_interface__", "view")

    def __init__(self, view: Any) -> None:
        interface = dict(view.__array_interface__)
        interface["data"] = (interface["data"][0], True)
        if view.dtype.name in NARROW_NAMES:  # which the interface cannot express: bytes, for `_array_over_base`
            interface |= {"typestr": f"|V{view.dtype.itemsize}", "descr": [("", f"|V{view.dtype.itemsize}")]}
        self.__array_interface__ = interface
        self.view = view


class _LockedBase(_SharedBase):
    """The same for a locked array, which is unlocked when the last view is gone."""

    __slots__ = ("_lock",)

    def __init__(self, view: Any, lock: _Lock) -> None:
        _SharedBase.__init__(self, view)
        self._lock = lock

    def __del__(self) -> None:
        _released.add(self._lock)
        _released.drain()


def _array_over_base(lent: _SharedBase) -> Any:
    array, dtype = np.asarray(lent), lent.view.dtype
    return array if array.dtype == dtype else array.view(dtype)


def as_shared_view(array: Any) -> Any:
    """A read-only view for a tensor that shares an array with the user, from which `lock_array` recovers the array."""
    return _array_over_base(_SharedBase(array)) if isinstance(array, np.ndarray) else array


def _release(lock: _Lock) -> None:
    lock.count -= 1
    if lock.count == 0:
        _locks.pop(id(lock.owner), None)
        lock.open()


_released = FinalizerQueue(_release)


def lock_array(array: Any) -> Any:
    """A read-only view; the array itself cannot be written while the view, or a view of it, lives. Where that cannot
    be guaranteed, a copy.
    """
    if not is_array(array):
        return array
    chain = _writable_chain(array)
    if chain is None:
        return owned_copy(array)
    if not chain:
        return read_only_view(array)
    with _released.guard:
        owner = chain[0]
        lock = _locks.get(id(owner))
        if lock is None:
            lock = _locks[id(owner)] = _Lock(owner)
        lock.count += 1
        for each in chain:
            lock.close(each)
    _released.drain()
    return _array_over_base(_LockedBase(array, lock))


def _writable_chain(array: Any) -> list[Any] | None:
    """The arrays through which memory can be written, its owner first; none if nothing can write to it; None if that is
    not known: memory of another library, of a GPU, of an object that exports a buffer.
    """
    if not isinstance(array, np.ndarray):
        return None
    chain = [array]
    while (base := base_of(array)) is not None:
        if isinstance(array.base, _Strided) and array.flags.writeable:
            return None  # NumPy would not let it be made writeable again
        if isinstance(base, (bytes, mmap.mmap)):
            return [] if memoryview(base).readonly else None
        if not isinstance(base, np.ndarray):
            return None
        chain.insert(0, base)
        array = base
    return chain if array.flags.owndata else None


def base_of(array: Any) -> Any:
    """The base of an array, looking through the objects that `as_strided` and locks put in between."""
    base = array.base
    if isinstance(base, _SharedBase):
        return base.view
    return base.base if isinstance(base, _Strided) else base


def owned_copy(array: Any) -> Any:
    """A copy that lies in memory as the array does, read-only where the library supports it."""
    copy = copy_array(array)
    if isinstance(copy, np.ndarray):
        copy.flags.writeable = False
    return copy


def seal_array(array: Any) -> None:
    """Note that an array of the package's own, which nothing else refers to, is never written to."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    else:
        key = id(array)
        _sealed[key] = weakref.ref(array, lambda _: _sealed.pop(key, None))


def as_immutable(array: Any) -> Any:
    """An array that can no longer be written to: itself where that is certain, else a copy."""
    flags = getattr(array, "flags", None)
    if flags is None or isinstance(array, np.generic):
        return array
    if id(array) in _sealed and _sealed[id(array)]() is array:
        return array
    if getattr(flags, "writeable", True) or array.base is not None or id(array) in _locks:  # a lock ends
        return copy_array(array)
    return array


def read_only_view(array: Any) -> Any:
    """A read-only view, where the library supports it."""
    view = array.view()
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view

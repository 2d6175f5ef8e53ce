"""Arrays for results, used again: to make one costs CuPy as much time as to launch a kernel.

A small array that was made here stays in a ring. Once nothing else refers to it, to its memory or to a view of it, the
next result of the same kind on the same stream takes it, as CuPy's pool would hand out its memory again. Rings hold
little, and give it back where memory is short.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from ....arrays.backends import idle_memory
from .memory import out_of_memory

#: The bytes of one ring and of all, and of the largest array that is used again.
RING_BYTES, ALL_BYTES, MAX_ARRAY_BYTES = 8 << 20, 128 << 20, 2 << 20
_MAX_ENTRIES, _MAX_STREAMS = 512, 8
#: CuPy's number of the default stream that each thread has for itself: not one stream, but many.
_PER_THREAD = 2
#: Without a lock around the interpreter counts of references say nothing.
_COUNTS_REFERENCES = getattr(sys, "_is_gil_enabled", lambda: True)()

#: An array, what points at its memory, that memory, and its address.
Entry = tuple[Any, Any, Any, int]


def _count_references(entry: Entry) -> tuple[int, int, int]:
    array, pointer, memory, _ = entry
    return getrefcount(array), getrefcount(pointer), getrefcount(memory)


def _entry_of(array: Any) -> Entry:
    pointer = array.data
    return array, pointer, pointer.mem, pointer.ptr


class ResultArrays:
    """Where arrays of one shape and dtype come from, on the current device; `limit`: how many are held at most."""

    def __init__(self, cupy: Any, shape: tuple[int, ...], dtype: Any, nbytes: int, limit: int = _MAX_ENTRIES) -> None:
        self._new, self._shape, self._dtype, self._nbytes = cupy.ndarray, shape, dtype, nbytes
        small = _COUNTS_REFERENCES and nbytes <= MAX_ARRAY_BYTES
        self._limit = min(limit, RING_BYTES // max(nbytes, 1)) if small else 0
        self._rings: dict[int, deque[Entry]] = {}
        self._alone: tuple[int, int, int] | None = None

    def take(self, stream: int) -> tuple[Any, int]:
        """An array for a result that is computed on a stream, and its address."""
        ring = self._rings.get(stream)
        if ring:
            for _ in (1, 2):  # the first may be what the caller has of the call before
                try:
                    entry = ring.popleft()
                except IndexError:  # other threads took the rest
                    break
                if _count_references(entry) == self._alone and not getweakrefcount(entry[0]):
                    array = entry[0]  # in use before another thread can find it in the ring
                    ring.append(entry)
                    return array, entry[3]
                ring.append(entry)
        return self._take_new(stream)

    def make(self) -> tuple[Any, int]:
        """The same, with an array that is in no ring."""
        array = self._make()
        return array, array.data.ptr

    def _make(self) -> Any:
        try:
            return self._new(self._shape, self._dtype)
        except MemoryError as error:
            release_idle()
            try:
                return self._new(self._shape, self._dtype)
            except MemoryError:
                raise out_of_memory("results", self._nbytes) from error

    def _take_new(self, stream: int) -> tuple[Any, int]:
        entry = _entry_of(self._make())
        if self._alone is None:
            self._alone = _count_references(entry)
        array = entry[0]
        if self._limit and stream != _PER_THREAD:
            self._hold(entry, stream)
        return array, entry[3]

    def _hold(self, entry: Entry, stream: int) -> None:
        ring = self._rings.get(stream)
        if ring is None:
            if len(self._rings) >= _MAX_STREAMS:
                self._rings.clear()
            ring = self._rings[stream] = deque()
            _holders.add(self)
        ring.append(entry)
        if len(ring) > self._limit:
            ring.popleft()
        elif _held.add(self._nbytes) > ALL_BYTES:
            release_idle()

    def release(self) -> None:
        self._rings.clear()


class _Held:
    """The bytes of all rings, at most: what left one by itself still counts."""

    total = 0

    def add(self, nbytes: int) -> int:
        self.total += max(nbytes, 512)  # what CuPy's pool takes for the smallest array
        return self.total


_holders: weakref.WeakSet[ResultArrays] = weakref.WeakSet()
_held = _Held()


def release_idle() -> None:
    """Empty all rings: what is not in use goes back to CuPy's pool."""
    _held.total = 0
    for holder in list(_holders):
        holder.release()


idle_memory.append(release_idle)

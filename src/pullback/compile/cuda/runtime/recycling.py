"""Arrays for results, used again: to make one costs CuPy as much time as to launch a kernel.

A small array that was made here stays in a ring. Once nothing else refers to it, to its memory or to a view of it, a
later result of the same kind on the same stream takes it, as CuPy's pool would hand out its memory again. After a
backward pass each ring starts over, so that every step of a training loop finds the same arrays in the same places, and
what was recorded for their addresses serves again. Rings hold little, and give it back where memory is short.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, Protocol
from weakref import getweakrefcount

from ....arrays.backends import idle_memory, passes
from .memory import out_of_memory

#: The bytes of one ring and of all, and of the largest array that is used again.
RING_BYTES, ALL_BYTES, MAX_ARRAY_BYTES = 32 << 20, 256 << 20, 4 << 20
#: Of larger arrays, which compiled programs return: this part of a device's memory in all, and half of it in one ring.
LARGE_SHARE = 64
_MAX_ENTRIES, _MAX_STREAMS = 1024, 8
#: CuPy's number of the default stream that each thread has for itself: not one stream, but many.
_PER_THREAD = 2
#: Without a lock around the interpreter counts of references say nothing.
_COUNTS_REFERENCES = getattr(sys, "_is_gil_enabled", lambda: True)()

#: An array, what points at its memory, that memory, and its address.
Entry = tuple[Any, Any, Any, int]
#: An entry of a ring, and the references to its parts where nothing else has any.
HeldResult = tuple[Entry, tuple[int, int, int]]


def _count_references(entry: Entry) -> tuple[int, int, int]:
    array, pointer, memory, _ = entry
    return getrefcount(array), getrefcount(pointer), getrefcount(memory)


def are_idle(results: Sequence[HeldResult]) -> bool:
    """Whether nothing refers to any of these arrays, counted as `_count_references` does."""
    for (array, pointer, memory, _), (own, of_pointer, of_memory) in results:
        if (
            getrefcount(array) != own
            or getrefcount(pointer) != of_pointer
            or getrefcount(memory) != of_memory
            or getweakrefcount(array)
        ):
            return False
    return True


def _entry_of(array: Any) -> Entry:
    pointer = array.data
    return array, pointer, pointer.mem, pointer.ptr


class _Ring:
    """Arrays of one stream, in the order in which a step of a loop takes them; `place`: the next one."""

    __slots__ = ("entries", "passes", "place")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.place = self.passes = 0


class ResultArrays:
    """Where arrays of one shape and dtype come from, on the current device; `limit`: how many are held at most, and
    `large_bytes` of those that are large.
    """

    def __init__(
        self,
        cupy: Any,
        shape: tuple[int, ...],
        dtype: Any,
        nbytes: int,
        limit: int = _MAX_ENTRIES,
        large_bytes: int = 0,
    ) -> None:
        self._new, self._shape, self._dtype, self._nbytes = cupy.ndarray, shape, dtype, nbytes
        is_small = nbytes <= MAX_ARRAY_BYTES
        self._held, self._most = (_held, ALL_BYTES) if is_small else (_held_large, large_bytes)
        room = RING_BYTES if is_small else large_bytes // 2
        self._limit = min(limit, room // max(nbytes, 1)) if _COUNTS_REFERENCES else 0
        self._rings: dict[int, _Ring] = {}
        self._lock = threading.Lock()
        self._alone = (0, 0, 0)

    def take(self, stream: int) -> tuple[Any, int]:
        """An array for a result that is computed on a stream, and its address."""
        ring = self._rings.get(stream)
        if ring is None:
            return self.take_new(stream)
        with self._lock:  # what is found is in use before another thread looks for one
            if ring.passes != passes.count:
                ring.passes, ring.place = passes.count, 0
            entries, place = ring.entries, ring.place
            if place < len(entries):
                # the common case: nothing refers to the next one, counted as `_count_references` does
                array, pointer, memory, address = entries[place]
                own, of_pointer, of_memory = self._alone
                if (
                    getrefcount(array) == own
                    and getrefcount(pointer) == of_pointer
                    and getrefcount(memory) == of_memory
                    and not getweakrefcount(array)
                ):
                    ring.place = place + 1
                    return array, address
            found = self._find_idle(ring)
        return found or self.take_new(stream)

    def _find_idle(self, ring: _Ring) -> tuple[Any, int] | None:
        """The next array that is not in use. One that is kept is passed over; where two are, or the first of a new
        round, there is room for a new one.
        """
        entries, place = ring.entries, ring.place
        for i in (place, place + 1) if place < len(entries) else (0,):
            if i < len(entries):
                entry = entries[i]
                if _count_references(entry) == self._alone and not getweakrefcount(entry[0]):
                    ring.place = i + 1
                    return entry[0], entry[3]
        return None

    def find(self, stream: int, address: int) -> HeldResult | None:
        """The array at an address, if it is in the ring of a stream."""
        ring = self._rings.get(stream)
        entries = [] if ring is None else ring.entries
        return next(((entry, self._alone) for entry in entries if entry[3] == address), None)

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

    @property
    def holds(self) -> bool:
        """Whether any array is held: large ones are not."""
        return self._limit > 0

    def take_new(self, stream: int) -> tuple[Any, int]:
        """The same, with an array that was not there before."""
        if not self._limit:
            return self.make()
        entry = _entry_of(self._make())
        if not self._alone[0]:
            self._alone = _count_references(entry)
        array = entry[0]
        if stream != _PER_THREAD:
            self._hold(entry, stream)
        return array, entry[3]

    def _hold(self, entry: Entry, stream: int) -> None:
        with self._lock:
            ring = self._rings.get(stream)
            if ring is None:
                if len(self._rings) >= _MAX_STREAMS:
                    self._rings.clear()
                ring = self._rings[stream] = _Ring()
                ring.passes = passes.count
                note_holder(self)
            entries = ring.entries
            if len(entries) < self._limit:
                entries.insert(ring.place, entry)
            else:  # in the place of one that is kept
                ring.place = ring.place if ring.place < len(entries) else 0
                entries[ring.place] = entry
            ring.place += 1
            is_too_much = self._held.add(self._nbytes) > self._most
        if is_too_much:
            release_idle()

    def release(self) -> None:
        self._rings.clear()


class Holder(Protocol):
    """What keeps arrays of results for later."""

    def release(self) -> None:
        """Keep none of them."""


class _Held:
    """The bytes of all rings, at most: what left one by itself still counts."""

    total = 0

    def add(self, nbytes: int) -> int:
        self.total += max(nbytes, 512)  # what CuPy's pool takes for the smallest array
        return self.total


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
_held, _held_large = _Held(), _Held()
note_holder = _holders.add


def large_bytes_of(cupy: Any, device: int) -> int:
    """How many bytes of large arrays are held on a device."""
    with cupy.cuda.Device(device):
        return int(cupy.cuda.runtime.memGetInfo()[1]) // LARGE_SHARE


def release_idle() -> None:
    """Empty all rings: what is not in use goes back to CuPy's pool."""
    _held.total = _held_large.total = 0
    for holder in list(_holders):
        holder.release()


idle_memory.append(release_idle)

"""Memory that tracks its writers: bytes start as poison, and each records which buffer wrote it last.

Poison is a byte of ones: NaN as a float, an unlikely number as an integer. Reading an element of which a byte was
not written by the very buffer that is read is an error, whatever the byte holds. That catches reads of unwritten
memory, and two buffers that share a place at the same time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import MiscompiledError
from ..loop_ir import Buffer

_writer_ids = itertools.count(1)


class TrackedBytes:
    """A piece of memory: each byte, the number of the buffer that wrote it (0: none), and how much rounding may have
    changed the value that starts there.
    """

    def __init__(self, count: int) -> None:
        self.data = np.full(count, 0xFF, np.uint8)
        self.writer = np.zeros(count, np.int64)
        self.noise = np.zeros(count)


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Where a buffer is: from byte `start` of some bytes; it may be accessed from `low` to `high`. `writer` is its
    number there.
    """

    bytes: TrackedBytes
    start: int
    low: int
    high: int
    dtype: np.dtype[Any]
    name: str
    writer: int

    def offset_by(self, by: int) -> MemoryRegion:
        """The same region, starting at another element."""
        return replace(self, start=self.start + by * self.dtype.itemsize)

    def places(self, where: Any) -> Any:
        """The bytes of elements; an error if one of them is not the buffer's."""
        # in bytes, since buffers of other dtypes may share the memory
        at = self.start + np.asarray(where, np.int64) * self.dtype.itemsize
        outside = (at < self.low) | (at + self.dtype.itemsize > self.high)
        if outside.any():
            first = int(np.asarray(where)[outside].reshape(-1)[0])
            raise MiscompiledError(f"element {first} of {self.name} is outside of it.")
        return at[..., None] + np.arange(self.dtype.itemsize)

    def read(self, where: Any) -> tuple[Any, Any]:
        """The values of some elements, and their noise."""
        places = self.places(where)
        writers = self.bytes.writer[places]
        # each byte must be of the buffer that is read, even if the value happens to be right
        foreign = (writers != self.writer).any(axis=-1)
        if foreign.any():
            first = int(np.asarray(where)[foreign].reshape(-1)[0])
            unwritten = not writers[foreign].reshape(-1, self.dtype.itemsize)[0].any()
            state = "that no step wrote" if unwritten else "that another buffer has overwritten"
            raise MiscompiledError(f"element {first} of {self.name} is read, {state}.")
        return self.bytes.data[places].view(self.dtype)[..., 0], self.bytes.noise[places[..., 0]]

    def write(self, where: Any, numbers: Any, noise: Any) -> None:
        """Write values to elements, in order: of several for one element the last stays."""
        places = self.places(where)
        numbers = np.ascontiguousarray(np.broadcast_to(numbers, places.shape[:-1]), self.dtype)
        self.bytes.data[places] = numbers[..., None].view(np.uint8).reshape(places.shape)
        self.bytes.noise[places[..., 0]] = noise
        self.bytes.writer[places] = self.writer


def region_of(array: Any, name: str) -> MemoryRegion:
    """New memory with a row-major copy of an array."""
    flat = np.ascontiguousarray(array).reshape(-1)
    memory = TrackedBytes(flat.nbytes)
    memory.data[:] = flat.view(np.uint8)
    region = MemoryRegion(memory, 0, 0, flat.nbytes, flat.dtype, name, next(_writer_ids))
    memory.writer[:] = region.writer
    return region


class PoisonedMemory:
    """The buffers of one run of a program. With an `arena` (its number of bytes) they are in it at their offsets, else
    each has separate memory.
    """

    def __init__(self, arena: int | None) -> None:
        self.regions: dict[Buffer, MemoryRegion] = {}
        self.arena = None if arena is None else TrackedBytes(arena)

    def __getitem__(self, buffer: Buffer) -> MemoryRegion:
        if buffer not in self.regions:
            self.regions[buffer] = self._place(buffer)
        return self.regions[buffer]

    def _place(self, buffer: Buffer) -> MemoryRegion:
        name = f"{buffer!r} ({buffer.dtype.name}[{buffer.size}])"
        if buffer.kind == "constant":
            return region_of(buffer.constant, name)
        if self.arena is None or buffer.kind != "arena" or not buffer.size:
            return MemoryRegion(TrackedBytes(buffer.nbytes), 0, 0, buffer.nbytes, buffer.dtype, name, next(_writer_ids))
        # the writer's number is new for each run, so old values never count
        start, end = buffer.offset, buffer.offset + buffer.nbytes
        if start < 0 or end > len(self.arena.data):
            raise MiscompiledError(f"{name} lies outside of the arena, at {start} of {len(self.arena.data)} bytes.")
        return MemoryRegion(self.arena, start, start, end, buffer.dtype, name, next(_writer_ids))

    def bind(self, buffer: Buffer, region: MemoryRegion) -> None:
        """Map a buffer to memory of the enclosing program."""
        if region.start < region.low or region.start + buffer.nbytes > region.high:
            raise MiscompiledError(f"{buffer!r} of a nested program exceeds {region.name}.")
        self.regions[buffer] = replace(
            region, dtype=buffer.dtype, low=region.start, high=region.start + buffer.nbytes, name=f"{buffer!r}"
        )

"""Memory that compiled programs keep on a device: from CuPy's pool, and what an error says when there is none left."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

from ....arrays.text import format_bytes
from ....errors import PullbackError

#: Where memory of the arena starts; CuPy's pool aligns more coarsely.
ALIGNMENT = 256
#: The programs that hold memory, for the error of one that finds none.
_HOLDERS: weakref.WeakSet[Any] = weakref.WeakSet()


class DeviceMemoryError(PullbackError, MemoryError):
    """A device has no memory left."""


def out_of_memory(what: str, nbytes: int | None = None) -> DeviceMemoryError:
    """An error that says what holds the memory that was asked for."""
    size = "" if nbytes is None else f" of {format_bytes(nbytes)}"
    return DeviceMemoryError(f"{what}{size} do not fit on the device.\n{_describe()}")


def _describe() -> str:
    pool = sys.modules["cupy"].get_default_memory_pool()
    arenas = sorted(((h.held_bytes(), h.name) for h in _HOLDERS), reverse=True)
    lines = [
        f"  CuPy's pool has {format_bytes(pool.total_bytes())}, of which {format_bytes(pool.used_bytes())} are in use."
    ]
    lines += [f"  {format_bytes(n)} are workspace of the compiled {name}." for n, name in arenas[:3] if n]
    return "\n".join(
        [*lines, "  pb.jit(f, memory_budget=...) bounds a call's memory; dropping a function frees its workspace."]
    )


def note_holder(holder: Any) -> None:
    """A program whose workspace an error may name: it has `held_bytes()` and a `name`."""
    _HOLDERS.add(holder)


def upload(cupy: Any, array: Any) -> Any:
    """A constant on the current device, contiguous and in memory of its own."""
    return cupy.array(array.reshape(-1)) if array.size else cupy.zeros(1, array.dtype)


def overlap(starts: Sequence[int], sizes: Sequence[int], written: Sequence[int]) -> bool:
    """Whether an array that is written shares memory with another."""
    for i in written:
        for j, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if j != i and start < starts[i] + sizes[i] and starts[i] < start + size:
                return True
    return False

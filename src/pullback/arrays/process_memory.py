"""The resident set of this process, and returning the allocator's free pages to the system.

glibc keeps freed blocks of up to 32 MiB in its heap, wherever a block above them is live. Taking every large block
from the system instead (`M_MMAP_THRESHOLD`) would give them back at once, and make a chain of temporaries three to six
times slower, since each new page is zeroed again. So the heap stays as it is, and is trimmed where memory is short.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
#: Bytes of growth besides arrays (code, buffers of libraries) that are not worth a trim.
_SLACK = 4 << 20


@functools.cache
def _find_malloc_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`, or None where the allocator has none (musl, macOS, Windows)."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found


def release() -> bool:
    """Return the pages of freed arrays to the system; whether there were any. Does nothing where unsupported.

    >>> import pullback as pb
    >>> pb.memory.release() in (True, False)
    True
    """
    cupy = sys.modules.get("cupy")
    if cupy is not None and cupy.is_available():
        cupy.get_default_memory_pool().free_all_blocks()
    trim = _find_malloc_trim()
    return trim is not None and bool(trim(0))


def resident() -> int:
    """The bytes of this process that are in memory now; 0 where the system does not say.

    >>> import pullback as pb
    >>> pb.memory.resident() >= 0
    True
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


def peak_resident() -> int:
    """The most bytes of this process that were ever in memory at once; 0 where the system does not say.

    >>> import pullback as pb
    >>> pb.memory.peak_resident() >= 0
    True
    """
    try:
        with open("/proc/self/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file)
        return int(lines[b"VmHWM"].split()[0]) << 10
    except (OSError, KeyError):
        return 0


class ResidentMemoryWatch:
    """Trims whenever the resident set has grown by more than the live arrays explain."""

    __slots__ = ("_base",)

    def __init__(self) -> None:
        self._base = resident()

    def check(self, grown: int) -> None:
        """`grown`: by how many bytes the live arrays have grown since the watch began."""
        if resident() - self._base - grown > _SLACK:
            release()
            self._base = resident() - grown  # what is left is not held by the allocator

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
from typing import BinaryIO

from .imported import imported_module

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
#: Bytes of growth besides arrays (code, buffers of libraries) that are not worth a trim.
_SLACK = 4 << 20


def is_portable() -> bool:
    """Whether only what every system has is used: the variable `PULLBACK_PORTABLE` asks for that, which tests on one
    system need to run what others run.
    """
    return os.environ.get("PULLBACK_PORTABLE", "0") not in ("", "0")


@functools.cache
def _find_malloc_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`, or None where the allocator has none (musl, macOS, Windows)."""
    if not sys.platform.startswith("linux") or is_portable():
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
    cupy = imported_module("cupy")
    if cupy is not None and cupy.is_available():
        cupy.get_default_memory_pool().free_all_blocks()
    trim = _find_malloc_trim()
    return trim is not None and bool(trim(0))


def _open_status(name: str) -> BinaryIO:
    """A file in which Linux describes this process; other systems have none."""
    if is_portable():
        raise FileNotFoundError(name)
    return open(f"/proc/self/{name}", "rb")


def resident() -> int:
    """The bytes of this process that are in memory now; where the system tells only the peak (macOS), the peak, and 0
    where it tells neither (Windows).

    >>> import pullback as pb
    >>> pb.memory.resident() >= 0
    True
    """
    try:
        with _open_status("statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return peak_resident()


def peak_resident() -> int:
    """The most bytes of this process that were ever in memory at once; 0 where the system does not say.

    >>> import pullback as pb
    >>> pb.memory.peak_resident() >= 0
    True
    """
    try:
        with _open_status("status") as file:
            lines = dict(line.split(b":", 1) for line in file)
        return int(lines[b"VmHWM"].split()[0]) << 10
    except (OSError, KeyError):
        pass
    if resource is None:
        return 0
    # in bytes on macOS, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


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

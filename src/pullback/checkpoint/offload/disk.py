"""Arrays in memory-mapped temporary files, read back with the same bits.

A file has no name from the moment it is made, where the system allows that: whatever happens to the process, nothing
stays behind. Space is reserved before it is written to, since a full disk would kill a process that writes to mapped
memory; so a full disk is a `StorageError` at the line of the caller, and nothing that was stored before is lost.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.backends import device_of, namespace_on
from ...arrays.finalizers import FinalizerQueue
from ...arrays.text import format_bytes
from ...errors import StorageError

#: Files are at least this long, so that many small arrays do not need as many open files.
_MIN_FILE_BYTES = 64 << 20
_PAGE = mmap.ALLOCATIONGRANULARITY


class Disk:
    """Space in files of one directory, allocated on demand and reused."""

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self.directory = tempfile.gettempdir() if directory is None else os.fspath(directory)
        if not os.path.isdir(self.directory):
            raise StorageError(f"{self.directory!r} is no directory to store values in.")
        # the collector may release space anywhere, also while some is being allocated
        self._returned = FinalizerQueue(self._reuse)
        self._free: dict[int, list[tuple[_File, int]]] = {}
        self._files: set[_File] = set()

    def allocate(self, array: Any) -> DiskSlot:
        """A place for an array; nothing is written yet."""
        # whole pages: advice to the system is given by page
        size = max(-(-array.nbytes // _PAGE), 1) * _PAGE
        self._returned.drain()
        with self._returned.guard:
            # of the same size: a training step stores the same arrays again and again
            free = self._free.get(size)
            file, start = free.pop() if free else self._allocate_in_file(size)
            file.used += 1
        self._returned.drain()
        return DiskSlot(self, file, start, size, array)

    def store(self, array: Any) -> Callable[[], Any]:
        """Write an array of any device; returns a function that reads it back there, any number of times."""
        device = device_of(array)
        bare = array if device == "cpu" else array.get()
        slot = self.allocate(bare)
        slot.write(bare)
        return slot.read if device == "cpu" else lambda: namespace_on(device).asarray(slot.read())

    def _allocate_in_file(self, size: int) -> tuple[_File, int]:
        file = next((f for f in self._files if f.length - f.end >= size), None)
        if file is None:
            file = _File(self.directory, max(_MIN_FILE_BYTES, size))
            self._files.add(file)
        file.end += size
        return file, file.end - size

    def release(self, file: _File, start: int, size: int) -> None:
        """Make the space available to the next array of this size."""
        self._returned.add((file, start, size))
        self._returned.drain()

    def _reuse(self, space: tuple[_File, int, int]) -> None:
        file, start, size = space
        file.used -= 1
        self._free.setdefault(size, []).append((file, start))
        if not file.used:
            self._close(file)

    def _close(self, file: _File) -> None:
        """Nothing is left in a file: its space is returned to the system."""
        # the mapping goes with the last slot that refers to it
        self._files.discard(file)
        for slots in self._free.values():
            slots[:] = [slot for slot in slots if slot[0] is not file]


class _File:
    """One file without a name, mapped as a whole."""

    __slots__ = ("end", "length", "map", "used")

    def __init__(self, directory: str, length: int) -> None:
        self.length, self.end, self.used = length, 0, 0
        try:
            # closed and without a name: the mapping alone keeps the contents
            with tempfile.TemporaryFile(prefix="pullback-", dir=directory) as file:
                _preallocate(file, length)
                self.map = mmap.mmap(file.fileno(), length)
        except OSError as error:
            raise _storage_error(error, directory, length) from error


def _preallocate(file: Any, length: int) -> None:
    """Extend the file to a length, with every byte of it allocated on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, length)
        return
    # systems that cannot reserve space have to write it
    zeros = bytes(1 << 20)
    for start in range(0, length, len(zeros)):
        file.write(zeros[: length - start])
    file.flush()


def _storage_error(error: OSError, directory: str, length: int) -> StorageError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageError(f"cannot store values in {directory!r}: {error.strerror}.")
    free = format_bytes(shutil.disk_usage(directory).free)
    return StorageError(
        f"no room for {format_bytes(length)} in {directory!r}, where {free} are free.\n"
        "  Everything stored before is still there. Choose another directory, or keep more in memory."
    )


class DiskSlot:
    """Where one array is stored: its bytes, and how they lie in memory."""

    __slots__ = ("_disk", "_file", "_order", "_shape", "_size", "_start", "dtype", "nbytes")

    def __init__(self, disk: Disk, file: _File, start: int, size: int, like: Any) -> None:
        self._disk, self._file, self._start, self._size = disk, file, start, size
        self.dtype, self.nbytes = like.dtype, like.nbytes
        # a transposed array comes back transposed: another memory order may round otherwise
        self._order = _axes_by_stride(like)
        self._shape = tuple(like.shape[axis] for axis in self._order)

    def write(self, array: Any) -> None:
        """Store the array, and release the pages: the system writes them out when it likes."""
        self._flat_view()[...] = np.ascontiguousarray(array.transpose(self._order)).reshape(-1)
        self._advise("MADV_DONTNEED")

    def prefetch(self) -> None:
        """Ask the system to read the pages ahead."""
        self._advise("MADV_WILLNEED")

    def read(self) -> Any:
        """The array in its own memory, with the axes in their original memory order."""
        out = self._flat_view().copy().reshape(self._shape)
        self._advise("MADV_DONTNEED")
        return out.transpose(np.argsort(self._order)) if self._order else out

    def _flat_view(self) -> Any:
        count = math.prod(self._shape)
        return np.frombuffer(self._file.map, np.uint8, self.nbytes, self._start).view(self.dtype)[:count]

    def _advise(self, what: str) -> None:
        # not every system takes advice
        advice = getattr(mmap, what, None)
        if advice is not None and self.nbytes:
            self._file.map.madvise(advice, self._start, self._size)

    def __del__(self) -> None:
        self._disk.release(self._file, self._start, self._size)


def _axes_by_stride(array: Any) -> tuple[int, ...]:
    """The axes of an array from the one with the longest stride to the shortest."""
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def is_dense(array: Any) -> bool:
    """Whether the elements fill their memory in some order of the axes. What is computed on a copy with another
    memory order may differ in the last bit.
    """
    return bool(array.transpose(_axes_by_stride(array)).flags.c_contiguous)

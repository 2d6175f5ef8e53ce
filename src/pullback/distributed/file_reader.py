"""Reads slices of arrays from the files of a checkpoint: the bytes that are asked for, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..arrays.files import open_regular_file
from ..errors import FormatError, StorageError
from ..saving.header import DTYPE_CODES, Header, TensorEntry, read_header
from .file_index import Index, StoredArray, StoredSlice, digest_chunks

#: Bytes that are read at a time for a digest.
_CHUNK_BYTES = 1 << 22
#: Files that are open at a time; systems let a process have a few hundred.
_MOST_OPEN = 64


class _OpenFile(NamedTuple):
    file: BinaryIO
    header: Header


class CheckpointReader:
    """The arrays of a checkpoint. Files are opened when they are read from, and closed at the end of a `with`."""

    def __init__(self, directory: Path, index: Index, what: str) -> None:
        self.index = index
        self._directory, self._what = directory, what
        self._files: dict[int, _OpenFile] = {}

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, *error: object) -> None:
        while self._files:
            self._close_oldest()

    def read(self, name: str, start: int, stop: int) -> Any:
        """The elements of a flat array from start to stop."""
        array = self.index.arrays[name]
        overlapping = [s for s in array.slices if s.start < stop and s.stop > start]
        # what the files have is known before memory is taken
        places = [self._find_entry(name, array, s) for s in overlapping]
        found = np.empty(stop - start, array.dtype)
        raw, width = found.view(np.uint8), array.dtype.itemsize
        for s, at in zip(overlapping, places, strict=True):
            first, last = max(s.start, start), min(s.stop, stop)
            target = raw[(first - start) * width : (last - start) * width]
            file = self._open(s.file).file
            file.seek(at + (first - s.start) * width)
            if file.readinto(target.data) != target.nbytes:  # type: ignore[attr-defined]
                raise self._error(s.file, f"array {name[:60]!r} is cut off")
        if array.dtype.kind == "b" and raw.size and raw.max() > 1:
            raise FormatError(f"{self._what}: array {name[:60]!r} holds a byte that is not a boolean.")
        return found if np.little_endian else found.byteswap()

    def verify(self, rank: int, ranks: int) -> None:
        """Compare the digests of a rank's share of all slices with their bytes."""
        slices = [(name, array, s) for name, array in self.index.arrays.items() for s in array.slices]
        for name, array, s in slices[rank::ranks]:
            at, size = self._find_entry(name, array, s), (s.stop - s.start) * array.dtype.itemsize
            if digest_chunks(_read_chunks(self._open(s.file).file, at, size)) != s.digest:
                raise self._error(s.file, f"elements {s.start} to {s.stop} of array {name[:60]!r} are damaged")

    def _find_entry(self, name: str, array: StoredArray, s: StoredSlice) -> int:
        """Where in its file a slice begins."""
        opened = self._open(s.file)
        entry = opened.header.entries.get(name)
        size = (s.stop - s.start) * array.dtype.itemsize
        if entry is None or entry.dtype_code != stored_code(array.dtype) or entry.stop - entry.start != size:
            raise self._error(s.file, f"{_describe_entry(entry)} where the index has array {name[:60]!r}")
        return opened.header.data_start + entry.start

    def _open(self, number: int) -> _OpenFile:
        if number not in self._files:
            if len(self._files) == _MOST_OPEN:
                self._close_oldest()
            self._files[number] = self._open_checked(number)
        return self._files[number]

    def _open_checked(self, number: int) -> _OpenFile:
        """A file that is as long as the index says, and its header."""
        listed = self.index.files[number]
        path, what = self._directory / listed.name, f"{self._what}: {listed.name}"
        if os.path.realpath(path) != os.path.join(os.path.realpath(self._directory), listed.name):
            raise self._error(number, "it is a link out of the directory")
        try:
            file = open_regular_file(path, what)
        except FileNotFoundError:
            raise StorageError(f"{what} is missing.\n  Was the directory copied whole?") from None
        try:
            size = os.fstat(file.fileno()).st_size
            if size != listed.size:
                raise self._error(number, f"it has {size} bytes, the index says {listed.size}: cut off or replaced")
            return _OpenFile(file, read_header(file, what))
        except BaseException:
            file.close()
            raise

    def _close_oldest(self) -> None:
        self._files.pop(next(iter(self._files))).file.close()

    def _error(self, number: int, fault: str) -> FormatError:
        return FormatError(f"{self._what}: {self.index.files[number].name}: {fault}.")


def stored_code(dtype: Any) -> str:
    """The format's code for a dtype; complex numbers are pairs of real ones."""
    return DTYPE_CODES[np.zeros((), dtype).real.dtype.name if dtype.kind == "c" else dtype.name]


def _describe_entry(entry: TensorEntry | None) -> str:
    return "nothing" if entry is None else f"a {entry.dtype_code} of shape {list(entry.shape)}"


def _read_chunks(file: BinaryIO, at: int, size: int) -> Iterator[bytes]:
    file.seek(at)
    while size > 0:
        chunk = file.read(min(size, _CHUNK_BYTES))
        if not chunk:
            return
        yield chunk
        size -= len(chunk)

"""Arrays of an open safetensors file: read into memory of their own, or mapped."""

from __future__ import annotations

import mmap as mapping
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from ..errors import FormatError
from .header import Header, TensorEntry, entry_dtype


def take_arrays(file: BinaryIO, header: Header, names: Iterable[str], mmap: bool, what: str) -> dict[str, Any]:
    """Some arrays of a file, by name: views of it with `mmap`, else in memory of their own."""
    return (_map_arrays if mmap else _read_arrays)(file, header, names, what)


def _read_arrays(file: BinaryIO, header: Header, names: Iterable[str], what: str) -> dict[str, Any]:
    """Each array in memory of its own; the header was checked, so none is larger than the file."""
    arrays = {}
    for entry in map(header.entries.__getitem__, names):
        raw = np.empty(entry.stop - entry.start, np.uint8)
        file.seek(header.data_start + entry.start)
        if file.readinto(raw.data) != raw.nbytes:  # type: ignore[attr-defined]
            raise FormatError(f"{what}: array {entry.name[:60]!r} is cut off.")
        arrays[entry.name] = _view_as_array(raw, entry, what)
    return arrays


def _map_arrays(file: BinaryIO, header: Header, names: Iterable[str], what: str) -> dict[str, Any]:
    """Each array as a view of the file."""
    whole = np.frombuffer(mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_READ), np.uint8)
    found = {}
    for e in map(header.entries.__getitem__, names):
        row = whole[header.data_start + e.start : header.data_start + e.stop]
        found[e.name] = _view_as_array(row, e, what)
    return found


def _view_as_array(raw: Any, entry: TensorEntry, what: str) -> Any:
    if entry.dtype_code == "BOOL" and raw.size and raw.max() > 1:
        raise FormatError(f"{what}: array {entry.name[:60]!r} holds a byte that is not a boolean.")
    dtype = entry_dtype(entry)
    if raw.size and raw.__array_interface__["data"][0] % dtype.alignment:
        raw = raw.copy()  # other writers may not align arrays
    found = raw.view(dtype)
    return (found if np.little_endian else found.byteswap()).reshape(entry.shape)

"""`save` and `load`: a tree of arrays and settings in, one file out, and back."""

from __future__ import annotations

import json
import mmap as mapping
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..arrays.files import name_of_path, open_regular
from ..errors import ArgumentError, FormatError, PullbackError
from .layout import Entry, Head, check_extent, dtype_of, head_bytes, placed, read_head
from .reader import Reader
from .writer import Writer, as_stored, host_bytes
from .writing import write_whole

__all__ = ["load", "load_metadata", "save"]

#: Under which our structure stands in the metadata, and the version of how it is said.
_STRUCTURE, _VERSION = "pullback", 1


def save(path: Any, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a tree of arrays and settings to a file that `load` and every reader of safetensors understand. The file is
    there whole or not at all: a kill at any moment leaves the one that was there before.

    Trees are made of dicts, lists, tuples, named tuples, None, numbers, text, dtypes, arrays, tensors and registered
    classes. `metadata` is text by names, for whoever reads the file.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> pb.save(path, {"w": np.ones(2), "rates": (0.1, 0.01), "step": 7})
    >>> pb.load(path)
    {'w': array([1., 1.]), 'rates': (0.1, 0.01), 'step': 7}
    """
    writer = Writer()
    try:
        structure = writer.value(tree, "")
    except RecursionError:
        raise ArgumentError("save: the tree is nested too deeply, or holds itself.") from None
    stored = {name: as_stored(array) for name, array in writer.arrays.items()}
    entries = placed(stored.items())
    said = json.dumps({"version": _VERSION, "tree": structure}, allow_nan=False, separators=(",", ":"))
    try:
        head = head_bytes(entries, {**_checked(metadata), _STRUCTURE: said})
    except UnicodeEncodeError:
        raise ArgumentError(
            "save: a name or text holds half a character (a lone surrogate), which no file can."
        ) from None
    write_whole(path, _pieces(head, entries, stored))


def _pieces(head: bytes, entries: list[Entry], stored: dict[str, Any]) -> Iterator[Any]:
    """What goes into the file, one array after the other, so that only one is copied at a time."""
    yield head
    for entry in entries:
        yield host_bytes(stored[entry.name])


def _checked(metadata: Mapping[str, str] | None) -> dict[str, str]:
    found = dict(metadata or {})
    if not all(isinstance(x, str) for pair in found.items() for x in pair) or _STRUCTURE in found:
        raise ArgumentError(f"save: metadata maps text to text, and {_STRUCTURE!r} is taken; got {metadata!r}.")
    return found


def load(path: Any, *, mmap: bool = False, kinds: Iterable[type] = ()) -> Any:
    """The tree that `save` wrote; of a safetensors file by others, a dict of its arrays. Never runs code from the file.

    With `mmap` the arrays are read-only views of the file, which is read where they are used. A class that is not in
    a loaded module is given by `kinds`. A damaged, cut off or hostile file raises `FormatError`.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, [np.arange(3.0), None])
    >>> pb.load(path, mmap=True)[0].flags.writeable
    False
    """
    what = f"load: {name_of_path(path, 'load')}"
    with open_regular(path, what) as file:
        size = os.fstat(file.fileno()).st_size
        head = read_head(file, size, what)
        arrays = _mapped(file, head, what) if mmap else _read(file, head, what)
    said = head.metadata.get(_STRUCTURE)
    return arrays if said is None else _tree(said, arrays, kinds, what)


def load_metadata(path: Any) -> dict[str, str]:
    """The text that was saved beside a tree, without reading any array.

    >>> import os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, None, metadata={"about": "nothing"})
    >>> pb.load_metadata(path)
    {'about': 'nothing'}
    """
    what = f"load_metadata: {name_of_path(path, 'load_metadata')}"
    with open_regular(path, what) as file:
        head = read_head(file, os.fstat(file.fileno()).st_size, what)
    return {name: text for name, text in head.metadata.items() if name != _STRUCTURE}


def _tree(said: str, arrays: dict[str, Any], kinds: Iterable[type], what: str) -> Any:
    reader = Reader(arrays, kinds, what)
    check_extent(said, what)
    try:
        data = json.loads(said)
        if data["version"] != _VERSION:
            raise FormatError(f"{what}: version {str(data['version'])[:20]} of the structure is not known.")
        tree = reader.value(data["tree"])
    except FormatError:
        raise
    except (PullbackError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(
            f"{what}: the structure is not well formed: {type(error).__name__} {str(error)[:80]}."
        ) from None
    unused = arrays.keys() - reader.used
    if unused:
        raise FormatError(f"{what}: the structure has no place for the array {sorted(unused)[0][:60]!r}.")
    return tree


def _read(file: BinaryIO, head: Head, what: str) -> dict[str, Any]:
    """Each array in memory of its own; the head was checked, so none is larger than the file."""
    arrays = {}
    for entry in head.entries.values():
        raw = np.empty(entry.stop - entry.start, np.uint8)
        file.seek(head.begin + entry.start)
        if file.readinto(raw.data) != raw.nbytes:  # type: ignore[attr-defined]
            raise FormatError(f"{what}: array {entry.name[:60]!r} is cut off.")
        arrays[entry.name] = _array(raw, entry, what)
    return arrays


def _mapped(file: BinaryIO, head: Head, what: str) -> dict[str, Any]:
    """Each array as a view of the file."""
    whole = np.frombuffer(mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_READ), np.uint8)
    rows = {e.name: whole[head.begin + e.start : head.begin + e.stop] for e in head.entries.values()}
    return {name: _array(row, head.entries[name], what) for name, row in rows.items()}


def _array(raw: Any, entry: Entry, what: str) -> Any:
    if entry.word == "BOOL" and raw.size and raw.max() > 1:
        raise FormatError(f"{what}: array {entry.name[:60]!r} holds a byte that is no truth value.")
    dtype = dtype_of(entry)
    if raw.size and raw.__array_interface__["data"][0] % dtype.alignment:
        raw = raw.copy()  # others may place arrays anywhere
    found = raw.view(dtype)
    return (found if np.little_endian else found.byteswap()).reshape(entry.shape)

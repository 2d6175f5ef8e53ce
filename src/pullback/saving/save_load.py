"""`save` and `load`: trees of arrays and settings as one file."""

from __future__ import annotations

import json
import mmap as mapping
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..arrays.backends import device_of, move_array
from ..arrays.devices import normalize_device
from ..arrays.files import name_of_path, open_regular_file
from ..errors import ArgumentError, ArgumentTypeError, DeviceError, FormatError, PullbackError, StorageError
from .atomic_write import write_atomically
from .header import Header, TensorEntry, assign_offsets, check_json_size, encode_header, entry_dtype, read_header
from .tree_reader import TreeReader
from .tree_writer import TreeWriter, to_host_bytes, to_stored_dtype

#: The metadata key of the tree's structure, and the version of its encoding.
_STRUCTURE, _VERSION = "pullback", 1
#: The file in a directory that makes it a checkpoint of several ranks, which has functions of its own.
INDEX_NAME = "index.json"


def save(path: Any, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a tree of arrays and settings to a file that `load` and every reader of safetensors understand. The file is
    there whole or not at all: a kill at any moment leaves the one that was there before.

    Trees are made of dicts, lists, tuples, named tuples, None, scalars, strings, dtypes, arrays, tensors and
    registered classes. `metadata` is a dict of strings, for other readers of the file.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> pb.save(path, {"w": np.ones(2), "rates": (0.1, 0.01), "step": 7})
    >>> pb.load(path)
    {'w': array([1., 1.]), 'rates': (0.1, 0.01), 'step': 7}
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        swapped = isinstance(tree, (str, os.PathLike))
        advice = "The path comes first: pb.save(path, tree)." if swapped else "Call it as pb.save(path, tree)."
        raise ArgumentTypeError(f"save: a path must be text, bytes or a Path, got a {type(path).__name__}.\n  {advice}")
    writer = TreeWriter()
    try:
        structure = writer.encode(tree, "")
    except RecursionError:
        raise ArgumentError("save: the tree is nested too deeply, or holds itself.") from None
    stored = {name: to_stored_dtype(array) for name, array in writer.arrays.items()}
    entries = assign_offsets(stored.items())
    data = {"version": _VERSION, "tree": structure}
    devices = {name: place for name, array in writer.arrays.items() if (place := device_of(array)) != "cpu"}
    if devices:
        data["devices"] = devices
    encoded = json.dumps(data, allow_nan=False, separators=(",", ":"))
    try:
        head = encode_header(entries, {**_check_metadata(metadata), _STRUCTURE: encoded})
    except UnicodeEncodeError:
        raise ArgumentError(
            "save: a name or text holds half a character (a lone surrogate), which no file can."
        ) from None
    write_atomically(path, _file_chunks(head, entries, stored))


def _file_chunks(head: bytes, entries: list[TensorEntry], stored: dict[str, Any]) -> Iterator[Any]:
    """What goes into the file, one array after the other, so that only one is copied at a time."""
    yield head
    for entry in entries:
        yield to_host_bytes(stored[entry.name])


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    found = dict(metadata or {})
    if not all(isinstance(x, str) for pair in found.items() for x in pair) or _STRUCTURE in found:
        raise ArgumentError(f"save: metadata maps text to text, and {_STRUCTURE!r} is taken; got {metadata!r}.")
    return found


def load(path: Any, *, mmap: bool = False, kinds: Iterable[type] = (), device: Any = None) -> Any:
    """The tree that `save` wrote; of a safetensors file by others, a dict of its arrays. Never runs code from the file.

    With `mmap` the arrays are read-only views of the file, which is read where they are used. A class that is not in
    a loaded module is given by `kinds`. Arrays come back on the device that they were saved on, or all on `device`. A
    damaged, cut off or hostile file raises `FormatError`.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, [np.arange(3.0), None])
    >>> pb.load(path, mmap=True)[0].flags.writeable
    False
    """
    what = f"load: {name_of_path(path, 'load')}"
    if os.path.isfile(os.path.join(name_of_path(path, "load"), INDEX_NAME)):
        raise StorageError(
            f"{what}: this is a directory, a checkpoint of ranks.\n  Read it with pb.distributed.load(path, like)."
        )
    with open_regular_file(path, what) as file:
        size = os.fstat(file.fileno()).st_size
        header = read_header(file, size, what)
        arrays = _map_arrays(file, header, what) if mmap else _read_arrays(file, header, what)
    encoded = header.metadata.get(_STRUCTURE)
    place = None if device is None else normalize_device(device, what)
    if encoded is None:
        return arrays if place is None else {name: move_array(array, place) for name, array in arrays.items()}
    return _decode_tree(encoded, arrays, kinds, place, what)


def load_metadata(path: Any) -> dict[str, str]:
    """The metadata that was saved with a tree, without reading any array.

    >>> import os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, None, metadata={"about": "nothing"})
    >>> pb.load_metadata(path)
    {'about': 'nothing'}
    """
    what = f"load_metadata: {name_of_path(path, 'load_metadata')}"
    with open_regular_file(path, what) as file:
        header = read_header(file, os.fstat(file.fileno()).st_size, what)
    return {name: text for name, text in header.metadata.items() if name != _STRUCTURE}


def _decode_tree(encoded: str, arrays: dict[str, Any], kinds: Iterable[type], place: str | None, what: str) -> Any:
    check_json_size(encoded, what)
    try:
        data = json.loads(encoded)
        if data["version"] != _VERSION:
            raise FormatError(f"{what}: version {str(data['version'])[:20]} of the structure is not known.")
        devices = dict.fromkeys(arrays, place) if place is not None else _saved_devices(data, what)
        reader = TreeReader(arrays, kinds, what, devices)
        tree = reader.decode(data["tree"])
    except (FormatError, DeviceError):
        raise
    except (PullbackError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(
            f"{what}: the structure is not well formed: {type(error).__name__} {str(error)[:80]}."
        ) from None
    unused = arrays.keys() - reader.used
    if unused:
        raise FormatError(f"{what}: the structure has no place for the array {sorted(unused)[0][:60]!r}.")
    return tree


def _saved_devices(data: Any, what: str) -> dict[str, str]:
    """The device of each array that was not on the CPU."""
    saved = data.get("devices", {})
    for place in set(saved.values()):
        try:
            normalize_device(place, what)
        except DeviceError as error:
            raise DeviceError(f'{error}\n  The arrays were saved there; pass another one, as device="cpu".') from None
    return saved  # type: ignore[no-any-return]


def _read_arrays(file: BinaryIO, header: Header, what: str) -> dict[str, Any]:
    """Each array in memory of its own; the header was checked, so none is larger than the file."""
    arrays = {}
    for entry in header.entries.values():
        raw = np.empty(entry.stop - entry.start, np.uint8)
        file.seek(header.data_start + entry.start)
        if file.readinto(raw.data) != raw.nbytes:  # type: ignore[attr-defined]
            raise FormatError(f"{what}: array {entry.name[:60]!r} is cut off.")
        arrays[entry.name] = _view_as_array(raw, entry, what)
    return arrays


def _map_arrays(file: BinaryIO, header: Header, what: str) -> dict[str, Any]:
    """Each array as a view of the file."""
    whole = np.frombuffer(mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_READ), np.uint8)
    rows = {e.name: whole[header.data_start + e.start : header.data_start + e.stop] for e in header.entries.values()}
    return {name: _view_as_array(row, header.entries[name], what) for name, row in rows.items()}


def _view_as_array(raw: Any, entry: TensorEntry, what: str) -> Any:
    if entry.dtype_code == "BOOL" and raw.size and raw.max() > 1:
        raise FormatError(f"{what}: array {entry.name[:60]!r} holds a byte that is not a boolean.")
    dtype = entry_dtype(entry)
    if raw.size and raw.__array_interface__["data"][0] % dtype.alignment:
        raw = raw.copy()  # other writers may not align arrays
    found = raw.view(dtype)
    return (found if np.little_endian else found.byteswap()).reshape(entry.shape)

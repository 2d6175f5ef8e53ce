"""`save` and `load`: trees of arrays and settings as one file, or as files of limited size with an index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..arrays.devices import normalize_device
from ..arrays.files import name_of_path, open_regular_file
from ..arrays.text import parse_bytes
from ..errors import ArgumentError, ArgumentTypeError, StorageError
from .array_reader import take_arrays
from .atomic_write import write_atomically
from .contents import STRUCTURE, FileContents, decode_contents, encode_contents
from .header import assign_offsets, encode_header, read_header
from .pending import finish_pending
from .shards import SHARD_BYTES, is_index, read_index, read_shards, write_shards
from .tree_writer import to_host_bytes

#: The file in a directory that makes it a checkpoint of several ranks, which has functions of its own.
INDEX_NAME = "index.json"


def save(
    path: Any, tree: Any, metadata: Mapping[str, str] | None = None, *, max_shard_bytes: int | str | None = None
) -> None:
    """Write a tree of arrays and settings to a file that `load` and every reader of safetensors understand. The file is
    there whole or not at all: a kill at any moment leaves the one that was there before.

    Trees are made of dicts, lists, tuples, named tuples, None, scalars, strings, dtypes, arrays, tensors and
    registered classes. `metadata` is a dict of strings, for other readers of the file.

    A path that ends in `.safetensors.index.json` is that of an index: the arrays are in files beside it, none with more
    than `max_shard_bytes` (by default 5 GB, in bytes or as "500 MB"; an array is never divided).

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> pb.save(path, {"w": np.ones(2), "rates": (0.1, 0.01), "step": 7})
    >>> pb.load(path)
    {'w': array([1., 1.]), 'rates': (0.1, 0.01), 'step': 7}
    """
    limit = check_target(path, tree, max_shard_bytes)
    contents = encode_contents(tree, metadata)
    finish_pending()
    write_contents(path, contents, limit)


def check_target(path: Any, tree: Any, max_shard_bytes: Any) -> int | None:
    """The most bytes of one file where the path is that of an index, else None."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        swapped = isinstance(tree, (str, os.PathLike))
        advice = "The path comes first: pb.save(path, tree)." if swapped else "Call it as pb.save(path, tree)."
        raise ArgumentTypeError(f"save: a path must be text, bytes or a Path, got a {type(path).__name__}.\n  {advice}")
    if is_index(name_of_path(path, "save")):
        return parse_bytes(SHARD_BYTES if max_shard_bytes is None else max_shard_bytes, "save: max_shard_bytes")
    if max_shard_bytes is not None:
        raise ArgumentError(
            "save: with max_shard_bytes the path is that of the index of several files.\n"
            '  Let it end in ".safetensors.index.json".'
        )
    return None


def write_contents(path: Any, contents: FileContents, limit: int | None) -> None:
    """Put what was encoded into one file, or into several of at most `limit` bytes."""
    if limit is not None:
        write_shards(name_of_path(path, "save"), contents, limit, file_chunks)
    else:
        write_atomically(path, file_chunks(contents.stored, contents.metadata))


def file_chunks(stored: Mapping[str, Any], metadata: Mapping[str, str]) -> Iterator[Any]:
    """What goes into a file: the header, then one array after the other, so that only one is copied at a time."""
    entries = assign_offsets(stored.items())
    head = encode_header(entries, metadata)

    def chunks() -> Iterator[Any]:
        yield head
        for entry in entries:
            yield to_host_bytes(stored[entry.name])

    return chunks()


def load(path: Any, *, mmap: bool = False, kinds: Iterable[type] = (), device: Any = None) -> Any:
    """The tree that `save` wrote, to a file or with an index; of safetensors files by others, a dict of their arrays.
    Never runs code from a file.

    With `mmap` the arrays are read-only views of the file, which is read where they are used. A class that is not in
    a loaded module is given by `kinds`. Arrays come back on the device that they were saved on, or all on `device`. A
    damaged, cut off or hostile file raises `FormatError`.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, [np.arange(3.0), None])
    >>> pb.load(path, mmap=True)[0].flags.writeable
    False
    """
    name = name_of_path(path, "load")
    what = f"load: {name}"
    if os.path.isfile(os.path.join(name, INDEX_NAME)):
        raise StorageError(
            f"{what}: this is a directory, a checkpoint of ranks.\n  Read it with pb.distributed.load(path, like)."
        )
    metadata, arrays = read_shards(name, mmap, what) if is_index(name) else _read_file(path, mmap, what)
    place = None if device is None else normalize_device(device, what)
    return decode_contents(metadata, arrays, kinds, place, what)


def _read_file(path: Any, mmap: bool, what: str) -> tuple[dict[str, str], dict[str, Any]]:
    with open_regular_file(path, what) as file:
        header = read_header(file, what)
        return header.metadata, take_arrays(file, header, header.entries, mmap, what)


def load_metadata(path: Any) -> dict[str, str]:
    """The metadata that was saved with a tree, without reading any array.

    >>> import os, tempfile, pullback as pb
    >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
    >>> pb.save(path, None, metadata={"about": "nothing"})
    >>> pb.load_metadata(path)
    {'about': 'nothing'}
    """
    name = name_of_path(path, "load_metadata")
    what = f"load_metadata: {name}"
    if is_index(name):
        metadata = read_index(name, what).metadata
    else:
        with open_regular_file(path, what) as file:
            metadata = read_header(file, what).metadata
    return {name: text for name, text in metadata.items() if name != STRUCTURE}

"""Files of limited size with an index: `model.safetensors.index.json` says which array lies in which file.

The index is JSON, as Hugging Face's libraries write it: `weight_map` maps the name of each array to that of a file
beside the index, `metadata` has the bytes of all arrays and text. Files of each save have names of their own, and the
index takes the place of the one before as the last step; so a reader finds all of the old arrays, or all of the new.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..arrays.files import open_regular_file
from ..errors import ArgumentError, FormatError
from .array_reader import take_arrays
from .atomic_write import remove_files, remove_replaced, write_atomically
from .contents import STRUCTURE, FileContents
from .header import MAX_HEADER_BYTES, Header, check_json_size, encode_json, parse_json, read_header

_SUFFIX = ".safetensors.index.json"
_TOTAL = "total_size"
#: What a file holds at most, by default.
SHARD_BYTES = 5_000_000_000

FileChunks = Callable[[Mapping[str, Any], Mapping[str, str]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """An index: the file of each array by name, and the text that was saved with them."""

    files: dict[str, str]
    metadata: dict[str, str]

    def names_by_file(self) -> dict[str, list[str]]:
        """The arrays of each file."""
        found: dict[str, list[str]] = {}
        for name, file in self.files.items():
            found.setdefault(file, []).append(name)
        return found


def is_index(name: str) -> bool:
    """Whether a path is that of an index, by its ending."""
    return name.endswith(_SUFFIX)


def write_shards(name: str, contents: FileContents, limit: int, chunks: FileChunks) -> None:
    """Write the arrays to files of at most `limit` bytes, then the index, and remove files of saves before this one."""
    index = Path(os.path.realpath(name))
    if _TOTAL in contents.metadata:
        raise ArgumentError(f"save: an index has {_TOTAL!r} in its metadata, which is the bytes of all arrays.")
    groups = _divide(contents.stored, limit)
    stem, token = index.name.removesuffix(_SUFFIX), secrets.token_hex(4)
    names = [f"{stem}-{token}-{i:05d}-of-{len(groups):05d}.safetensors" for i in range(1, len(groups) + 1)]
    raw = _encode_index(contents, dict(zip(names, groups, strict=True)))
    try:
        for file, group in zip(names, groups, strict=True):
            stored = {name: contents.stored[name] for name in group}
            write_atomically(index.with_name(file), chunks(stored, {}))
        write_atomically(index, [raw])
    except BaseException:
        if not _is_in_place(index, raw):
            remove_files(index.with_name(file) for file in names)
        raise
    data = rf"{re.escape(stem)}-[0-9a-f]{{8}}-\d{{5,}}-of-\d{{5,}}\.safetensors"
    remove_replaced(index.parent, data, names, re.escape(index.name))


def _divide(stored: Mapping[str, Any], limit: int) -> list[list[str]]:
    """The names of the arrays of each file, in the order of the tree: as many as fit; one that is larger is alone."""
    groups: list[list[str]] = []
    left = -1
    for name, array in stored.items():
        if not groups or array.nbytes > left:
            groups.append([])
            left = limit
        groups[-1].append(name)
        left -= array.nbytes
    return groups


def _encode_index(contents: FileContents, files: Mapping[str, Iterable[str]]) -> bytes:
    total = sum(array.nbytes for array in contents.stored.values())
    places = {name: file for file, names in files.items() for name in names}
    data = {"metadata": {_TOTAL: total, **contents.metadata}, "weight_map": places}
    raw = encode_json(data, indent=0)
    check_json_size(raw, "save")
    if len(raw) > MAX_HEADER_BYTES:
        raise FormatError(f"save: the names and settings take {len(raw)} bytes, an index has {MAX_HEADER_BYTES}.")
    return raw


def _is_in_place(index: Path, raw: bytes) -> bool:
    with suppress(OSError):
        return index.read_bytes() == raw
    return False


def read_index(name: str, what: str) -> ShardIndex:
    """The index of several files; anything malformed is an error."""
    with open_regular_file(name, what) as file:
        raw = file.read(MAX_HEADER_BYTES + 1)
    if len(raw) > MAX_HEADER_BYTES:
        raise FormatError(f"{what}: the index has more than {MAX_HEADER_BYTES} bytes.")
    data = parse_json(raw, f"{what}: the index")
    files, metadata = data.get("weight_map"), data.get("metadata", {})
    if not isinstance(files, dict) or not all(_is_file_name(file) for file in files.values()):
        raise FormatError(f"{what}: weight_map maps names of arrays to names of files beside the index.")
    if not isinstance(metadata, dict):
        raise FormatError(f"{what}: metadata is a dict.")
    text = {key: value for key, value in metadata.items() if isinstance(value, str)}
    if STRUCTURE in metadata and STRUCTURE not in text:
        raise FormatError(f"{what}: the structure is text.")
    return ShardIndex(files, text)


def _is_file_name(name: Any) -> bool:
    """Whether a name has no path: an index must not lead out of its directory."""
    return isinstance(name, str) and name.endswith(".safetensors") and not re.search(r"[/\\:\0]", name)


def read_shards(name: str, mmap: bool, what: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The metadata and all arrays of an index."""
    before = None
    while True:
        index = read_index(name, what)
        try:
            found: dict[str, Any] = {}
            for file, names in index.names_by_file().items():
                found |= read_from_shard(name, file, names, mmap, what)
            return index.metadata, {n: found[n] for n in index.files}
        except FileNotFoundError:
            if index == before:
                raise FormatError(f"{what}: a file that the index names is missing.") from None
            before = index  # a save may have replaced the files meanwhile: then the index is another one


def read_from_shard(name: str, file: str, names: Iterable[str], mmap: bool, what: str) -> dict[str, Any]:
    """Some arrays of one of the files."""
    with open_regular_file(os.path.join(os.path.dirname(os.path.realpath(name)), file), what) as opened:
        header = read_shard_header(opened, names, f"{what}: {file}")
        return take_arrays(opened, header, names, mmap, what)


def read_shard_header(opened: BinaryIO, names: Iterable[str], what: str) -> Header:
    """The header of one of the files, which has the arrays that the index says it has."""
    header = read_header(opened, what)
    if missing := [name for name in names if name not in header.entries]:
        raise FormatError(f"{what}: the index says that array {missing[0][:60]!r} is here, and it is not.")
    return header

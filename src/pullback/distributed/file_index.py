"""The index of a checkpoint of ranks: which elements of which array lie in which file, written, read and checked.

It is JSON: the files by name and length; for each array its dtype, its shape and its slices in the order of the flat
array, each with its file, where it ends and its digest; and values that are no arrays. Reading trusts nothing: names of
files are names of ours, without any path, and what an array should have is compared with what its files have.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.files import open_regular_file
from ..errors import ArgumentError, FormatError, StorageError
from ..saving.atomic_write import TEMPORARY
from ..saving.header import MAX_AXES, MAX_BYTES, MAX_HEADER_BYTES, check_json_size, is_size_list, parse_json
from ..saving.save_load import INDEX_NAME

_FORMAT, _VERSION = "pullback checkpoint of ranks", 1
_FILE = re.compile(r"[0-9a-f]{16}-\d{1,7}\.safetensors")
#: What a killed process may leave: data of ours, finished or not, or an unfinished index.
_OURS = re.compile(rf"{_FILE.pattern}|\.({_FILE.pattern}|{re.escape(INDEX_NAME)})\.[0-9a-f]+{re.escape(TEMPORARY)}")
#: Characters of a digest.
_DIGEST_LENGTH = 32


class DataFile(NamedTuple):
    """A file of a checkpoint: its name in the directory and its length in bytes."""

    name: str
    size: int


class StoredSlice(NamedTuple):
    """Some elements of a flat array: the number of their file, which elements, and the digest of their bytes."""

    file: int
    start: int
    stop: int
    digest: str


class StoredArray(NamedTuple):
    """An array of a checkpoint; its slices follow each other, from its first element to the last."""

    dtype: Any
    shape: tuple[int, ...]
    slices: tuple[StoredSlice, ...]


class Index(NamedTuple):
    """What a checkpoint holds: its files, arrays by name, and the JSON of other values by name."""

    ranks: int
    files: tuple[DataFile, ...]
    arrays: dict[str, StoredArray]
    values: dict[str, Any]


def new_token() -> str:
    """What the names of the files of one save begin with."""
    return secrets.token_hex(8)


def data_name(token: str, rank: int) -> str:
    """The name of a rank's file."""
    return f"{token}-{rank}.safetensors"


def digest_chunks(chunks: Iterable[Any]) -> str:
    """The digest of bytes that come in chunks: half of SHA-256, which processors have instructions for."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()[:_DIGEST_LENGTH]


def encode_index(index: Index) -> bytes:
    """The bytes of the index."""
    arrays = {
        name: {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "files": [s.file for s in array.slices],
            "stops": [s.stop for s in array.slices],
            "digests": [s.digest for s in array.slices],
        }
        for name, array in index.arrays.items()
    }
    body = {
        "format": _FORMAT, "version": _VERSION, "ranks": index.ranks, "files": [list(f) for f in index.files],
        "arrays": arrays, "values": index.values,
    }  # fmt: skip
    try:
        raw = _as_text({"digest": _digest_of(body), **body})
    except UnicodeEncodeError:
        raise ArgumentError("save: a name or text holds half a character (a lone surrogate).") from None
    check_json_size(raw, "save: the index")
    if len(raw) > MAX_HEADER_BYTES:
        raise FormatError(f"save: names and values take {len(raw)} bytes, an index has room for {MAX_HEADER_BYTES}.")
    return raw


def _as_text(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True).encode()


def _digest_of(body: dict[str, Any]) -> str:
    return digest_chunks([_as_text(body)])


def read_index(directory: Path, what: str) -> bytes:
    """The bytes of the index in a directory."""
    try:
        with open_regular_file(directory / INDEX_NAME, f"{what}: {INDEX_NAME}") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_HEADER_BYTES:
                raise FormatError(f"{what}: {INDEX_NAME} has {size} bytes, more than an index may have.")
            return file.read(MAX_HEADER_BYTES)
    except FileNotFoundError:
        raise StorageError(
            f"{what}: there is no checkpoint, which is a directory with an {INDEX_NAME}.\n"
            "  Was it written by pb.distributed.save, on a file system that all ranks see?"
        ) from None
    except NotADirectoryError:
        raise StorageError(f"{what}: this is a file, not a directory.\n  Read a file with pb.load.") from None


def parse_index(raw: bytes, what: str) -> Index:
    """The index from its bytes; anything malformed is an error."""
    where = f"{what}: {INDEX_NAME}"
    data = parse_json(raw, where)
    if data.get("format") != _FORMAT:
        raise FormatError(f"{where} is not the index of a checkpoint of ranks.")
    if data.get("version") != _VERSION:
        raise FormatError(f"{where} has version {str(data.get('version'))[:20]}, known is {_VERSION}.")
    if data.keys() != {"digest", "format", "version", "ranks", "files", "arrays", "values"}:
        raise FormatError(f"{where} has other keys than an index.")
    try:
        is_same = data.pop("digest") == _digest_of(data)
    except (ValueError, UnicodeEncodeError, RecursionError):
        is_same = False
    if not is_same:
        raise FormatError(f"{where} is damaged: its digest is not that of its text.")
    files, arrays, values, ranks = (data[key] for key in ("files", "arrays", "values", "ranks"))
    if type(ranks) is not int or not isinstance(arrays, dict) or not isinstance(values, dict):
        raise FormatError(f"{where}: ranks are a number, arrays and values are dicts.")
    found = _parse_files(files, where)
    stored = {name: _parse_array(name, entry, len(found), where) for name, entry in arrays.items()}
    if both := stored.keys() & values.keys():
        raise FormatError(f"{where}: {sorted(both)[0][:60]!r} is an array and a value.")
    return Index(ranks, found, stored, values)


def _parse_files(files: Any, where: str) -> tuple[DataFile, ...]:
    pairs = files if isinstance(files, list) and all(isinstance(f, list) and len(f) == 2 for f in files) else [[0, 0]]
    for name, size in pairs:
        if not isinstance(name, str) or not _FILE.fullmatch(name) or not is_size_list([size]):
            raise FormatError(f"{where}: {str(name)[:60]!r} of {str(size)[:20]} bytes is no file of a checkpoint.")
    if len({name for name, _ in pairs}) != len(pairs):
        raise FormatError(f"{where}: a file is listed twice.")
    return tuple(DataFile(*pair) for pair in pairs)


def _parse_array(name: str, data: Any, files: int, where: str) -> StoredArray:
    where = f"{where}: array {name[:60]!r}"
    if not isinstance(data, dict) or data.keys() != {"dtype", "shape", "files", "stops", "digests"}:
        raise FormatError(f"{where} has no dtype, shape, files, stops and digests, or more than that.")
    dtype, shape = data["dtype"], data["shape"]
    if not isinstance(dtype, str) or dtype not in NAMES:
        raise FormatError(f"{where} has dtype {str(dtype)[:20]!r}, which is not known.")
    if not is_size_list(shape) or len(shape) > MAX_AXES:
        raise FormatError(f"{where}: shape {str(shape)[:60]} is invalid.")
    known = as_dtype(dtype)
    if math.prod(n for n in shape if n) * known.itemsize > MAX_BYTES:
        raise FormatError(f"{where}: shape {str(shape)[:60]} is larger than any memory.")
    slices = _parse_slices(data, files, where)
    if (slices[-1].stop if slices else 0) != math.prod(shape):
        raise FormatError(f"{where}: its slices do not add up to its shape {str(shape)[:60]}.")
    return StoredArray(known, tuple(shape), slices)


def _parse_slices(data: dict[str, Any], files: int, where: str) -> tuple[StoredSlice, ...]:
    numbers, stops, digests = data["files"], data["stops"], data["digests"]
    if not is_size_list(numbers) or not is_size_list(stops) or not isinstance(digests, list):
        raise FormatError(f"{where}: files and stops are numbers, digests are texts.")
    starts = [0, *stops[:-1]]
    is_sound = (
        len(numbers) == len(stops) == len(digests)
        and all(n < files for n in numbers)
        and len(set(numbers)) == len(numbers)  # a file has an array once; else few bytes could fill any memory
        and all(start < stop for start, stop in zip(starts, stops, strict=False))
        and all(isinstance(d, str) for d in digests)
    )
    if not is_sound:
        raise FormatError(f"{where}: its slices are invalid.")
    return tuple(map(StoredSlice, numbers, starts, stops, digests))


def listed_files(directory: Path) -> set[str] | None:
    """The files that the index in a directory lists; none if there is no index, None if it cannot be read."""
    try:
        return {file.name for file in parse_index(read_index(directory, "save"), "save").files}
    except StorageError:
        return set() if not (directory / INDEX_NAME).exists() else None
    except (FormatError, OSError):
        return None


def remove_unlisted(directory: Path, keep: Collection[str]) -> None:
    """Remove the files of checkpoints that were replaced, or whose save was killed. What cannot be removed now, the
    next save may.
    """
    with suppress(OSError):
        for path in list(directory.iterdir()):
            if path.name not in keep and _OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)

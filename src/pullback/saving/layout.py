"""Names and arrays in, the head of a safetensors file out; and a file's head in, what it promises out, checked.

A file is eight bytes that say the length of the head, the head (JSON, padded with spaces), and the elements of all
arrays without gaps, little-endian and in C order. The head maps each name to dtype, shape and where its bytes lie;
`__metadata__` maps text to text. Reading believes nothing: every number is compared with the length of the file before
memory is taken.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ..arrays.dtypes import as_dtype
from ..errors import FormatError

__all__ = ["METADATA", "Entry", "Head", "check_extent", "dtype_of", "head_bytes", "placed", "read_head", "word_of"]

METADATA = "__metadata__"
#: The names that the format has for dtypes.
_WORDS = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip
#: Words of the format for numbers that tensors do not hold: they are read as what `ml_dtypes` has for them.
_NARROW = {
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_DTYPES = {word: name for name, word in _WORDS.items()} | {"C64": "complex64"}
_SIZES = {word: 2 if name == "bfloat16" else np.dtype(name).itemsize for word, name in _DTYPES.items()} | dict.fromkeys(
    _NARROW, 1
)
#: What readers of the format refuse beyond.
_LONGEST_HEAD = 100_000_000
#: Arrays begin at a multiple of this, counted from the start of the file, so that a mapped file is aligned.
_ALIGNED = 64
#: More than any machine holds, and few enough that NumPy can say the strides.
_MOST_BYTES = 1 << 60
_MOST_AXES = 64
#: What a head may hold, its structure included, so that reading takes a few hundred megabytes at the worst.
MOST_CONTAINERS, MOST_VALUES = 1 << 20, 1 << 23


@dataclass(frozen=True, slots=True)
class Entry:
    """One array of a file: its name, the format's word for its dtype, its shape, and its bytes after the head."""

    name: str
    word: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Head:
    """What a file promises: its arrays by name, its text, and where the elements begin."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    begin: int


def word_of(dtype: Any) -> str | None:
    """The format's word for a dtype, None where it has none."""
    return _WORDS.get(dtype.name)


def dtype_of(entry: Entry) -> Any:
    """The dtype of an entry, in this machine's order of bytes."""
    if entry.word in _NARROW:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), _NARROW[entry.word]))
    return as_dtype(_DTYPES[entry.word])


def placed(arrays: Iterable[tuple[str, Any]]) -> list[Entry]:
    """Where each array will lie: the widest dtypes first, so that each begins at a multiple of its own width."""
    found, at = [], 0
    for name, array in sorted(arrays, key=lambda pair: (-pair[1].dtype.itemsize, pair[0])):
        found.append(Entry(name, _WORDS[array.dtype.name], tuple(array.shape), at, at + array.nbytes))
        at += array.nbytes
    return found


def head_bytes(entries: Iterable[Entry], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file, up to where the elements begin."""
    said: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for e in entries:
        said[e.name] = {"dtype": e.word, "shape": list(e.shape), "data_offsets": [e.start, e.stop]}
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    check_extent(text, "save")
    if len(text) > _LONGEST_HEAD:
        raise FormatError(f"save: the names and settings take {len(text)} bytes, a file has room for {_LONGEST_HEAD}.")
    return len(text).to_bytes(8, "little") + text


def read_head(file: BinaryIO, size: int, what: str) -> Head:
    """The head of an open file of `size` bytes; anything that is not as it must be is an error."""
    first = file.read(8)
    if len(first) < 8:
        raise FormatError(f"{what}: the file has {size} bytes, not even a length.")
    length = int.from_bytes(first, "little")
    if length > min(_LONGEST_HEAD, size - 8):
        raise FormatError(f"{what}: the head should have {length} bytes, the file has {size}: damaged or cut off.")
    said = _parsed(file.read(length), what)
    metadata = said.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f"{what}: {METADATA} maps text to text.")
    entries = [_entry(name, entry, what) for name, entry in said.items()]
    _check_cover(entries, size - 8 - length, what)
    return Head({e.name: e for e in entries}, metadata, 8 + length)


def check_extent(text: str | bytes, what: str) -> None:
    """Refuse JSON that would take many times its own length in memory: `[],` is three bytes, and a list has sixty."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    containers, values = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    if containers > MOST_CONTAINERS or values > MOST_VALUES:
        raise FormatError(
            f"{what}: {containers} containers and {values} values are more than a file may say "
            f"({MOST_CONTAINERS} and {MOST_VALUES}).\n  Numbers go into arrays."
        )


def _parsed(raw: bytes, what: str) -> dict[str, Any]:
    check_extent(raw, what)
    try:
        said = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # also wrong UTF-8, numbers of a million digits
        raise FormatError(f"{what}: the head cannot be read: {str(error)[:100]}.") from None
    if not isinstance(said, dict):
        raise FormatError(f"{what}: the head is no dict of names.")
    return said


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _entry(name: str, said: Any, what: str) -> Entry:
    """One array as the head says it."""
    where = f"{what}: array {name[:60]!r}"
    if not isinstance(said, dict) or said.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{where} has no dtype, shape and data_offsets, or more than that.")
    word, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(word, str) or word not in _SIZES:
        raise FormatError(f"{where} has dtype {str(word)[:20]!r}; known are {', '.join(_SIZES)}.")
    if not _sizes(shape) or len(shape) > _MOST_AXES or not _sizes(offsets) or len(offsets) != 2:
        raise FormatError(f"{where}: shape {str(shape)[:60]} or offsets {str(offsets)[:60]} make no sense.")
    if math.prod(n for n in shape if n) * _SIZES[word] > _MOST_BYTES:
        raise FormatError(f"{where}: shape {str(shape)[:60]} is more than any memory.")
    start, stop = offsets
    if stop - start != math.prod(shape) * _SIZES[word]:
        raise FormatError(f"{where}: {stop - start} bytes for {word} of shape {str(shape)[:60]}.")
    return Entry(name, word, tuple(shape), start, stop)


def _sizes(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in x)


def _check_cover(entries: list[Entry], size: int, what: str) -> None:
    """The arrays lie one after the other from the end of the head to the end of the file."""
    at = 0
    for e in sorted(entries, key=lambda e: (e.start, e.stop)):
        if e.start != at:
            fault = "overlaps another" if e.start < at else "begins after a hole"
            raise FormatError(f"{what}: array {e.name[:60]!r} {fault}.")
        at = e.stop
    if at != size:
        raise FormatError(f"{what}: the arrays take {at} bytes, the file has {size} for them: damaged or cut off.")

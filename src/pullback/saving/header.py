"""The header of a safetensors file: written, read and checked.

A file is eight bytes with the length of the header, the header (JSON, padded with spaces), and the elements of all
arrays without gaps, little-endian and in C order. The header maps each name to dtype, shape and byte range;
`__metadata__` maps text to text. Reading trusts nothing: every size is compared with the length of the file before
memory is allocated.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ..arrays.dtypes import as_dtype
from ..errors import ArgumentError, FormatError

METADATA = "__metadata__"
#: The names that the format has for dtypes.
DTYPE_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
#: Codes of dtypes that tensors do not support: they are read as those of `ml_dtypes`.
_NARROW = {"F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
#: How many bytes an element of them takes, which NumPy does not know by their names.
_BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
_DTYPES = {code: name for name, code in DTYPE_CODES.items()} | {"C64": "complex64"}
_SIZES = dict.fromkeys(_NARROW, 1)
_SIZES |= {code: _BYTES.get(name) or np.dtype(name).itemsize for code, name in _DTYPES.items()}
#: The largest header that readers of the format accept.
MAX_HEADER_BYTES = 100_000_000
#: Arrays begin at a multiple of this, counted from the start of the file, so that a mapped file is aligned.
_ALIGNMENT = 64
#: More than any machine holds, and few enough that the strides fit NumPy's integers.
MAX_BYTES = 1 << 60
MAX_AXES = 64
#: What a header may hold, its structure included, so that reading takes a few hundred megabytes at the worst.
MAX_CONTAINERS, MAX_VALUES = 1 << 20, 1 << 23


#: How files begin that are loaded by mistake.
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive, as torch.save and np.savez write.\n  Read it with torch.load or np.load",
    b"\x93NUMPY": "an array of np.save.\n  Read it with np.load",
    b"\x80": "a pickle.\n  Read it with pickle.load or torch.load",
    b"\x89HDF": "an HDF5 file, as Keras writes.\n  Read it with h5py",
    b"{": "JSON.\n  Read it with json.load",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One array of a file: its name, the format's code for its dtype, shape, and byte range after the header."""

    name: str
    dtype_code: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of a file: its arrays by name, its metadata, and where the elements begin."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    data_start: int


def entry_dtype(entry: TensorEntry) -> Any:
    """The dtype of an entry, in this machine's order of bytes."""
    if entry.dtype_code in _NARROW:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), _NARROW[entry.dtype_code]))
    return as_dtype(_DTYPES[entry.dtype_code])


def assign_offsets(arrays: Iterable[tuple[str, Any]]) -> list[TensorEntry]:
    """Where each array will lie: the widest dtypes first, so that each begins at a multiple of its own width."""
    found, at = [], 0
    for name, array in sorted(arrays, key=lambda pair: (-pair[1].dtype.itemsize, pair[0])):
        found.append(TensorEntry(name, DTYPE_CODES[array.dtype.name], tuple(array.shape), at, at + array.nbytes))
        at += array.nbytes
    return found


def encode_header(entries: Iterable[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file, up to where the elements begin."""
    data: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for e in entries:
        data[e.name] = {"dtype": e.dtype_code, "shape": list(e.shape), "data_offsets": [e.start, e.stop]}
    text = encode_json(data, separators=(",", ":"))
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    check_json_size(text, "save")
    if len(text) > MAX_HEADER_BYTES:
        raise FormatError(
            f"save: the names and settings take {len(text)} bytes, a file has room for {MAX_HEADER_BYTES}."
        )
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO, what: str) -> Header:
    """The header of an open file; anything malformed is an error."""
    size, first = os.fstat(file.fileno()).st_size, file.read(8)
    if len(first) < 8:
        raise FormatError(f"{what}: the file has {size} bytes, not even a length.")
    length = int.from_bytes(first, "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        if length > MAX_HEADER_BYTES and (other := _other_format(first)) is not None:
            raise FormatError(f"{what}: this is not a safetensors file, it begins like {other}, then pb.save.")
        raise FormatError(f"{what}: the header should have {length} bytes, the file has {size}: damaged or cut off.")
    data = parse_json(file.read(length), f"{what}: the header")
    metadata = data.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f"{what}: {METADATA} maps text to text.")
    entries = [_parse_entry(name, entry, what) for name, entry in data.items()]
    _check_contiguous(entries, size - 8 - length, what)
    return Header({e.name: e for e in entries}, metadata, 8 + length)


def _other_format(first: bytes) -> str | None:
    """What a file is by its first bytes, and what reads it."""
    return next((text for start, text in _OTHER_FORMATS.items() if first.startswith(start)), None)


def check_json_size(text: str | bytes, what: str) -> None:
    """Refuse JSON that would take many times its own length in memory: `[],` is three bytes, and a list has sixty."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    containers, values = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    if containers > MAX_CONTAINERS or values > MAX_VALUES:
        raise FormatError(
            f"{what}: {containers} containers and {values} values are more than a file may hold "
            f"({MAX_CONTAINERS} and {MAX_VALUES}).\n  Put values into arrays."
        )


def encode_json(data: dict[str, Any], **layout: Any) -> bytes:
    """A JSON object as UTF-8."""
    try:
        return json.dumps(data, ensure_ascii=False, **layout).encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            "save: a name or text holds half a character (a lone surrogate), which no file can."
        ) from None


def parse_json(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object of names; anything else is an error, also one that would take many times its length in memory."""
    check_json_size(raw, what)
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:  # also wrong UTF-8, integers of a million digits
        raise FormatError(f"{what} cannot be read: {str(error)[:100]}.") from None
    if not isinstance(data, dict):
        raise FormatError(f"{what} is not a dict of names.")
    return data


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _reject_constant(code: str) -> Any:
    raise ValueError(f"{code} is not valid JSON")


def _parse_entry(name: str, data: Any, what: str) -> TensorEntry:
    """One array as the header says it."""
    where = f"{what}: array {name[:60]!r}"
    if not isinstance(data, dict) or data.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{where} has no dtype, shape and data_offsets, or more than that.")
    code, shape, offsets = data["dtype"], data["shape"], data["data_offsets"]
    if not isinstance(code, str) or code not in _SIZES:
        raise FormatError(f"{where} has dtype {str(code)[:20]!r}; known are {', '.join(_SIZES)}.")
    if not is_size_list(shape) or len(shape) > MAX_AXES or not is_size_list(offsets) or len(offsets) != 2:
        raise FormatError(f"{where}: shape {str(shape)[:60]} or offsets {str(offsets)[:60]} are invalid.")
    if math.prod(n for n in shape if n) * _SIZES[code] > MAX_BYTES:
        raise FormatError(f"{where}: shape {str(shape)[:60]} is larger than any memory.")
    start, stop = offsets
    if stop - start != math.prod(shape) * _SIZES[code]:
        raise FormatError(f"{where}: {stop - start} bytes for {code} of shape {str(shape)[:60]}.")
    return TensorEntry(name, code, tuple(shape), start, stop)


def is_size_list(x: Any) -> bool:
    """Whether this is a list of sizes that an array can have."""
    return isinstance(x, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in x)


def _check_contiguous(entries: list[TensorEntry], size: int, what: str) -> None:
    """The arrays lie one after the other from the end of the header to the end of the file."""
    at = 0
    for e in sorted(entries, key=lambda e: (e.start, e.stop)):
        if e.start != at:
            fault = "overlaps another" if e.start < at else "begins after a hole"
            raise FormatError(f"{what}: array {e.name[:60]!r} {fault}.")
        at = e.stop
    if at != size:
        raise FormatError(f"{what}: the arrays take {at} bytes, the file has {size} for them: damaged or cut off.")

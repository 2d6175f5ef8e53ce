"""A tree as what files hold: arrays by name, and text that says where in the tree each belongs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..arrays.backends import device_of, move_array
from ..arrays.devices import normalize_device
from ..errors import ArgumentError, DeviceError, FormatError, PullbackError
from .header import check_json_size
from .tree_reader import TreeReader
from .tree_writer import TreeWriter, to_stored_dtype

#: The metadata key of the tree's structure, and the version of its encoding.
STRUCTURE, _VERSION = "pullback", 1


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a save writes. `arrays` are those of the tree: a reference to each keeps its memory from being overwritten;
    `stored` are the same as dtypes that files have.
    """

    arrays: dict[str, Any]
    stored: dict[str, Any]
    metadata: dict[str, str]


def encode_contents(tree: Any, metadata: Mapping[str, str] | None, copies: bool = False) -> FileContents:
    """A tree as arrays and text. With `copies` it is what the tree is now, whatever is written into its arrays later:
    those that no tensor holds are copied.
    """
    given = _check_metadata(metadata)
    writer = TreeWriter(copies)
    try:
        structure = writer.encode(tree, "")
    except RecursionError:
        raise ArgumentError("save: the tree is nested too deeply, or holds itself.") from None
    data: dict[str, Any] = {"version": _VERSION, "tree": structure}
    devices = {name: place for name, array in writer.arrays.items() if (place := device_of(array)) != "cpu"}
    if devices:
        data["devices"] = devices
    encoded = json.dumps(data, allow_nan=False, separators=(",", ":"))
    stored = {name: to_stored_dtype(array) for name, array in writer.arrays.items()}
    return FileContents(writer.arrays, stored, {**given, STRUCTURE: encoded})


def _check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    found = dict(metadata or {})
    if not all(isinstance(x, str) for pair in found.items() for x in pair) or STRUCTURE in found:
        raise ArgumentError(f"save: metadata maps text to text, and {STRUCTURE!r} is taken; got {metadata!r}.")
    return found


def decode_contents(
    metadata: Mapping[str, str], arrays: dict[str, Any], kinds: Iterable[type], place: str | None, what: str
) -> Any:
    """The tree of the arrays of a file, on a device if one is given; arrays by name if the file is not one of ours."""
    if STRUCTURE in metadata:
        return _decode_tree(metadata[STRUCTURE], arrays, kinds, place, what)
    return arrays if place is None else {name: move_array(array, place) for name, array in arrays.items()}


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

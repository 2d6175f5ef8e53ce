"""Encodes a tree as JSON and arrays by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.backends import is_array, to_host
from ..arrays.dtypes import NAMES
from ..arrays.tensor import Tensor
from ..arrays.text import join_path
from ..arrays.trees import flatten_one_level, registered_unflatten
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, DtypeError
from .class_names import class_name

#: Types that JSON encodes as they are.
_PLAIN = (str, int, bool, type(None))
#: Bits of an integer beyond which Python refuses to write it in decimal digits.
_LONG = 14000


class TreeWriter:
    """Encodes a tree. What JSON lacks is a dict of one key, its tag; arrays are stored apart and named there.

    The same array in two places is written once, and is one array again when read. With `copies`, arrays that no tensor
    holds are copied, since anybody may write into them.
    """

    def __init__(self, copies: bool = False) -> None:
        self._copies = copies
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._owners: list[Any] = []  # keeps ids unique while this lives
        self._nodes: list[tuple[str, Any]] = []  # the objects whose structure is being encoded, with their places

    def encode(self, x: Any, path: str) -> Any:
        """One value of the tree as JSON; `path` is its place, which becomes the name of an array."""
        if type(x) is int and x.bit_length() > _LONG:
            return {"int": hex(x)}
        if type(x) in _PLAIN:
            return x
        if type(x) is float:
            return x if math.isfinite(x) else {"float": repr(x)}
        if type(x) is complex:
            return {"complex_": [self.encode(x.real, path), self.encode(x.imag, path)]}
        if isinstance(x, Tensor) and is_array(x.value):
            return {"tensor": [self._store_array(x, x.value, path), x.is_leaf and x.requires_grad]}
        if isinstance(x, Value):
            raise ConversionError(
                f"save: {_describe_location(path)} is a value of a running transform, which has no concrete value."
            )
        if isinstance(x, np.ma.MaskedArray):
            raise DtypeError(
                f"save: {_describe_location(path)} is a masked array, whose mask would be lost.\n"
                "  Save x.data and x.mask."
            )
        if isinstance(x, np.generic):
            return {"scalar": self._store_array(x, np.asarray(x), path)}
        if is_array(x):
            return {"array": self._store_array(x, x, path)}
        if isinstance(x, np.dtype) and x.name in NAMES:
            return {"dtype": x.name}
        return self._container(x, path)

    def _container(self, x: Any, path: str) -> Any:
        kind = type(x)
        if kind is list:
            return [self.encode(child, join_path(path, i)) for i, child in enumerate(x)]
        if kind is tuple:
            return {"tuple": [self.encode(child, join_path(path, i)) for i, child in enumerate(x)]}
        if kind is dict:
            return {"dict": [[_check_key(k, path), self.encode(child, join_path(path, k))] for k, child in x.items()]}
        if is_named_tuple(kind):
            fields = zip(kind._fields, x, strict=True)
            data = [[field, self.encode(child, join_path(path, field))] for field, child in fields]
            return {"named": [class_name(kind, _describe_location(path)), data]}
        if registered_unflatten(kind) is not None:
            children, rest = flatten_one_level(x)
            data = [self.encode(child, join_path(path, i)) for i, child in enumerate(children)]
            name = class_name(kind, _describe_location(path))
            self._nodes.append((path, x))
            structure = self.encode(rest, join_path(path, "rest"))
            self._nodes.pop()
            return {"node": [name, structure, data]}
        raise ArgumentError(
            f"save: {_describe_location(self._place_of(x, path))} is a {kind.__name__}, which cannot be written as "
            "data.\n"
            "  Trees are made of dicts, lists, tuples, named tuples, None, scalars, strings, arrays, and classes "
            "given to pb.register_tree.\n"
            "  Of a module, save its numbers: pb.save(path, net.state_dict())."
        )

    def _place_of(self, x: Any, path: str) -> str:
        """Where the user has a value: of what belongs to the structure of an object, the attribute."""
        if not self._nodes:
            return path
        outer, owner = self._nodes[-1]
        found = _find_path(getattr(owner, "__dict__", {}), x)
        return path if found is None else join_path(outer, found)

    def _store_array(self, owner: Any, array: Any, path: str) -> Any:
        """The name under which an array goes into the file; complex ones are stored as pairs."""
        if array.dtype.newbyteorder("=").name not in NAMES:
            raise DtypeError(
                f"save: {_describe_location(path)} has dtype {array.dtype}; numeric and boolean arrays can be saved."
            )
        found = self._names.get(id(owner))
        if found is None:
            found = self._names[id(owner)] = self._unique_name(path or "array")
            self._owners.append(owner)
            self.arrays[found] = array.copy() if self._copies and array is owner else array
        return {"pairs": found} if array.dtype.kind == "c" else found

    def _unique_name(self, wanted: str) -> str:
        """An unused name: two keys may be the same as strings."""
        name, number = wanted, 2
        while name in self.arrays or name == "__metadata__":
            name, number = f"{wanted}~{number}", number + 1
        return name


def _check_key(key: Any, path: str) -> Any:
    if type(key) not in _PLAIN or (type(key) is int and key.bit_length() > _LONG):
        raise ArgumentError(
            f"save: {_describe_location(path)} has the key {format_key(key)}; keys are strings or integers."
        )
    return key


def format_key(key: Any) -> str:
    return f"{hex(key)[:20]}..." if type(key) is int else repr(key)


def _find_path(container: Any, x: Any) -> str | None:
    """The path to a value inside of dicts, lists and tuples."""
    if not isinstance(container, (dict, list, tuple)):
        return None
    for key, child in container.items() if isinstance(container, dict) else enumerate(container):
        inner = "" if child is x else _find_path(child, x)
        if inner is not None:
            return join_path(str(key), inner) if inner else str(key)
    return None


def _describe_location(path: str) -> str:
    return f"the value at {path!r}" if path else "what was given"


def is_named_tuple(kind: type) -> bool:
    """Whether a class is a named tuple, by its attributes."""
    fields = getattr(kind, "_fields", None)
    return issubclass(kind, tuple) and isinstance(fields, tuple) and all(isinstance(f, str) for f in fields)


def to_host_bytes(array: Any) -> Any:
    """The elements of an array as the file holds them: on the host, little-endian, in C order, a row of bytes."""
    host = to_host(array)
    if host.dtype.byteorder == ">" or (host.dtype.byteorder == "=" and not np.little_endian):
        host = host.astype(host.dtype.newbyteorder("<"))
    return np.ascontiguousarray(host).reshape(-1).view(np.uint8)


def to_stored_dtype(array: Any) -> Any:
    """An array as a dtype that the format has: complex numbers are pairs of real ones along a new last axis."""
    if array.dtype.kind != "c":
        return array
    host = to_host(array)
    native = np.ascontiguousarray(host, host.dtype.newbyteorder("="))
    return native.reshape(-1).view(native.real.dtype).reshape(*array.shape, 2)

"""A tree in, its structure as JSON values and its arrays by name out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.backends import device_of, is_array
from ..arrays.dtypes import NAMES
from ..arrays.tensor import Tensor
from ..arrays.trees import one_level, registered
from ..arrays.value import Value
from ..errors import ArgumentError, ConversionError, DtypeError

__all__ = ["Writer"]

#: What stands for itself in JSON.
_PLAIN = (str, int, bool, type(None))
#: Bits of an integer beyond which Python refuses to write it in decimal digits.
_LONG = 14000


class Writer:
    """What JSON has no word for is a dict of one key that says what it is; an array is named there and put aside.

    The same array in two places is written once, and is one array again when it is read.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id is used twice while this lasts

    def value(self, x: Any, path: str) -> Any:
        """One value of the tree as JSON; `path` is where it stands, which becomes the name of an array."""
        if type(x) is int and x.bit_length() > _LONG:
            return {"int": hex(x)}
        if type(x) in _PLAIN:
            return x
        if type(x) is float:
            return x if math.isfinite(x) else {"float": repr(x)}
        if type(x) is complex:
            return {"complex_": [self.value(x.real, path), self.value(x.imag, path)]}
        if isinstance(x, Tensor):
            return {"tensor": [self._placed(x, _settled(x, path), path), x.is_leaf and x.requires_grad]}
        if isinstance(x, Value):
            raise ConversionError(
                f"save: {_at(path)} is a value of a running transform, which has no numbers of its own."
            )
        if isinstance(x, np.ma.MaskedArray):
            raise DtypeError(
                f"save: {_at(path)} is a masked array, whose mask would be lost.\n  Save x.data and x.mask."
            )
        if isinstance(x, np.generic):
            return {"scalar": self._placed(x, np.asarray(x), path)}
        if is_array(x):
            return {"array": self._placed(x, x, path)}
        if isinstance(x, np.dtype) and x.name in NAMES:
            return {"dtype": x.name}
        return self._container(x, path)

    def _container(self, x: Any, path: str) -> Any:
        kind = type(x)
        if kind is list:
            return [self.value(child, _below(path, i)) for i, child in enumerate(x)]
        if kind is tuple:
            return {"tuple": [self.value(child, _below(path, i)) for i, child in enumerate(x)]}
        if kind is dict:
            return {"dict": [[_key(k, path), self.value(child, _below(path, k))] for k, child in x.items()]}
        if is_named_tuple(kind):
            fields = zip(kind._fields, x, strict=True)
            return {"named": [name_of(kind, path), [[f, self.value(child, _below(path, f))] for f, child in fields]]}
        if registered(kind) is not None:
            children, rest = one_level(x)
            said = [self.value(child, _below(path, i)) for i, child in enumerate(children)]
            return {"node": [name_of(kind, path), self.value(rest, _below(path, "rest")), said]}
        raise ArgumentError(
            f"save: {_at(path)} is a {kind.__name__}, which cannot be written as data.\n"
            "  Trees are made of dicts, lists, tuples, named tuples, None, numbers, text, arrays, and classes given to "
            "pb.register_tree."
        )

    def _placed(self, owner: Any, array: Any, path: str) -> Any:
        """The name under which an array goes into the file; of complex numbers it goes there as pairs."""
        if array.dtype.newbyteorder("=").name not in NAMES:
            raise DtypeError(f"save: {_at(path)} has dtype {array.dtype}; arrays of numbers and booleans can be saved.")
        found = self._names.get(id(owner))
        if found is None:
            found = self._names[id(owner)] = self._fresh(path or "array")
            self._held.append(owner)
            self.arrays[found] = array
        return {"pairs": found} if array.dtype.kind == "c" else found

    def _fresh(self, wanted: str) -> str:
        """A name nobody has: two keys may read the same once they are text."""
        name, number = wanted, 2
        while name in self.arrays or name == "__metadata__":
            name, number = f"{wanted}~{number}", number + 1
        return name


def _settled(x: Tensor, path: str) -> Any:
    if not is_array(x.value):
        raise ConversionError(
            f"save: {_at(path)} is a tensor inside a running transform, which has no numbers of its own."
        )
    return x.value


def _key(key: Any, path: str) -> Any:
    if type(key) not in _PLAIN or (type(key) is int and key.bit_length() > _LONG):
        raise ArgumentError(f"save: {_at(path)} has the key {key_text(key)}; keys are text or whole numbers.")
    return key


def key_text(key: Any) -> str:
    return f"{hex(key)[:20]}..." if type(key) is int else repr(key)


def _below(path: str, step: Any) -> str:
    return f"{path}.{step}" if path else str(step)


def _at(path: str) -> str:
    return f"the value at {path!r}" if path else "what was given"


def is_named_tuple(kind: type) -> bool:
    """Whether a class is a named tuple, by what such classes have."""
    fields = getattr(kind, "_fields", None)
    return issubclass(kind, tuple) and isinstance(fields, tuple) and all(isinstance(f, str) for f in fields)


def name_of(kind: type, path: str) -> str:
    """Where a class is found again: its module and its name there."""
    if "<locals>" in kind.__qualname__:
        raise ArgumentError(
            f"save: {_at(path)} is a {kind.__name__} made inside a function, which no reader could find.\n"
            "  Define the class in a module, or save its fields as a dict."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def host_bytes(array: Any) -> Any:
    """The elements of an array as the file holds them: on the host, little-endian, in C order, a row of bytes."""
    host = array.get() if device_of(array) != "cpu" else np.asarray(array)
    if host.dtype.byteorder == ">" or (host.dtype.byteorder == "=" and not np.little_endian):
        host = host.astype(host.dtype.newbyteorder("<"))
    return np.ascontiguousarray(host).reshape(-1).view(np.uint8)


def as_stored(array: Any) -> Any:
    """An array as a dtype that the format has: complex numbers are pairs of real ones along a new last axis."""
    if array.dtype.kind != "c":
        return array
    host = array.get() if device_of(array) != "cpu" else np.asarray(array)
    native = np.ascontiguousarray(host, host.dtype.newbyteorder("="))
    return native.reshape(-1).view(native.real.dtype).reshape(*array.shape, 2)

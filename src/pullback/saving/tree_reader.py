"""Decodes a tree from JSON and the arrays of a file; runs no code of the file's choosing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays.backends import move_array
from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.spec import spec_of
from ..arrays.tensor import wrap
from ..arrays.trees import registered_unflatten
from ..errors import FormatError
from .class_names import find_class
from .tree_writer import is_named_tuple


class TreeReader:
    """Rebuilds a tree. Classes are looked up among `kinds` and in modules that are loaded, never imported."""

    def __init__(self, arrays: Mapping[str, Any], kinds: Iterable[type], what: str, devices: Mapping[str, str]) -> None:
        self._arrays = arrays
        self._devices = devices
        self._placed: dict[str, Any] = {}
        self._kinds = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in kinds}
        self._what = what
        self._tensors: dict[str, Any] = {}
        self._complex: dict[str, Any] = {}
        self.used: set[str] = set()

    def decode(self, data: Any) -> Any:
        """One value of the tree from its JSON."""
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        if isinstance(data, list):
            return [self.decode(x) for x in data]
        if len(data) != 1:
            raise self._format_error("an encoded value has one tag")
        ((tag, inner),) = data.items()
        read = _READERS.get(tag)
        if read is None:
            raise self._format_error(f"unknown tag {tag[:40]!r}")
        return read(self, inner)

    def _format_error(self, fault: str) -> FormatError:
        return FormatError(f"{self._what}: {fault}.")

    def _array(self, data: Any) -> Any:
        """An array on its device."""
        found = self._stored_array(data)
        name = data["pairs"] if isinstance(data, dict) else data
        place = self._devices.get(name, "cpu")
        if place == "cpu":
            return found
        if name not in self._placed:
            self._placed[name] = move_array(found, place)
        return self._placed[name]

    def _stored_array(self, data: Any) -> Any:
        """An array by its name, or {"pairs": name} for complex numbers."""
        name = data.get("pairs") if isinstance(data, dict) else data
        if not isinstance(name, str) or name not in self._arrays:
            raise self._format_error(f"the structure names an array {str(name)[:60]!r} that is not there")
        self.used.add(name)
        return self._complex_from_pairs(name, self._arrays[name]) if isinstance(data, dict) else self._arrays[name]

    def _complex_from_pairs(self, name: str, pairs: Any) -> Any:
        """Complex numbers from pairs of real ones along the last axis."""
        if name not in self._complex:
            if pairs.dtype.name not in ("float32", "float64") or pairs.shape[-1:] != (2,):
                raise self._format_error(f"the array {name[:60]!r} should hold pairs of real numbers")
            wider = np.dtype(np.result_type(pairs.dtype, np.complex64))
            self._complex[name] = pairs.reshape(-1).view(wider).reshape(pairs.shape[:-1])
        return self._complex[name]

    def _tensor(self, data: Any) -> Any:
        place, tracked = _require_items(data, 2)
        name = str(place)
        if name not in self._tensors:
            array = self._array(place)
            self._tensors[name] = wrap(array, spec_of(array))
            if tracked is True:
                self._tensors[name].requires_grad_()
        return self._tensors[name]

    def _scalar(self, data: Any) -> Any:
        found = self._stored_array(data)
        if found.shape:
            raise self._format_error(f"the array {str(data)[:60]!r} should be a scalar")
        return found[()]

    def _int(self, text: Any) -> int:
        """An integer of thousands of digits, in hexadecimal ones."""
        if not isinstance(text, str) or not text.lstrip("-").startswith("0x"):
            raise self._format_error(f"{str(text)[:20]!r} is not an integer")
        return int(text, 16)

    def _float(self, text: Any) -> float:
        if text not in ("nan", "inf", "-inf"):
            raise self._format_error(f"{str(text)[:20]!r} is not a number")
        return float(text)

    def _complex_(self, pair: Any) -> complex:
        real, imag = (self.decode(x) for x in _require_items(pair, 2))
        return complex(float(real), float(imag))

    def _dtype(self, name: Any) -> Any:
        if not isinstance(name, str) or name not in NAMES:
            raise self._format_error(f"{str(name)[:20]!r} is not a dtype")
        return as_dtype(name)

    def _tuple(self, inner: Any) -> Any:
        return tuple(self.decode(x) for x in _require_list(inner))

    def _dict(self, inner: Any) -> Any:
        pairs = [_require_items(pair, 2) for pair in _require_list(inner)]
        if not all(k is None or isinstance(k, (str, int)) for k, _ in pairs):
            raise self._format_error("the key of a dict is a string or an integer")
        return {k: self.decode(v) for k, v in pairs}

    def _named(self, data: Any) -> Any:
        name, inner = _require_items(data, 2)
        kind = self._class(name)
        pairs = [_require_items(pair, 2) for pair in _require_list(inner)]
        if not is_named_tuple(kind) or list(kind._fields) != [field for field, _ in pairs]:  # type: ignore[attr-defined]
            raise self._format_error(f"{name[:80]} is no named tuple with the fields in the file")
        return tuple.__new__(kind, [self.decode(v) for _, v in pairs])  # runs nothing of the class

    def _node(self, data: Any) -> Any:
        name, rest, children = _require_items(data, 3)
        unflatten = registered_unflatten(self._class(name))
        if unflatten is None:
            raise self._format_error(f"{name[:80]} is not registered by pb.register_tree")
        parts = self.decode(rest), [self.decode(child) for child in _require_list(children)]
        try:
            return unflatten(*parts)
        except Exception as error:
            raise self._format_error(f"a {name[:80]} cannot be rebuilt: {str(error)[:80]}") from error

    def _class(self, name: Any) -> type:
        """A class by its name in a file."""
        if not isinstance(name, str):
            raise self._format_error("a class is given by its name")
        found = self._kinds.get(name) or find_class(name)
        if not isinstance(found, type):
            raise self._format_error(
                f"it holds a {name[:80]!r}, which is not known here.\n"
                "  Import the module that defines it first, or give the class: pb.load(path, kinds=[TheClass])"
            )
        return found


#: How the value of each tag is decoded. Only these can be reached from a file.
_READERS: dict[str, Callable[[TreeReader, Any], Any]] = {
    "array": TreeReader._array,
    "tensor": TreeReader._tensor,
    "scalar": TreeReader._scalar,
    "int": TreeReader._int,
    "float": TreeReader._float,
    "complex_": TreeReader._complex_,
    "dtype": TreeReader._dtype,
    "tuple": TreeReader._tuple,
    "dict": TreeReader._dict,
    "named": TreeReader._named,
    "node": TreeReader._node,
}


def _require_list(x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise TypeError("not a list")
    return x


def _require_items(x: Any, count: int) -> list[Any]:
    if not isinstance(x, list) or len(x) != count:
        raise TypeError(f"not a list of {count}")
    return x

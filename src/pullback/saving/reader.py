"""A structure as JSON values and the arrays of a file in, the tree out; no code of a file's choosing is run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays.dtypes import NAMES, as_dtype
from ..arrays.spec import spec_of
from ..arrays.tensor import wrap
from ..arrays.trees import registered
from ..errors import FormatError
from .writer import is_named_tuple

__all__ = ["Reader"]


class Reader:
    """Puts a tree together. Classes are looked for among `kinds` and in modules that are loaded, never imported."""

    def __init__(self, arrays: Mapping[str, Any], kinds: Iterable[type], what: str) -> None:
        self._arrays = arrays
        self._kinds = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in kinds}
        self._what = what
        self._tensors: dict[str, Any] = {}
        self._complex: dict[str, Any] = {}
        self.used: set[str] = set()

    def value(self, said: Any) -> Any:
        """One value of the tree from what the file says."""
        if said is None or isinstance(said, (bool, int, float, str)):
            return said
        if isinstance(said, list):
            return [self.value(x) for x in said]
        if len(said) != 1:
            raise self._wrong("a value is said by one word")
        ((word, inner),) = said.items()
        read: Callable[[Any], Any] | None = getattr(self, f"_{word}", None) if word in _WORDS else None
        if read is None:
            raise self._wrong(f"{word[:40]!r} is no word for a value")
        return read(inner)

    def _wrong(self, fault: str) -> FormatError:
        return FormatError(f"{self._what}: {fault}.")

    def _array(self, said: Any) -> Any:
        """An array by its name, or {"pairs": name} for complex numbers."""
        name = said.get("pairs") if isinstance(said, dict) else said
        if not isinstance(name, str) or name not in self._arrays:
            raise self._wrong(f"the structure names an array {str(name)[:60]!r} that is not there")
        self.used.add(name)
        return self._paired(name, self._arrays[name]) if isinstance(said, dict) else self._arrays[name]

    def _paired(self, name: str, pairs: Any) -> Any:
        """Complex numbers from pairs of real ones along the last axis."""
        if name not in self._complex:
            if pairs.dtype.name not in ("float32", "float64") or pairs.shape[-1:] != (2,):
                raise self._wrong(f"the array {name[:60]!r} should hold pairs of real numbers")
            wider = np.dtype(np.result_type(pairs.dtype, np.complex64))
            self._complex[name] = pairs.reshape(-1).view(wider).reshape(pairs.shape[:-1])
        return self._complex[name]

    def _tensor(self, said: Any) -> Any:
        place, tracked = _some(said, 2)
        name = str(place)
        if name not in self._tensors:
            array = self._array(place)
            self._tensors[name] = wrap(array, spec_of(array))
            if tracked is True:
                self._tensors[name].requires_grad_()
        return self._tensors[name]

    def _scalar(self, said: Any) -> Any:
        found = self._array(said)
        if found.shape:
            raise self._wrong(f"the array {str(said)[:60]!r} should be one number")
        return found[()]

    def _int(self, text: Any) -> int:
        """An integer of thousands of digits, in hexadecimal ones."""
        if not isinstance(text, str) or not text.lstrip("-").startswith("0x"):
            raise self._wrong(f"{str(text)[:20]!r} is no whole number")
        return int(text, 16)

    def _float(self, word: Any) -> float:
        if word not in ("nan", "inf", "-inf"):
            raise self._wrong(f"{str(word)[:20]!r} is no number")
        return float(word)

    def _complex_(self, pair: Any) -> complex:
        real, imag = (self.value(x) for x in _some(pair, 2))
        return complex(float(real), float(imag))

    def _dtype(self, name: Any) -> Any:
        if not isinstance(name, str) or name not in NAMES:
            raise self._wrong(f"{str(name)[:20]!r} is no dtype")
        return as_dtype(name)

    def _tuple(self, inner: Any) -> Any:
        return tuple(self.value(x) for x in _listed(inner))

    def _dict(self, inner: Any) -> Any:
        pairs = [_some(pair, 2) for pair in _listed(inner)]
        if not all(k is None or isinstance(k, (str, int)) for k, _ in pairs):
            raise self._wrong("the key of a dict is text or a whole number")
        return {k: self.value(v) for k, v in pairs}

    def _named(self, said: Any) -> Any:
        name, inner = _some(said, 2)
        kind = self._class(name)
        pairs = [_some(pair, 2) for pair in _listed(inner)]
        if not is_named_tuple(kind) or list(kind._fields) != [field for field, _ in pairs]:  # type: ignore[attr-defined]
            raise self._wrong(f"{name[:80]} is no named tuple with the fields in the file")
        return tuple.__new__(kind, [self.value(v) for _, v in pairs])  # runs nothing of the class

    def _node(self, said: Any) -> Any:
        name, rest, children = _some(said, 3)
        together = registered(self._class(name))
        if together is None:
            raise self._wrong(f"{name[:80]} is not registered by pb.register_tree")
        parts = self.value(rest), [self.value(child) for child in _listed(children)]
        try:
            return together(*parts)
        except Exception as error:
            raise self._wrong(f"a {name[:80]} cannot be put together: {str(error)[:80]}") from error

    def _class(self, name: Any) -> type:
        """A class by the name that a file says. Parts of this package are loaded for it; nothing else is."""
        if not isinstance(name, str):
            raise self._wrong("a class is said by its name")
        module, _, path = name.partition(":")
        found: Any = self._kinds.get(name) or _ours(module) or sys.modules.get(module)
        if name not in self._kinds:
            for step in path.split("."):  # by its dict: a module's lazy attributes would import at a file's wish
                found = getattr(found, "__dict__", {}).get(step)
        if not isinstance(found, type):
            raise self._wrong(
                f"it holds a {name[:80]!r}, which is not known here.\n"
                "  Import the module that defines it first, or give the class: pb.load(path, kinds=[TheClass])"
            )
        return found


_WORDS = frozenset(("array", "tensor", "scalar", "float", "complex_", "dtype", "tuple", "dict", "named", "node", "int"))


#: Where classes that go into files are defined. What is left out imports other packages.
_HOMES = ("pullback.arrays.", "pullback.ops.", "pullback.nn.", "pullback.optim.", "pullback.implicit.")


def _ours(module: str) -> Any:
    """A module of this package that has classes to be saved, which may not have been asked for yet."""
    if not module.startswith(_HOMES) or "__" in module:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _listed(x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise TypeError("no list")
    return x


def _some(x: Any, count: int) -> list[Any]:
    if not isinstance(x, list) or len(x) != count:
        raise TypeError(f"no list of {count}")
    return x

"""Finding the random generators, tensors and objects a function can reach: by closures, globals and attributes."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...arrays.picklable import Transformed
from ...arrays.tensor import Tensor

#: Types with a random stream of their own.
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
#: How far to look into what a function closes over: functions in functions, objects in lists.
_DEPTH = 3
#: Containers with more entries are taken for data; each call of a checkpoint would walk them.
_MAX_ENTRIES = 4096
#: Classes whose objects have no contents to search; a cache, since every call of a checkpoint searches.
_childless_types: set[type] = {int, float, complex, bool, str, bytes, type(None), np.ndarray, type, type(len)}


def is_generator(x: Any) -> bool:
    """Whether this is a generator whose state can be read: the operating system's has none."""
    return isinstance(x, GENERATORS) and not isinstance(x, random.SystemRandom)


class Reach:
    """The generators, tensors and user objects with attributes that were found, each once."""

    __slots__ = ("_generators", "_seen", "_tensors", "objects")

    def __init__(self, functions: Iterable[Any], leaves: Sequence[Any] = ()) -> None:
        self._generators: dict[int, Any] = {id(leaf): leaf for leaf in leaves if is_generator(leaf)}
        self._tensors: dict[int, Tensor] = {}
        self._seen: set[int] = set()
        self.objects: list[Any] = []
        for function in functions:
            self._search(function, _DEPTH)

    @property
    def generators(self) -> list[Any]:
        return list(self._generators.values())

    @property
    def tensors(self) -> list[Tensor]:
        return list(self._tensors.values())

    def _search(self, holder: Any, depth: int) -> None:
        self._seen.add(id(holder))
        if _is_user_object(holder):
            self.objects.append(holder)
        for value in _contents_of(holder):
            kind = type(value)
            if kind in _childless_types:
                continue
            if kind is Tensor:
                self._tensors[id(value)] = value
            elif is_generator(value):
                self._generators[id(value)] = value
            elif depth and id(value) not in self._seen:
                self._search(value, depth - 1)


def _is_user_object(holder: Any) -> bool:
    """Whether it is a user's object with attributes that a function may set; library objects keep caches in theirs, and
    our modules report it when one is set.
    """
    return (
        type(holder) is not FunctionType
        and not isinstance(holder, (type, ModuleType))
        and hasattr(holder, "__dict__")
        and not _is_library(type(holder))
    )


def _contents_of(holder: Any) -> Iterable[Any]:
    """What a function closes over and names; the contents of a partial, a method, a container, an object."""
    kind = type(holder)
    if kind is FunctionType:
        return _function_contents(holder)
    if kind is MethodType:
        return holder.__func__, holder.__self__
    if kind is Transformed:  # the function inside, as deep as it would be by itself
        return _function_contents(holder.func)
    if kind is functools.partial:
        return holder.func, *holder.args, *holder.keywords.values()
    if kind in (list, tuple, set, frozenset):
        return holder if len(holder) <= _MAX_ENTRIES else ()
    if kind is dict:
        return list(holder.values()) if len(holder) <= _MAX_ENTRIES else ()
    if isinstance(holder, (type, ModuleType)):
        return ()
    return _object_contents(holder)


def _object_contents(holder: Any) -> list[Any]:
    kind: Any = type(holder)
    found = list(vars(holder).values()) if hasattr(holder, "__dict__") else []
    slots = _slot_names(kind)
    if not slots and not hasattr(holder, "__dict__"):
        _childless_types.add(kind)
    return found + [getattr(holder, name) for name in slots if hasattr(holder, name)]


@functools.lru_cache(1024)
def _slot_names(kind: type) -> tuple[str, ...]:
    """Names of the slots of a user's class; our own classes and built-in ones are skipped."""
    if _is_library(kind):
        return ()
    found = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("__"))


def _function_contents(function: FunctionType) -> list[Any]:
    found = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty_cell(cell)]
    found += function.__defaults__ or ()
    if function.__kwdefaults__:
        found += function.__kwdefaults__.values()
    if not _is_library(function):
        names, known = _names_in_code(function.__code__), function.__globals__
        for value in [known[name] for name in names if name in known]:
            found += _module_contents(value, names) if type(value) is ModuleType else [value]
    return found


def _module_contents(module: ModuleType, names: frozenset[str]) -> list[Any]:
    """What the function may name as an attribute of a module, unless it is a library module."""
    if _is_library_name(module.__name__):
        return []
    known = vars(module)
    return [known[name] for name in names if name in known]


@functools.lru_cache(256)
def _names_in_code(code: CodeType) -> frozenset[str]:
    """The names that a function, or one inside of it, may look up: global ones and attributes."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*map(_names_in_code, inner))


def _is_empty_cell(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _is_library(thing: Any) -> bool:
    """Functions and classes of libraries hold no user generators."""
    return _is_library_name(str(getattr(thing, "__module__", None) or ""))


@functools.lru_cache(1024)
def _is_library_name(name: str) -> bool:
    first = name.partition(".")[0]
    return first in ("numpy", "scipy", "cupy", "pullback") or first in sys.stdlib_module_names - {"__main__"}

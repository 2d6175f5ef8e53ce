"""Function in, the random generators, tensors and objects that it can reach out: what it closes over, names, holds."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..arrays.remade import Transformed
from ..arrays.tensor import Tensor

__all__ = ["GENERATORS", "Reach", "is_generator"]

#: Objects that have a stream of random numbers of their own.
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
#: How far to look into what a function closes over: functions in functions, objects in lists.
_DEPTH = 3
#: Containers with more entries hold data; each call of a checkpoint would go through them.
_MANY = 4096
#: Classes whose objects hold nothing to look into; it grows, since every call of a checkpoint searches.
_hollow: set[type] = {int, float, complex, bool, str, bytes, type(None), np.ndarray, type, type(len)}


def is_generator(x: Any) -> bool:
    """Whether this is a generator whose state can be read: the operating system's has none."""
    return isinstance(x, GENERATORS) and not isinstance(x, random.SystemRandom)


class Reach:
    """The generators, tensors and objects with attributes of the user's found, each once."""

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
        if _is_users_object(holder):
            self.objects.append(holder)
        for value in _inside(holder):
            kind = type(value)
            if kind in _hollow:
                continue
            if kind is Tensor:
                self._tensors[id(value)] = value
            elif is_generator(value):
                self._generators[id(value)] = value
            elif depth and id(value) not in self._seen:
                self._search(value, depth - 1)


def _is_users_object(holder: Any) -> bool:
    """Whether it has attributes that a function may set; objects of libraries, ours too, keep caches in theirs, and
    modules tell when one is set.
    """
    return (
        type(holder) is not FunctionType
        and not isinstance(holder, (type, ModuleType))
        and hasattr(holder, "__dict__")
        and not _is_library(type(holder))
    )


def _inside(holder: Any) -> Iterable[Any]:
    """What a function closes over and names; the parts of a partial, a method, a container, an object of a class."""
    kind = type(holder)
    if kind is FunctionType:
        return _in_function(holder)
    if kind is MethodType:
        return holder.__func__, holder.__self__
    if kind is Transformed:  # the function inside, as deep as it would be by itself
        return _in_function(holder.func)
    if kind is functools.partial:
        return holder.func, *holder.args, *holder.keywords.values()
    if kind in (list, tuple, set, frozenset):
        return holder if len(holder) <= _MANY else ()
    if kind is dict:
        return list(holder.values()) if len(holder) <= _MANY else ()
    if isinstance(holder, (type, ModuleType)):
        return ()
    return _in_object(holder)


def _in_object(holder: Any) -> list[Any]:
    kind: Any = type(holder)
    found = list(vars(holder).values()) if hasattr(holder, "__dict__") else []
    slots = _slots(kind)
    if not slots and not hasattr(holder, "__dict__"):
        _hollow.add(kind)
    return found + [getattr(holder, name) for name in slots if hasattr(holder, name)]


@functools.lru_cache(1024)
def _slots(kind: type) -> tuple[str, ...]:
    """Names of the slots of a user's class; ours hold nothing of the user's, and built-in ones have none."""
    if _is_library(kind):
        return ()
    found = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("__"))


def _in_function(function: FunctionType) -> list[Any]:
    found = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    found += function.__defaults__ or ()
    if function.__kwdefaults__:
        found += function.__kwdefaults__.values()
    if not _is_library(function):
        names, known = _names(function.__code__), function.__globals__
        for value in [known[name] for name in names if name in known]:
            found += _in_module(value, names) if type(value) is ModuleType else [value]
    return found


def _in_module(module: ModuleType, names: frozenset[str]) -> list[Any]:
    """What the function may name as an attribute of a module, unless the module is a library's."""
    if _library_name(module.__name__):
        return []
    known = vars(module)
    return [known[name] for name in names if name in known]


@functools.lru_cache(256)
def _names(code: CodeType) -> frozenset[str]:
    """The names that a function, or one inside of it, may look up: global ones and attributes."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*map(_names, inner))


def _is_empty(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _is_library(thing: Any) -> bool:
    """Functions and classes of libraries hold no generators of the user's."""
    return _library_name(str(getattr(thing, "__module__", None) or ""))


@functools.lru_cache(1024)
def _library_name(name: str) -> bool:
    first = name.partition(".")[0]
    return first in ("numpy", "scipy", "cupy", "pullback") or first in sys.stdlib_module_names - {"__main__"}

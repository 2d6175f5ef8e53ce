"""Finding the random generators, tensors and objects a function can reach: by closures, globals and attributes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Sequence
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...arrays.closures import CONTAINERS, CodeNames, Walk, is_library
from ...arrays.tensor import Tensor

#: Types with a random stream of their own.
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
#: How far to look into what a function closes over: functions in functions, objects in lists.
_DEPTH = 3
#: Containers with more entries are taken for data; each call of a checkpoint would walk them.
_MAX_ENTRIES = 4096
#: Classes whose objects have no contents to search; a cache, since every call of a checkpoint searches.
_childless_types: set[type] = {int, float, complex, bool, str, bytes, type(None), np.ndarray, type}
#: Kinds whose contents are no attributes of theirs.
_WITHOUT_ATTRIBUTES = frozenset((FunctionType, MethodType, BuiltinMethodType, functools.partial, *CONTAINERS))


def is_generator(x: Any) -> bool:
    """Whether this is a generator whose state can be read: the operating system's has none."""
    return isinstance(x, GENERATORS) and not isinstance(x, random.SystemRandom)


class Reach(Walk):
    """The generators, tensors and user objects with attributes that were found, each once."""

    room = _MAX_ENTRIES

    def __init__(self, functions: Iterable[Any], leaves: Sequence[Any] = ()) -> None:
        Walk.__init__(self)
        self.generators: list[Any] = []
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []
        for generator in filter(is_generator, leaves):
            self.takes(generator)
        self.run(tuple(functions), _DEPTH)

    def takes(self, thing: Any) -> bool:
        kind = type(thing)
        if kind in _childless_types:
            return True
        if kind is not Tensor and not is_generator(thing):
            return False
        if id(thing) not in self.seen:
            self.seen[id(thing)] = thing
            (self.tensors if kind is Tensor else self.generators).append(thing)
        return True

    def global_names(self, function: Any, facts: CodeNames) -> Iterable[str]:
        return () if _is_of_library(function) else facts.globals

    def module_contents(self, module: ModuleType, name: str = "", facts: CodeNames | None = None) -> list[Any]:
        """What a function may name as an attribute of a module, unless it is a library module."""
        known = vars(module)
        named = () if facts is None or is_library(module.__name__, True, False) else facts.attributes
        return [known[name] for name in named if name in known]

    def contents_of(self, thing: Any) -> Iterable[Any]:
        """Also all attributes of objects, and of a user's own kinds of containers and partials."""
        kind: Any = type(thing)
        found = Walk.contents_of(self, thing)
        if kind in _WITHOUT_ATTRIBUTES or isinstance(thing, (type, ModuleType)):
            return found
        names = _slot_names(kind)
        attributes = [getattr(thing, name) for name in names if hasattr(thing, name)]
        if hasattr(thing, "__dict__"):
            attributes += vars(thing).values()
            # library objects keep caches in their attributes, and our modules report it when one is set
            self.objects += [] if _is_of_library(kind) else [thing]
        elif not names and not isinstance(thing, CONTAINERS):
            _childless_types.add(kind)
        return [*found, *attributes]


@functools.lru_cache(1024)
def _slot_names(kind: type) -> tuple[str, ...]:
    """Names of the slots of a user's class; our own classes and built-in ones are skipped."""
    if _is_of_library(kind):
        return ()
    found = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return tuple(name for name in names if not name.startswith("__"))


def _is_of_library(thing: Any) -> bool:
    """Functions and classes of libraries hold no user generators; of other installed packages they may."""
    return is_library(str(getattr(thing, "__module__", None) or ""), True, False)

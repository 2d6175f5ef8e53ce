"""Records what a function reads from outside itself: every place that its code, or the code of a reachable function,
can name.

Names come from bytecode, so what is looked up by a computed name (`getattr(x, "a" + "b")`, `globals()[...]`) is not
seen.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from types import CodeType, FunctionType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from ...arrays.buffers import unwrap_tracked
from ...arrays.closures import MISSING, CodeNames, Walk, content_of, is_library, names_in_code
from ...arrays.node import Hooks
from ...arrays.tensor import Tensor
from ...arrays.trees import registered_unflatten
from ...arrays.value import Value
from ...ops.replay.reach import GENERATORS
from ...ops.replay.streams import STREAMS, stream_of
from ...ops.user_calls import numpys_own
from ...transforms.control.captures import checksum
from .closure import ClosureSnapshot, iterator_position
from .locations import SlotLocation

#: Arrays of at most so many bytes are compared by content at each call.
LARGEST_GUARDED = 1 << 16
#: The most places that are watched; changes elsewhere are not noticed.
MOST_PLACES = 1 << 16

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, np.generic, np.dtype, CodeType)
#: Special methods, which Python calls implicitly, count as named, but not these, which run when no op does.
_NOT_CALLED_BY_OPS = frozenset(
    ("__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "__reduce__")
)
_GRADIENT = vars(Tensor)["_grad"]
_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter(range(0))), type(reversed([])), zip, map, filter,
    enumerate, itertools.count, itertools.cycle, itertools.chain, itertools.islice, itertools.repeat,
)  # fmt: skip


def snapshot_closure(*roots: Any) -> ClosureSnapshot:
    """What functions (and other objects, such as static arguments) read from outside, as far as Python can be
    inspected. Names that are found make more attributes count, so the walk is repeated until there are no new ones.
    """
    names: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    while True:
        walk = _ClosureWalk(names, stores)
        walk.run(roots)
        if walk.names == names:
            return walk.finish()
        names, stores = walk.names, walk.stores


class _ClosureWalk(Walk):
    """One walk with a set of attribute names that count, `wanted`; it records the places that it passes."""

    def __init__(self, names: frozenset[str], stores: frozenset[str]) -> None:
        Walk.__init__(self)
        self.found = ClosureSnapshot()
        self.room = MOST_PLACES
        self.wanted = names
        self.names: frozenset[str] = names
        self.stores: frozenset[str] = stores
        self.globals: frozenset[str] = frozenset()

    def finish(self) -> ClosureSnapshot:
        # a stream that other threads draw from would look as if this function did, so then it counts only where named
        if "random" in self.names | self.globals or threading.active_count() == 1:
            for stream in STREAMS:
                self.found.streams.append((stream.get, stream.get(), f"the global random stream of {stream.name}"))
        self.found.sums = [(array, checksum(array)) for array, *_ in self.found.large]
        self.found.held += self.seen.values()
        return self.found

    def takes(self, thing: Any) -> bool:
        return isinstance(thing, _PLAIN)

    def contents_of(self, thing: Any) -> Iterable[Any]:
        self.room -= 1
        thing = unwrap_tracked(thing)
        if isinstance(thing, Value):
            if type(thing) is Tensor and "grad" in self.wanted:
                self.found.slots.append((_GRADIENT, thing, SlotLocation(_GRADIENT, thing).get()))
            return ()
        if isinstance(thing, np.ndarray):
            return self._array_contents(thing)
        if isinstance(thing, functools.partial):
            self.items_of(thing.keywords)  # the dict itself may change
        if _is_sparse_matrix(thing):  # one of its classes is a dict whose keys are no items
            return self._attributes_of(thing)
        return Walk.contents_of(self, thing)

    def _array_contents(self, array: Any) -> list[Any]:
        if array.nbytes <= LARGEST_GUARDED:
            self.found.arrays.append((array, array.tobytes(), array.shape, array.dtype))
        else:
            self.found.large.append((array, array.shape, array.dtype))
        return list(array.ravel().tolist()) if array.dtype.hasobject else []

    def _watch_name(self, holder: Any, name: Any) -> list[Any]:
        """The value of a name, if it has one."""
        value = holder.get(name, MISSING)
        self.room -= 1
        if (own := numpys_own(value)) is not None:
            self.found.numpy.append((holder, name, own))
            return [own]
        self.found.names.append((holder, name, value))
        return [] if value is MISSING else [value]

    def items_of(self, container: Any) -> list[Any]:
        if len(container) > self.room:
            return []
        items = Walk.items_of(self, container)
        self.room -= len(items)
        keys = list(container) if isinstance(container, dict) else []
        if type(container) not in (tuple, frozenset):
            self.found.containers.append((container, keys, items))
        return items + [key for key in keys if type(key) is not str]

    def function_contents(self, function: FunctionType) -> list[Any]:
        found = [vars(function).get("__wrapped__")]
        if is_library(function.__module__):  # a library's: only what the user passed to it
            contents = map(content_of, function.__closure__ or ())
            return found + [x for x in contents if callable(x) or type(x) in (list, tuple) or _is_tree(x)]
        facts, known = names_in_code(function.__code__), function.__globals__
        self.names |= facts.attributes
        self.stores |= facts.stores
        self.globals |= facts.globals
        self.found.functions.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
        if function.__kwdefaults__:
            self.items_of(function.__kwdefaults__)
        self.found.cells += [(cell, content_of(cell)) for cell in function.__closure__ or ()]
        for name in facts.globals:
            if name in known or name in vars(builtins) or name in facts.stores:
                self._watch_name(known, name)
        found += Walk.function_contents(self, function)
        found += [sys.modules[name] for name in facts.imports if name in sys.modules]
        for name in self.wanted & vars(function).keys():
            found += self._watch_name(vars(function), name)
        return found

    def module_contents(self, module: ModuleType, name: str = "", facts: CodeNames | None = None) -> list[Any]:
        """Attributes that count; of a module that is a variable, those that are accessed on it."""
        known, library, found = vars(module), is_library(module.__name__), []
        names = self.wanted if facts is None else frozenset(b for a, b in facts.chains if a == name)
        for attribute in names & known.keys():
            (value,) = self._watch_name(known, attribute)
            if isinstance(value, ModuleType):
                found += [] if facts is None else self.module_contents(value, attribute, facts)
            elif not library or type(value) is type(os.environ):
                found.append(value)
        if module is os and "getenv" in names:
            found.append(os.environ)
        return found

    def object_contents(self, thing: Any) -> list[Any]:
        """Contents of objects of Python, NumPy and ours that hold others in a special way; else attributes."""
        if isinstance(thing, GENERATORS):
            state = stream_of(thing).get
            self.found.streams.append((state, state(), f"a random generator ({type(thing).__name__})"))
        elif isinstance(thing, ContextVar):
            self.found.variables.append((thing, thing.get(MISSING)))
            return [thing.get(None)]
        elif isinstance(thing, weakref.ref):
            self.found.targets.append((thing, thing()))
            return [thing()]
        elif isinstance(thing, (classmethod, staticmethod)):
            return [thing.__func__]
        elif isinstance(thing, property):
            return [thing.fget, thing.fset]
        elif isinstance(thing, functools.cached_property):
            return [thing.func]
        elif type(thing) is type(os.environ):
            return [vars(thing)["_data"]]
        elif isinstance(thing, Hooks):
            return [thing.entries]
        elif isinstance(thing, (GeneratorType, *_ITERATORS)):
            self.found.iterators.append((thing, iterator_position(thing)))
        else:
            return self._attributes_of(thing)
        return []

    def _attributes_of(self, thing: Any) -> list[Any]:
        kind = type(thing)
        attributes = getattr(thing, "__dict__", None)
        own: dict[str, Any] = attributes if isinstance(attributes, dict) else {}
        wrapped = own.get("__wrapped__")
        if wrapped is not None or is_library(kind.__module__, python=False):
            # a layer of ours: all of its settings and parameters; a sparse matrix of SciPy: its arrays
            is_whole = own is attributes and (_is_tree(thing) or _is_sparse_matrix(thing))
            return [wrapped, *(self.items_of(own) if is_whole else ())]
        # a mapping of the standard library holds its items in attributes that no code names
        whole = isinstance(thing, Mapping) and kind.__module__ in sys.stdlib_module_names
        # what a layer runs, whether it trains, and its hooks, are read by code of ours, which is not walked
        self.names |= {"forward"} if _is_tree(thing) else set()
        names = self.wanted | ({"training", "_hooks"} if _is_tree(thing) else set())
        found: list[Any] = []
        if own is attributes:
            for name in own.keys() if whole else names & own.keys():
                found += self._watch_name(own, name)
            for name in names - own.keys():
                if name in self.stores or any(name in vars(c) for c in kind.__mro__):
                    self._watch_name(own, name)
        found += self.class_contents(kind, frozenset(own))
        for base in kind.__mro__:
            for name in names & vars(base).keys():
                slot = vars(base)[name]
                if isinstance(slot, MemberDescriptorType):
                    value = SlotLocation(slot, thing).get()
                    self.found.slots.append((slot, thing, value))
                    found += [] if value is MISSING else [value]
        return found

    def class_contents(self, kind: type, own: frozenset[str] = frozenset()) -> list[Any]:
        """Attributes of a user's class and its bases; names that could come to shadow them are watched too."""
        if id(kind) in self.seen and own:
            return []
        self.seen[id(kind)] = kind
        found: list[Any] = []
        for base in kind.__mro__:
            if is_library(base.__module__):
                continue
            known = vars(base)
            self.found.classes[id(known)] = base
            self.found.held.append(known)
            special = [x for name, x in known.items() if name.startswith("__") and name not in _NOT_CALLED_BY_OPS]
            found += [x for x in special if isinstance(x, FunctionType)]
            for name in self.wanted:
                set_anew = base is kind and not own and name in self.stores  # on the class itself, by the function
                if set_anew or name in own or any(name in vars(c) for c in kind.__mro__):
                    found += self._watch_name(known, name)
        return found


def _is_sparse_matrix(x: Any) -> bool:
    """Whether this is a sparse matrix of SciPy, whose arrays are attributes."""
    return type(x).__module__.startswith("scipy.sparse._")


def _is_tree(x: Any) -> bool:
    return registered_unflatten(type(x)) is not None

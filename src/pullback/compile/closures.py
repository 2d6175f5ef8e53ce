"""A function in, what it reads from outside itself out: a changed global or closure is never answered by old code.

A function reads from *places*: variables of enclosing functions, global names, attributes (of objects, classes and
modules), items of containers, defaults. The walk below goes from the function to every place that its code, or the
code of a function within reach, can name, and notes what stands there by identity; of arrays, the content. It looks
at bytecode for names, so what is looked up by a computed name (`getattr(x, "a" + "b")`, `globals()[...]`) is not seen.
"""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import os
import random
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)  # fmt: skip
from typing import Any, NamedTuple

import numpy as np

from ..arrays.node import Hooks
from ..arrays.remade import Transformed
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, registered
from ..arrays.value import Value
from ..ops.specialise import owner_of
from ..ops.streams import STREAMS, same, stream_of
from .places import MISSING, CellPlace, ClassPlace, ItemPlace, Place, SlotPlace, content_of

__all__ = ["LARGEST_GUARDED", "MOST_PLACES", "Watched", "watched"]

#: Arrays of at most so many bytes are compared by content at each call, however they were read.
LARGEST_GUARDED = 1 << 16
#: So many places are watched at most; of what lies beyond, changes are not noticed.
MOST_PLACES = 1 << 16

_LIBRARIES = frozenset(("pullback", "numpy", "scipy", "optree", "cupy", "llvmlite", "ml_dtypes"))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, np.generic, np.dtype, CodeType)
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
#: Methods that Python calls without naming them are taken for named, but not these, which run when no op does.
_SELDOM = frozenset(("__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "__reduce__"))
_GRADIENT = vars(Tensor)["_grad"]


class Watched:
    """Places a function reads from and what stood there when it was traced; arrays with their content; what a run
    may draw from, random streams and iterators, whose state is compared around the trace alone.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.functions: list[tuple[FunctionType, Any, Any, Any]] = []
        self.names: list[tuple[Any, Any, Any]] = []  # also attributes of classes
        self.classes: dict[int, type] = {}  # by the ids of what holds their attributes
        self.containers: list[tuple[Any, list[Any], list[Any]]] = []
        self.parts: list[
            tuple[Any, Sequence[Any], list[tuple[Any, Any]]]
        ] = []  # containers with state among their items
        self.slots: list[tuple[Any, Any, Any]] = []
        self.variables: list[tuple[ContextVar[Any], Any]] = []
        self.targets: list[tuple[weakref.ref[Any], Any]] = []
        self.arrays: list[tuple[Any, bytes, Any, Any]] = []
        self.large: list[tuple[Any, Any, Any]] = []
        self.sums: list[tuple[Any, int]] = []  # of the large ones, to see whether a trace writes to them
        self.tensors: list[tuple[Tensor, Any]] = []
        self.streams: list[tuple[Callable[[], Any], Any, str]] = []
        self.iterators: list[tuple[Any, Any]] = []
        self.held: list[Any] = []

    def is_same(self) -> bool:
        """Whether all of it is still there. It runs at every call: what most functions have comes first."""
        for function, code, defaults, keywords in self.functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keywords
            ):
                return False
        for holder, name, value in self.names:
            if holder.get(name, MISSING) is not value:
                return False
        for cell, value in self.cells:
            if content_of(cell) is not value:
                return False
        return not self.checks or all(check() for check in self.checks)

    @functools.cached_property
    def checks(self) -> list[Callable[[], bool]]:
        """Checks of the kinds of places that there are besides variables, names and functions."""
        kinds = (
            (self.arrays, self._have_content), (self.containers, self._hold_the_same), (self.large, self._have_form),
            (self.parts, self._hold_the_rest), (self.slots, self._slots_are_same), (self.tensors, self._have_values),
            (self.variables, self._variables_are_same), (self.targets, self._targets_are_same),
        )  # fmt: skip
        return [check for rows, check in kinds if rows]

    def _have_content(self) -> bool:
        for array, content, shape, dtype in self.arrays:
            if array.tobytes() != content or array.shape != shape or array.dtype is not dtype:
                return False
        return True

    def _have_form(self) -> bool:
        return all(array.shape == shape and array.dtype is dtype for array, shape, dtype in self.large)

    def _hold_the_same(self) -> bool:
        return all(_holds(holder, keys, items) for holder, keys, items in self.containers)

    def _hold_the_rest(self) -> bool:
        return all(_holds_besides(holder, keys, rest) for holder, keys, rest in self.parts)

    def _slots_are_same(self) -> bool:
        return all(SlotPlace(slot, thing).get() is value for slot, thing, value in self.slots)

    def _variables_are_same(self) -> bool:
        return all(variable.get(MISSING) is value for variable, value in self.variables)

    def _targets_are_same(self) -> bool:
        return all(target() is value for target, value in self.targets)

    def _have_values(self) -> bool:
        return all(tensor.value is value for tensor, value in self.tensors)

    def forget(self, places: Sequence[Place]) -> None:
        """Stop watching places that the compiled function sets itself."""
        gone = {place.key for place in places}
        self.names = [row for row in self.names if self._place(row[0], row[1]).key not in gone]
        self.cells = [(c, v) for c, v in self.cells if CellPlace(c).key not in gone]
        self.slots = [(s, x, v) for s, x, v in self.slots if SlotPlace(s, x).key not in gone]
        loose = [c for c in self.containers if any(ItemPlace(c[0], k).key in gone for k in _keys(c))]
        self.containers = [c for c in self.containers if not any(c is other for other in loose)]
        for container in loose:
            holder, _, items = container
            rest = zip(_keys(container), items, strict=True)
            self.parts.append(
                (holder, _keys(container), [(k, x) for k, x in rest if ItemPlace(holder, k).key not in gone])
            )
        held = {id(x) for place in places for x in flatten(place.get())[0]}
        self.arrays = [row for row in self.arrays if id(row[0]) not in held]

    def guard_large(self, used: Sequence[Any]) -> None:
        """Have large arrays that are no inputs of the program compared by content: they were read in another way."""
        inputs = {id(x) for array in used for x in (array, owner_of(array))}
        for array, shape, dtype in self.large:
            if id(array) not in inputs and id(owner_of(array)) not in inputs:
                self.arrays.append((array, array.tobytes(), shape, dtype))

    def changes(self) -> Iterator[tuple[Place, Any]]:
        """The places where something else stands by now, each with what stood there."""
        for cell, value in self.cells:
            if content_of(cell) is not value:
                yield CellPlace(cell), value
        for holder, name, value in self.names:
            if holder.get(name, MISSING) is not value:
                yield self._place(holder, name), value
        for slot, thing, value in self.slots:
            if SlotPlace(slot, thing).get() is not value:
                yield SlotPlace(slot, thing), value
        for holder, keys, items in self.containers:
            if not _holds(holder, keys, items):
                yield from _changed_items(holder, keys, items)
        for holder, _, rest in self.parts:
            yield from ((ItemPlace(holder, k), x) for k, x in rest if ItemPlace(holder, k).get() is not x)

    def _place(self, holder: Any, name: Any) -> Place:
        kind = self.classes.get(id(holder))
        return ItemPlace(holder, name) if kind is None else ClassPlace(kind, name)

    def written(self) -> list[Any]:
        """Arrays whose content is not what it was."""
        small = [array for array, content, *_ in self.arrays if array.tobytes() != content]
        return small + [array for array, then in self.sums if _sum(array) != then]

    def drawn(self) -> str | None:
        """What was drawn from meanwhile, in words: a random stream or an iterator."""
        for state, then, name in self.streams:
            if not same(state(), then):
                return name
        moved = [thing for thing, then in self.iterators if _position(thing) != then]
        return f"an iterator ({type(moved[0]).__name__})" if moved else None

    @property
    def live(self) -> frozenset[int]:
        """The ids of arrays within reach, and of those whose memory they are views of."""
        arrays = [row[0] for row in (*self.arrays, *self.large)]
        return frozenset(id(x) for array in arrays for x in (array, owner_of(array)))


def _sum(array: Any) -> int:
    return 0 if array.dtype.hasobject else zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _keys(container: tuple[Any, list[Any], list[Any]]) -> Sequence[Any]:
    holder, keys, items = container
    return keys if isinstance(holder, dict) else range(len(items))


def _holds(holder: Any, keys: list[Any], items: list[Any]) -> bool:
    """Whether a container holds the very same things in the same order."""
    if len(holder) != len(items):
        return False
    try:
        if isinstance(holder, dict):
            return all(map(is_, holder.values(), items)) and all(map(is_, holder, keys))
        return all(map(is_, holder, items))
    except RuntimeError:  # another thread changes it
        return False


def _holds_besides(holder: Any, keys: Sequence[Any], rest: list[tuple[Any, Any]]) -> bool:
    """Whether a dict has its keys in the same order, a list its length, and both the very same things beside state."""
    in_order = len(holder) == len(keys) and (isinstance(holder, list) or all(map(is_, holder, keys)))
    return in_order and all(ItemPlace(holder, key).get() is item for key, item in rest)


def _changed_items(holder: Any, keys: list[Any], items: list[Any]) -> Iterator[tuple[Place, Any]]:
    if isinstance(holder, dict):
        then = dict(zip(keys, items, strict=True))
        for key in {**then, **holder}:
            if holder.get(key, MISSING) is not then.get(key, MISSING):
                yield ItemPlace(holder, key), then.get(key, MISSING)
    elif isinstance(holder, list):
        for i in range(max(len(holder), len(items))):
            before = items[i] if i < len(items) else MISSING
            if i >= len(holder) or holder[i] is not before:
                yield ItemPlace(holder, i), before


def watched(*roots: Any) -> Watched:
    """What functions (and other things, such as static arguments) read from outside, as far as Python can be looked
    into. Names found on the way make more attributes count, so the walk is repeated until there are no new ones.
    """
    names: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    while True:
        walk = _Walk(names, stores)
        walk.run(roots)
        if walk.names == names:
            walk.found.sums = [(array, _sum(array)) for array, *_ in walk.found.large]
            return walk.found
        names, stores = walk.names, walk.stores


class _Facts(NamedTuple):
    """What the code of a function, and of functions written in it, names: global names, attributes (and short texts,
    which `getattr` may be given), attributes of variables by the variable, modules that it imports.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    chains: frozenset[tuple[str, str]]
    imports: frozenset[str]
    stores: frozenset[str]


@functools.lru_cache(4096)
def _facts(code: CodeType) -> _Facts:
    names: set[str] = set()
    attributes: set[str] = set()
    chains: set[tuple[str, str]] = set()
    imports: set[str] = set()
    stores: set[str] = set()
    last: list[str] = []
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            last = [step.argval]
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(step.argval)
        elif "ATTR" in step.opname or step.opname == "LOAD_METHOD":
            attributes.add(step.argval)
            stores |= {step.argval} if step.opname == "STORE_ATTR" else set()
            chains |= {(name, step.argval) for name in last}
            last = [step.argval] if last else []
        elif step.opname == "STORE_GLOBAL":
            names.add(step.argval)
            stores.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            imports.add(step.argval)
        elif step.opname not in ("CACHE", "PUSH_NULL"):
            last = []
    attributes |= {c for c in code.co_consts if isinstance(c, str) and c.isidentifier() and len(c) < 40}
    inner = [_facts(c) for c in code.co_consts if isinstance(c, CodeType)]
    return _Facts(
        frozenset(names).union(*(f.globals for f in inner)),
        frozenset(attributes).union(*(f.attributes for f in inner)),
        frozenset(chains).union(*(f.chains for f in inner)),
        frozenset(imports).union(*(f.imports for f in inner)),
        frozenset(stores).union(*(f.stores for f in inner)),
    )


class _Walk:
    """One walk with a set of attribute names that count."""

    def __init__(self, names: frozenset[str], stores: frozenset[str]) -> None:
        self.found = Watched()
        self.wanted = names
        self.names: frozenset[str] = names
        self.stores: frozenset[str] = stores
        self.globals: frozenset[str] = frozenset()
        self._seen: set[int] = set()
        self._stack: list[Any] = []
        self._count = 0

    def run(self, roots: Sequence[Any]) -> None:
        self._stack += roots
        while self._stack and self._count < MOST_PLACES:
            thing = self._stack.pop()
            if isinstance(thing, _PLAIN) or id(thing) in self._seen:
                continue
            self._seen.add(id(thing))
            self.found.held.append(thing)  # ids stay valid while their objects live
            self._count += 1
            self._visit(thing)
        if "random" in self.names | self.globals or threading.active_count() == 1:
            self._streams()

    def _streams(self) -> None:
        """The global streams. Other threads may draw from them too, so then they count only where they are named."""
        for stream in STREAMS:
            self.found.streams.append((stream.get, stream.get(), f"the global random stream of {stream.name}"))

    def _visit(self, thing: Any) -> None:
        if isinstance(thing, Value):
            if type(thing) is Tensor and "grad" in self.wanted:
                self.found.slots.append((_GRADIENT, thing, SlotPlace(_GRADIENT, thing).get()))
        elif isinstance(thing, np.ndarray):
            self._array(thing)
        elif isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, MethodType):
            self._stack += [thing.__func__, thing.__self__]
        elif isinstance(thing, Transformed):
            self._stack.append(thing.func)
        elif isinstance(thing, functools.partial):
            self._stack += [thing.func, *thing.args, thing.keywords]
        elif isinstance(thing, BuiltinMethodType):
            self._stack += [] if isinstance(thing.__self__, ModuleType) else [thing.__self__]
        elif isinstance(thing, (dict, list, tuple, set, frozenset, deque)):
            self._container(thing)
        elif isinstance(thing, ModuleType):
            self._module(thing, self.wanted)
        elif isinstance(thing, type):
            self._class(thing, frozenset())
        else:
            self._special(thing)

    def _array(self, array: Any) -> None:
        if array.nbytes <= LARGEST_GUARDED:
            self.found.arrays.append((array, array.tobytes(), array.shape, array.dtype))
        else:
            self.found.large.append((array, array.shape, array.dtype))
        if array.dtype.hasobject:
            self._stack += array.ravel().tolist()

    def _name(self, holder: dict[Any, Any], name: Any, visit: bool = True) -> None:
        value = holder.get(name, MISSING)
        self.found.names.append((holder, name, value))
        self._count += 1
        if visit and value is not MISSING:
            self._stack.append(value)

    def _function(self, function: FunctionType) -> None:
        contents = [content_of(cell) for cell in function.__closure__ or ()]
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            self._stack.append(wrapped)
        if _is_library(function.__module__):  # of ours or another's: only what it was given by the user
            self._stack += [x for x in contents if callable(x) or type(x) in (list, tuple) or _is_tree(x)]
            return
        facts = _facts(function.__code__)
        self.names |= facts.attributes
        self.stores |= facts.stores
        self.globals |= facts.globals
        self.found.functions.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
        self._stack += [x for x in (function.__defaults__, function.__kwdefaults__) if x]
        self.found.cells += zip(function.__closure__ or (), contents, strict=True)
        for name in facts.globals:
            if name in function.__globals__ or name in vars(builtins) or name in facts.stores:
                self._name(function.__globals__, name, visit=False)
        variables = dict(zip(function.__code__.co_freevars, contents, strict=True))
        variables |= {name: function.__globals__[name] for name in facts.globals & function.__globals__.keys()}
        for name, value in variables.items():
            self._variable(name, value, facts)
        self._stack += [sys.modules[name] for name in facts.imports if name in sys.modules]
        for name in self.wanted & vars(function).keys():
            self._name(vars(function), name)

    def _variable(self, name: str, value: Any, facts: _Facts) -> None:
        """What a variable points at; of a module only the attributes that are named after it."""
        if not isinstance(value, ModuleType):
            self._stack.append(value)
            return
        self._module(value, frozenset(b for a, b in facts.chains if a == name), facts)

    def _module(self, module: ModuleType, names: frozenset[str], facts: _Facts | None = None) -> None:
        known = vars(module)
        library = _is_library(module.__name__)
        for name in names & known.keys():
            value = known[name]
            self._name(known, name, visit=not library and not isinstance(value, ModuleType))
            if isinstance(value, ModuleType) and facts is not None:
                self._module(value, frozenset(b for a, b in facts.chains if a == name), facts)
            elif type(value) is type(os.environ):
                self._stack.append(value)
        if module is os and "getenv" in names:
            self._stack.append(os.environ)

    def _container(self, thing: Any) -> None:
        room = MOST_PLACES - self._count
        if len(thing) > room:
            return
        self._count += len(thing)
        items = list(thing.values()) if isinstance(thing, dict) else list(thing)
        if type(thing) not in (tuple, frozenset):
            self.found.containers.append((thing, list(thing) if isinstance(thing, dict) else [], items))
        self._stack += items
        if isinstance(thing, dict):
            self._stack += [key for key in thing if type(key) is not str]

    def _special(self, thing: Any) -> None:
        """Things of Python, NumPy and ours that hold others in a way of their own; else an object with attributes."""
        if isinstance(thing, _GENERATORS):
            state = stream_of(thing).get
            self.found.streams.append((state, state(), f"a random generator ({type(thing).__name__})"))
        elif isinstance(thing, ContextVar):
            self.found.variables.append((thing, thing.get(MISSING)))
            self._stack.append(thing.get(None))
        elif isinstance(thing, weakref.ref):
            self.found.targets.append((thing, thing()))
            self._stack.append(thing())
        elif isinstance(thing, (classmethod, staticmethod)):
            self._stack.append(thing.__func__)
        elif isinstance(thing, property):
            self._stack += [thing.fget, thing.fset]
        elif isinstance(thing, functools.cached_property):
            self._stack.append(thing.func)
        elif type(thing) is type(os.environ):
            self._stack.append(vars(thing)["_data"])
        elif isinstance(thing, Hooks):
            self._stack.append(thing.entries)
        elif isinstance(thing, (GeneratorType, *_ITERATORS)):
            self.found.iterators.append((thing, _position(thing)))
        else:
            self._object(thing)

    def _object(self, thing: Any) -> None:
        kind = type(thing)
        attributes = getattr(thing, "__dict__", None)
        wrapped = attributes.get("__wrapped__") if isinstance(attributes, dict) else None
        if wrapped is not None or _is_library(kind.__module__, but_python=True):
            self._stack.append(wrapped)
            if isinstance(attributes, dict) and _is_tree(thing):
                self._container(attributes)  # a layer of ours: all of its settings and parameters
            return
        whole = isinstance(thing, Mapping) and kind.__module__ in sys.stdlib_module_names
        names = self.wanted | ({"training", "_hooks"} if _is_tree(thing) else set())
        if isinstance(attributes, dict):
            for name in attributes.keys() if whole else names & attributes.keys():
                self._name(attributes, name)
            own = frozenset(attributes)
            for name in names - own:
                if name in self.stores or any(name in vars(c) for c in kind.__mro__):
                    self._name(attributes, name)
        else:
            own = frozenset()
        self._class(kind, own)
        for base in kind.__mro__:
            for name in names & vars(base).keys():
                slot = vars(base)[name]
                if isinstance(slot, MemberDescriptorType):
                    value = SlotPlace(slot, thing).get()
                    self.found.slots.append((slot, thing, value))
                    self._stack += [] if value is MISSING else [value]

    def _class(self, kind: type, own: frozenset[str]) -> None:
        """Attributes of a class of the user's, in every class that it inherits from, and those that may come before."""
        bases = [c for c in kind.__mro__ if not _is_library(c.__module__)]
        if id(kind) in self._seen and own:
            return
        self._seen.add(id(kind))
        for base in bases:
            known = vars(base)
            self.found.classes[id(known)] = base
            self.found.held.append(known)
            for name in known:
                if name.startswith("__") and name not in _SELDOM and isinstance(known[name], FunctionType):
                    self._stack.append(known[name])
            for name in self.wanted:
                set_anew = base is kind and not own and name in self.stores  # on the class itself, by the function
                if set_anew or name in own or any(name in vars(c) for c in kind.__mro__):
                    self.found.names.append((known, name, known.get(name, MISSING)))
                    self._stack += [known[name]] if name in known else []
                    self._count += 1


_ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter(range(0))), type(reversed([])), zip, map, filter,
    enumerate, itertools.count, itertools.cycle, itertools.chain, itertools.islice, itertools.repeat,
)  # fmt: skip


def _position(iterator: Any) -> Any:
    """Where an iterator stands, in something that compares."""
    if isinstance(iterator, GeneratorType):
        return None if iterator.gi_frame is None else iterator.gi_frame.f_lasti
    try:
        _, *state = iterator.__reduce__()
    except TypeError:
        return None
    return repr([x for x in state if isinstance(x, int)] or [x for x in state[0] if isinstance(x, (int, float))])


def _is_tree(x: Any) -> bool:
    return registered(type(x)) is not None


@functools.lru_cache(4096)
def _is_library(name: str | None, but_python: bool = False) -> bool:
    """Whether code of a module is not the user's: that of installed packages does not change while a program runs."""
    root = (name or "").split(".")[0]
    if root in _LIBRARIES:
        return True
    if root in sys.stdlib_module_names or root == "__main__":
        return root != "__main__" and not but_python
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file

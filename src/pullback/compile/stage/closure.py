"""Snapshots of what a function reads from outside itself: after a change of a global or closure it is retraced.

A function reads from *places*: variables of enclosing functions, global names, attributes (of objects, classes and
modules), items of containers, defaults. The walk below goes from the function to every place that its code, or the
code of a reachable function, can name, and records its value by identity; of arrays, the content. Names come from
bytecode, so what is looked up by a computed name (`getattr(x, "a" + "b")`, `globals()[...]`) is not seen.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import os
import sys
import threading
import warnings
import weakref
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
from typing import Any

import numpy as np

from ...arrays.closures import MISSING, CodeNames, content_of, names_in_code
from ...arrays.memory_ledger import owner_of
from ...arrays.node import Hooks
from ...arrays.picklable import Transformed
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten, registered_unflatten
from ...arrays.value import Value
from ...ops.replay.reach import GENERATORS
from ...ops.replay.streams import STREAMS, is_same_state, stream_of
from ...transforms.control.captures import checksum
from .locations import CellLocation, ClassLocation, ItemLocation, Location, SlotLocation

#: Arrays of at most so many bytes are compared by content at each call.
LARGEST_GUARDED = 1 << 16
#: The most places that are watched; changes elsewhere are not noticed.
MOST_PLACES = 1 << 16

_LIBRARIES = frozenset(("pullback", "numpy", "scipy", "optree", "cupy", "llvmlite", "ml_dtypes"))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, np.generic, np.dtype, CodeType)
#: Special methods, which Python calls implicitly, count as named, but not these, which run when no op does.
_NOT_CALLED_BY_OPS = frozenset(
    ("__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "__reduce__")
)
_GRADIENT = vars(Tensor)["_grad"]


class ClosureSnapshot:
    """Places a function reads from and their values when it was traced; arrays with their content; what a run may draw
    from, random streams and iterators, whose state is compared around the trace alone.
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

    def is_unchanged(self) -> bool:
        """Whether nothing changed. It runs at every call: what most functions have comes first."""
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
        """The checks of other kinds of places than variables, names and functions, if there are any."""
        kinds = (
            (self.arrays, self._arrays_unchanged), (self.containers, self._containers_unchanged),
            (self.large, self._large_arrays_keep_spec),
            (self.parts, self._parts_unchanged), (self.slots, self._slots_unchanged),
            (self.tensors, self._tensors_unchanged),
            (self.variables, self._context_variables_unchanged), (self.targets, self._weak_targets_unchanged),
        )  # fmt: skip
        return [check for rows, check in kinds if rows]

    def _arrays_unchanged(self) -> bool:
        for array, content, shape, dtype in self.arrays:
            if array.tobytes() != content or array.shape != shape or array.dtype is not dtype:
                return False
        return True

    def _large_arrays_keep_spec(self) -> bool:
        return all(array.shape == shape and array.dtype is dtype for array, shape, dtype in self.large)

    def _containers_unchanged(self) -> bool:
        return all(_holds_same_items(holder, keys, items) for holder, keys, items in self.containers)

    def _parts_unchanged(self) -> bool:
        return all(_holds_besides(holder, keys, rest) for holder, keys, rest in self.parts)

    def _slots_unchanged(self) -> bool:
        return all(SlotLocation(slot, thing).get() is value for slot, thing, value in self.slots)

    def _context_variables_unchanged(self) -> bool:
        return all(variable.get(MISSING) is value for variable, value in self.variables)

    def _weak_targets_unchanged(self) -> bool:
        return all(target() is value for target, value in self.targets)

    def _tensors_unchanged(self) -> bool:
        return all(tensor.value is value for tensor, value in self.tensors)

    def forget(self, places: Sequence[Location]) -> None:
        """Stop watching places that the compiled function sets itself."""
        forgotten = {place.key for place in places}
        self.names = [row for row in self.names if self._place(row[0], row[1]).key not in forgotten]
        self.cells = [(c, v) for c, v in self.cells if CellLocation(c).key not in forgotten]
        self.slots = [(s, x, v) for s, x, v in self.slots if SlotLocation(s, x).key not in forgotten]
        loose = [c for c in self.containers if any(ItemLocation(c[0], k).key in forgotten for k in _container_keys(c))]
        self.containers = [c for c in self.containers if not any(c is other for other in loose)]
        for container in loose:
            holder, _, items = container
            keys = _container_keys(container)
            rest = [(k, x) for k, x in zip(keys, items, strict=True) if ItemLocation(holder, k).key not in forgotten]
            self.parts.append((holder, keys, rest))
        state_leaves = {id(x) for place in places for x in flatten(place.get())[0]}
        self.arrays = [row for row in self.arrays if id(row[0]) not in state_leaves]

    def guard_large(self, used: Sequence[Any]) -> None:
        """Compare large arrays that are no inputs of the program by content: they were read in another way."""
        inputs = {id(x) for array in used for x in (array, owner_of(array))}
        for array, shape, dtype in self.large:
            if id(array) not in inputs and id(owner_of(array)) not in inputs:
                self.arrays.append((array, array.tobytes(), shape, dtype))

    def changes(self) -> Iterator[tuple[Location, Any]]:
        """The places that have changed, each with its old value."""
        for cell, value in self.cells:
            if content_of(cell) is not value:
                yield CellLocation(cell), value
        for holder, name, value in self.names:
            if holder.get(name, MISSING) is not value:
                yield self._place(holder, name), value
        for slot, thing, value in self.slots:
            if SlotLocation(slot, thing).get() is not value:
                yield SlotLocation(slot, thing), value
        for holder, keys, items in self.containers:
            if not _holds_same_items(holder, keys, items):
                yield from _find_changed_items(holder, keys, items)
        for holder, _, rest in self.parts:
            yield from ((ItemLocation(holder, k), x) for k, x in rest if ItemLocation(holder, k).get() is not x)

    def _place(self, holder: Any, name: Any) -> Location:
        kind = self.classes.get(id(holder))
        return ItemLocation(holder, name) if kind is None else ClassLocation(kind, name)

    def overwritten_arrays(self) -> list[Any]:
        """Arrays whose content has changed."""
        small = [array for array, content, *_ in self.arrays if array.tobytes() != content]
        return small + [array for array, then in self.sums if checksum(array) != then]

    def drawn_source(self) -> str | None:
        """A name for what was drawn from since: a random stream or an iterator."""
        for state, then, name in self.streams:
            if not is_same_state(state(), then):
                return name
        advanced = [thing for thing, then in self.iterators if _iterator_position(thing) != then]
        return f"an iterator ({type(advanced[0]).__name__})" if advanced else None

    @property
    def live(self) -> frozenset[int]:
        """The ids of reachable arrays, and of those whose memory they are views of."""
        arrays = [row[0] for row in (*self.arrays, *self.large)]
        return frozenset(id(x) for array in arrays for x in (array, owner_of(array)))


def _container_keys(container: tuple[Any, list[Any], list[Any]]) -> Sequence[Any]:
    holder, keys, items = container
    return keys if isinstance(holder, dict) else range(len(items))


def _holds_same_items(holder: Any, keys: list[Any], items: list[Any]) -> bool:
    """Whether a container holds the same objects in the same order."""
    if len(holder) != len(items):
        return False
    try:
        if isinstance(holder, dict):
            return all(map(is_, holder.values(), items)) and all(map(is_, holder, keys))
        return all(map(is_, holder, items))
    except RuntimeError:  # another thread changes it
        return False


def _holds_besides(holder: Any, keys: Sequence[Any], rest: list[tuple[Any, Any]]) -> bool:
    """Whether a dict has its keys in the same order, a list its length, and both the same objects besides state."""
    in_order = len(holder) == len(keys) and (isinstance(holder, list) or all(map(is_, holder, keys)))
    return in_order and all(ItemLocation(holder, key).get() is item for key, item in rest)


def _find_changed_items(holder: Any, keys: list[Any], items: list[Any]) -> Iterator[tuple[Location, Any]]:
    if isinstance(holder, dict):
        then = dict(zip(keys, items, strict=True))
        for key in {**then, **holder}:
            if holder.get(key, MISSING) is not then.get(key, MISSING):
                yield ItemLocation(holder, key), then.get(key, MISSING)
    elif isinstance(holder, list):
        for i in range(max(len(holder), len(items))):
            before = items[i] if i < len(items) else MISSING
            if i >= len(holder) or holder[i] is not before:
                yield ItemLocation(holder, i), before


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
            walk.found.sums = [(array, checksum(array)) for array, *_ in walk.found.large]
            return walk.found
        names, stores = walk.names, walk.stores


class _ClosureWalk:
    """One walk with a set of attribute names that count."""

    def __init__(self, names: frozenset[str], stores: frozenset[str]) -> None:
        self.found = ClosureSnapshot()
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
        # a stream that other threads draw from would look as if this function did
        if "random" in self.names | self.globals or threading.active_count() == 1:
            self._watch_global_streams()

    def _watch_global_streams(self) -> None:
        """Watch the global streams. Other threads may draw from them too, so then they count only where named."""
        for stream in STREAMS:
            self.found.streams.append((stream.get, stream.get(), f"the global random stream of {stream.name}"))

    def _visit(self, thing: Any) -> None:
        if isinstance(thing, Value):
            if type(thing) is Tensor and "grad" in self.wanted:
                self.found.slots.append((_GRADIENT, thing, SlotLocation(_GRADIENT, thing).get()))
        elif isinstance(thing, np.ndarray):
            self._visit_array(thing)
        elif isinstance(thing, FunctionType):
            self._visit_function(thing)
        elif isinstance(thing, MethodType):
            self._stack += [thing.__func__, thing.__self__]
        elif isinstance(thing, Transformed):
            self._stack.append(thing.func)
        elif isinstance(thing, functools.partial):
            self._stack += [thing.func, *thing.args, thing.keywords]
        elif isinstance(thing, BuiltinMethodType):
            self._stack += [] if isinstance(thing.__self__, ModuleType) else [thing.__self__]
        elif isinstance(thing, (dict, list, tuple, set, frozenset, deque)):
            self._visit_container(thing)
        elif isinstance(thing, ModuleType):
            self._visit_module(thing, self.wanted)
        elif isinstance(thing, type):
            self._visit_class(thing, frozenset())
        else:
            self._visit_special(thing)

    def _visit_array(self, array: Any) -> None:
        if array.nbytes <= LARGEST_GUARDED:
            self.found.arrays.append((array, array.tobytes(), array.shape, array.dtype))
        else:
            self.found.large.append((array, array.shape, array.dtype))
        if array.dtype.hasobject:
            self._stack += array.ravel().tolist()

    def _watch_name(self, holder: dict[Any, Any], name: Any, visit: bool = True) -> None:
        value = holder.get(name, MISSING)
        self.found.names.append((holder, name, value))
        self._count += 1
        if visit and value is not MISSING:
            self._stack.append(value)

    def _visit_function(self, function: FunctionType) -> None:
        contents = [content_of(cell) for cell in function.__closure__ or ()]
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            self._stack.append(wrapped)
        if _is_library(function.__module__):  # a library's: only what the user passed to it
            self._stack += [x for x in contents if callable(x) or type(x) in (list, tuple) or _is_tree(x)]
            return
        facts = names_in_code(function.__code__)
        self.names |= facts.attributes
        self.stores |= facts.stores
        self.globals |= facts.globals
        self.found.functions.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))
        self._stack += [x for x in (function.__defaults__, function.__kwdefaults__) if x]
        self.found.cells += zip(function.__closure__ or (), contents, strict=True)
        for name in facts.globals:
            if name in function.__globals__ or name in vars(builtins) or name in facts.stores:
                self._watch_name(function.__globals__, name, visit=False)
        variables = dict(zip(function.__code__.co_freevars, contents, strict=True))
        variables |= {name: function.__globals__[name] for name in facts.globals & function.__globals__.keys()}
        for name, value in variables.items():
            self._visit_variable(name, value, facts)
        self._stack += [sys.modules[name] for name in facts.imports if name in sys.modules]
        for name in self.wanted & vars(function).keys():
            self._watch_name(vars(function), name)

    def _visit_variable(self, name: str, value: Any, facts: CodeNames) -> None:
        """Visit the value of a variable; of a module only the attributes that are accessed on it."""
        if not isinstance(value, ModuleType):
            self._stack.append(value)
            return
        self._visit_module(value, frozenset(b for a, b in facts.chains if a == name), facts)

    def _visit_module(self, module: ModuleType, names: frozenset[str], facts: CodeNames | None = None) -> None:
        known = vars(module)
        library = _is_library(module.__name__)
        for name in names & known.keys():
            value = known[name]
            self._watch_name(known, name, visit=not library and not isinstance(value, ModuleType))
            if isinstance(value, ModuleType) and facts is not None:
                self._visit_module(value, frozenset(b for a, b in facts.chains if a == name), facts)
            elif type(value) is type(os.environ):
                self._stack.append(value)
        if module is os and "getenv" in names:
            self._stack.append(os.environ)

    def _visit_container(self, thing: Any) -> None:
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

    def _visit_special(self, thing: Any) -> None:
        """Visit objects of Python, NumPy and ours that hold others in a special way; else an object with attributes."""
        if isinstance(thing, GENERATORS):
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
            self.found.iterators.append((thing, _iterator_position(thing)))
        else:
            self._visit_object(thing)

    def _visit_object(self, thing: Any) -> None:
        kind = type(thing)
        attributes = getattr(thing, "__dict__", None)
        wrapped = attributes.get("__wrapped__") if isinstance(attributes, dict) else None
        if wrapped is not None or _is_library(kind.__module__, except_python=True):
            self._stack.append(wrapped)
            if isinstance(attributes, dict) and _is_tree(thing):
                self._visit_container(attributes)  # a layer of ours: all of its settings and parameters
            return
        # a mapping of the standard library holds its items in attributes that no code names
        whole = isinstance(thing, Mapping) and kind.__module__ in sys.stdlib_module_names
        # whether a layer trains, and its hooks, are read by code of ours, which is not walked
        names = self.wanted | ({"training", "_hooks"} if _is_tree(thing) else set())
        if isinstance(attributes, dict):
            for name in attributes.keys() if whole else names & attributes.keys():
                self._watch_name(attributes, name)
            own = frozenset(attributes)
            for name in names - own:
                if name in self.stores or any(name in vars(c) for c in kind.__mro__):
                    self._watch_name(attributes, name)
        else:
            own = frozenset()
        self._visit_class(kind, own)
        for base in kind.__mro__:
            for name in names & vars(base).keys():
                slot = vars(base)[name]
                if isinstance(slot, MemberDescriptorType):
                    value = SlotLocation(slot, thing).get()
                    self.found.slots.append((slot, thing, value))
                    self._stack += [] if value is MISSING else [value]

    def _visit_class(self, kind: type, own: frozenset[str]) -> None:
        """Visit attributes of a user's class and its bases, and watch names that could come to shadow them."""
        bases = [c for c in kind.__mro__ if not _is_library(c.__module__)]
        if id(kind) in self._seen and own:
            return
        self._seen.add(id(kind))
        for base in bases:
            known = vars(base)
            self.found.classes[id(known)] = base
            self.found.held.append(known)
            for name in known:
                if name.startswith("__") and name not in _NOT_CALLED_BY_OPS and isinstance(known[name], FunctionType):
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


def _iterator_position(iterator: Any) -> Any:
    """The position of an iterator, as something comparable; equal to nothing where it cannot be known."""
    if isinstance(iterator, GeneratorType):
        return None if iterator.gi_frame is None else iterator.gi_frame.f_lasti
    try:
        with warnings.catch_warnings():  # from Python 3.12 on for those of itertools, which lose it in 3.14
            warnings.simplefilter("ignore", DeprecationWarning)
            _, *state = iterator.__reduce__()
    except TypeError:
        return object()
    return repr([x for x in state if isinstance(x, int)] or [x for x in state[0] if isinstance(x, (int, float))])


def _is_tree(x: Any) -> bool:
    return registered_unflatten(type(x)) is not None


@functools.lru_cache(4096)
def _is_library(name: str | None, except_python: bool = False) -> bool:
    """Whether a module is not the user's: code of installed packages does not change while a program runs."""
    root = (name or "").split(".")[0]
    if root in _LIBRARIES:
        return True
    if root in sys.stdlib_module_names or root == "__main__":
        return root != "__main__" and not except_python
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file

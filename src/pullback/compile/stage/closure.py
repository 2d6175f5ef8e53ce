"""What a compiled function read from outside itself when it was traced, to compare at each call: after a change of a
global or closure it is retraced.

A function reads from *places*: variables of enclosing functions, global names, attributes (of objects, classes and
modules), items of containers, defaults. Each is recorded with its value by identity; of arrays, the content.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from operator import is_
from types import CellType, FunctionType, GeneratorType
from typing import Any

from ...arrays.closures import MISSING, content_of
from ...arrays.memory_ledger import owner_of
from ...arrays.tensor import Tensor
from ...arrays.trees import flatten
from ...ops.replay.streams import is_same_state
from ...ops.user_calls import numpys_own
from ...transforms.control.captures import checksum
from .locations import CellLocation, ClassLocation, ContentLocation, ItemLocation, Location, SlotLocation

#: So many comparisons are made before code is generated for them, and so many places have code.
_CALLS_BEFORE_CODE, _MOST_COMPARED = 4, 256


class ClosureSnapshot:
    """Places a function reads from and their values when it was traced; arrays with their content; what a run may draw
    from, random streams and iterators, whose state is compared around the trace alone.
    """

    def __init__(self) -> None:
        self.cells: list[tuple[CellType, Any]] = []
        self.functions: list[tuple[FunctionType, Any, Any, Any]] = []
        self.names: list[tuple[Any, Any, Any]] = []  # also attributes of classes
        self.numpy: list[tuple[Any, Any, Any]] = []  # those of NumPy's functions that others stand for at times
        self.classes: dict[int, type] = {}  # by the ids of what holds their attributes
        self.containers: list[tuple[Any, list[Any], list[Any]]] = []
        # containers with state among their items
        self.parts: list[tuple[Any, Sequence[Any], list[tuple[Any, Any]]]] = []
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
        self._compare: Callable[[], bool] | None = None
        self._asked = 0

    def is_unchanged(self) -> bool:
        """Whether nothing changed. It runs at every call: what most functions have comes first."""
        compare = self._compare or self._choose_comparison()
        try:
            if not compare():
                return False
        except (KeyError, ValueError):  # a name is gone, or a variable unbound
            return False
        return not self.checks or all(check() for check in self.checks)

    def _choose_comparison(self) -> Callable[[], bool]:
        """Code is generated where it pays: for a function that is called again and reads no more than a few places."""
        self._asked += 1
        if self._asked <= _CALLS_BEFORE_CODE:
            return self._compare_rows
        count = len(self.functions) + len(self.names) + len(self.cells) + len(self.containers)
        self._compare = _generate_comparison(self) if count <= _MOST_COMPARED else self._compare_rows
        return self._compare

    def _compare_rows(self) -> bool:
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
        return all(_holds_same_items(*row) for row in self.containers)

    @functools.cached_property
    def checks(self) -> list[Callable[[], bool]]:
        """The checks of rarer kinds of places, if there are any."""
        kinds: tuple[tuple[Sequence[Any], Callable[[], bool]], ...] = (
            (self.arrays, self._arrays_unchanged),
            (self.numpy, lambda: all(numpys_own(x.get(name)) is value for x, name, value in self.numpy)),
            (self.large, lambda: all(x.shape == shape and x.dtype is dtype for x, shape, dtype in self.large)),
            (self.parts, lambda: all(_holds_besides(*row) for row in self.parts)),
            (self.slots, lambda: all(SlotLocation(slot, x).get() is value for slot, x, value in self.slots)),
            (self.tensors, lambda: all(tensor.value is value for tensor, value in self.tensors)),
            (self.variables, lambda: all(variable.get(MISSING) is value for variable, value in self.variables)),
            (self.targets, lambda: all(target() is value for target, value in self.targets)),
        )
        return [check for rows, check in kinds if rows]

    def _arrays_unchanged(self) -> bool:
        for array, content, shape, dtype in self.arrays:
            if array.tobytes() != content or array.shape != shape or array.dtype is not dtype:
                return False
        return True

    def forget(self, places: Sequence[Location]) -> None:
        """Stop watching places that the compiled function sets itself."""
        self._compare = None
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
        for holder, name, value in self.numpy:
            if numpys_own(holder.get(name)) is not value:
                yield self._place(holder, name), value
        for slot, thing, value in self.slots:
            if SlotLocation(slot, thing).get() is not value:
                yield SlotLocation(slot, thing), value
        for holder, keys, items in self.containers:
            if not _holds_same_items(holder, keys, items):
                yield from _find_changed_items(holder, keys, items)
        for holder, _, rest in self.parts:
            yield from ((ItemLocation(holder, k), x) for k, x in rest if ItemLocation(holder, k).get() is not x)

    def changed_places(self) -> dict[Any, tuple[Location, Any]]:
        """The places that have changed, and sets and deques, each with what it holds now, by their keys."""
        return {place.key: (place, place.get()) for place, _ in self._changes_and_contents()}

    def rewind(self, to: Mapping[Any, tuple[Location, Any]]) -> None:
        """Put everything back to what `changed_places` found."""
        for place, was in list(self._changes_and_contents()):
            place.put(to[place.key][1] if place.key in to else was)
        for place, value in to.values():
            if not isinstance(place, ContentLocation) and place.get() is not value:
                place.put(value)

    def _changes_and_contents(self) -> Iterator[tuple[Location, Any]]:
        yield from self.changes()
        for holder, _, items in self.containers:
            # what is put back into a set may come in another order
            if holder != set(items) if isinstance(holder, set) else isinstance(holder, deque) and [*holder] != items:
                yield ContentLocation(holder), items

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
        advanced = [thing for thing, then in self.iterators if iterator_position(thing) != then]
        return f"an iterator ({type(advanced[0]).__name__})" if advanced else None

    @property
    def live(self) -> frozenset[int]:
        """The ids of reachable arrays, and of those whose memory they are views of."""
        arrays = [row[0] for row in (*self.arrays, *self.large)]
        return frozenset(id(x) for array in arrays for x in (array, owner_of(array)))


def _generate_comparison(of: ClosureSnapshot) -> Callable[[], bool]:
    """A function that compares variables, names, functions and items with their values, written out: a third of the
    time that loops over them take.
    """
    known: dict[int, tuple[str, Any]] = {}

    def call(thing: Any) -> str:
        return known.setdefault(id(thing), (f"v{len(known)}", thing))[0]

    terms = []
    for function, *facts in of.functions:
        attributes = zip(("__code__", "__defaults__", "__kwdefaults__"), facts, strict=True)
        terms += [f"{call(function)}.{attribute} is {call(value)}" for attribute, value in attributes]
    for holder, name, value in of.names:
        found = f"{call(holder)}[{call(name)}] is {call(value)}"
        terms.append(f"{call(name)} not in {call(holder)}" if value is MISSING else found)
    for cell, value in of.cells:
        found = f"{call(content_of)}({call(cell)})" if value is MISSING else f"{call(cell)}.cell_contents"
        terms.append(f"{found} is {call(value)}")
    for holder, keys, items in of.containers:
        if type(holder) in (dict, list) and not items:
            terms.append(f"not {call(holder)}")
        else:
            terms.append(f"{call(_holds_same_items)}({call(holder)}, {call(keys)}, {call(items)})")
    make = _compile_comparison(" and ".join(terms) or "True", len(known))
    return make(*(thing for _, thing in known.values()))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=256)
def _compile_comparison(text: str, count: int) -> Callable[..., Any]:
    """Functions that read the same number of places share their code."""
    names: dict[str, Any] = {}
    given = ", ".join(f"v{i}" for i in range(count))
    exec(f"def make({given}):\n    def compare():\n        return {text}\n    return compare", names)
    return names["make"]  # type: ignore[no-any-return]


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


def iterator_position(iterator: Any) -> Any:
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

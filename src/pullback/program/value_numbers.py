"""Numbers for the values of a program, equal for values that are computed in the same way from the inputs.

Traces of one function share a table, so that a value of one is recognized in another. What a trace reads from outside
is known by what it is, since a compiled function reads it again, when it may hold something else; what the function
makes of numbers alone is made again by each trace, and known by its content; and what it computes from values of the
transforms around it is computed again too, and known by how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from operator import attrgetter
from types import FunctionType
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.closures import content_of
from ..arrays.exchange import to_numpy
from ..arrays.memory_ledger import owner_of
from ..arrays.node import Node
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from .constants import Constants
from .fingerprint import IncomparableError, content_key, program_key
from .ir import Equation, Program, Symbol

#: What was computed how often by now, and the number it has.
Table = dict[Any, int]


#: How far a tape is followed for a value that a trace captured: further steps are older than the trace.
_MOST_NODES = 256


class _Itself:
    """A thing as a key, equal to itself alone; held, so that no other thing comes to lie where it lay."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


def _compares_by_value(x: Any) -> bool:
    if isinstance(x, Value) or getattr(type(x), "__eq__", None) is object.__eq__:
        return False
    try:
        hash(x)
    except TypeError:
        return False
    return True


@dataclass(slots=True)
class ValueNumbers:
    """The numbers of one trace, whose equations are still being appended to. `was_made` tells of a tensor whether the
    traced function made it, of numbers alone.
    """

    table: Table
    inputs: Sequence[Symbol]
    equations: Sequence[Equation]
    constants: Constants
    was_made: Callable[[Tensor], bool]
    _known: dict[int, Any] = field(default_factory=dict)
    _repeated: dict[Any, int] = field(default_factory=dict)
    _next: int = 0
    _open: list[FunctionType] = field(default_factory=list)
    _nodes: dict[int, Any] = field(default_factory=dict)
    _held: list[Node] = field(default_factory=list)  # while their ids are keys

    def of(self, x: Any) -> Any:
        """The number of a symbol, or a key of anything else that an equation may read."""
        if not self._known:
            self._known.update((id(s), ("input", i)) for i, s in enumerate(self.inputs))
        while self._next < len(self.equations):
            self._next += 1
            self._enter(self.equations[self._next - 1])
        return self._key(x)

    def _enter(self, e: Equation) -> None:
        static = tuple((name, self._static_key(value)) for name, value in sorted(e.static.items()))
        key: Any = (_Itself(e.op), tuple(map(self._key, e.args)), static)
        if not e.effects.merge:  # a draw from a stream is another one each time, the first of one trace that of another
            self._repeated[key] = self._repeated.get(key, 0) + 1
            key = (key, self._repeated[key])
        number = self.table.setdefault(key, len(self.table))
        self._known.update((id(s), (number, i)) for i, s in enumerate(e.results))

    def _key(self, x: Any) -> Any:
        if id(x) in self._known:
            return self._known[id(x)]
        try:
            return self._constant_key(x)
        except IncomparableError:
            return _Itself(x)

    def _constant_key(self, x: Any) -> Any:
        """The key of what the trace did not compute."""
        if type(x) is Tensor:
            origin = self.constants.origin(x)
            if x.node is not None or not is_array(x.value) or (origin is not x and not self.was_made(origin)):
                if x.node is not None and x.node.rule is not None and is_array(x.value):  # computed anew by each trace
                    return self._node_key(x.node), content_key(to_numpy(x.value, "jit"))
                return self._node_key(x.node), self._outer_key(x.value)  # which its copies share
            return Tensor, content_key(to_numpy(x.value, "jit"))
        if isinstance(x, Value):
            return self._outer_key(x)
        if not is_array(x):
            return content_key(x)
        if not self.constants.is_live(x):
            return content_key(to_numpy(x, "jit"))
        # a view of it may be made by each trace
        place = x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr
        return _Itself(owner_of(x)), place, x.shape, x.strides, x.dtype.str

    def _outer_key(self, x: Any) -> Any:
        """The key of what lies in a tensor, or of a value of a transform around the trace."""
        if type(x) is Tensor:
            return self._node_key(x.node), self._outer_key(x.value)
        if type(x) is Symbol:
            decisions = x.scope.decisions
            if decisions is None or not x.scope.open or decisions.numbers is self:
                return _Itself(x)
            return _Itself(x.scope), decisions.numbers.of(x)
        if not isinstance(x, Value) or not x.is_its_parts:
            return _Itself(x)
        axis = getattr(x, "axis", None)  # of a batch
        return type(x), _Itself(x.scope), axis, tuple(map(self._part_key, x.parts()))

    def _part_key(self, x: Any) -> Any:
        """The key of what a dual or a batch is made of; numbers that it was computed with are computed anew."""
        return self._outer_key(x) if isinstance(x, Value) else self._key(x)

    def _node_key(self, start: Node | None) -> Any:
        """The key of a step on a tape: two are equal that take the same ones by the same rule, on equal values."""
        if start is None:
            return None
        order: list[Node] = []
        waiting = [start]
        while waiting and len(order) < _MOST_NODES:
            node = waiting.pop()
            if id(node) not in self._nodes:
                order.append(node)
                waiting += node.parents
        for node in sorted({id(n): n for n in order}.values(), key=attrgetter("order")):
            rule, parents = node.rule, [self._nodes.get(id(parent)) for parent in node.parents]
            key: Any = _Itself(node)
            if rule is not None and node.hooks is None and None not in parents:
                key = self.table.setdefault((_Itself(rule), *parents), len(self.table))
            self._nodes[id(node)] = key
            self._held.append(node)
        return self._nodes[id(start)]

    def _static_key(self, x: Any) -> Any:
        """The key of a static parameter. A function or a record that each trace makes anew is known by its parts."""
        if isinstance(x, (tuple, list)):
            return type(x), tuple(map(self._static_key, x))
        if isinstance(x, dict):
            return dict, tuple((name, self._static_key(value)) for name, value in x.items())
        if isinstance(x, Program):
            return Program, program_key(x, self._static_key)
        if isinstance(x, FunctionType):
            if x in self._open:  # it calls itself
                return "function", len(self._open) - self._open.index(x)
            return self._function_key(x)
        if isinstance(x, functools.partial):
            return functools.partial, self._static_key((x.func, x.args, x.keywords))
        if is_dataclass(x) and not isinstance(x, type):
            return type(x), tuple(self._static_key(getattr(x, f.name)) for f in fields(x) if f.compare)
        key = self._key(x)
        # how a tree of arguments is built, or lies in a vector, compares by what it is
        return (type(x), x) if type(key) is _Itself and _compares_by_value(x) else key

    def _function_key(self, x: FunctionType) -> Any:
        self._open.append(x)
        try:
            cells = tuple(self._static_key(content_of(cell)) for cell in x.__closure__ or ())
            return _Itself(x.__code__), cells, self._static_key(x.__defaults__), self._static_key(x.__kwdefaults__)
        finally:
            self._open.pop()

"""The arguments of a checkpointed call, saved so that they can be rebuilt with the values they had."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from ...arrays.backends import is_array
from ...arrays.node import Node
from ...arrays.protect import as_immutable, lock_array
from ...arrays.scope import Scope, current_scope
from ...arrays.tensor import Tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError
from ...instrument import Instruments, SavedSlot
from ...ops.naming import mark_recomputation
from ...ops.saved_values import SavedValue
from ...settings import override_modes
from ...transforms.control.staging import is_staged


class _Argument(ABC):
    """One leaf of the arguments: how to save it, and how to rebuild it."""

    __slots__ = ()

    @abstractmethod
    def save(self, save: Callable[[Any], Any]) -> None:
        """Pass the value to the instruments around the call, which decide what is held."""

    @abstractmethod
    def rebuild(self) -> Any:
        """The leaf as the function saw it."""

    def find_producers(self) -> tuple[Node, Any] | None:
        """The node that made it and the value, if any."""
        return None


class _TensorArgument(_Argument):
    """A tensor: its value never changes, but the variable may be rebound."""

    __slots__ = ("_node", "_spec", "_status", "_value")

    def __init__(self, tensor: Tensor) -> None:
        value = tensor.value
        self._value = (
            lock_array(value)
            if tensor.status == "shared"
            else _snapshot_value(value)
            if isinstance(value, Value)
            else value
        )
        self._spec, self._node, self._status = tensor.spec, tensor.node, tensor.status

    def save(self, save: Callable[[Any], Any]) -> None:
        self._value = save(self._value)

    def rebuild(self) -> Tensor:
        tensor = wrap(add_merge_barrier(_load_value(self._value)), self._spec, self._node)
        if self._status:
            tensor.mark(self._status)
        return tensor

    def find_producers(self) -> tuple[Node, Any] | None:
        node = self._node
        return None if node is None or node.rule is None or isinstance(self._value, SavedValue) else (node, self._value)


class _ValueArgument(_Argument):
    """A value of a transform, or an array that user and function may write to: each run gets a copy."""

    __slots__ = ("_array", "_value")

    def __init__(self, value: Any) -> None:
        self._array = is_array(value) and getattr(value.flags, "writeable", True)
        self._value = _snapshot_value(value)

    def save(self, save: Callable[[Any], Any]) -> None:
        self._value = save(self._value)

    def rebuild(self) -> Any:
        value = _load_value(self._value)
        return value.copy(order="K") if self._array else add_merge_barrier(value)


class _OpaqueArgument(_Argument):
    """Anything else is passed again unchanged."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def save(self, save: Callable[[Any], Any]) -> None:
        """There is nothing to save."""

    def rebuild(self) -> Any:
        return self._thing


def _snapshot_value(value: Any) -> Any:
    """A value over its own variables and arrays: the originals may be rebound or written to."""
    if not isinstance(value, Value):
        return as_immutable(value) if is_array(value) else value
    # the array of a tensor never changes; others may be written to
    parts = (part if type(value) is Tensor and is_array(part) else _snapshot_value(part) for part in value.parts())
    return value.with_parts(*parts)


def _load_value(held: Any) -> Any:
    if not isinstance(held, SavedValue):
        return held
    return as_immutable(held.value()) if held.may_be_overwritten else held.value()


def add_merge_barrier(value: Any) -> Any:
    """In a program being traced, the start of a second computation that passes do not merge with the first."""
    if not is_staged(value):
        return value
    with override_modes(instruments=None):
        return mark_recomputation(value)


class Arguments:
    """What a function was called with."""

    __slots__ = ("_leaves", "_structure", "leaves")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.leaves, self._structure = flatten((tuple(args), dict(kwargs)))
        known: dict[int, _Argument] = {}
        self._leaves = [known.get(id(leaf)) or known.setdefault(id(leaf), _wrap_argument(leaf)) for leaf in self.leaves]

    def require_arrays(self) -> None:
        """A function of nothing has nothing to recompute from; most often a list came out empty."""
        if not any(isinstance(x, (Value, int, float, complex)) or hasattr(x, "dtype") for x in self.leaves):
            raise ArgumentError(
                "checkpoint: the function was called without any array.\n"
                "  Pass what it computes from as arguments; at least one input is needed."
            )

    def save(self, outer: Instruments, line: tuple[CodeType, int]) -> None:
        """Pass all values to the instruments around the call: they may be recomputed too."""
        for position, argument in enumerate(dict.fromkeys(self._leaves)):
            slot = SavedSlot("checkpoint", ("*xs",), position, line)
            argument.save(functools.partial(outer.hold, slot=slot))

    def rebuild(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments as they were, under their own variables."""
        made = {argument: argument.rebuild() for argument in dict.fromkeys(self._leaves)}
        args, kwargs = unflatten(self._structure, [made[argument] for argument in self._leaves])
        return args, kwargs

    def find_producers(self) -> list[tuple[Node, Any]]:
        """The nodes that made tracked arguments, with the values where they are alive."""
        return [pair for argument in self._leaves if (pair := argument.find_producers()) is not None]

    def nodes(self) -> frozenset[Node]:
        """The nodes of tracked arguments: their values are saved here, so other nodes need not hold them."""
        return frozenset(leaf.node for leaf in self.leaves if isinstance(leaf, Tensor) and leaf.node is not None)

    def scopes(self) -> tuple[Scope, ...]:
        """The transforms that run now, and those that the arguments belong to."""
        innermost = current_scope()
        found = [] if innermost is None else list(innermost.and_enclosing())
        for leaf in self.leaves:
            value = leaf.value if isinstance(leaf, Tensor) else leaf
            if isinstance(value, Value) and value.scope is not None:
                found += value.scope.and_enclosing()
        return tuple(dict.fromkeys(found))


def _wrap_argument(leaf: Any) -> _Argument:
    if isinstance(leaf, Tensor):
        return _TensorArgument(leaf)
    return _ValueArgument(leaf) if isinstance(leaf, Value) or is_array(leaf) else _OpaqueArgument(leaf)

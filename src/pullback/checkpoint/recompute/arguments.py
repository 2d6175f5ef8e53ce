"""The arguments of a checkpointed call, saved so that they can be rebuilt with the values they had."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from ...arrays.backends import is_array
from ...arrays.buffers import unwrap_tracked
from ...arrays.node import Node
from ...arrays.protect import as_immutable, lock_array, seal_array
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


class _Argument:
    """One leaf of the arguments, able to be rebuilt as the function saw it. A tensor's value never changes, but the
    variable may be rebound; of an array that user and function may write to, each run gets a copy.
    """

    __slots__ = ("_is_saved", "_is_writable", "_tensor", "_value")

    def __init__(self, leaf: Any) -> None:
        leaf = unwrap_tracked(leaf)
        self._tensor = (leaf.spec, leaf.node, leaf.status) if isinstance(leaf, Tensor) else None
        self._is_writable = is_array(leaf) and getattr(leaf.flags, "writeable", True)
        self._is_saved = isinstance(leaf, Value) or is_array(leaf)
        if not isinstance(leaf, Tensor):
            self._value = _snapshot_value(leaf)
        elif leaf.status == "shared":  # the user can write to its memory
            self._value = lock_array(leaf.value)
        else:
            self._value = _snapshot_value(leaf.value) if isinstance(leaf.value, Value) else leaf.value

    def save(self, save: Callable[[Any], Any]) -> None:
        """Pass an array to the instruments around the call, which decide what is held; anything else stays."""
        if self._is_saved:
            self._value = save(self._value)

    def rebuild(self) -> Any:
        """The leaf as the function saw it."""
        value = _load_value(self._value)
        if self._is_writable:
            return value.copy(order="K")
        if self._tensor is None:
            return add_merge_barrier(value)
        spec, node, status = self._tensor
        tensor = wrap(add_merge_barrier(value), spec, node)
        if status:
            tensor.mark(status)
        return tensor

    def find_producer(self) -> tuple[Node, Any] | None:
        """The node that made it and the value, if it has both."""
        node = None if self._tensor is None else self._tensor[1]
        return None if node is None or node.rule is None or isinstance(self._value, SavedValue) else (node, self._value)


def _snapshot_value(value: Any) -> Any:
    """A value over its own variables and arrays: the originals may be rebound or written to. Of an array that is one
    already no copy is made.
    """
    if not isinstance(value, Value):
        own = as_immutable(value) if is_array(value) else value
        if own is not value:
            seal_array(own)
        return own
    # the array of a tensor never changes; others may be written to
    parts = (part if type(value) is Tensor and is_array(part) else _snapshot_value(part) for part in value.parts())
    return value.with_parts(*parts)


def _nodes_in(x: Any) -> Iterator[Node]:
    if isinstance(x, Tensor) and x.node is not None:
        yield x.node
    for part in x.parts() if isinstance(x, Value) else ():
        yield from _nodes_in(part)


def share_among_checkpoints(x: Any) -> Any:
    """An argument that several checkpoints are given, so that not each of them copies its array."""
    if not isinstance(x, Tensor):
        return _snapshot_value(x)
    if not isinstance(x.value, Value):
        return x
    shared = wrap(_snapshot_value(x.value), x.spec, x.node)  # the same variable
    if x.status:
        shared.mark(x.status)
    return shared


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
        # an argument that is passed twice is one variable in the second run too
        known: dict[int, _Argument] = {}
        self._leaves = [known.get(id(leaf)) or known.setdefault(id(leaf), _Argument(leaf)) for leaf in self.leaves]

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
        return [pair for argument in self._leaves if (pair := argument.find_producer()) is not None]

    def nodes(self) -> frozenset[Node]:
        """The nodes of tracked arguments, also below a batch: their values are saved here, so other nodes need not hold
        them.
        """
        return frozenset(node for leaf in self.leaves for node in _nodes_in(leaf))

    def scopes(self) -> tuple[Scope, ...]:
        """The transforms that run now, and those that the arguments belong to."""
        # values of an inner transform refer to the outer ones as well
        innermost = current_scope()
        found = [] if innermost is None else list(innermost.and_enclosing())
        for leaf in self.leaves:
            value = leaf.value if isinstance(leaf, Tensor) else leaf
            if isinstance(value, Value) and value.scope is not None:
                found += value.scope.and_enclosing()
        return tuple(dict.fromkeys(found))

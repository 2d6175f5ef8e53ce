"""Arguments of a call in, the same arguments again later out: values as they were, however variables moved on."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Node
from ..arrays.protect import locked, settled
from ..arrays.scope import Scope, running
from ..arrays.tensor import Tensor, another, wrap
from ..arrays.trees import flatten, unflatten
from ..arrays.value import Value
from ..errors import ArgumentError
from ..ops.keeping import Keeper, Kept
from ..ops.naming import again
from ..ops.op import Op
from ..ops.specialise import Symbol
from ..settings import switched
from ..transforms.series import Series
from ..transforms.staged import is_staged

__all__ = ["Arguments", "anew"]


class _Argument(ABC):
    """One leaf of the arguments: how to keep it, and how to make it again."""

    __slots__ = ()

    @abstractmethod
    def keep(self, keeper: Keeper, position: int) -> None:
        """Hand the value to whoever decides what is held."""

    @abstractmethod
    def again(self) -> Any:
        """The leaf as the function saw it."""

    def linked(self) -> tuple[Node, Any] | None:
        """The node that made it and the value, if there are such."""
        return None


class _Variable(_Argument):
    """A tensor: its value never changes, but the variable may be pointed elsewhere."""

    __slots__ = ("_node", "_spec", "_status", "_value")

    def __init__(self, tensor: Tensor) -> None:
        value = tensor.value
        self._value = (
            locked(value) if tensor.status == "shared" else _unmoved(value) if isinstance(value, Value) else value
        )
        self._spec, self._node, self._status = tensor.spec, tensor.node, tensor.status

    def keep(self, keeper: Keeper, position: int) -> None:
        self._value = keeper.keep(CALL, position, self._value)

    def again(self) -> Tensor:
        tensor = wrap(anew(_value_of(self._value)), self._spec, self._node)
        if self._status:
            tensor.mark(self._status)
        return tensor

    def linked(self) -> tuple[Node, Any] | None:
        node = self._node
        return None if node is None or node.rule is None or isinstance(self._value, Kept) else (node, self._value)


class _Value(_Argument):
    """A value of a transform, or an array of the user's, who may write to it: so may the function, each time anew."""

    __slots__ = ("_array", "_value")

    def __init__(self, value: Any) -> None:
        self._array = is_array(value) and getattr(value.flags, "writeable", True)
        self._value = _unmoved(value)

    def keep(self, keeper: Keeper, position: int) -> None:
        self._value = keeper.keep(CALL, position, self._value)

    def again(self) -> Any:
        value = _value_of(self._value)
        return value.copy(order="K") if self._array else anew(value)


class _Thing(_Argument):
    """Anything else is passed again as it is."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def keep(self, keeper: Keeper, position: int) -> None:
        """There is nothing to keep."""

    def again(self) -> Any:
        return self._thing


def _unmoved(value: Any) -> Any:
    """A value over variables and arrays of its own: those it lies on may be pointed elsewhere or written to."""
    if not isinstance(value, Value):
        return settled(value) if is_array(value) else value
    if type(value) is Symbol:  # nobody can point it elsewhere, and programs know it by identity
        return value
    if type(value) is Tensor:
        twin = another(value)
        twin.value = _unmoved(value.value) if isinstance(value.value, Value) else value.value
        return twin
    twin = copy.copy(value)
    for name in ("value", "primal", "along"):
        if hasattr(twin, name):
            setattr(twin, name, _unmoved(getattr(twin, name)))
    if isinstance(twin, Series):
        twin.known, twin.slope = list(map(_unmoved, twin.known)), None
    return twin


def _value_of(held: Any) -> Any:
    if not isinstance(held, Kept):
        return held
    return settled(held.value()) if held.lends else held.value()


def anew(value: Any) -> Any:
    """In a program that is written down, the start of a second computation that passes do not merge with the first."""
    if not is_staged(value):
        return value
    with switched(keeper=None, watcher=None):
        return again(value)


class Arguments:
    """What a function was called with."""

    __slots__ = ("_leaves", "_structure", "leaves")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.leaves, self._structure = flatten((tuple(args), dict(kwargs)))
        known: dict[int, _Argument] = {}
        self._leaves = [known.get(id(leaf)) or known.setdefault(id(leaf), _taken(leaf)) for leaf in self.leaves]

    def check(self) -> None:
        """A function of nothing has nothing to recompute from; most often a list came out empty."""
        if not any(isinstance(x, (Value, int, float, complex)) or hasattr(x, "dtype") for x in self.leaves):
            raise ArgumentError(
                "checkpoint: the function was called without any array.\n"
                "  Pass what it computes from as arguments; at least one input is needed."
            )

    def keep(self, keeper: Keeper) -> None:
        """Hand all values to the keeper around: they may be recomputed too."""
        for position, argument in enumerate(dict.fromkeys(self._leaves)):
            argument.keep(keeper, position)

    def again(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments as they were, under variables of their own."""
        made = {argument: argument.again() for argument in dict.fromkeys(self._leaves)}
        args, kwargs = unflatten(self._structure, [made[argument] for argument in self._leaves])
        return args, kwargs

    def linked(self) -> list[tuple[Node, Any]]:
        """The nodes that made tracked arguments, with the values where they are at hand."""
        return [pair for argument in self._leaves if (pair := argument.linked()) is not None]

    def nodes(self) -> frozenset[Node]:
        """The nodes of tracked arguments: their values are remembered, so nobody need hold them."""
        return frozenset(leaf.node for leaf in self.leaves if isinstance(leaf, Tensor) and leaf.node is not None)

    def scopes(self) -> tuple[Scope, ...]:
        """The transforms that run now, and those that the arguments belong to."""
        innermost = running()
        found = [] if innermost is None else list(innermost.around())
        for leaf in self.leaves:
            value = leaf.value if isinstance(leaf, Tensor) else leaf
            if isinstance(value, Value) and isinstance(scope := getattr(value, "scope", None), Scope):
                found += scope.around()
        return tuple(dict.fromkeys(found))


def _taken(leaf: Any) -> _Argument:
    if isinstance(leaf, Tensor):
        return _Variable(leaf)
    return _Value(leaf) if isinstance(leaf, Value) or is_array(leaf) else _Thing(leaf)


def _never(*args: Any, **static: Any) -> Any:
    raise AssertionError("a call is no op")


#: Stands for a checkpointed call where a keeper asks which op keeps a value.
CALL = Op(
    name="checkpoint", family="general", args=("*xs",), value=_never, spec=None, pulls={}, push=_never, batch=_never,
    samples=_never,
)  # fmt: skip

"""A value for the way back in, what a node holds for it out: the array itself, or something that answers it later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.node import Handle, Node
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import HookError
from ..settings import switched
from .op import Op

__all__ = ["Keeper", "Kept", "saved_tensors_hooks"]


class Kept(ABC):
    """What a node holds in place of a value; `value()` answers it when a rule asks, each time anew. It `lends` if the
    memory it answers may be written to later.
    """

    __slots__ = ()

    spec: Spec
    lends = True

    @abstractmethod
    def value(self) -> Any: ...


class Keeper(ABC):
    """Decides what nodes made while it is the keeper (`Modes.keeper`) hold: the value itself, or a `Kept`."""

    __slots__ = ()

    @abstractmethod
    def keep(self, op: Op, position: int, value: Any) -> Any:
        """For what `op` keeps at `position` (an argument's, or `OUT`)."""

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        """The same for the value of a tracked leaf, which most often lives on anyway."""
        return self.keep(op, position, value)


class Watcher(ABC):
    """Told what a run does beside computing (`Modes.watcher`), so that it can be done again without being noticed."""

    __slots__ = ()

    #: Whether results go through `computing`.
    saving: bool

    @abstractmethod
    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        """The result of an op on what lies below tensors of a level."""

    @abstractmethod
    def rebinding(self, tensor: Tensor) -> None:
        """A variable is about to be pointed at a new value."""

    @abstractmethod
    def setting(self, holder: Any, name: str) -> None:
        """An attribute of an object is about to be set or deleted."""

    @abstractmethod
    def grading(self, tensor: Tensor) -> None:
        """The gradient of a tensor is about to be written."""

    @abstractmethod
    def hooking(self, handle: Handle) -> None:
        """A hook was registered."""

    @abstractmethod
    def deciding(self, found: bool) -> bool:
        """The engine found whether somebody may differentiate again, and goes by the answer."""


class _Hooks(Keeper):
    """Every kept value goes through a user's `pack`."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack = pack
        self.unpack = unpack

    def keep(self, op: Op, position: int, value: Any) -> Kept:
        return _Packed(wrap(value, spec_of(value)), self)


class _Packed(Kept):
    """A kept value that went through a user's `pack`; `unpack` brings it back when a rule asks."""

    __slots__ = ("spec", "stored", "unpack")

    def __init__(self, tensor: Tensor, hooks: _Hooks) -> None:
        self.unpack = hooks.unpack
        self.spec = tensor.spec
        with switched(grad=False, keeper=None):
            self.stored = hooks.pack(tensor)

    def value(self) -> Any:
        with switched(grad=False, keeper=None):
            found = self.unpack(self.stored)
        value = found.value if isinstance(found, Tensor) else found
        if not (is_array(value) or isinstance(value, Value)):
            raise HookError(f"unpack returned a {type(found).__name__}, wanted a tensor or an array of {self.spec}.")
        if spec_of(value) != self.spec:
            raise HookError(f"unpack returned {spec_of(value)}, what was packed is {self.spec}.")
        return value


def saved_tensors_hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> switched:
    """Pass every value that backward keeps through `pack` when it is kept and `unpack` when it is needed.

    >>> import pullback as pb
    >>> x = pb.tensor(3.0, requires_grad=True)
    >>> with pb.saved_tensors_hooks(lambda t: t.tolist(), pb.tensor):
    ...     y = x * x
    >>> y.backward(); x.grad.item()
    6.0
    """
    return switched(keeper=_Hooks(pack, unpack))

"""A value for the way back in, what a node holds for it out: the array itself, or something that answers it later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, wrap
from ..arrays.value import Value
from ..errors import HookError
from ..settings import switched
from .op import Op

__all__ = ["Keeper", "Kept", "saved_tensors_hooks"]


class Kept(ABC):
    """What a node holds in place of a value; `value()` answers it when a rule asks, each time anew.

    `steady` says that what it answers is never overwritten, so that nobody needs a copy of it.
    """

    __slots__ = ()

    spec: Spec
    steady = False

    @abstractmethod
    def value(self) -> Any: ...


class Keeper(ABC):
    """Decides what nodes made while it is the keeper (`Modes.keeper`) hold: the value itself, or a `Kept`."""

    __slots__ = ()

    @abstractmethod
    def keep(self, op: Op, position: int, value: Any) -> Any:
        """For what `op` keeps at `position` (an argument's, or `OUT`)."""


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

"""Saved values: what a node holds for the backward pass, the array itself or an object that returns it later."""

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
from ..settings import override_modes
from .op import Op


class SavedValue(ABC):
    """What a node holds in place of a saved value; `value()` returns it whenever a rule needs it.
    `may_be_overwritten`: its memory may be written to later.
    """

    __slots__ = ()

    spec: Spec
    may_be_overwritten = True

    @abstractmethod
    def value(self) -> Any: ...


class Keeper(ABC):
    """Decides what nodes made while it is active (`Modes.keeper`) hold: the value itself, or a `SavedValue`."""

    __slots__ = ()

    @abstractmethod
    def keep(self, op: Op, position: int, value: Any) -> Any:
        """For what `op` saves at `position` (an argument's, or `OUT`)."""

    def keep_leaf(self, op: Op, position: int, value: Any, leaf: Node) -> Any:
        """The same for the value of a tracked leaf, which usually stays alive anyway."""
        return self.keep(op, position, value)


class Watcher(ABC):
    """Notified of the side effects of a run (`Modes.watcher`), so that it can be repeated without them."""

    __slots__ = ()

    #: Whether results go through `compute_watched`.
    intercepts_results: bool

    @abstractmethod
    def compute_watched(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        """The result of an op on the values below tensors of a level."""

    @abstractmethod
    def before_rebind(self, tensor: Tensor) -> None:
        """A variable is about to be rebound."""

    @abstractmethod
    def before_setattr(self, holder: Any, name: str) -> None:
        """An attribute of an object is about to be set or deleted."""

    @abstractmethod
    def before_grad_write(self, tensor: Tensor) -> None:
        """The gradient of a tensor is about to be written."""

    @abstractmethod
    def on_hook_registered(self, handle: Handle) -> None:
        """A hook was registered."""

    @abstractmethod
    def resolve_decision(self, found: bool) -> bool:
        """The engine decided whether the result may be differentiated again; returns the decision to use."""


class _PackingKeeper(Keeper):
    """Every saved value goes through a user's `pack`."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack = pack
        self.unpack = unpack

    def keep(self, op: Op, position: int, value: Any) -> SavedValue:
        return _PackedValue(wrap(value, spec_of(value)), self)


class _PackedValue(SavedValue):
    """A saved value that went through a user's `pack`; `unpack` restores it when a rule needs it."""

    __slots__ = ("spec", "stored", "unpack")

    def __init__(self, tensor: Tensor, hooks: _PackingKeeper) -> None:
        self.unpack = hooks.unpack
        self.spec = tensor.spec
        with override_modes(grad=False, keeper=None):
            self.stored = hooks.pack(tensor)

    def value(self) -> Any:
        with override_modes(grad=False, keeper=None):
            found = self.unpack(self.stored)
        value = found.value if isinstance(found, Tensor) else found
        if not (is_array(value) or isinstance(value, Value)):
            raise HookError(f"unpack returned a {type(found).__name__}, wanted a tensor or an array of {self.spec}.")
        if spec_of(value) != self.spec:
            raise HookError(f"unpack returned {spec_of(value)}, what was packed is {self.spec}.")
        return value


def saved_tensors_hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> override_modes:
    """Pass every value saved for backward through `pack` when it is saved and `unpack` when it is needed.

    >>> import pullback as pb
    >>> x = pb.tensor(3.0, requires_grad=True)
    >>> with pb.saved_tensors_hooks(lambda t: t.tolist(), pb.tensor):
    ...     y = x * x
    >>> y.backward(); x.grad.item()
    6.0
    """
    return override_modes(keeper=_PackingKeeper(pack, unpack))

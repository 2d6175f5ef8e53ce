"""Saved values: what a node holds for the backward pass, the array itself or an object that returns it later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..arrays.backends import is_array
from ..arrays.spec import Spec, spec_of
from ..arrays.tensor import Tensor, copy_variable, wrap
from ..arrays.value import Value
from ..errors import HookError
from ..instrument import Instrument, SavedSlot
from ..settings import installed, override_modes


class SavedValue(ABC):
    """What a node holds in place of a saved value; `value()` returns it whenever a rule needs it.
    `may_be_overwritten`: its memory may be written to later.
    """

    __slots__ = ()

    spec: Spec
    may_be_overwritten = True

    @abstractmethod
    def value(self) -> Any: ...

    def pass_over(self) -> None:  # noqa: B027 - most hold nothing that could be let go
        """A backward pass went by without asking for it, as its node has no cotangent."""


class SavedVariable(SavedValue):
    """A tensor of a level below the tape's: itself while it is unchanged, so that a program that is being traced meets
    the tensor that it captured; once it is rebound, the value that it had.
    """

    __slots__ = ("_given", "_then", "spec")
    may_be_overwritten = False

    def __init__(self, given: Tensor) -> None:
        self.spec, self._given, self._then = given.spec, given, copy_variable(given)

    def value(self) -> Tensor:
        given, then = self._given, self._then
        return given if given.value is then.value and given.node is then.node else then


class _PackingHooks(Instrument):
    """Every saved value goes through a user's `pack`."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack = pack
        self.unpack = unpack

    def hold(self, value: Any, slot: SavedSlot) -> SavedValue:
        return _PackedValue(wrap(value, spec_of(value)), self)


class _PackedValue(SavedValue):
    """A saved value that went through a user's `pack`; `unpack` restores it when a rule needs it."""

    __slots__ = ("spec", "stored", "unpack")

    def __init__(self, tensor: Tensor, hooks: _PackingHooks) -> None:
        self.unpack = hooks.unpack
        self.spec = tensor.spec
        with _outside_recording():
            self.stored = hooks.pack(tensor)

    def value(self) -> Any:
        with _outside_recording():
            found = self.unpack(self.stored)
        value = found.value if isinstance(found, Tensor) else found
        if not (is_array(value) or isinstance(value, Value)):
            raise HookError(f"unpack returned a {type(found).__name__}, wanted a tensor or an array of {self.spec}.")
        if spec_of(value) != self.spec:
            raise HookError(f"unpack returned {spec_of(value)}, what was packed is {self.spec}.")
        return value


def _outside_recording() -> override_modes:
    """What a hook computes is neither recorded nor saved, and belongs to no run that is repeated."""
    return override_modes(grad=False, instruments=installed().isolate())


def saved_tensors_hooks(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> override_modes:
    """Pass every value saved for backward through `pack` when it is saved and `unpack` when it is needed.

    >>> import pullback as pb
    >>> x = pb.tensor(3.0, requires_grad=True)
    >>> with pb.saved_tensors_hooks(lambda t: t.tolist(), pb.tensor):
    ...     y = x * x
    >>> y.backward(); x.grad.item()
    6.0
    """
    return override_modes(_PackingHooks(pack, unpack))

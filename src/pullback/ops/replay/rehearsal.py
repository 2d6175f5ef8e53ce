"""Extra runs without side effects: streams, tensors, attributes and gradients are restored afterwards."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...arrays.node import Handle
from ...arrays.scope import enclosing_scopes, forget_rebindings_since_now, new_level
from ...arrays.tensor import Tensor
from ...instrument import Instrument
from ...settings import installed, override_modes
from .default_stream import preview_draws
from .reach import Reach
from .snapshot import StateSnapshot
from .streams import Streams, preserve_streams


class SideEffects(Instrument):
    """Whether a run changes anything outside of itself, or draws from a stream."""

    __slots__ = ("_level", "_objects", "_rebound", "seen")
    sees_every_op = False

    def __init__(self, objects: Sequence[Any]) -> None:
        self.seen = False
        self._level = new_level()
        self._rebound: list[weakref.ref[Tensor]] = []
        self._objects = [(holder, dict(vars(holder))) for holder in objects]

    def finish(self) -> None:
        """The run is over: a tensor that it rebound and that is gone was its own."""
        alive = any(reference() is not None for reference in self._rebound)
        self.seen = self.seen or alive or any(_is_changed(vars(x), before) for x, before in self._objects)

    def rebinds(self, tensor: Any) -> None:
        inside = (scope for scope in enclosing_scopes() if scope.level > self._level)
        if not any(scope.has_made(tensor, tensor.value) for scope in inside):
            self._rebound.append(weakref.ref(tensor))

    def sets_attribute(self, holder: Any, name: str) -> None:
        self.seen = True

    def writes_gradient(self, tensor: Any) -> None:
        self.seen = True

    def registers_hook(self, handle: Any) -> None:
        self.seen = True


class UndoSideEffects(Instrument):
    """Records the side effects of a run, so that they can be undone: also those that `before` has recorded already."""

    __slots__ = ("_gradients", "_handles", "_now", "_removes_hooks")

    def __init__(self, before: StateSnapshot | None = None, removes_hooks: bool = True) -> None:
        self._now = StateSnapshot() if before is None else before
        self._gradients: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._handles: list[Handle] = []
        self._removes_hooks = removes_hooks

    def rebinds(self, tensor: Tensor) -> None:
        self._now.note_tensor(tensor)

    def sets_attribute(self, holder: Any, name: str) -> None:
        self._now.note_attribute(holder, name)

    def writes_gradient(self, tensor: Tensor) -> None:
        self._gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def registers_hook(self, handle: Handle) -> None:
        if self._removes_hooks:
            self._handles.append(handle)

    def undo(self) -> None:
        """Restore everything to before the run."""
        self._now.restore()
        for tensor, gradient in self._gradients.values():
            tensor._grad = gradient
        for handle in self._handles:
            handle.remove()


@contextmanager
def undo_on_exit(objects: Sequence[Any], enclosed: bool = False) -> Iterator[None]:
    """At exit, restore tensors, gradients, hooks, modules and these objects to their state at entry. An `enclosed` run
    counts as part of the one around it, and so do its hooks.
    """
    before = StateSnapshot()
    before.note_objects(objects)
    outer = installed()
    undo = UndoSideEffects(removes_hooks=not (enclosed and outer.watches_hooks))
    try:
        with override_modes(instruments=outer.push(undo) if enclosed else outer.isolate(undo)):
            yield
    finally:
        undo.undo()
        before.finish(())
        before.restore()


@contextmanager
def rehearse(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Around an extra run of a function whose results count: the next run starts from the same state.
    `holders` are the function and what it is called with.
    """
    reach = Reach(holders, leaves)
    with preview_draws(), preserve_streams(reach.generators, leaves), undo_on_exit(reach.objects, enclosed=True):
        yield


@contextmanager
def dry_run(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Around a trial run of a function: nothing of it is kept, also not for a backward pass."""
    with override_modes(instruments=installed().isolate()), rehearse(holders, leaves):
        yield


@contextmanager
def watched_dry_run(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[SideEffects]:
    """A trial run that tells, when it is over, whether it did more than compute."""
    reach = Reach(holders, leaves)
    effects, streams = SideEffects(reach.objects), Streams(reach.generators, leaves)
    forget = forget_rebindings_since_now()
    with dry_run(holders, leaves), streams.record(), override_modes(instruments=installed().push(effects)):
        yield effects
        forget()  # what is undone is none of the transforms around
        effects.finish()
    effects.seen = effects.seen or streams.were_used


def _is_changed(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() != before.keys() or any(now[name] is not before[name] for name in now)

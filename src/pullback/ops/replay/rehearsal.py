"""Extra runs without side effects: streams, tensors, attributes and gradients are restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...arrays.node import Handle
from ...arrays.tensor import Tensor
from ...settings import modes, override_modes
from ..dispatch import compute, run
from ..op import Op
from ..saved_values import Watcher
from .default_stream import preview_draws
from .reach import Reach
from .snapshot import StateSnapshot
from .streams import preserve_streams


class UndoWatcher(Watcher):
    """Records the side effects of a run, so that they can be undone. An enclosing watcher still sees
    what is computed.
    """

    __slots__ = ("_gradients", "_handles", "_now", "_outer", "intercepts_results")

    def __init__(self, outer: Watcher | None = None) -> None:
        self._outer = outer
        self._now = StateSnapshot()
        self._gradients: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._handles: list[Handle] = []
        self.intercepts_results = outer is not None and outer.intercepts_results

    def compute_watched(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        if self._outer is not None:
            return self._outer.compute_watched(op, values, static, level)
        return compute(op, values, static) if level == 1 else run(op, values, static)

    def before_rebind(self, tensor: Tensor) -> None:
        self._now.note_tensor(tensor)

    def before_setattr(self, holder: Any, name: str) -> None:
        self._now.note_attribute(holder, name)

    def before_grad_write(self, tensor: Tensor) -> None:
        self._gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def on_hook_registered(self, handle: Handle) -> None:
        """Under an enclosing watcher the results count, and so do hooks on them."""
        if self._outer is None:
            self._handles.append(handle)
        else:
            self._outer.on_hook_registered(handle)

    def resolve_decision(self, found: bool) -> bool:
        return found if self._outer is None else self._outer.resolve_decision(found)

    def undo(self) -> None:
        """Restore everything to before the run."""
        self._now.restore()
        for tensor, gradient in self._gradients.values():
            tensor._grad = gradient
        for handle in self._handles:
            handle.remove()


@contextmanager
def undo_on_exit(objects: Sequence[Any], watcher: UndoWatcher) -> Iterator[None]:
    """At exit, restore tensors, gradients, hooks, modules and these objects to their state at entry."""
    before = StateSnapshot()
    before.note_objects(objects)
    try:
        with override_modes(watcher=watcher):
            yield
    finally:
        watcher.undo()
        before.finish(())
        before.restore()


@contextmanager
def rehearse(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Around an extra run of a function whose results count: the next run starts from the same state.
    `holders` are the function and what it is called with.
    """
    reach = Reach(holders, leaves)
    watcher = UndoWatcher(modes().watcher)
    with preview_draws(), preserve_streams(reach.generators, leaves), undo_on_exit(reach.objects, watcher):
        yield


@contextmanager
def dry_run(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """Around a trial run of a function: nothing of it is kept, also not for a backward pass."""
    with override_modes(keeper=None, watcher=None), rehearse(holders, leaves):
        yield

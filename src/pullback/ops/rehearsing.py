"""A run that is repeated in, nothing noticed of it out: streams, tensors, attributes and gradients are put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..arrays.node import Handle
from ..arrays.tensor import Tensor
from ..settings import modes, switched
from .default_stream import ahead
from .dispatch import compute, run
from .keeping import Watcher
from .op import Op
from .reach import Reach
from .standing import Standing
from .streams import unmoved

__all__ = ["Undoing", "rehearsed", "tried", "undone"]


class Undoing(Watcher):
    """Notes what a run changes beside computing, so that it can be undone. Another watcher around it goes on watching
    what is computed.
    """

    __slots__ = ("_gradients", "_handles", "_now", "_outer", "saving")

    def __init__(self, outer: Watcher | None = None) -> None:
        self._outer = outer
        self._now = Standing()
        self._gradients: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._handles: list[Handle] = []
        self.saving = outer is not None and outer.saving

    def computing(self, op: Op, values: list[Any], static: dict[str, Any], level: int) -> Any:
        if self._outer is not None:
            return self._outer.computing(op, values, static, level)
        return compute(op, values, static) if level == 1 else run(op, values, static)

    def rebinding(self, tensor: Tensor) -> None:
        self._now.note_tensor(tensor)

    def setting(self, holder: Any, name: str) -> None:
        self._now.note_attribute(holder, name)

    def grading(self, tensor: Tensor) -> None:
        self._gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def hooking(self, handle: Handle) -> None:
        """With a watcher around, what is computed counts, and so do hooks on it."""
        if self._outer is None:
            self._handles.append(handle)
        else:
            self._outer.hooking(handle)

    def deciding(self, found: bool) -> bool:
        return found if self._outer is None else self._outer.deciding(found)

    def undo(self) -> None:
        """Everything as it was before the run."""
        self._now.restore()
        for tensor, gradient in self._gradients.values():
            tensor._grad = gradient
        for handle in self._handles:
            handle.remove()


@contextmanager
def undone(objects: Sequence[Any], watcher: Undoing) -> Iterator[None]:
    """Code that runs again: tensors, gradients, hooks, modules and these objects are afterwards as they are now."""
    before = Standing()
    before.note_objects(objects)
    try:
        with switched(watcher=watcher):
            yield
    finally:
        watcher.undo()
        before.settle(())
        before.restore()


@contextmanager
def rehearsed(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """A run of a function whose results count, but which is not the last one: that starts from where this did.
    `holders` are the function and what it is called with.
    """
    reach = Reach(holders, leaves)
    watcher = Undoing(modes().watcher)
    with ahead(), unmoved(reach.generators, leaves), undone(reach.objects, watcher):
        yield


@contextmanager
def tried(holders: Sequence[Any], leaves: Sequence[Any]) -> Iterator[None]:
    """A run of a function to see what it would do: nothing of it is kept, also not for a backward pass."""
    with switched(keeper=None, watcher=None), rehearsed(holders, leaves):
        yield

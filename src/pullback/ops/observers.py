"""Observers of eager execution: of op calls and of backward passes.

An observer (`Modes.observer`) sees what happens at the level of bare arrays. Without one the cost is one
test in the general path; the fast paths only test whether the modes are plain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..arrays.node import Node
from .op import Op


class Observer(ABC):
    """The observer protocol. Every method may be called from several threads at once."""

    __slots__ = ()

    @abstractmethod
    def compute_observed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        """Run `compute`, which reads `values`, and return its result. `tracked`: a node will be made for it."""

    @abstractmethod
    def on_node_made(self, node: Node, out: Any) -> None:
        """A node was made for the result `out`; its saved values are set."""

    @abstractmethod
    def on_program_run(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        """A compiled program made `outs` of `arrays`; `room` are the arrays that it works in and keeps."""

    @abstractmethod
    def on_backward_start(self) -> None:
        """A backward pass begins."""

    @abstractmethod
    def before_pull(self, node: Node, bar: Any) -> None:
        """The rule of a node is about to run."""

    @abstractmethod
    def after_pull(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        """The rule returned these shares; without a node, shares were summed to this."""

    @abstractmethod
    def on_grads_accumulated(self, tensors: Iterable[Any]) -> None:
        """A cotangent was accumulated into the `.grad` of these tensors."""

    @abstractmethod
    def on_backward_end(self, released: bool) -> None:
        """The backward pass has ended; `released`: its graph was freed."""


class ObserverPair(Observer):
    """Two observers at once, the outer one first."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Observer, inner: Observer) -> None:
        self._outer, self._inner = outer, inner

    def compute_observed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        inner = self._inner
        return self._outer.compute_observed(
            op,
            args,
            values,
            static,
            tracked,
            lambda: inner.compute_observed(op, args, values, static, tracked, compute),
        )

    def on_node_made(self, node: Node, out: Any) -> None:
        self._outer.on_node_made(node, out)
        self._inner.on_node_made(node, out)

    def on_program_run(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        self._outer.on_program_run(name, arrays, outs, room)
        self._inner.on_program_run(name, arrays, outs, room)

    def on_backward_start(self) -> None:
        self._outer.on_backward_start()
        self._inner.on_backward_start()

    def before_pull(self, node: Node, bar: Any) -> None:
        self._outer.before_pull(node, bar)
        self._inner.before_pull(node, bar)

    def after_pull(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        self._outer.after_pull(node, shares)
        self._inner.after_pull(node, shares)

    def on_grads_accumulated(self, tensors: Iterable[Any]) -> None:
        tensors = tuple(tensors)
        self._outer.on_grads_accumulated(tensors)
        self._inner.on_grads_accumulated(tensors)

    def on_backward_end(self, released: bool) -> None:
        self._outer.on_backward_end(released)
        self._inner.on_backward_end(released)


def join_observers(before: Observer | None, new: Observer) -> Observer:
    """The observer of a context after adding one more."""
    return new if before is None else ObserverPair(before, new)

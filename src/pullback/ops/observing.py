"""Op calls and backward passes in, notes out: the one place from which eager work can be watched.

An observer (`Modes.observer`) sees what happens at the level of bare arrays. While there is none, all it costs is one
test in the general path; the fast paths ask only whether the modes are plain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..arrays.node import Node
from .op import Op

__all__ = ["Observer", "Together", "watched_by"]


class Observer(ABC):
    """Who watches. Every method may be called from several threads at once."""

    __slots__ = ()

    @abstractmethod
    def computed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        """Run `compute`, which reads `values`, and answer its result. `tracked`: a node will be made for it."""

    @abstractmethod
    def noted(self, node: Node, out: Any) -> None:
        """A node was made for the result `out`; what it keeps is in place."""

    @abstractmethod
    def ran(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        """A compiled program made `outs` of `arrays`; `room` are the arrays that it works in and keeps."""

    @abstractmethod
    def began(self) -> None:
        """A backward pass begins."""

    @abstractmethod
    def pulling(self, node: Node, bar: Any) -> None:
        """The rule of a node is about to run."""

    @abstractmethod
    def pulled(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        """It gave these shares; without a node, shares were added up to this."""

    @abstractmethod
    def delivered(self, tensors: Iterable[Any]) -> None:
        """The `.grad` of these tensors took a cotangent."""

    @abstractmethod
    def ended(self, released: bool) -> None:
        """The backward pass is over; `released`: the graph it went through was let go."""


class Together(Observer):
    """Two observers at once, the outer one first."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Observer, inner: Observer) -> None:
        self._outer, self._inner = outer, inner

    def computed(
        self,
        op: Op,
        args: Sequence[Any],
        values: list[Any],
        static: dict[str, Any],
        tracked: bool,
        compute: Callable[[], Any],
    ) -> Any:
        inner = self._inner
        return self._outer.computed(
            op, args, values, static, tracked, lambda: inner.computed(op, args, values, static, tracked, compute)
        )

    def noted(self, node: Node, out: Any) -> None:
        self._outer.noted(node, out)
        self._inner.noted(node, out)

    def ran(self, name: str, arrays: Sequence[Any], outs: Sequence[Any], room: Sequence[Any]) -> None:
        self._outer.ran(name, arrays, outs, room)
        self._inner.ran(name, arrays, outs, room)

    def began(self) -> None:
        self._outer.began()
        self._inner.began()

    def pulling(self, node: Node, bar: Any) -> None:
        self._outer.pulling(node, bar)
        self._inner.pulling(node, bar)

    def pulled(self, node: Node | None, shares: tuple[Any, ...]) -> None:
        self._outer.pulled(node, shares)
        self._inner.pulled(node, shares)

    def delivered(self, tensors: Iterable[Any]) -> None:
        tensors = tuple(tensors)
        self._outer.delivered(tensors)
        self._inner.delivered(tensors)

    def ended(self, released: bool) -> None:
        self._outer.ended(released)
        self._inner.ended(released)


def watched_by(before: Observer | None, new: Observer) -> Observer:
    """What the observer of a context becomes when one more begins to watch."""
    return new if before is None else Together(before, new)

"""Shares of a cotangent in, their sum out: how contributions to one value add up."""

from __future__ import annotations

import weakref
from typing import Any

from ..arrays.tensor import Tensor, another
from ..arrays.value import Value
from ..ops import elementwise as pointwise
from ..ops.op import Selected

__all__ = ["Delivery", "Parts", "accumulate", "plain_bar"]


class Parts:
    """The cotangents of an op with several results, None for those that have none."""

    __slots__ = ("bars",)

    def __init__(self, bars: tuple[Any, ...]) -> None:
        self.bars = bars

    @staticmethod
    def at(index: int, count: int, bar: Any) -> Parts:
        return Parts((None,) * index + (bar,) + (None,) * (count - index - 1))


def plain_bar(bar: Any) -> Any:
    """A cotangent without its mask."""
    return bar.bar if type(bar) is Selected else bar


def accumulate(held: Any, share: Any) -> Any:
    """held + share, for everything a cotangent can be. Never writes into either."""
    if type(held) is Parts:
        return Parts(tuple(_sum(a, b) for a, b in zip(held.bars, share.bars, strict=True)))
    if type(held) is Selected and type(share) is Selected:
        return Selected(pointwise.add(held.bar, share.bar), pointwise.logical_or(held.mask, share.mask))
    return pointwise.add(plain_bar(held), plain_bar(share))


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else accumulate(a, b)


class Delivery:
    """Hands cotangents out to the user, each in memory of its own: a view, or what was handed out before, is copied.

    Memory that the engine still works with is safe too: it writes only where it holds the one reference.
    """

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[int, weakref.ref[Any]] = {}

    def own(self, bar: Any) -> Any:
        bar = plain_bar(bar)
        if isinstance(bar, Value):
            return self._own_tensor(bar) if type(bar) is Tensor else bar
        before = self._given.get(id(bar))
        if bar.base is not None or (before is not None and before() is bar):
            bar = bar.copy()
        self._given[id(bar)] = weakref.ref(bar)
        return bar

    def _own_tensor(self, bar: Tensor) -> Tensor:
        if isinstance(bar.value, Value):
            return bar
        twin: Tensor = another(bar)
        twin.value = self.own(bar.value)
        return twin

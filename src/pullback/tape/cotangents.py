"""Shares of a cotangent in, their sum out: how contributions to one value add up."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from ..arrays.backends import is_array
from ..arrays.tensor import Tensor, another
from ..arrays.value import Value
from ..ops import elementwise as pointwise
from ..ops.op import Selected

__all__ = ["Delivery", "Parts", "accumulate", "arrays_in", "plain_bar"]


class Parts:
    """The cotangents of an op with several results. It grows as they arrive, since there may be thousands."""

    __slots__ = ("_arrived", "_count")

    def __init__(self, index: int, count: int, bar: Any) -> None:
        self._count = count
        self._arrived = {index: bar}

    @property
    def bars(self) -> tuple[Any, ...]:
        """One for each result, None for those that have none."""
        return tuple(map(self._arrived.get, range(self._count)))

    def take(self, other: Parts) -> Parts:
        """Add another's cotangents to these."""
        for index, bar in other._arrived.items():
            held = self._arrived.get(index)
            self._arrived[index] = bar if held is None else accumulate(held, bar)
        return self


def plain_bar(bar: Any) -> Any:
    """A cotangent without its mask."""
    return bar.bar if type(bar) is Selected else bar


def accumulate(held: Any, share: Any) -> Any:
    """held + share, for everything a cotangent can be. Never writes into an array."""
    if type(held) is Parts:
        return held.take(share)
    if type(held) is Selected and type(share) is Selected:
        return Selected(pointwise.add(held.bar, share.bar), pointwise.logical_or(held.mask, share.mask))
    return pointwise.add(plain_bar(held), plain_bar(share))


def arrays_in(value: Any) -> Iterator[Any]:
    """The bare arrays inside anything that ops take or give and cotangents can be, also in values of transforms."""
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if is_array(x):
            yield x
        elif isinstance(x, (tuple, list)):
            waiting.extend(x)
        elif isinstance(x, Value):
            waiting.extend(getattr(x, name, None) for name in ("value", "primal", "along"))
        elif type(x) is Selected:
            waiting.extend((x.bar, x.mask))
        elif type(x) is Parts:
            waiting.extend(x.bars)


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

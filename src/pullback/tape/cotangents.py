"""Shares of a cotangent in, their sum out: how contributions to one value add up."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..arrays.protect import settled
from ..ops import elementwise as pointwise
from ..ops.op import Selected

__all__ = ["Parts", "accumulate", "owned", "plain_bar"]

_ndarray = np.ndarray
_getrefcount = sys.getrefcount


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


def is_exclusive(array: Any, holders: int) -> bool:
    """Whether nobody but the caller's `holders` references can see this memory, so that it may be written."""
    return (
        type(array) is _ndarray and array.base is None and _getrefcount(array) <= holders + 2 and array.flags.writeable
    )


def owned(bar: Any, holders: int) -> Any:
    """A cotangent whose memory nobody else holds: itself where that is so, else a copy."""
    if type(bar) is not _ndarray:
        return settled(bar) if hasattr(bar, "flags") else bar
    return bar if is_exclusive(bar, holders + 1) else bar.copy()

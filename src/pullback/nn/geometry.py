"""What users write for windows in, one number or pair for each spatial axis out, with errors that say shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..ops import shaping
from ..ops.axes import whole
from ..ops.dispatch import as_value, ndim, shape
from ..ops.patches import Pairs, Sizes

__all__ = ["each", "on_batches", "pairs", "same_padding"]


def each(number: Any, rank: int, what: str, least: int = 1) -> Sizes:
    """One whole number for each of `rank` axes, from one for all or one for each."""
    given = tuple(number) if isinstance(number, Iterable) and not isinstance(number, str) else (number,)
    found = tuple(whole(n, what) for n in given)
    found = found * rank if len(found) == 1 else found
    if len(found) != rank or any(n < least for n in found):
        raise ArgumentError(f"{what} is one number or {rank} of them, each at least {least}; got {number!r}.")
    return found


def pairs(padding: Any, rank: int, what: str) -> Pairs:
    """A pair (before, behind) for each axis, from a number for all, a number for each, or pairs."""
    given = tuple(padding) if isinstance(padding, Iterable) and not isinstance(padding, str) else (padding,)
    given = given * rank if len(given) == 1 else given
    if len(given) != rank or isinstance(padding, str):
        raise ArgumentError(f"{what} is a number, {rank} numbers, {rank} pairs, 'same' or 'valid'; got {padding!r}.")
    found = []
    for entry in given:
        ends = each(entry, 2, what, 0)
        found.append((ends[0], ends[1]))
    return tuple(found)


def same_padding(sizes: Sizes, window: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    """The padding with which there is one window for every `stride` elements, the odd one behind."""
    found = []
    for n, k, s, d in zip(sizes, window, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def on_batches(x: Any, rank: int, what: str, function: Callable[[Any], Any]) -> Any:
    """A function of (n, channels, *sizes), also for one image without n."""
    x = as_value(x)
    if ndim(x) == rank + 2:
        return function(x)
    if ndim(x) != rank + 1:
        axes = ", ".join(("depth", "height", "width")[3 - rank :])
        raise ShapeError(f"{what}: wants an input of shape (n, channels, {axes}) or without n, got {shape(x)}.")
    found = function(shaping.expand_dims(x, 0))
    return tuple(map(_first, found)) if isinstance(found, tuple) else _first(found)


def _first(x: Any) -> Any:
    return shaping.reshape(x, shape(x)[1:])

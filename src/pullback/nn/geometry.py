"""Window arguments (sizes, strides, padding): one integer or pair for each spatial axis, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..ops.axes import as_integer
from ..ops.dispatch import as_value, ndim, shape
from ..ops.shape import reshaping
from ..ops.window.patches import Pairs, Sizes


def per_axis(number: Any, rank: int, what: str, least: int = 1) -> Sizes:
    """One integer for each of `rank` axes, from one for all or one for each."""
    given = tuple(number) if isinstance(number, Iterable) and not isinstance(number, str) else (number,)
    found = tuple(as_integer(n, what) for n in given)
    found = found * rank if len(found) == 1 else found
    if len(found) != rank or any(n < least for n in found):
        raise ArgumentError(f"{what} is one integer or {rank} of them, each at least {least}; got {number!r}.")
    return found


def padding_pairs(padding: Any, rank: int, what: str) -> Pairs:
    """A pair (before, after) for each axis, from one integer for all, one for each, or pairs."""
    given = tuple(padding) if isinstance(padding, Iterable) and not isinstance(padding, str) else (padding,)
    given = given * rank if len(given) == 1 else given
    if len(given) != rank or isinstance(padding, str):
        raise ArgumentError(f"{what} is an integer, {rank} integers, {rank} pairs, 'same' or 'valid'; got {padding!r}.")
    found = []
    for entry in given:
        ends = per_axis(entry, 2, what, 0)
        found.append((ends[0], ends[1]))
    return tuple(found)


def same_padding(sizes: Sizes, window: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    """The padding with which there is one window for every `stride` elements, the odd one at the end."""
    found = []
    for n, k, s, d in zip(sizes, window, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def apply_batched(x: Any, rank: int, what: str, function: Callable[[Any], Any]) -> Any:
    """A function of (n, channels, *sizes), also for one image without n."""
    x = as_value(x)
    if ndim(x) == rank + 2:
        return function(x)
    if ndim(x) != rank + 1:
        axes = ", ".join(("depth", "height", "width")[3 - rank :])
        raise ShapeError(f"{what}: wants an input of shape (n, channels, {axes}) or without n, got {shape(x)}.")
    found = function(reshaping.expand_dims(x, 0))
    return tuple(map(_drop_batch_axis, found)) if isinstance(found, tuple) else _drop_batch_axis(found)


def _drop_batch_axis(x: Any) -> Any:
    return reshaping.reshape(x, shape(x)[1:])

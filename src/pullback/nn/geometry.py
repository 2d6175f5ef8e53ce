"""Functions over one to three spatial axes and their window arguments: a number or a pair for each axis, checked."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec

from ..arrays.call_site import attributed_to_caller
from ..errors import ArgumentError, ShapeError
from ..ops.axes import as_integer
from ..ops.dispatch import as_value, ndim, shape
from ..ops.fusion import cast_whole, fuse
from ..ops.shape import reshaping
from ..ops.signatures import MixedFunction
from ..ops.window.patches import Pairs, Sizes

P = ParamSpec("P")


def over_axes(
    rank: int, function: Callable[Concatenate[str, Any, P], Any], fused: bool = False, autocast: str = "promote"
) -> Callable[[Any], MixedFunction[P]]:
    """The public form of `function(name, x, ...)` for x of `rank` spatial axes, (n, channels, *sizes) or without n. It
    has the name and docstring of what it decorates, and the parameters of the function; `fused` by `pb.fuse`.
    `autocast` is what it does under `pb.autocast`.
    """

    def name(stub: Callable[[], None]) -> Any:
        def run(x: Any, *args: Any, **kwargs: Any) -> Any:
            return apply_batched(x, rank, stub.__name__, lambda x: function(stub.__name__, x, *args, **kwargs))

        functools.update_wrapper(run, stub)
        _, *parameters = inspect.signature(function).parameters.values()
        run.__signature__ = inspect.Signature(parameters, return_annotation=Any)  # type: ignore[attr-defined]
        made = attributed_to_caller(run)
        return fuse(made, autocast=autocast) if fused else cast_whole(autocast)(made)

    return name


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


def broadcast_to_axes(given: Any, rank: int, what: str) -> tuple[Any, ...]:
    """One entry for each of `rank` axes, from one for all or one for each."""
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    found = found * rank if len(found) == 1 else found
    if len(found) != rank:
        raise ArgumentError(f"{what} is one entry for all axes or {rank} of them, got {given!r}.")
    return found


def per_axis(number: Any, rank: int, what: str, least: int = 1) -> Sizes:
    """One integer for each of `rank` axes, from one for all or one for each."""
    found = tuple(as_integer(n, what) for n in broadcast_to_axes(number, rank, what))
    if any(n < least for n in found):
        raise ArgumentError(f"{what} is one integer or {rank} of them, each at least {least}; got {number!r}.")
    return found


def per_axes(what: str, rank: int, **numbers: Any) -> list[Sizes]:
    """`per_axis` of several arguments, by name."""
    return [per_axis(number, rank, f"{what}: {name}") for name, number in numbers.items()]


def padding_pairs(padding: Any, rank: int, what: str) -> Pairs:
    """A pair (before, after) for each axis, from one integer for all, one for each, or pairs."""
    if isinstance(padding, str):
        raise ArgumentError(f"{what} is an integer, {rank} integers, {rank} pairs, 'same' or 'valid'; got {padding!r}.")
    ends = (per_axis(entry, 2, what, 0) for entry in broadcast_to_axes(padding, rank, what))
    return tuple((low, high) for low, high in ends)


def same_padding(sizes: Sizes, window: Sizes, stride: Sizes, dilation: Sizes) -> Pairs:
    """The padding with which there is one window for every `stride` elements, the odd one at the end."""
    found = []
    for n, k, s, d in zip(sizes, window, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)

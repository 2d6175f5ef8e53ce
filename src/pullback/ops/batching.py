"""Batching rules that families share: each takes arguments with batch axes and returns (result, batch axis)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import basis
from .dispatch import ndim, run, shape
from .op import Op

Axes = Sequence[int | None]


def move_batch_first(x: Any, axis: int | None, size: int | None = None) -> Any:
    """The batch axis in front; a value without one gets it by broadcasting if a size is given."""
    if axis is None:
        return x if size is None else basis.broadcast_to(x, (size, *shape(x)))
    return basis.moveaxis(x, axis, 0) if axis else x


def batch_pointwise(op: Op, size: int, args: Sequence[Any], axes: Axes, static: dict[str, Any]) -> tuple[Any, int]:
    """Batch axis first, then ones, so that the remaining axes still broadcast from the right."""
    highest, lowest, in_front = 0, 64, True
    for x, axis in zip(args, axes, strict=True):
        rank = ndim(x)
        if axis is not None:
            rank -= 1
            in_front = in_front and axis == 0
            if rank < lowest:
                lowest = rank
        if rank > highest:
            highest = rank
    if lowest < highest or not in_front:
        args = [align_rank(x, axis, highest) for x, axis in zip(args, axes, strict=True)]
    return run(op, args, static), 0


def batch_stacks(op: Op, size: int, args: Sequence[Any], axes: Axes, static: dict[str, Any]) -> tuple[Any, Any]:
    """For stacks of matrices: the batch axis in front of the other stack axes; those of several arguments broadcast."""
    rank = max(ndim(x) - (axis is not None) for x, axis in zip(args, axes, strict=True))
    out = run(op, [align_rank(x, axis, rank) for x, axis in zip(args, axes, strict=True)], static)
    return out, (0,) * len(out) if type(out) is tuple else 0


def align_rank(x: Any, axis: int | None, rank: int) -> Any:
    """The batch axis in front, then ones until `rank` axes follow it."""
    if axis is None:
        return x
    x = move_batch_first(x, axis)
    size, *rest = shape(x)
    return x if len(rest) == rank else basis.reshape(x, (size, *(1,) * (rank - len(rest)), *rest))


def batch_in_front(op: Op, size: int, args: Sequence[Any], axes: Axes, static: dict[str, Any]) -> tuple[Any, Any]:
    """Batch axis first, and each static parameter adjusted as its kind says: an axis grows by one, an order of axes
    too, with the batch axis in front, and a shape gets the batch size in front.
    """
    kinds = op.statics or {}
    shifted = {name: _shift_static(value, kinds[name].batching, size) for name, value in static.items()}
    out = run(op, [move_batch_first(x, axis, size) for x, axis in zip(args, axes, strict=True)], shifted)
    return out, (0,) * len(out) if type(out) is tuple else 0


def _shift_static(value: Any, how: str, size: int) -> Any:
    if how == "axis":
        return value + 1 if isinstance(value, int) else tuple(a + 1 for a in value)
    if how == "order":
        return (0, *(a + 1 for a in value))
    return (size, *value) if how == "shape" else value

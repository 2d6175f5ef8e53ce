"""`data_parallel`: a loss of one rank's samples in, the loss over the samples of all ranks out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..arrays.argument_checks import check_count, check_functions
from ..arrays.trees import flatten, map_tree
from ..errors import ArgumentError, ShapeError
from ..ops.collective.collectives import shared, total
from ..ops.collective.world import current_world
from ..ops.dispatch import as_value, shape
from ..ops.elementwise import pointwise
from ..ops.index.indexing import getitem
from ..ops.naming import name


def data_parallel(loss: Callable[..., Any], *, slices: int = 0) -> Callable[..., Any]:
    """The loss over the samples of all ranks, as a function of parameters that all ranks have in common and of a
    rank's own samples: `loss(params, *batch)` returns the sum over its samples, or a pair of the sum and how many there
    are (or weigh); then the result is the mean over all ranks' samples, wherever they lie. All derivatives of the
    result are those of the whole loss, the same on all ranks.

    With `slices`, the batch of all ranks is cut into so many equal pieces along the first axis, of which each rank has
    its share, and sums go over pieces: the result has the same bits on any number of ranks whose share is a power of
    two.

    >>> import numpy as np, pullback as pb
    >>> x = np.arange(6.0)
    >>> loss = pb.distributed.data_parallel(lambda w, x: (pb.sum((w - x) ** 2), len(x)))
    >>> def gradient():
    ...     mine = x[:1] if pb.distributed.rank() == 0 else x[1:]  # uneven
    ...     return float(pb.grad(loss)(1.0, mine).round(12))
    >>> pb.distributed.run(gradient, 2), float(pb.grad(loss)(1.0, x))
    ([-3.0, -3.0], -3.0)
    """
    check_functions("data_parallel", loss)
    count = check_count(slices, "data_parallel: slices", 0)

    @functools.wraps(loss)
    def over_ranks(params: Any, *batch: Any, **options: Any) -> Any:
        mine = shared(params)
        if not count:
            return _mean(total(_as_pair(loss(mine, *batch, **options))))
        pieces = _cut(batch, count)
        return _mean(total(_sum_over(pieces, mine, lambda p, piece: _as_pair(loss(p, *piece, **options)))))

    return over_ranks


def _as_pair(found: Any) -> tuple[Any, ...]:
    """A sum, or a sum and a weight, as values."""
    pair = found if isinstance(found, tuple) else (found,)
    if len(pair) > 2 or any(shape(as_value(x)) for x in pair):
        raise ArgumentError(
            "data_parallel: the loss returns a number, or a pair of numbers: the sum over samples and their count."
        )
    return tuple(map(as_value, pair))


def _mean(pair: tuple[Any, ...]) -> Any:
    return pair[0] if len(pair) == 1 else pointwise.divide(*pair)


def _sum_over(pieces: list[Any], params: Any, run: Callable[[Any, Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Sums by a binary tree over pieces, of which that of ranks is the upper part. The parameters branch as the tree
    does, so their gradients are summed by the same one.
    """
    if len(pieces) == 1:
        return run(params, pieces[0])
    half = len(pieces) // 2
    branches = [map_tree(lambda x: name(x, "slice"), params) for _ in range(2)]
    parts = (_sum_over(own, branch, run) for own, branch in zip((pieces[:half], pieces[half:]), branches, strict=True))
    return tuple(map(pointwise.add, *parts))


def _cut(batch: tuple[Any, ...], slices: int) -> list[tuple[Any, ...]]:
    """This rank's pieces of a batch."""
    world = current_world()
    own, rest = divmod(slices, world.size)
    if rest or own & (own - 1):
        raise ArgumentError(
            f"data_parallel: {slices} slices on {world.size} ranks are not a power of two for each.\n"
            "  Choose a power of two times the number of ranks."
        )
    sizes = {shape(as_value(x))[:1] for x in flatten(batch)[0]}
    (size,) = next(iter(sizes), (0,)) or (0,)
    if len(sizes) != 1 or size % own or not size:
        raise ShapeError(
            f"data_parallel: this rank's {own} slices want batches whose first axis is a multiple of {own}, "
            f"the same for all; got {sorted(sizes)}."
        )
    step = size // own
    return [
        tuple(map_tree(lambda x, at=at: getitem(as_value(x), slice(at, at + step)), part) for part in batch)
        for at in range(0, size, step)
    ]

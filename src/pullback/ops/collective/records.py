"""Collectives as ops. A value is common, the same on all ranks, or own, another one on each; every collective is a
linear map between the two kinds, and its transpose is another collective. So derivatives of every order, batches and
compiled programs follow from the records.

    total           own -> common   the sum                 shared          common -> own   the value itself
    whole           own -> common   parts joined            part            common -> own   this rank's part
    broadcast       own -> common   one rank's value        keep_at         common -> own   zeros on the other ranks
    all_gather      own -> own      parts joined            reduce_scatter  own -> own      this rank's part of the sum
    all_to_all, permute             own -> own, transposed by themselves in the other direction

Those on the right of the first three lines move nothing. Each call runs once, in the order of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...errors import ShapeError, WorldError
from .. import statics
from ..dispatch import apply
from ..families import general, linear
from ..forms import View
from ..op import IMPURE
from ..op_samples import normal_samples
from .world import Combination, World, current_world, make_call

_RANKS = statics.integer(1)
_PAIRS = statics.Static("pairs of ranks, each once a source and once a target", lambda v, specs, static: are_pairs(v))


def _world_of(name: str, ranks: int) -> World:
    """The world of a call that was made, or traced, for so many ranks."""
    world = current_world()
    if world.size != ranks:
        raise WorldError(f"{name}: was traced for {ranks} ranks, and runs on {world.size}.\n  Trace it there.")
    return world


def meet(xp: Any, name: str, x: Any, ranks: int, combine: Combination, alike: str = "") -> Any:
    """The result of a collective for this rank. `alike`: what else all ranks must have given."""
    x = xp.asarray(x)
    call = make_call(name, f"{x.dtype.name}{list(x.shape)}{alike}")
    return _world_of(name, ranks).meet(call, x, combine)


def _add_up(arrays: Sequence[Any]) -> Any:
    """The sum by a binary tree over ranks, whose order follows from their number alone."""
    terms = list(arrays)
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0].copy() if len(arrays) == 1 else terms[0]


def _copies(x: Any, count: int) -> list[Any]:
    """The same numbers for each rank, in memory of its own."""
    return [x, *(x.copy() for _ in range(count - 1))]


def _join(xp: Any, name: str, x: Any, ranks: int, axis: int) -> Any:
    """The values of all ranks along an axis."""
    return meet(xp, name, x, ranks, lambda xs: _copies(xp.concatenate(xs, axis), ranks), f", axis={axis}")


def _part_of(x: Any, rank: int, ranks: int, axis: int) -> Any:
    size = x.shape[axis] // ranks
    return x[(slice(None),) * axis + (slice(rank * size, (rank + 1) * size),)]


def _split(x: Any, ranks: int, axis: int) -> list[Any]:
    return [_part_of(x, r, ranks, axis) for r in range(ranks)]


def _resized(x: Spec, axis: int, size: int) -> Spec:
    return make_spec((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, x.device)


def _joined(x: Spec, ranks: int, axis: int) -> Spec:
    return _resized(x, axis, x.shape[axis] * ranks)


def _parted(x: Spec, ranks: int, axis: int) -> Spec:
    if x.shape[axis] % ranks:
        raise ShapeError(f"axis {axis} of {x} cannot be split into {ranks} equal parts.")
    return _resized(x, axis, x.shape[axis] // ranks)


def are_pairs(pairs: Any) -> bool:
    ends = [*zip(*pairs, strict=True)] if pairs else [(), ()]
    return all(len(set(e)) == len(e) and all(isinstance(r, int) and r >= 0 for r in e) for e in ends)


_ALONE = normal_samples([(3,), (2, 2), (), (0,)], ranks=[1, 1, 1, 1])
_ALONG = normal_samples([(3,), (2, 2), (0,)], ranks=[1, 1, 1], axis=[0, 1, 0])
_ALONG_STATICS = {"ranks": _RANKS, "axis": statics.axis}

total_op = linear(
    "total",
    statics={"ranks": _RANKS},
    value=lambda xp, x, ranks: meet(xp, "total", x, ranks, lambda xs: _copies(_add_up(xs), ranks)),
    transpose=lambda bar, ranks: apply(shared_op, bar, ranks=ranks),
    samples=_ALONE,
    sums=True,
    effects=IMPURE,
)
shared_op = linear(
    "shared",
    statics={"ranks": _RANKS},
    value=lambda xp, x, ranks: xp.asarray(x),
    transpose=lambda bar, ranks: apply(total_op, bar, ranks=ranks),
    samples=_ALONE,
    form=View(lambda x, ranks: x),
)
whole_op = linear(
    "whole",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _join(xp, "whole", x, ranks, axis),
    spec=_joined,
    transpose=lambda bar, ranks, axis: apply(part_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
part_op = linear(
    "part",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _part_of(x, _world_of("part", ranks).rank, ranks, axis).copy(),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(whole_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
all_gather_op = linear(
    "all_gather",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _join(xp, "all_gather", x, ranks, axis),
    spec=_joined,
    transpose=lambda bar, ranks, axis: apply(reduce_scatter_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
reduce_scatter_op = linear(
    "reduce_scatter",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: meet(
        xp,
        "reduce_scatter",
        x,
        ranks,
        lambda xs: [p.copy() for p in _split(_add_up(xs), ranks, axis)],
        f", axis={axis}",
    ),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(all_gather_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    sums=True,
    effects=IMPURE,
)
broadcast_op = linear(
    "broadcast",
    statics={"ranks": _RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: meet(
        xp, "broadcast", x, ranks, lambda xs: _copies(xs[root].copy(), ranks), f", root={root}"
    ),
    transpose=lambda bar, ranks, root: apply(keep_at_op, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=IMPURE,
)
keep_at_op = linear(
    "keep_at",
    statics={"ranks": _RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: xp.array(x) if _world_of("keep_at", ranks).rank == root else xp.zeros_like(x),
    transpose=lambda bar, ranks, root: apply(broadcast_op, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=IMPURE,
)
all_to_all_op = linear(
    "all_to_all",
    statics={"ranks": _RANKS, "split": statics.axis, "join": statics.axis},
    value=lambda xp, x, ranks, split, join: meet(
        xp,
        "all_to_all",
        x,
        ranks,
        lambda xs: [xp.concatenate([_part_of(y, r, ranks, split) for y in xs], join) for r in range(ranks)],
        f", from axis {split} to axis {join}",
    ),
    spec=lambda x, ranks, split, join: _joined(_parted(x, ranks, split), ranks, join),
    transpose=lambda bar, ranks, split, join: apply(all_to_all_op, bar, ranks=ranks, split=join, join=split),
    samples=normal_samples([(3, 2), (2, 2)], ranks=[1, 1], split=[0, 1], join=[1, 1]),
    effects=IMPURE,
)


def _move(xp: Any, x: Any, ranks: int, pairs: tuple[tuple[int, int], ...]) -> Any:
    def combine(arrays: Sequence[Any]) -> list[Any]:
        came = {target: arrays[source].copy() for source, target in pairs}
        return [came[r] if r in came else xp.zeros_like(x) for r in range(ranks)]

    return meet(xp, "permute", x, ranks, combine, f", {', '.join(f'{a} to {b}' for a, b in pairs) or 'nowhere'}")


permute_op = linear(
    "permute",
    statics={"ranks": _RANKS, "pairs": _PAIRS},
    value=_move,
    transpose=lambda bar, ranks, pairs: apply(permute_op, bar, ranks=ranks, pairs=tuple((b, a) for a, b in pairs)),
    samples=normal_samples([(3,), (2, 2)], ranks=[1, 1], pairs=[((0, 0),), ()]),
    effects=IMPURE,
)


def _find_extreme(xp: Any, word: str, arrays: Sequence[Any]) -> Any:
    found = functools.reduce(getattr(xp, word), arrays)
    # alone, nothing was compared
    return found.astype(bool) if word.startswith("logical") else xp.array(found)


extreme_op = general(
    "extreme_of_ranks",
    statics={"ranks": _RANKS, "word": statics.choice("maximum", "minimum", "logical_or", "logical_and")},
    value=lambda xp, x, ranks, word: meet(xp, word, x, ranks, lambda xs: _copies(_find_extreme(xp, word, xs), ranks)),
    spec=lambda x, ranks, word: x if word in ("maximum", "minimum") else make_spec(x.shape, np.dtype(bool), x.device),
    samples=normal_samples([(3,), ()], ranks=[1, 1], word=["maximum", "minimum"]),
    effects=IMPURE,
)

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

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec, make_spec
from ...arrays.timing import MEETING, span
from ...errors import ShapeError, WorldError
from .. import statics
from ..dispatch import apply
from ..families import general, linear
from ..forms import View
from ..op import COLLECTIVE
from ..op_samples import normal_samples
from .exchange import Concatenation, Exchange, Extreme, FromRoot, Move, Sum, SumOfParts, Swap, part_of
from .world import World, current_world, make_call

#: What collectives take and give: values that ranks have in common, or of their own.
TO_COMMON, TO_OWN, OWN = ("own", "common"), ("common", "own"), ("own", "own")
RANKS = statics.integer(1)
_PAIRS = statics.Static("pairs of ranks, each once a source and once a target", lambda v, specs, static: are_pairs(v))


def world_of(name: str, ranks: int) -> World:
    """The world of a call that was made, or traced, for so many ranks."""
    world = current_world()
    if world.size != ranks:
        raise WorldError(f"{name}: was traced for {ranks} ranks, and runs on {world.size}.\n  Trace it there.")
    return world


def meet(xp: Any, name: str, x: Any, ranks: int, exchange: Exchange) -> Any:
    """The result of a collective for this rank."""
    return meet_many(xp, name, (x,), ranks, exchange)[0]


def meet_many(
    xp: Any, name: str, arrays: Any, ranks: int, exchange: Exchange, outs: Sequence[Any] | None = None
) -> list[Any]:
    """The results of a collective on several arrays at once, in the memory of `outs` where the engine takes it."""
    arrays = [as_native(xp.asarray(x)) for x in arrays]
    call = make_call(name, exchange, tuple([(x.dtype, x.shape) for x in arrays]))
    world = world_of(name, ranks)
    with span(MEETING, call):
        return world.meet(call, xp, arrays, exchange, outs)


def as_native(x: Any) -> Any:
    """An array in the byte order of this machine, in which others read it."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def _resized(x: Spec, axis: int, size: int) -> Spec:
    return make_spec((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, x.device)


def join_spec(x: Spec, ranks: int, axis: int) -> Spec:
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
_ALONG_STATICS = {"ranks": RANKS, "axis": statics.axis}

total_op = linear(
    "total",
    kinds=TO_COMMON,
    statics={"ranks": RANKS},
    value=lambda xp, x, ranks: meet(xp, "total", x, ranks, Sum()),
    transpose=lambda bar, ranks: apply(shared_op, bar, ranks=ranks),
    samples=_ALONE,
    effects=COLLECTIVE,
)
shared_op = linear(
    "shared",
    kinds=TO_OWN,
    statics={"ranks": RANKS},
    value=lambda xp, x, ranks: xp.asarray(x),
    transpose=lambda bar, ranks: apply(total_op, bar, ranks=ranks),
    samples=_ALONE,
    form=View(lambda x, ranks: x),
)


whole_op = linear(
    "whole",
    kinds=TO_COMMON,
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: meet(xp, "whole", x, ranks, Concatenation(axis)),
    spec=join_spec,
    transpose=lambda bar, ranks, axis: apply(part_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=COLLECTIVE,
)
part_op = linear(
    "part",
    kinds=TO_OWN,
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: part_of(x, world_of("part", ranks).rank, ranks, axis).copy(),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(whole_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=COLLECTIVE,
)
all_gather_op = linear(
    "all_gather",
    kinds=OWN,
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: meet(xp, "all_gather", x, ranks, Concatenation(axis)),
    spec=join_spec,
    transpose=lambda bar, ranks, axis: apply(reduce_scatter_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=COLLECTIVE,
)
#: The same for what is forgotten after use: a checkpoint gathers it again instead of keeping it.
regather_op = linear(
    "regather",
    kinds=OWN,
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: meet(xp, "all_gather", x, ranks, Concatenation(axis)),
    spec=join_spec,
    transpose=lambda bar, ranks, axis: apply(reduce_scatter_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=COLLECTIVE._replace(repeat=True),
)
reduce_scatter_op = linear(
    "reduce_scatter",
    kinds=OWN,
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: meet(xp, "reduce_scatter", x, ranks, SumOfParts(ranks, axis)),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(all_gather_op, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=COLLECTIVE,
)
broadcast_op = linear(
    "broadcast",
    kinds=TO_COMMON,
    statics={"ranks": RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: meet(xp, "broadcast", x, ranks, FromRoot(root)),
    transpose=lambda bar, ranks, root: apply(keep_at_op, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=COLLECTIVE,
)
keep_at_op = linear(
    "keep_at",
    kinds=TO_OWN,
    statics={"ranks": RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: xp.array(x) if world_of("keep_at", ranks).rank == root else xp.zeros_like(x),
    transpose=lambda bar, ranks, root: apply(broadcast_op, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=COLLECTIVE,
)
all_to_all_op = linear(
    "all_to_all",
    kinds=OWN,
    statics={"ranks": RANKS, "split": statics.axis, "join": statics.axis},
    value=lambda xp, x, ranks, split, join: meet(xp, "all_to_all", x, ranks, Swap(ranks, split, join)),
    spec=lambda x, ranks, split, join: join_spec(_parted(x, ranks, split), ranks, join),
    transpose=lambda bar, ranks, split, join: apply(all_to_all_op, bar, ranks=ranks, split=join, join=split),
    samples=normal_samples([(3, 2), (2, 2)], ranks=[1, 1], split=[0, 1], join=[1, 1]),
    effects=COLLECTIVE,
)


permute_op = linear(
    "permute",
    kinds=OWN,
    statics={"ranks": RANKS, "pairs": _PAIRS},
    value=lambda xp, x, ranks, pairs: meet(xp, "permute", x, ranks, Move(pairs)),
    transpose=lambda bar, ranks, pairs: apply(permute_op, bar, ranks=ranks, pairs=tuple((b, a) for a, b in pairs)),
    samples=normal_samples([(3,), (2, 2)], ranks=[1, 1], pairs=[((0, 0),), ()]),
    effects=COLLECTIVE,
)


extreme_op = general(
    "extreme_of_ranks",
    statics={"ranks": RANKS, "word": statics.choice("maximum", "minimum", "logical_or", "logical_and")},
    value=lambda xp, x, ranks, word: meet(xp, word, x, ranks, Extreme(word)),
    spec=lambda x, ranks, word: x if word in ("maximum", "minimum") else make_spec(x.shape, np.dtype(bool), x.device),
    samples=normal_samples([(3,), ()], ranks=[1, 1], word=["maximum", "minimum"]),
    effects=COLLECTIVE,
)

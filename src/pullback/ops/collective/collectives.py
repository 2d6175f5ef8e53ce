"""Collectives as ops. A value is common, the same on all ranks, or own, another one on each; every collective is a
linear map between the two kinds, and its transpose is another collective. So derivatives of every order, batches and
compiled programs follow from the records.

    total           own -> common   the sum                 shared          common -> own   the value itself
    whole           own -> common   parts joined            part            common -> own   this rank's part
    broadcast       own -> common   one rank's value        keep_at         common -> own   zeros on the other ranks
    all_gather      own -> own      parts joined            reduce_scatter  own -> own      this rank's part of the sum
    all_to_all, permute             own -> own, transposed by the way back

Those on the right of the first three lines move nothing. Each call runs once, in the order of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.argument_checks import short_repr
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError, ShapeError, WorldError
from .. import statics
from ..axes import as_integer, normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..families import general, linear
from ..forms import View
from ..index.indexing import getitem
from ..op import IMPURE
from ..op_samples import normal_samples
from ..shape.arrange import concat
from ..signatures import of_array
from .world import Combination, World, current_world, make_call

_RANKS = statics.integer(1)
_PAIRS = statics.Static("pairs of ranks, each once a source and once a target", lambda v, specs, static: _are_pairs(v))


def _world_of(name: str, ranks: int) -> World:
    """The world of a call that was made, or traced, for so many ranks."""
    world = current_world()
    if world.size != ranks:
        raise WorldError(f"{name}: was traced for {ranks} ranks, and runs on {world.size}.\n  Trace it there.")
    return world


def _meet(xp: Any, name: str, x: Any, ranks: int, combine: Combination, alike: str = "") -> Any:
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


def _are_pairs(pairs: Any) -> bool:
    ends = [*zip(*pairs, strict=True)] if pairs else [(), ()]
    return all(len(set(e)) == len(e) and all(isinstance(r, int) and r >= 0 for r in e) for e in ends)


_ALONE = normal_samples([(3,), (2, 2), (), (0,)], ranks=[1, 1, 1, 1])
_ALONG = normal_samples([(3,), (2, 2), (0,)], ranks=[1, 1, 1], axis=[0, 1, 0])
_ALONG_STATICS = {"ranks": _RANKS, "axis": statics.axis}

_total = linear(
    "total",
    statics={"ranks": _RANKS},
    value=lambda xp, x, ranks: _meet(xp, "total", x, ranks, lambda xs: _copies(_add_up(xs), ranks)),
    transpose=lambda bar, ranks: apply(_shared, bar, ranks=ranks),
    samples=_ALONE,
    sums=True,
    effects=IMPURE,
)
_shared = linear(
    "shared",
    statics={"ranks": _RANKS},
    value=lambda xp, x, ranks: xp.asarray(x),
    transpose=lambda bar, ranks: apply(_total, bar, ranks=ranks),
    samples=_ALONE,
    form=View(lambda x, ranks: x),
)
_whole = linear(
    "whole",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _meet(
        xp, "whole", x, ranks, lambda xs: _copies(xp.concatenate(xs, axis), ranks), f", axis={axis}"
    ),
    spec=_joined,
    transpose=lambda bar, ranks, axis: apply(_part, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
_part = linear(
    "part",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _part_of(x, _world_of("part", ranks).rank, ranks, axis).copy(),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(_whole, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
_all_gather = linear(
    "all_gather",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _meet(
        xp, "all_gather", x, ranks, lambda xs: _copies(xp.concatenate(xs, axis), ranks), f", axis={axis}"
    ),
    spec=_joined,
    transpose=lambda bar, ranks, axis: apply(_reduce_scatter, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    effects=IMPURE,
)
_reduce_scatter = linear(
    "reduce_scatter",
    statics=_ALONG_STATICS,
    value=lambda xp, x, ranks, axis: _meet(
        xp,
        "reduce_scatter",
        x,
        ranks,
        lambda xs: [p.copy() for p in _split(_add_up(xs), ranks, axis)],
        f", axis={axis}",
    ),
    spec=_parted,
    transpose=lambda bar, ranks, axis: apply(_all_gather, bar, ranks=ranks, axis=axis),
    samples=_ALONG,
    sums=True,
    effects=IMPURE,
)
_broadcast = linear(
    "broadcast",
    statics={"ranks": _RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: _meet(
        xp, "broadcast", x, ranks, lambda xs: _copies(xs[root].copy(), ranks), f", root={root}"
    ),
    transpose=lambda bar, ranks, root: apply(_keep_at, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=IMPURE,
)
_keep_at = linear(
    "keep_at",
    statics={"ranks": _RANKS, "root": statics.integer(0)},
    value=lambda xp, x, ranks, root: xp.array(x) if _world_of("keep_at", ranks).rank == root else xp.zeros_like(x),
    transpose=lambda bar, ranks, root: apply(_broadcast, bar, ranks=ranks, root=root),
    samples=normal_samples([(3,), (2, 2), (), (0,)], ranks=[1] * 4, root=[0] * 4),
    effects=IMPURE,
)
_all_to_all = linear(
    "all_to_all",
    statics={"ranks": _RANKS, "split": statics.axis, "join": statics.axis},
    value=lambda xp, x, ranks, split, join: _meet(
        xp,
        "all_to_all",
        x,
        ranks,
        lambda xs: [xp.concatenate([_part_of(y, r, ranks, split) for y in xs], join) for r in range(ranks)],
        f", from axis {split} to axis {join}",
    ),
    spec=lambda x, ranks, split, join: _joined(_parted(x, ranks, split), ranks, join),
    transpose=lambda bar, ranks, split, join: apply(_all_to_all, bar, ranks=ranks, split=join, join=split),
    samples=normal_samples([(3, 2), (2, 2)], ranks=[1, 1], split=[0, 1], join=[1, 1]),
    effects=IMPURE,
)


def _move(xp: Any, x: Any, ranks: int, pairs: tuple[tuple[int, int], ...]) -> Any:
    def combine(arrays: Sequence[Any]) -> list[Any]:
        came = {target: arrays[source].copy() for source, target in pairs}
        return [came[r] if r in came else xp.zeros_like(x) for r in range(ranks)]

    return _meet(xp, "permute", x, ranks, combine, f", {', '.join(f'{a} to {b}' for a, b in pairs) or 'nowhere'}")


_permute = linear(
    "permute",
    statics={"ranks": _RANKS, "pairs": _PAIRS},
    value=_move,
    transpose=lambda bar, ranks, pairs: apply(_permute, bar, ranks=ranks, pairs=tuple((b, a) for a, b in pairs)),
    samples=normal_samples([(3,), (2, 2)], ranks=[1, 1], pairs=[((0, 0),), ()]),
    effects=IMPURE,
)


def _find_extreme(xp: Any, word: str, arrays: Sequence[Any]) -> Any:
    found = functools.reduce(getattr(xp, word), arrays)
    # alone, nothing was compared
    return found.astype(bool) if word.startswith("logical") else xp.array(found)


_extreme = general(
    "extreme_of_ranks",
    statics={"ranks": _RANKS, "word": statics.choice("maximum", "minimum", "logical_or", "logical_and")},
    value=lambda xp, x, ranks, word: _meet(xp, word, x, ranks, lambda xs: _copies(_find_extreme(xp, word, xs), ranks)),
    spec=lambda x, ranks, word: x if word in ("maximum", "minimum") else make_spec(x.shape, np.dtype(bool), x.device),
    samples=normal_samples([(3,), ()], ranks=[1, 1], word=["maximum", "minimum"]),
    effects=IMPURE,
)


def _ranks() -> int:
    return current_world().size


@of_array
@attributed_to_caller
def total(x: Any, /) -> Any:
    """The sum of the ranks' own values, which all of them then have in common. The order of additions follows from the
    number of ranks alone.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.total(pb.distributed.rank() + 1.0)), 3)
    [6.0, 6.0, 6.0]
    """
    return apply(_total, as_value(x), ranks=_ranks())


@of_array
@attributed_to_caller
def shared(x: Any, /) -> Any:
    """A value that all ranks have in common, for each to use on its own: x itself, whose gradient is the total of what
    the ranks find. Parameters of a model go through it; nothing is sent.

    >>> import pullback as pb
    >>> def loss(w):
    ...     return pb.distributed.total(pb.distributed.shared(w) * (pb.distributed.rank() + 1.0))
    >>> pb.distributed.run(lambda: float(pb.grad(loss)(2.0)), 3)
    [6.0, 6.0, 6.0]
    """
    return apply(_shared, as_value(x), ranks=_ranks())


@of_array
@attributed_to_caller
def all_reduce(x: Any, /) -> Any:
    """The sum over ranks as a value of each rank's own: `shared(total(x))`. Its gradient is the sum of the ranks'
    gradients. For a loss that is summed once over all ranks, use `total`.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.all_reduce(2.0)), 2)
    [4.0, 4.0]
    """
    return shared(total(x))


@of_array
@attributed_to_caller
def all_gather(x: Any, /, axis: int = 0) -> Any:
    """The values of all ranks along an axis, as a value of each rank's own: gradients of a part are summed over ranks.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.all_gather(np.full(2, pb.distributed.rank())).tolist(), 2)
    [[0, 0, 1, 1], [0, 0, 1, 1]]
    """
    x = as_value(x)
    return apply(_all_gather, x, ranks=_ranks(), axis=normalize_axis(axis, ndim(x), "all_gather"))


@of_array
@attributed_to_caller
def reduce_scatter(x: Any, /, axis: int = 0) -> Any:
    """This rank's part, along an axis, of the sum over ranks: the transpose of `all_gather`.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.reduce_scatter(np.arange(4)).tolist(), 2)
    [[0, 2], [4, 6]]
    """
    x = as_value(x)
    axis = _divisible_axis(x, axis, "reduce_scatter")
    return apply(_reduce_scatter, x, ranks=_ranks(), axis=axis)


@of_array
@attributed_to_caller
def whole(x: Any, /, axis: int = 0) -> Any:
    """The parts of all ranks joined along an axis, as a common value.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.whole(np.full(1, pb.distributed.rank())).tolist(), 3)
    [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
    """
    x = as_value(x)
    return apply(_whole, x, ranks=_ranks(), axis=normalize_axis(axis, ndim(x), "whole"))


@of_array
@attributed_to_caller
def part(x: Any, /, axis: int = 0) -> Any:
    """This rank's part of a common value, along an axis: the transpose of `whole`. Nothing is sent.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.part(np.arange(4)).tolist(), 2)
    [[0, 1], [2, 3]]
    """
    x = as_value(x)
    return apply(_part, x, ranks=_ranks(), axis=_divisible_axis(x, axis, "part"))


@of_array
@attributed_to_caller
def broadcast(x: Any, /, root: int = 0) -> Any:
    """The value of one rank, which all of them then have in common.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.broadcast(pb.distributed.rank() * 2.0, root=1)), 3)
    [2.0, 2.0, 2.0]
    """
    return apply(_broadcast, as_value(x), ranks=_ranks(), root=_existing_rank(root, "broadcast: root"))


@of_array
@attributed_to_caller
def all_to_all(x: Any, /, split_axis: int = 0, concat_axis: int = 0) -> Any:
    """Each rank cuts its value along one axis, sends the i-th part to rank i, and joins what came along another.

    >>> import numpy as np, pullback as pb
    >>> def swap():
    ...     return pb.distributed.all_to_all(np.arange(2) + 10 * pb.distributed.rank()).tolist()
    >>> pb.distributed.run(swap, 2)
    [[0, 10], [1, 11]]
    """
    x = as_value(x)
    split = _divisible_axis(x, split_axis, "all_to_all")
    join = normalize_axis(concat_axis, ndim(x), "all_to_all")
    return apply(_all_to_all, x, ranks=_ranks(), split=split, join=join)


@of_array
@attributed_to_caller
def permute(x: Any, /, pairs: Sequence[tuple[int, int]]) -> Any:
    """Values go from rank to rank, as pairs (source, target) say; a rank that none comes to has zeros.

    >>> import pullback as pb
    >>> def ring():
    ...     return float(pb.distributed.permute(pb.distributed.rank() + 1.0, [(0, 1), (1, 2)]))
    >>> pb.distributed.run(ring, 3)
    [0.0, 1.0, 2.0]
    """
    known = tuple((_existing_rank(a, "permute"), _existing_rank(b, "permute")) for a, b in pairs)
    if not _are_pairs(known):
        raise ArgumentError(f"permute: each rank sends once and receives once at most, got {short_repr(known)}.")
    return apply(_permute, as_value(x), ranks=_ranks(), pairs=known)


@of_array
@attributed_to_caller
def shift(x: Any, /, by: int = 1, *, wrap: bool = False) -> Any:
    """The value of the rank `by` places before; zeros where there is none, or around the end with `wrap`.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.shift(pb.distributed.rank() + 1.0, wrap=True)), 3)
    [3.0, 1.0, 2.0]
    """
    by, n = as_integer(by, "shift: by"), _ranks()
    return permute(x, [(r, (r + by) % n) for r in range(n) if wrap or 0 <= r + by < n])


@of_array
@attributed_to_caller
def halo(x: Any, /, width: int = 1, axis: int = 0, *, wrap: bool = False) -> Any:
    """x with the neighbours' nearest elements along an axis at both ends; zeros beyond the first and the last rank, or
    around the end with `wrap`.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.halo(np.full(2, pb.distributed.rank() + 1)).tolist(), 2)
    [[0, 1, 1, 2], [1, 2, 2, 0]]
    """
    x = as_value(x)
    axis, width = normalize_axis(axis, ndim(x), "halo"), as_integer(width, "halo: width")
    size = shape(x)[axis]
    if not 0 <= width <= size:
        raise ArgumentError(f"halo: the width is between 0 and {size}, the size of axis {axis}, got {width}.")
    front = (slice(None),) * axis
    before = shift(getitem(x, (*front, slice(size - width, size))), 1, wrap=wrap)
    after = shift(getitem(x, (*front, slice(0, width))), -1, wrap=wrap)
    return concat([before, x, after], axis=axis)


@of_array
@attributed_to_caller
def largest(x: Any, /) -> Any:
    """The largest of the ranks' values, element by element, without derivative.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: int(pb.distributed.largest(pb.distributed.rank())), 3)
    [2, 2, 2]
    """
    return apply(_extreme, as_value(x), ranks=_ranks(), word="maximum")


@of_array
@attributed_to_caller
def smallest(x: Any, /) -> Any:
    """The smallest of the ranks' values, element by element, without derivative.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: int(pb.distributed.smallest(pb.distributed.rank())), 3)
    [0, 0, 0]
    """
    return apply(_extreme, as_value(x), ranks=_ranks(), word="minimum")


@of_array
@attributed_to_caller
def any_rank(x: Any, /) -> Any:
    """Whether something holds on any rank.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: bool(pb.distributed.any_rank(pb.distributed.rank() == 1)), 2)
    [True, True]
    """
    return apply(_extreme, as_value(x), ranks=_ranks(), word="logical_or")


@of_array
@attributed_to_caller
def all_ranks(x: Any, /) -> Any:
    """Whether something holds on all ranks.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: bool(pb.distributed.all_ranks(pb.distributed.rank() == 1)), 2)
    [False, False]
    """
    return apply(_extreme, as_value(x), ranks=_ranks(), word="logical_and")


@attributed_to_caller
def barrier() -> None:
    """Wait until all ranks are here.

    >>> import pullback as pb
    >>> pb.distributed.run(pb.distributed.barrier, 2)
    [None, None]
    """
    _meet(np, "barrier", np.zeros(()), _ranks(), lambda xs: xs)


def _existing_rank(rank: Any, what: str) -> int:
    found, ranks = as_integer(rank, what), _ranks()
    if not 0 <= found < ranks:
        raise ArgumentError(f"{what}: the ranks are 0 to {ranks - 1}, got {found}.")
    return found


def _divisible_axis(x: Any, axis: Any, what: str) -> int:
    found, ranks = normalize_axis(axis, ndim(x), what), _ranks()
    if shape(x)[found] % ranks:
        raise ShapeError(f"{what}: axis {found} of shape {shape(x)} cannot be split into {ranks} equal parts.")
    return found

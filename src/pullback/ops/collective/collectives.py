"""The public functions of collectives: arguments are checked, and the number of ranks is that of the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.argument_checks import short_repr
from ...arrays.call_site import attributed_to_caller
from ...arrays.trees import flatten, unflatten
from ...errors import ArgumentError, ShapeError
from ..axes import as_integer, normalize_axis
from ..dispatch import apply, as_value, ndim, shape
from ..index.indexing import getitem
from ..op import Op
from ..shape.arrange import concat
from ..signatures import of_array
from .agreement import barrier_op
from .kinds import check_kind
from .many import shares_op, totals_op
from .records import (
    all_gather_op,
    all_to_all_op,
    are_pairs,
    broadcast_op,
    extreme_op,
    part_op,
    permute_op,
    reduce_scatter_op,
    shared_op,
    total_op,
    whole_op,
)
from .world import current_world


def _ranks() -> int:
    return current_world().size


@attributed_to_caller
def total(x: Any, /) -> Any:
    """The sum of the ranks' own values, which all of them then have in common. The order of additions follows from the
    number of ranks alone. Of a tree all leaves are summed in one meeting.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.total(pb.distributed.rank() + 1.0)), 3)
    [6.0, 6.0, 6.0]
    """
    return _apply_to_leaves(total_op, totals_op, x)


@attributed_to_caller
def shared(x: Any, /) -> Any:
    """A value that all ranks have in common, for each to use on its own: x itself, whose gradient is the total of what
    the ranks find. Parameters of a model, a whole tree of them, go through it; nothing is sent.

    >>> import pullback as pb
    >>> def loss(w):
    ...     return pb.distributed.total(pb.distributed.shared(w) * (pb.distributed.rank() + 1.0))
    >>> pb.distributed.run(lambda: float(pb.grad(loss)(2.0)), 3)
    [6.0, 6.0, 6.0]
    """
    return _apply_to_leaves(shared_op, shares_op, x)


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
    return _apply(all_gather_op, x, axis=normalize_axis(axis, ndim(x), "all_gather"))


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
    return _apply(reduce_scatter_op, x, axis=axis)


@of_array
@attributed_to_caller
def whole(x: Any, /, axis: int = 0) -> Any:
    """The parts of all ranks joined along an axis, as a common value.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.whole(np.full(1, pb.distributed.rank())).tolist(), 3)
    [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
    """
    x = as_value(x)
    return _apply(whole_op, x, axis=normalize_axis(axis, ndim(x), "whole"))


@of_array
@attributed_to_caller
def part(x: Any, /, axis: int = 0) -> Any:
    """This rank's part of a common value, along an axis: the transpose of `whole`. Nothing is sent.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.part(np.arange(4)).tolist(), 2)
    [[0, 1], [2, 3]]
    """
    x = as_value(x)
    return _apply(part_op, x, axis=_divisible_axis(x, axis, "part"))


@of_array
@attributed_to_caller
def broadcast(x: Any, /, root: int = 0) -> Any:
    """The value of one rank, which all of them then have in common.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: float(pb.distributed.broadcast(pb.distributed.rank() * 2.0, root=1)), 3)
    [2.0, 2.0, 2.0]
    """
    return _apply(broadcast_op, x, root=_existing_rank(root, "broadcast: root"))


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
    return _apply(all_to_all_op, x, split=split, join=join)


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
    if not are_pairs(known):
        raise ArgumentError(f"permute: each rank sends once and receives once at most, got {short_repr(known)}.")
    return _apply(permute_op, x, pairs=known)


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
    return apply(extreme_op, as_value(x), ranks=_ranks(), word="maximum")


@of_array
@attributed_to_caller
def smallest(x: Any, /) -> Any:
    """The smallest of the ranks' values, element by element, without derivative.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: int(pb.distributed.smallest(pb.distributed.rank())), 3)
    [0, 0, 0]
    """
    return apply(extreme_op, as_value(x), ranks=_ranks(), word="minimum")


@of_array
@attributed_to_caller
def any_rank(x: Any, /) -> Any:
    """Whether something holds on any rank.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: bool(pb.distributed.any_rank(pb.distributed.rank() == 1)), 2)
    [True, True]
    """
    return apply(extreme_op, as_value(x), ranks=_ranks(), word="logical_or")


@of_array
@attributed_to_caller
def all_ranks(x: Any, /) -> Any:
    """Whether something holds on all ranks.

    >>> import pullback as pb
    >>> pb.distributed.run(lambda: bool(pb.distributed.all_ranks(pb.distributed.rank() == 1)), 2)
    [False, False]
    """
    return apply(extreme_op, as_value(x), ranks=_ranks(), word="logical_and")


@attributed_to_caller
def barrier() -> None:
    """Wait until all ranks are here.

    >>> import pullback as pb
    >>> pb.distributed.run(pb.distributed.barrier, 2)
    [None, None]
    """
    apply(barrier_op, ranks=_ranks(), text="")


def _apply_to_leaves(one: Op, many: Op, tree: Any) -> Any:
    """An op on a value, or on all leaves of a tree at once."""
    leaves, structure = flatten(tree)
    if len(leaves) == 1:
        return unflatten(structure, [_apply(one, leaves[0])])
    for x in leaves:
        check_kind(many, x)
    more = {"names": ()} if many is totals_op else {}
    return unflatten(structure, list(apply(many, *map(as_value, leaves), ranks=_ranks(), **more))) if leaves else tree


def _apply(op: Op, x: Any, **static: Any) -> Any:
    """A collective on a value of the right kind."""
    check_kind(op, x)
    return apply(op, as_value(x), ranks=_ranks(), **static)


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

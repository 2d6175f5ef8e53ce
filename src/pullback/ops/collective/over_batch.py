"""Ops that read a value of all elements of a `vmap`, each written for one element.

`place` is the number of the element. It alone says which batch is meant: in the `vmap` whose elements it counts it has
a batch axis, in any other one it has none. So these ops find their batch by the flow of values, also in the programs of
loops and in backward passes, and nothing has to be looked up when they run.

Without that batch each says what it is if all elements have the same x, which is what a value in common means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...arrays.backends import namespace_on
from ...arrays.spec import Spec, make_spec, spec_of
from .. import basis, statics
from ..dispatch import apply, ndim, run
from ..elementwise import pointwise
from ..families import linear
from ..index.indexing import take
from ..op import PURE, Op
from ..op_samples import Sampler
from ..reduce.reductions import sum as summed

_SIZE = statics.integer(1)
#: Elements that run a branch alone would sum over others that do not.
_OVER_BATCH = PURE._replace(by_element=False)
#: What batching rules take and return.
_Args: TypeAlias = Sequence[Any]
_Axes: TypeAlias = Sequence[int | None]
_Batch: TypeAlias = tuple[Any, int | None]


def _samples(*shapes: tuple[int, ...], **static: Any) -> Sampler:
    place = np.asarray(0)
    return lambda rng: [((np.asarray(rng.normal(size=s)), place), {"size": 1, **static}) for s in shapes]


def _first(place: Any, own: int | None) -> Any:
    """The number of the element in its own batch, where that is not the batch at hand: one for all."""
    return place if own is None else take(place, 0, axis=own)


def _batch_sum(op: Op, size: int, args: _Args, axes: _Axes, static: dict[str, Any]) -> _Batch:
    (x, place), (axis, own) = args, axes
    if own is None or size != static["size"]:
        return run(op, [x, _first(place, own)], static), axis
    return (pointwise.multiply(x, size) if axis is None else summed(x, axis=axis)), None


#: The sum over all elements, which is its own transpose: each element's cotangent is the sum of all.
sum_op = linear(
    "sum_over_batch",
    value=lambda xp, x, place, size: x * size,
    transpose={"x": lambda bar, place, size: apply(sum_op, bar, place, size=size)},
    batch=_batch_sum,
    samples=_samples((3,), (2, 2), (), (0,)),
    statics={"size": _SIZE},
    effects=_OVER_BATCH,
    sums=True,
)


def _stacked_spec(x: Spec, place: Spec, size: int) -> Spec:
    return make_spec((size, *x.shape), x.dtype, x.device)


def _batch_gather(op: Op, size: int, args: _Args, axes: _Axes, static: dict[str, Any]) -> _Batch:
    (x, place), (axis, own) = args, axes
    if own is None or size != static["size"]:
        return run(op, [x, _first(place, own)], static), None if axis is None else axis + 1
    if axis is None:
        return basis.broadcast_to(x, (size, *spec_of(x).shape)), None
    return (basis.moveaxis(x, axis, 0) if axis else x), None


#: The values of all elements, stacked.
gather_op = linear(
    "gather_batch",
    value=lambda xp, x, place, size: xp.broadcast_to(x, (size, *x.shape)).copy(),
    spec=_stacked_spec,
    transpose={"x": lambda bar, place, size: apply(scatter_op, bar, place, size=size)},
    batch=_batch_gather,
    samples=_samples((3,), (2, 2), (), (0,)),
    statics={"size": _SIZE},
    effects=_OVER_BATCH,
)


def _batch_scatter(op: Op, size: int, args: _Args, axes: _Axes, static: dict[str, Any]) -> _Batch:
    (x, place), (axis, own) = args, axes
    if own is None or size != static["size"]:
        last = ndim(x) - 1
        moved = x if axis in (None, last) else basis.moveaxis(x, axis, last)
        return run(op, [moved, _first(place, own)], static), None if axis is None else last - 1
    return (pointwise.multiply(x, size) if axis is None else summed(x, axis=axis)), 0


#: Row i of the sum over all elements, for element i: what a gather passes back.
scatter_op = linear(
    "scatter_to_batch",
    value=lambda xp, x, place, size: xp.take(x, place, axis=0) * size,
    spec=lambda x, place, size: make_spec(x.shape[1:], x.dtype, x.device),
    transpose={"x": lambda bar, place, size: apply(gather_op, bar, place, size=size)},
    batch=_batch_scatter,
    samples=_samples((1, 3), (1, 2, 2), (1,), (1, 0)),
    statics={"size": _SIZE},
    effects=_OVER_BATCH,
    sums=True,
)


def _inverse(sources: tuple[int, ...]) -> tuple[int, ...]:
    """From which element each got its value, if these are from which each gets one; -1 is none."""
    found = [-1] * len(sources)
    for target, source in enumerate(sources):
        if source >= 0:
            found[source] = target
    return tuple(found)


def _batch_permute(op: Op, size: int, args: _Args, axes: _Axes, static: dict[str, Any]) -> _Batch:
    (x, place), (axis, own) = args, axes
    if own is None or size != len(static["sources"]):
        return run(op, [x, _first(place, own)], static), axis
    xp = namespace_on(spec_of(x).device)
    sources = xp.asarray(static["sources"])
    stacked = basis.broadcast_to(x, (size, *spec_of(x).shape)) if axis is None else basis.moveaxis(x, axis, 0)
    taken = take(stacked, xp.maximum(sources, 0), axis=0)
    given = (sources >= 0).reshape(size, *(1,) * (ndim(stacked) - 1))
    return pointwise.where(given, taken, xp.zeros((), spec_of(x).dtype)), 0


#: To each element the value of another one, to those that none is sent to zeros.
permute_op = linear(
    "permute_batch",
    value=lambda xp, x, place, sources: xp.where(xp.take(xp.asarray(sources), place) >= 0, x, xp.zeros((), x.dtype)),
    spec=lambda x, place, sources: x,
    transpose={"x": lambda bar, place, sources: apply(permute_op, bar, place, sources=_inverse(sources))},
    batch=_batch_permute,
    samples=lambda rng: [
        ((np.asarray(rng.normal(size=s)), np.asarray(0)), {"sources": sources})
        for s, sources in (((3,), (0,)), ((2, 2), (-1,)))
    ],
    statics={"sources": statics.integers(-1)},
    effects=_OVER_BATCH,
)

"""Sums over ranks in the order that every engine has, so with the same bits: a binary tree over ranks.

Arrays of one dtype are put end to end. Each rank gets a part of them from every other, adds these up, and all parts are
gathered. Two ranks, or few bytes, are gathered whole and added up by each: one call of NCCL instead of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arrays.spec import HALF_CODES
from ....ops.collective.exchange import add_up
from .communicator import Communicator, is_summed

#: Sums of more bytes are divided among ranks.
_DIVIDED = 1 << 15
#: Bytes that the parts of ranks are multiples of, which every dtype fits into.
_UNIT = 64


class FlatSum:
    """The sum of all arrays of one dtype: `places` are their numbers, `result` is memory for it, which may have a rest
    at the end.
    """

    def __init__(self, xp: Any, arrays: Sequence[Any], places: Sequence[int], ranks: int, is_ordered: bool) -> None:
        self.dtype = arrays[places[0]].dtype
        self.places = places
        self.count = sum(arrays[i].size for i in places)
        nbytes = self.count * self.dtype.itemsize
        self.is_ordered = is_ordered or _real_dtype(xp, self.dtype) is None
        self.is_divided = self.is_ordered and ranks > 2 and nbytes > _DIVIDED
        #: Elements that a rank adds up.
        self.share = -(-nbytes // ranks // _UNIT) * _UNIT // self.dtype.itemsize if self.is_divided else self.count
        self.result = xp.empty(self.share * ranks if self.is_divided else self.count, self.dtype)

    def pack(self, xp: Any, arrays: Sequence[Any]) -> Any:
        """The arrays end to end, as long as the result."""
        pieces = [xp.ascontiguousarray(arrays[i]).reshape(-1) for i in self.places]
        if (rest := self.result.size - self.count) > 0:
            pieces.append(xp.zeros(rest, self.dtype))
        return xp.concatenate(pieces) if len(pieces) > 1 else pieces[0]


def plan_sums(xp: Any, arrays: Sequence[Any], ranks: int, is_ordered: bool) -> list[FlatSum]:
    """What to sum together. Arrays without elements have no sum."""
    dtypes = dict.fromkeys(x.dtype for x in arrays if x.size)
    places = [[i for i, x in enumerate(arrays) if x.dtype == dtype and x.size] for dtype in dtypes]
    return [FlatSum(xp, arrays, each, ranks, is_ordered) for each in places]


def sum_over_ranks(
    xp: Any, comm: Communicator, rank: int, ranks: int, arrays: Sequence[Any], sums: Sequence[FlatSum]
) -> None:
    """Queue the sums. Memory that is used on the way may be freed now: CuPy's pool keeps to the order of the stream."""
    ordered = [s for s in sums if s.is_ordered]
    sent = [s.pack(xp, arrays) for s in ordered]
    came = [xp.empty((ranks, s.share), s.dtype) for s in ordered]
    with comm.group():
        for s, x, out in zip(ordered, sent, came, strict=True):
            if s.is_divided:
                _send_parts(comm, rank, x.reshape(ranks, s.share), out)
            else:
                comm.all_gather(x, out)
    terms = [_own_and_others(s, rank, x, out) for s, x, out in zip(ordered, sent, came, strict=True)]
    shares = [add_up(xp, each) for each in terms]
    with comm.group():
        for s, share in zip(ordered, shares, strict=True):
            if s.is_divided:
                comm.all_gather(share, s.result)
    for s, share in zip(ordered, shares, strict=True):
        if not s.is_divided:
            s.result[...] = share
    for s in sums:
        if not s.is_ordered:
            _reduce(xp, comm, s.pack(xp, arrays), s.result)


def collect_sums(arrays: Sequence[Any], sums: Sequence[FlatSum]) -> list[Any]:
    """The sum for each array, as a part of the memory of its dtype; a copy of those without elements."""
    results = [None if x.size else x.copy() for x in arrays]
    for s in sums:
        end = 0
        for i in s.places:
            start, end = end, end + arrays[i].size
            results[i] = s.result[start:end].reshape(arrays[i].shape)
    return results


def _send_parts(comm: Communicator, rank: int, parts: Any, came: Any) -> None:
    """Each other rank gets its part, and its own of all others come here."""
    for other in [r for r in range(len(parts)) if r != rank]:
        comm.send(parts[other], other)
        comm.receive(came[other], other)


def _own_and_others(s: FlatSum, rank: int, sent: Any, came: Any) -> list[Any]:
    """The terms of a sum, in the order of the ranks."""
    if not s.is_divided:
        return list(came)
    return [sent.reshape(came.shape)[rank] if r == rank else row for r, row in enumerate(came)]


def _real_dtype(xp: Any, dtype: Any) -> Any:
    """The dtype in which NCCL sums numbers of another; None if it does not."""
    if dtype.char in HALF_CODES:
        return xp.dtype(xp.float32)
    if dtype.kind == "c":
        return xp.dtype(f"f{dtype.itemsize // 2}")
    return dtype if is_summed(dtype) else None


def _reduce(xp: Any, comm: Communicator, x: Any, out: Any) -> None:
    """NCCL's own sum; half precision in float32, rounded once."""
    real = _real_dtype(xp, x.dtype)
    if x.dtype.char not in HALF_CODES:
        comm.all_reduce(x.view(real), out.view(real))
        return
    widened = x.astype(real)
    comm.all_reduce(widened, widened)
    out[...] = widened.astype(out.dtype)

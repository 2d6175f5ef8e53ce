"""Exchanges of ranks by calls of NCCL, in order, on CuPy's current stream: nothing here waits for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ops.collective.exchange import Concatenation, Exchange, FromRoot
from .communicator import Communicator
from .sums import FlatSum, collect_sums, plan_sums, sum_over_ranks

#: Arrays lie at multiples of this in what is sent together.
_ALIGNMENT = 64


class Lane:
    """The collectives of one communicator. `number` counts the GPUs of the rank, in the order of their first use."""

    def __init__(self, comm: Communicator, rank: int, size: int, number: int, is_ordered: bool) -> None:
        self.comm, self.rank, self.size, self.number, self._is_ordered = comm, rank, size, number, is_ordered

    def plan_sums(self, xp: Any, arrays: Sequence[Any]) -> list[FlatSum]:
        """Memory for the sums of arrays over ranks."""
        return plan_sums(xp, arrays, self.size, self._is_ordered)

    def sum(self, xp: Any, arrays: Sequence[Any], sums: Sequence[FlatSum]) -> list[Any]:
        sum_over_ranks(xp, self.comm, self.rank, self.size, arrays, sums)
        return collect_sums(arrays, sums)

    def exchange(self, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        """Any exchange but a sum."""
        if type(exchange) is FromRoot:
            return self._broadcast(xp, arrays, exchange.root)
        if type(exchange) is Concatenation and exchange.axis == 0 and len(arrays) == 1:
            return [self._gather_rows(xp, arrays[0])]
        if exchange.to_all:
            return self._gather(xp, arrays, exchange)
        return self._swap(xp, arrays, exchange)

    def _gather_rows(self, xp: Any, x: Any) -> Any:
        """Arrays of all ranks along their first axis, which is how they come."""
        out = xp.empty((self.size * x.shape[0], *x.shape[1:]), x.dtype)
        if x.size:
            self.comm.all_gather(xp.ascontiguousarray(x), out)
        return out

    def _gather(self, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        """Everything to everyone."""
        packed = _pack(xp, arrays)
        came = xp.empty((self.size, packed.size), xp.uint8)
        if packed.size:
            self.comm.all_gather(packed, came)
        of_ranks = [_unpack(xp, row, arrays) for row in came]
        results = []
        for i, x in enumerate(arrays):
            parts = [exchange.part(row[i], s, self.rank) for s, row in enumerate(of_ranks)]
            results.append(exchange.join(xp, parts, x))
        return results

    def _broadcast(self, xp: Any, arrays: Sequence[Any], root: int) -> list[Any]:
        results = [xp.empty(x.shape, x.dtype) for x in arrays]
        with self.comm.group():
            for x, out in zip(arrays, results, strict=True):
                if x.size:
                    self.comm.broadcast(xp.ascontiguousarray(x), out, root)
        return results

    def _swap(self, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        """To each rank what is for it; all ranks have arrays of the same shapes, so each knows what will come."""
        ranks = range(self.size)
        sent = [[_contiguous(xp, exchange.part(x, self.rank, t)) for t in ranks] for x in arrays]
        came = [[self._place_for(xp, exchange, x, s) for s in ranks] for x in arrays]
        with self.comm.group():
            for out_going, in_coming in zip(sent, came, strict=True):
                for other in [r for r in ranks if r != self.rank]:
                    if out_going[other] is not None and out_going[other].size:
                        self.comm.send(out_going[other], other)
                    if in_coming[other] is not None and in_coming[other].size:
                        self.comm.receive(in_coming[other], other)
        return [exchange.join(xp, parts, x) for parts, x in zip(came, arrays, strict=True)]

    def _place_for(self, xp: Any, exchange: Exchange, x: Any, source: int) -> Any:
        """Memory for what comes from a rank; from itself, what there is."""
        like = exchange.part(x, source, self.rank)
        return like if like is None or source == self.rank else xp.empty(like.shape, like.dtype)


def _contiguous(xp: Any, x: Any) -> Any:
    return None if x is None else xp.ascontiguousarray(x)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pack(xp: Any, arrays: Sequence[Any]) -> Any:
    """The bytes of arrays, one behind the other."""
    if len(arrays) == 1:
        return xp.ascontiguousarray(arrays[0]).reshape(-1).view(xp.uint8)
    packed = xp.empty(sum(_aligned(x.nbytes) for x in arrays), xp.uint8)
    for x, place in zip(arrays, _unpack(xp, packed, arrays), strict=True):
        place[...] = x
    return packed


def _unpack(xp: Any, packed: Any, like: Sequence[Any]) -> list[Any]:
    """Views of packed arrays."""
    found, at = [], 0
    for x in like:
        piece = packed[at : at + x.nbytes]
        found.append(piece.view(x.dtype).reshape(x.shape) if x.size else xp.empty(x.shape, x.dtype))
        at += _aligned(x.nbytes)
    return found

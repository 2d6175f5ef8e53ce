"""Ranks that are processes of several machines: their arrays travel as bytes in MPI's messages.

Sums are added up here, in the order that every engine has: each rank gets a part of all arrays, adds it up, and all
parts are gathered. MPI's own sums would depend on the number of ranks, the size and the version of the library.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import RankLostError, WorldError
from ...ops.collective.exchange import Exchange, FromRoot, Move, Nothing, Sum
from ...ops.collective.world import CANNOT_SHRINK, Call, Finished, Started, World, caller_line, mismatch_error
from .beside import Beside, has_free_core
from .peers import ANSWER_SECONDS, ENDED, RAISED, describe_place, run_bounded, wait_until
from .side_channel import SideChannel
from .staging import Staged, copy_to_host
from .sums import add_up_into

#: Sums of more bytes are divided among ranks; below, each rank adds up everything.
_DIVIDED = 1 << 15
#: Arrays lie at multiples of this in messages, which suits every dtype. MPI counts in units of it, since it counts no
#: further than 2^31.
_UNIT = 64
_NOT_TOGETHER = "shrink: the ranks that are left did not all come to it within {:g} s."


class Lane:
    """Collectives in order, on a communicator of their own; several lanes of the same ranks do not wait for each
    other.
    """

    def __init__(self, mpi: Any, comm: Any, peers: SideChannel, channel: int, timeout: float) -> None:
        #: How many collectives this rank came to, and how many it is through with.
        self.count = self.done = 0
        #: The user's line that the current collective comes from.
        self.find_line: Callable[[], str] = caller_line
        self.rank, self.size, self.timeout = comm.rank, comm.size, timeout
        self._mpi, self._comm, self._peers, self._channel = mpi, comm, peers, channel
        self._unit = mpi.BYTE.Create_contiguous(_UNIT).Commit()
        self._digests = np.zeros((2, 2), np.int64)

    def meet(self, call: Call, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        try:
            self._agree(call)
            results = self._exchange(call, arrays, exchange)
        except self._mpi.Exception as problem:
            raise self._explain(call, problem) from problem
        self.done = self.count
        return results

    def _explain(self, call: Call, problem: Exception) -> WorldError:
        """The error to raise where MPI raised one: it may know of a death before it is known whose."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while (trouble := self._find_absence(call)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        text = f"rank {self.rank} could not complete collective {self.count}, {self._describe(call)}: {problem}"
        return trouble or RankLostError(text)

    def _find_absence(self, call: Call) -> WorldError | None:
        return self._peers.find_absence(self.count, self._channel, lambda: self._describe(call))

    def _describe(self, call: Call) -> str:
        return f"{call} at {self.find_line()}"

    def _agree(self, call: Call) -> None:
        """Wait until all ranks are here, and check that they are for the same: the largest and the smallest digest."""
        self.count += 1
        mine, found = self._digests
        mine[:] = call.digest, -call.digest
        self._wait(call, self._comm.Iallreduce(mine, found, self._mpi.MAX))
        if found[0] != call.digest or found[1] != -call.digest:
            sides = self._peers.gather_texts(self.count, self._describe(call))
            raise mismatch_error(self.count, [side or "did not tell what it called" for side in sides])

    def _wait(self, call: Call, request: Any) -> None:
        def check() -> None:
            if (trouble := self._find_absence(call)) is not None:
                raise trouble

        def give_up() -> Exception:
            return self._peers.late_error(self.count, self._describe(call), self.timeout, self._channel)

        wait_until(request.Test, self.timeout, check, give_up)

    def _exchange(self, call: Call, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        if type(exchange) is Nothing or not arrays:
            return list(arrays)
        if type(exchange) is Sum and sum(x.nbytes for x in arrays) > _DIVIDED:
            return self._sum_divided(call, arrays)
        if exchange.to_all:
            return self._gather(call, arrays, exchange)
        if type(exchange) is FromRoot:
            return self._broadcast(call, arrays, exchange.root)
        if type(exchange) is Move:
            return [self._move(call, x, exchange) for x in arrays]
        return [self._swap(call, x, exchange) for x in arrays]

    def _gather(self, call: Call, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        """Everything to everyone."""
        packed = _pack(arrays)
        came = np.empty((self.size, len(packed)), np.uint8)
        self._wait(call, self._comm.Iallgather(self._units(packed), self._units(came, self.size)))
        of_ranks = [_unpack(row, arrays) for row in came]
        results = []
        for i, x in enumerate(arrays):
            parts = [exchange.part(row[i], s, self.rank) for s, row in enumerate(of_ranks)]
            results.append(exchange.join(np, parts, x))
        return results

    def _sum_divided(self, call: Call, arrays: Sequence[Any]) -> list[Any]:
        results: list[Any] = [None] * len(arrays)
        for dtype in dict.fromkeys(x.dtype for x in arrays):
            places = [i for i, x in enumerate(arrays) if x.dtype == dtype]
            flat = [np.ascontiguousarray(arrays[i]).reshape(-1) for i in places]
            total = self._sum_flat(call, np.concatenate(flat) if len(flat) > 1 else flat[0])
            ends = np.cumsum([len(x) for x in flat])
            for i, x, end in zip(places, flat, ends, strict=True):
                results[i] = total[end - len(x) : end].reshape(arrays[i].shape)
        return results

    def _sum_flat(self, call: Call, x: Any) -> Any:
        """The sum of a flat array, of which each rank adds up a part."""
        share = -(-len(x) * x.itemsize // self.size // _UNIT) * _UNIT // x.itemsize
        padded = np.zeros((self.size, share), x.dtype)
        padded.reshape(-1)[: len(x)] = x
        came = np.empty_like(padded)
        self._wait(call, self._comm.Ialltoall(self._units(padded, self.size), self._units(came, self.size)))
        mine = np.empty(share, x.dtype)
        add_up_into(list(came), mine)
        self._wait(call, self._comm.Iallgather(self._units(mine), self._units(padded, self.size)))
        return padded.reshape(-1)[: len(x)]

    def _broadcast(self, call: Call, arrays: Sequence[Any], root: int) -> list[Any]:
        packed = _pack(arrays)
        self._wait(call, self._comm.Ibcast(self._units(packed), root))
        return [x.copy() for x in _unpack(packed, arrays)]

    def _swap(self, call: Call, x: Any, exchange: Exchange) -> Any:
        """A part to each; parts are of equal size."""
        parts = [exchange.part(x, self.rank, t) for t in range(self.size)]
        sent = np.stack([_pack([p]) for p in parts])
        came = np.empty_like(sent)
        self._wait(call, self._comm.Ialltoall(self._units(sent, self.size), self._units(came, self.size)))
        return exchange.join(np, [_unpack(row, parts[:1])[0] for row in came], x)

    def _move(self, call: Call, x: Any, exchange: Move) -> Any:
        sent = _pack([x])
        came = np.empty_like(sent)
        requests = [self._comm.Isend(self._units(sent), t) for s, t in exchange.pairs if s == self.rank]
        sources = [s for s, t in exchange.pairs if t == self.rank]
        requests += [self._comm.Irecv(self._units(came), s) for s in sources]
        for request in requests:
            self._wait(call, request)
        parts = [_unpack(came, [x])[0] if s in sources else None for s in range(self.size)]
        return exchange.join(np, parts, x)

    def _units(self, x: Any, ranks: int = 1) -> list[Any]:
        """An array as MPI takes it; for each of some ranks a part."""
        return [x, x.nbytes // _UNIT // ranks, self._unit]


class ClusterWorld(World):
    """A rank among processes that send each other messages."""

    level = "network"

    def __init__(self, mpi: Any, everyone: Any, node: Any, timeout: float) -> None:
        self.rank, self.size, self.timeout = everyone.rank, everyone.size, timeout
        self.local_rank, self.local_size = node.rank, node.size
        self.error: WorldError | None = None
        self._mpi, self._everyone = mpi, everyone
        self.peers = SideChannel(mpi, everyone.Dup(), dict(node.allgather((everyone.rank, os.getpid()))))
        self.runs_beside = has_free_core(node.size)
        comms = (everyone, everyone.Dup())
        self._main, self._side = (Lane(mpi, c, self.peers, channel, timeout) for channel, c in enumerate(comms))
        self.peers.place = lambda: (describe_place(self._thread, self.count), (self.count, self._side.count))
        self.peers.done = lambda: (self._main.done, self._side.done)
        self._beside = Beside()
        self._side.find_line = self._beside.describe_line
        self._lock, self._failing = threading.Lock(), threading.Lock()
        self._thread = threading.get_ident()

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size} processes>"

    @property
    def count(self) -> int:
        """How many collectives there were."""
        return self._main.count

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        with self._lock:
            self._thread = threading.get_ident()
            return self._meet_in(self._main, call, xp, arrays, exchange)

    def start(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        if not self.runs_beside:
            return Finished(self.meet(call, xp, arrays, exchange))
        if xp is not np:
            return Staged(xp, self.start(call, np, copy_to_host(xp, arrays), exchange))
        return self._beside.start(lambda: self._meet_in(self._side, call, xp, arrays, exchange))

    def fail(self, error: WorldError) -> None:
        """The ranks do not go on together: others that wait, or come later, raise the same error."""
        with self._failing:
            if self.error is None:
                self.error = error
                self.peers.announce(type(error).__name__, str(error))

    def close(self) -> None:
        self._beside.finish(self.timeout)

    def shrink(self) -> tuple[World, list[int]]:
        for r, (state, text) in enumerate(self.peers.states()):
            if state in (RAISED, ENDED):
                raise WorldError(f"shrink: rank {r} was not lost, it {state} {text}".rstrip())
        found = run_bounded(self._make_anew, self.timeout, lambda: WorldError(_NOT_TOGETHER.format(self.timeout)))
        self.peers.close()
        return found

    def _make_anew(self) -> tuple[World, list[int]]:
        mpi = self._mpi
        try:
            self._everyone.Revoke()  # those that still wait in it leave
            left = self._everyone.Shrink()
        except (NotImplementedError, mpi.Exception) as problem:
            raise WorldError(f"{CANNOT_SHRINK}\n  This MPI says: {problem}") from problem
        left.Set_errhandler(mpi.ERRORS_RETURN)
        members = mpi.Group.Translate_ranks(left.Get_group(), None, self._everyone.Get_group())
        world = ClusterWorld(mpi, left, left.Split_type(mpi.COMM_TYPE_SHARED), self.timeout)
        world.runs_beside = self.runs_beside
        return world, list(members)

    def _meet_in(self, lane: Lane, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        try:
            if xp is np:
                return lane.meet(call, arrays, exchange)
            return [xp.asarray(x) for x in lane.meet(call, copy_to_host(xp, arrays), exchange)]
        except WorldError as error:
            self.fail(error)
            raise


def _pack(arrays: Sequence[Any]) -> Any:
    """Arrays one behind the other, in whole units."""
    sizes = [-(-x.nbytes // _UNIT) * _UNIT for x in arrays]
    packed = np.zeros(sum(sizes), np.uint8)
    for x, place in zip(arrays, _unpack(packed, arrays), strict=True):
        place[...] = x
    return packed


def _unpack(packed: Any, like: Sequence[Any]) -> list[Any]:
    """Views of packed arrays."""
    found, at = [], 0
    for x in like:
        found.append(np.ndarray(x.shape, x.dtype, packed, at) if x.size else np.empty(x.shape, x.dtype))
        at += -(-x.nbytes // _UNIT) * _UNIT
    return found

"""Ranks that are processes of one machine: their arrays meet in memory that MPI lets them share.

Each rank has an area that it writes and the others read. A meeting is: copy in, say so, wait until all have said so,
read. The next meeting uses another area, and its being complete shows that all are done reading this one; so two areas
are enough, and one wait a meeting. Large arrays go through in chunks, which stay in the caches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import MismatchError, WorldError
from ...ops.collective.exchange import Exchange, FiniteSums, Nothing, Sum
from ...ops.collective.world import Call, Finished, Started, World, caller_line, make_call, mismatch_error
from .beside import Beside, has_free_core
from .peers import describe_place, wait_until
from .shared_slots import CHANNELS, SLOT_BYTES, SharedSlots
from .staging import Staged, copy_to_host
from .streaming_copy import StreamTarget
from .sums import add_up_into, are_finite
from .survivors import Survivors

#: Bytes that go through at a time: a chunk and its copies stay in the caches of a core.
CHUNK = 1 << 19
#: Chunks of more bytes are summed in parts, one by each rank, if there are more than two; of two each adds up all, as
#: what the other has just read is slow to write to.
_DIVIDED = 1 << 15
#: Arrays lie at multiples of this, which suits every dtype.
_ALIGNMENT = 64
#: Areas of a channel: for arrays of even and odd meetings, and for sums of parts.
_AREAS = 3
#: How many plans of sums a channel keeps: programs whose shapes always change must not fill the memory with them.
_PLANS = 1024
#: What copies are tried out with, and how often.
_TRIAL_BYTES, _TRIALS = 1 << 18, 12
#: Bytes of the memory of a rank.
MEMORY_BYTES = SLOT_BYTES + CHANNELS * _AREAS * CHUNK


class Piece(NamedTuple):
    """A part of an array that one rank adds up, or all of them: the number of the array, which part of it, and where it
    is in the areas of all ranks, in those of even and odd meetings; and where its sum goes, unless each rank adds up.
    """

    number: int
    part: slice
    targets: list[StreamTarget]
    terms: list[list[Any]]
    shared_sum: Any


class SumChunk(NamedTuple):
    """Pieces of arrays that are summed at a time: those that this rank adds up, and those that others do for all."""

    own: list[Piece]
    others: list[Piece]
    is_divided: bool


class Meetings:
    """The meetings of one channel, in order; several channels of the same ranks do not wait for each other."""

    def __init__(self, slots: SharedSlots, memories: Sequence[Any], channel: int, timeout: float) -> None:
        self.number = 0
        self.timeout = timeout
        #: The user's line that the current meeting comes from.
        self.find_line: Callable[[], str] = caller_line
        self._slots, self._channel = slots, channel
        bytes_of = [np.frombuffer(m, np.uint8, MEMORY_BYTES) for m in memories]
        starts = [SLOT_BYTES + (channel * _AREAS + area) * CHUNK for area in range(_AREAS)]
        #: Whether copies bypass the caches.
        self.streams = True
        #: By the digest of a call.
        self.sum_plans: dict[int, list[SumChunk]] = {}
        self._areas = [[b[start : start + CHUNK] for b in bytes_of] for start in starts]

    def sync(self, call: Call) -> None:
        """Wait until all ranks are here, and check that they are for the same."""
        if not self.compare(call, call.digest):
            raise self.mismatch(call)

    def compare(self, call: Call, digest: int) -> bool:
        """Wait until all ranks are here; whether they came with the same digest."""
        slots, channel = self._slots, self._channel
        self.number += 1
        number = self.number
        slots.post(channel, number, digest)
        if not slots.all_posted(channel, number):
            self._wait(call, lambda: slots.all_posted(channel, number))
        return slots.all_agree(channel, number, digest)

    def mismatch(self, call: Call) -> MismatchError:
        """The error of a meeting that ranks came to for different things."""
        sides = self._slots.gather_texts(self.number, self._describe(call))
        return mismatch_error(self.number, [side or "did not tell what it called" for side in sides])

    def _wait(self, call: Call, is_done: Callable[[], bool]) -> None:
        slots, number, channel = self._slots, self.number, self._channel

        def check() -> None:
            if (trouble := slots.find_absence(number, channel, lambda: self._describe(call))) is not None:
                raise trouble

        def give_up() -> Exception:
            return slots.late_error(number, self._describe(call), self.timeout, channel)

        wait_until(is_done, self.timeout, check, give_up)

    def _describe(self, call: Call) -> str:
        return f"{call} at {self.find_line()}"

    def plan_sum(self, arrays: Sequence[Any], rank: int) -> list[SumChunk]:
        """How arrays like these are summed: the places of their pieces, chunk by chunk."""
        chunks = []
        for dtype in dict.fromkeys(x.dtype for x in arrays):
            numbers = [i for i, x in enumerate(arrays) if x.dtype == dtype]
            chunks += [self._place(p, dtype, rank) for p in _cut(arrays, numbers, CHUNK // dtype.itemsize)]
        return chunks

    def _place(self, pieces: list[tuple[int, slice]], dtype: Any, rank: int) -> SumChunk:
        count = sum(p.stop - p.start for _, p in pieces)
        areas = [[_view(area, 0, dtype, (count,)) for area in of_ranks] for of_ranks in self._areas]
        ranks, unit = len(areas[0]), _ALIGNMENT // dtype.itemsize
        is_divided = ranks > 2 and count * dtype.itemsize > _DIVIDED
        bounds = [min(count, -(-count * r // ranks // unit) * unit) for r in range(ranks)] + [count]
        own: list[Piece] = []
        others: list[Piece] = []
        for r in range(ranks) if is_divided else (rank,):
            low, high = (bounds[r], bounds[r + 1]) if is_divided else (0, count)
            for i, part, here in _within(pieces, low, high):
                targets = [StreamTarget(areas[parity][rank][here], self.streams) for parity in (0, 1)]
                terms = [[area[here] for area in areas[parity]] for parity in (0, 1)]
                (own if r == rank else others).append(Piece(i, part, targets, terms, areas[2][0][here]))
        return SumChunk(own, others, is_divided)

    @property
    def inputs(self) -> list[Any]:
        """The areas of all ranks for what they bring to the next meeting."""
        return self._areas[self.number & 1]


class NodeWorld(World):
    """A rank among processes that share memory; `memories` are buffers of `MEMORY_BYTES` bytes, one for each rank."""

    def __init__(self, memories: Sequence[Any], rank: int, timeout: float, sync: Any = None) -> None:
        self.rank = self.local_rank = rank
        self.size = self.local_size = len(memories)
        self.timeout = timeout
        self.peers = SharedSlots([memoryview(m)[:SLOT_BYTES] for m in memories], rank, sync)
        self.runs_beside = has_free_core(self.size)
        #: What must live as long as the memory does.
        self.owners: Any = None
        self._memories, self._sync = memories, sync
        self._main, self._side = (Meetings(self.peers, memories, channel, timeout) for channel in range(CHANNELS))
        self._beside = Beside()
        self._side.find_line = self._beside.describe_line
        self._lock, self._failing = threading.Lock(), threading.Lock()
        self.error: WorldError | None = None
        self._thread = threading.get_ident()
        self.peers.place = lambda: describe_place(self._thread, self._main.number)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size} processes>"

    @property
    def count(self) -> int:
        """How many meetings there were."""
        return self._main.number

    def choose_copies(self) -> None:
        """Find out whether copies that bypass the caches are the faster ones on this machine: that depends on how far
        apart the cores of the ranks are. All ranks call it.
        """
        x = np.zeros(_TRIAL_BYTES // 8)
        call = make_call("trial of copies", Sum(), (("float64", x.shape),))
        seconds = []
        for self._main.streams in (True, False):
            self._main.sum_plans.clear()
            rounds = []
            for _ in range(_TRIALS):
                start = time.perf_counter()
                self._sum(self._main, call, [x], [x])
                rounds.append(time.perf_counter() - start)
            seconds.append(min(rounds))
        self._main.sum_plans.clear()
        with_streams, without = self._sum(self._main, call, [np.resize(seconds, x.shape)], None)[0][:2]
        self._main.streams = self._side.streams = bool(with_streams <= without)
        self._main.sum_plans.clear()

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        with self._lock:
            self._thread = threading.get_ident()
            return self._meet_at(self._main, call, xp, arrays, exchange, outs)

    def start(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        if not self.runs_beside:
            return Finished(self.meet(call, xp, arrays, exchange, outs))
        if xp is not np:
            copies = copy_to_host(xp, arrays)
            return Staged(xp, self.start(call, np, copies, exchange, copies if type(exchange) is Sum else None))
        return self._beside.start(lambda: self._meet_at(self._side, call, xp, arrays, exchange, outs))

    def _meet_at(
        self, meetings: Meetings, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Any
    ) -> list[Any]:
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        try:
            if xp is np and type(exchange) is Sum:
                return self._sum(meetings, call, arrays, outs)
            return self._exchange(meetings, call, xp, arrays, exchange)
        except WorldError as error:
            self.fail(error)
            raise

    def fail(self, error: WorldError) -> None:
        """The ranks do not go on together: others that wait, or come later, raise the same error."""
        with self._failing:
            if self.error is None:
                self.error = error
                self.peers.announce(type(error).__name__, str(error))

    def close(self) -> None:
        self._beside.finish(self.timeout)

    def shrink(self) -> tuple[World, list[int]]:
        with self._lock:
            self._beside.finish(self.timeout)  # what was started has failed by now
            members = Survivors(self.peers, self.timeout).agree()
        self.peers.close()
        world = NodeWorld([self._memories[r] for r in members], members.index(self.rank), self.timeout, self._sync)
        world.peers.processes = self.peers.processes.select(members)
        world.runs_beside, world.owners = self.runs_beside, self.owners
        world._main.streams = world._side.streams = self._main.streams
        return world, members

    def _exchange(
        self, meetings: Meetings, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange
    ) -> list[Any]:
        if xp is not np:
            found = self._exchange(meetings, call, np, copy_to_host(xp, arrays), exchange)
            return [xp.asarray(x) for x in found]
        if type(exchange) is Sum:
            return self._sum(meetings, call, arrays, None)
        if type(exchange) is Nothing:
            meetings.sync(call)
            return list(arrays)
        if sum(_aligned(x.nbytes) for x in arrays) <= CHUNK:
            return self._exchange_at_once(meetings, call, arrays, exchange)
        return self._exchange_in_rounds(meetings, call, arrays, exchange)

    def _exchange_at_once(self, meetings: Meetings, call: Call, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        """Arrays that fit into an area: each rank reads what it wants of those of others where they lie."""
        areas, places, end = meetings.inputs, [], 0
        for x in arrays:
            places.append(end)
            _view(areas[self.rank], end, x.dtype, x.shape)[...] = x
            end += _aligned(x.nbytes)
        meetings.sync(call)
        results = []
        for x, at in zip(arrays, places, strict=True):
            of_ranks = [_view(area, at, x.dtype, x.shape) for area in areas]
            results.append(exchange.join(np, [exchange.part(y, s, self.rank) for s, y in enumerate(of_ranks)], x))
        return results

    def _exchange_in_rounds(
        self, meetings: Meetings, call: Call, arrays: Sequence[Any], exchange: Exchange
    ) -> list[Any]:
        """Larger arrays: each rank's area has a place for each target, and what comes is put together."""
        return [self._exchange_large(meetings, call, x, exchange) for x in arrays]

    def _exchange_large(self, meetings: Meetings, call: Call, x: Any, exchange: Exchange) -> Any:
        ranks = range(self.size)
        targets = ranks if not exchange.to_all else range(1)
        sent = [_flat_bytes(exchange.part(x, self.rank, t)) for t in targets]
        shapes = [exchange.part(x, s, self.rank) for s in ranks]  # all ranks have arrays of this shape
        came = [None if p is None else np.empty(p.shape, p.dtype) for p in shapes]
        received = [None if p is None else p.reshape(-1).view(np.uint8) for p in came]
        room = CHUNK // len(targets) // _ALIGNMENT * _ALIGNMENT
        longest = max(_longest(exchange, x, self.size), 1)
        for start in range(0, longest, room):
            mine = meetings.inputs[self.rank]
            for t, data in enumerate(sent):
                if data is not None:
                    piece = data[start : start + room]
                    mine[t * room : t * room + len(piece)] = piece
            areas = meetings.inputs
            meetings.sync(call)
            at = 0 if exchange.to_all else self.rank * room
            for s, data in enumerate(received):
                if data is not None:
                    piece = data[start : start + room]
                    piece[...] = areas[s][at : at + len(piece)]
        return exchange.join(np, came, x)

    def _all_finite(self, meetings: Meetings, call: Call, mine: bool) -> bool:
        """Wait until all ranks are done; whether all of them found what they added up to be finite."""
        return meetings.compare(call, call.digest if mine else call.digest ^ 1) and mine

    def _sum(self, meetings: Meetings, call: Call, arrays: Sequence[Any], outs: Sequence[Any] | None) -> list[Any]:
        results = [np.empty(x.shape, x.dtype) for x in arrays] if outs is None else list(outs)
        flat, flat_outs = [_flat(x) for x in arrays], [out.reshape(-1) for out in results]
        plan = meetings.sum_plans.get(call.digest)
        if plan is None:
            if len(meetings.sum_plans) == _PLANS:
                meetings.sum_plans.clear()
            plan = meetings.sum_plans[call.digest] = meetings.plan_sum(arrays, self.rank)
        if not plan:
            meetings.sync(call)
        is_finite = True
        for chunk in plan:
            parity = meetings.number & 1
            for piece in chunk.others if chunk.is_divided else chunk.own:
                piece.targets[parity].fill(flat[piece.number][piece.part])
            meetings.sync(call)
            is_own_finite = self._add_own(chunk, parity, flat, flat_outs)
            if chunk.is_divided:
                is_own_finite = self._all_finite(meetings, call, is_own_finite)
            is_finite &= is_own_finite
            for piece in chunk.others:
                flat_outs[piece.number][piece.part] = piece.shared_sum
        return FiniteSums(results) if is_finite else results

    def _add_own(self, chunk: SumChunk, parity: int, flat: Sequence[Any], outs: Sequence[Any]) -> bool:
        """Add up this rank's pieces of a chunk; whether the sums are finite. If others wait for them, they also go to
        where all ranks read them.
        """
        is_finite, unseen = True, []
        for piece in chunk.own:
            terms = [*piece.terms[parity]]
            terms[self.rank] = flat[piece.number][piece.part]  # it is nearer than a copy would be
            out = outs[piece.number][piece.part]
            seen = add_up_into(terms, out, *([piece.shared_sum] if chunk.is_divided else ()))
            unseen += [out] if seen is None else []
            is_finite &= seen is not False
        return is_finite and are_finite(unseen)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _view(area: Any, at: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    return np.ndarray(shape, dtype, area, at)


def _flat(x: Any) -> Any:
    return np.ascontiguousarray(x).reshape(-1)


def _flat_bytes(x: Any) -> Any:
    return None if x is None else _flat(x).view(np.uint8)


def _longest(exchange: Exchange, x: Any, ranks: int) -> int:
    """Bytes of the largest part that any rank sends another."""
    parts = (exchange.part(x, s, t) for s in range(ranks) for t in range(ranks))
    return max((p.nbytes for p in parts if p is not None), default=0)


def _within(pieces: Sequence[tuple[int, slice]], low: int, high: int) -> Iterator[tuple[int, slice, slice]]:
    """Those parts of pieces, one behind the other, that are between two bounds: number, part of the array, place."""
    at = 0
    for i, piece in pieces:
        start, stop = max(at, low), min(at + piece.stop - piece.start, high)
        if start < stop:
            yield i, slice(piece.start + start - at, piece.start + stop - at), slice(start, stop)
        at += piece.stop - piece.start


def _cut(arrays: Sequence[Any], numbers: Sequence[int], most: int) -> Iterator[list[tuple[int, slice]]]:
    """Flat arrays of some numbers, cut and grouped into chunks of so many elements: which part of which array."""
    chunk: list[tuple[int, slice]] = []
    room = most
    for i in numbers:
        start, size = 0, arrays[i].size
        while start < size:
            piece = slice(start, min(size, start + room))
            chunk.append((i, piece))
            room -= piece.stop - start
            start = piece.stop
            if not room:
                yield chunk
                chunk, room = [], most
    if chunk:
        yield chunk

"""The world of ranks whose arrays are on GPUs.

Every collective is first agreed on in the world of processes, which checks that all ranks are there for the same, with
its deadlines and its errors; then NCCL moves the arrays, on CuPy's current stream, and the host goes on. Arrays of the
host travel in the world of processes as before.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from ....arrays.backends import StreamPlace, after_synchronization, current_place, find_gpu
from ....arrays.call_site import user_line
from ....errors import DeviceError, WorldError
from ....ops.collective.exchange import Exchange, Nothing, Sum
from ....ops.collective.world import Call, Finished, Started, World, current_world
from ..beside import Beside, Running
from .communicator import Meeting, NotConnected, connect
from .lane import Lane
from .watch import Operation, Watch, record_event

_LOG = logging.getLogger("pullback")
#: "0": sums are NCCL's own, whose order depends on the number of ranks, sizes and versions.
ORDERED = "PULLBACK_NCCL_ORDERED"


class NcclWorld(World):
    """A rank that has GPUs. `host` is its world of processes. Where NCCL cannot connect the ranks, arrays travel
    through memory of the host, unless `is_required`.
    """

    def __init__(self, host: Any, cupy: Any, nccl: Any, is_required: bool = False) -> None:
        self.rank, self.size, self.timeout = host.rank, host.size, host.timeout
        self.local_rank, self.local_size = host.local_rank, host.local_size
        self.host, self._cupy, self._nccl, self._is_required = host, cupy, nccl, is_required
        self.runs_beside = True  # GPUs do that, and cores have little to do
        self._is_ordered = os.environ.get(ORDERED, "1") != "0"
        self._is_staged = False
        self._watch = Watch(host)
        self._beside = Beside()
        self._lock, self._starting = threading.Lock(), threading.Lock()
        #: For each GPU, collectives of the program and those that go on beside it.
        self._main: dict[int, Lane] = {}
        self._side: dict[int, Lane] = {}
        self._side_streams: dict[int, Any] = {}
        after_synchronization.append(self._check)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size} processes, with NCCL>"

    @property
    def runs_beside(self) -> bool:
        return bool(self.host.runs_beside)

    @runs_beside.setter
    def runs_beside(self, value: bool) -> None:
        self.host.runs_beside = value

    @property
    def peers(self) -> Any:
        return self.host.peers

    @property
    def count(self) -> int:
        return int(self.host.count)

    @property
    def error(self) -> WorldError | None:
        found: WorldError | None = self.host.error
        return found

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        if xp is np or type(exchange) is Nothing or self._is_staged:
            return self._meet_on_host(call, xp, arrays, exchange, outs)
        with self._lock, self._place_of(call, arrays).enter():
            lane = self._find_lane(self._main, Meeting(self.host, self.host.meet))
            if lane is None:
                return self._meet_on_host(call, xp, arrays, exchange)
            self._meet_on_host(_call_on_gpus(call, lane.number, self._is_ordered), np, (), Nothing())
            self._watch.check_peers()
            with self._watch.follow(self._cupy, Operation(call, self.count, _caller(), lane.comm, ())):
                if type(exchange) is Sum:
                    return lane.sum(xp, arrays, lane.plan_sums(xp, arrays))
                return lane.exchange(xp, arrays, exchange)

    def start(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        """Sums go on beside the program, on a stream of their own."""
        if xp is np or self._is_staged:
            return self._start_on_host(call, xp, arrays, exchange, outs)
        if not self.runs_beside or type(exchange) is not Sum:
            return Finished(self.meet(call, xp, arrays, exchange))
        with self._starting, self._place_of(call, arrays).enter():
            lane = self._find_lane(self._side, Meeting(self.host, lambda *what: self.host.start(*what).wait()))
            if lane is None:
                return self._start_on_host(call, xp, arrays, exchange)
            return self._start_sum(lane, call, xp, arrays)

    def close(self) -> None:
        after_synchronization.remove(self._check)
        self._watch.close(self.timeout)
        self.host.close()

    def _check(self) -> None:
        """The host has waited for a GPU: what it waited for may have failed."""
        if current_world() is self:
            self._watch.check()

    def _start_sum(self, lane: Lane, call: Call, xp: Any, arrays: Sequence[Any]) -> Started:
        """Agree, and then sum, in another thread. Memory for the results is of the caller's stream, where they will be
        used and freed.
        """
        sums = lane.plan_sums(xp, arrays)
        ready = record_event(self._cupy)
        device = current_place().device
        place = StreamPlace(device, self._side_streams[device])
        agreeing = self.host.start(_call_on_gpus(call, lane.number, self._is_ordered), np, (), Nothing())
        operation = Operation(call, self.count, _caller(), lane.comm, (arrays, sums))

        def work() -> list[Any]:
            agreeing.wait()
            self._watch.check_peers()
            with place.enter(), self._watch.follow(self._cupy, operation):
                place.stream.wait_event(ready)
                return lane.sum(xp, arrays, sums)

        return _Summing(self._cupy, self._watch, self._beside.start(work), operation)

    def _meet_on_host(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        with self._watch.telling():
            found: list[Any] = self.host.meet(call, xp, arrays, exchange, outs)
        return found

    def _start_on_host(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        found: Started = self.host.start(call, xp, arrays, exchange, outs)
        return found

    def _place_of(self, call: Call, arrays: Sequence[Any]) -> StreamPlace:
        """The GPU that arrays are on, and its current stream."""
        device, has_others = find_gpu(arrays)
        if device is None or has_others:
            raise DeviceError(
                f"{call.name}: its arrays are on several devices.\n  Move them to one; each rank uses its own."
            )
        with self._cupy.cuda.Device(device):
            return current_place()

    def _find_lane(self, lanes: dict[int, Lane], meeting: Meeting) -> Lane | None:
        """The lane of the current GPU. The first time a rank uses a GPU all ranks do, and connect; None if they cannot,
        and send what they have through memory of the host.
        """
        place = current_place()
        if place.device not in lanes:
            kind = "collectives" if lanes is self._main else "collectives beside the program"
            name = f"{kind} on GPU {len(lanes)} of each rank"
            try:
                comm = connect(self._cupy, self._nccl, meeting, place, name)
            except NotConnected as reason:
                self._give_up(str(reason))
                return None
            self._watch.add(comm)
            if lanes is self._side:
                self._side_streams[place.device] = self._cupy.cuda.Stream(non_blocking=True)
            lanes[place.device] = Lane(comm, self.rank, self.size, len(lanes), self._is_ordered)
        return lanes[place.device]

    def _give_up(self, reason: str) -> None:
        if self._is_required:
            error = WorldError(f"NCCL could not connect the {self.size} ranks: {reason}.")
            self.host.fail(error)
            raise error
        self._is_staged = True
        _LOG.warning("arrays on GPUs travel through memory of the host: NCCL could not connect the ranks: %s", reason)


class _Summing(Started):
    """Sums on a stream of their own; whoever waits puts them before what comes next on its own stream."""

    def __init__(self, cupy: Any, watch: Watch, running: Running, operation: Operation) -> None:
        self._cupy, self._watch, self._running, self._operation = cupy, watch, running, operation

    def wait(self) -> list[Any]:
        with self._watch.telling():
            results = self._running.wait()
        with results[0].device:
            self._cupy.cuda.get_current_stream().wait_event(self._operation.ended)
        return results


@functools.lru_cache(maxsize=4096)
def _call_on_gpus(call: Call, number: int, is_ordered: bool) -> Call:
    """A call that is another one than that of arrays of the host: ranks whose arrays lie elsewhere do not fit."""
    where = f" on GPU {number} of each rank" if number else " on GPUs"
    how = "" if is_ordered else ", in NCCL's order"
    digest = hashlib.blake2b(f"{call.digest}{where}{how}".encode(), digest_size=8).digest()
    return Call(call.name, f"{call.arguments}{where}{how}", int.from_bytes(digest, "little") >> 1)


def _caller() -> tuple[CodeType, int]:
    return user_line(sys._getframe(1))

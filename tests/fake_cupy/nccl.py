"""A stand-in for `cupy.cuda.nccl`: communicators of threads of one process, with the ways in which NCCL fails.

Calls queue tasks on streams and return, as NCCL's do. A task is done when the ranks' calls fit together; those that do
not (other counts, other collectives, a rank that died) are never done, until `abort`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .array import Device, memory_at
from .streams import Task, advance_tasks, changed, find_stream, workers

available = True
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = range(6, 10)
NCCL_SUM = 0
_DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
_ERRORS = (
    "SUCCESS", "UNHANDLED_CUDA_ERROR", "SYSTEM_ERROR", "INTERNAL_ERROR", "INVALID_ARGUMENT", "INVALID_USAGE",
    "REMOTE_ERROR",
)  # fmt: skip
_INVALID_ARGUMENT, _INVALID_USAGE, _REMOTE_ERROR = 4, 5, 6


class NcclError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        name = dict(enumerate(_ERRORS))[status]  # CuPy knows no name for 7, "in progress", and raises KeyError
        RuntimeError.__init__(self, f"NCCL_ERROR_{name}: told by a stand-in")


class Behaviour:
    """How the stand-in behaves in a test."""

    #: Whether ids are `bytes`, as in CuPy 14, or tuples of signed numbers, as before.
    ids_are_bytes = True
    #: Whether ranks may share a GPU, as those with different NCCL_HOSTID may.
    may_share_gpu = False
    #: Whether the end of a group waits until its tasks are done, as it does while ranks connect.
    group_end_blocks = False
    #: Ranks whose constructor raises, and for what.
    refusing: ClassVar[dict[int, int]] = {}
    #: Whether an id can be made.
    has_id = True
    #: What was called: (rank, name, number of bytes or elements).
    log: ClassVar[list[tuple[int, str, int]]] = []

    @classmethod
    def reset(cls) -> None:
        cls.ids_are_bytes, cls.may_share_gpu, cls.group_end_blocks, cls.has_id = True, False, False, True
        cls.refusing.clear()
        cls.log.clear()
        with changed:
            for clique in _cliques.values():
                clique.is_over = True
            _cliques.clear()
            workers.clear()
            changed.notify_all()


def get_version() -> int:
    return 22809


def get_unique_id() -> Any:
    if not Behaviour.has_id:
        raise NcclError(2)
    data = next(_ids).to_bytes(128, "little", signed=False)
    return data if Behaviour.ids_are_bytes else tuple(b - 256 if b > 127 else b for b in data)


_ids = itertools.count(1 << 600)
_cliques: dict[bytes, _Clique] = {}


class _Call:
    """One call of a communicator: `sends` and `receives` are memory."""

    def __init__(self, rank: int, name: str, key: tuple[Any, ...], sends: Any, receives: Any) -> None:
        self.rank, self.name, self.key, self.sends, self.receives = rank, name, key, sends, receives
        self.task: _CallTask | None = None
        self.done = False

    @property
    def is_ready(self) -> bool:
        return self.task is not None and self.task.is_next


class _CallTask(Task):
    """The calls of one group on one stream."""

    def __init__(self, calls: list[_Call]) -> None:
        Task.__init__(self)
        self.calls = calls
        for call in calls:
            call.task = self

    def advance(self) -> bool:
        self.done = all(call.done for call in self.calls)
        return self.done


class _Clique:
    """The ranks of one communicator."""

    def __init__(self, size: int) -> None:
        self.size, self.is_over = size, False
        self.members: dict[int, NcclCommunicator] = {}
        self.devices: dict[int, int] = {}
        self.dead: set[int] = set()
        self.collectives: list[list[_Call]] = [[] for _ in range(size)]
        self.messages: dict[tuple[str, int, int], list[_Call]] = {}

    def post(self, call: _Call, peer: int | None) -> None:
        if peer is None:
            self.collectives[call.rank].append(call)
        else:
            pair = (call.rank, peer) if call.name == "send" else (peer, call.rank)
            self.messages.setdefault((call.name, *pair), []).append(call)

    def work(self) -> bool:
        """Complete what fits together; whether something did."""
        ranks = range(self.size)
        return self._collect() + sum(self._deliver(s, t) for s in ranks for t in ranks) > 0

    def _collect(self) -> bool:
        if self.dead or not all(self.collectives):
            return False
        calls = [queue[0] for queue in self.collectives]
        if not all(call.is_ready for call in calls) or any(call.key != calls[0].key for call in calls):
            return False
        _RULES[calls[0].name](calls)
        for queue in self.collectives:
            queue.pop(0).done = True
        return True

    def _deliver(self, source: int, target: int) -> bool:
        sent, received = (self.messages.get((name, source, target)) for name in ("send", "recv"))
        if not sent or not received or {source, target} & self.dead:
            return False
        send, receive = sent[0], received[0]
        if not (send.is_ready and receive.is_ready) or send.key != receive.key:
            return False
        receive.receives[...] = send.sends
        sent.pop(0).done = received.pop(0).done = True
        return True

    def drop(self, rank: int) -> None:
        """Forget the calls of a rank, whose communicator was aborted."""
        for queue in [self.collectives[rank], *self.messages.values()]:
            for call in [call for call in queue if call.rank == rank]:
                call.done = True
                queue.remove(call)


def _all_gather(calls: list[_Call]) -> None:
    everything = np.concatenate([call.sends for call in calls])
    for call in calls:
        call.receives[...] = everything


def _all_reduce(calls: list[_Call]) -> None:
    # in the order of a ring, which is not that of our tree
    total = calls[-1].sends.copy()
    for call in calls[-2::-1]:
        total += call.sends
    for call in calls:
        call.receives[...] = total


def _broadcast(calls: list[_Call]) -> None:
    (root,) = calls[0].key[-1:]
    for call in calls:
        call.receives[...] = calls[root].sends


_RULES: dict[str, Callable[[list[_Call]], None]] = {
    "allGather": _all_gather,
    "allReduce": _all_reduce,
    "broadcast": _broadcast,
}


class _Group(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.calls: list[tuple[NcclCommunicator, _Call, int | None, int]] = []


_group = _Group()


def groupStart() -> None:
    _group.depth += 1


def groupEnd() -> None:
    if not _group.depth:
        raise NcclError(_INVALID_USAGE)
    _group.depth -= 1
    if not _group.depth:
        calls, _group.calls = _group.calls, []
        _post(calls)


def _post(calls: list[tuple[NcclCommunicator, _Call, int | None, int]]) -> None:
    tasks = []
    with changed:
        for pointer in dict.fromkeys(pointer for *_, pointer in calls):
            of_stream = [(comm, call, peer) for comm, call, peer, at in calls if at == pointer]
            for comm, call, peer in of_stream:
                comm.check_alive()
                comm.clique.post(call, peer)
            tasks.append(_CallTask([call for _, call, _ in of_stream]))
            find_stream(pointer).add(tasks[-1])
        if Behaviour.group_end_blocks:
            changed.wait_for(lambda: all(task.done for task in tasks))
    for comm, *_ in calls:
        comm.check_alive()


class NcclCommunicator:
    """One rank's communicator. The constructor blocks until all ranks have called it."""

    def __init__(self, ndev: int, commId: Any, rank: int) -> None:
        wanted = bytes if Behaviour.ids_are_bytes else tuple
        if type(commId) is not wanted:
            raise TypeError(f"Argument 'commId' has incorrect type (expected {wanted.__name__})")
        assert len(commId) == 128
        if rank in Behaviour.refusing:
            raise NcclError(Behaviour.refusing[rank])
        self._rank, self._is_aborted, self.async_error = rank, False, 0
        with changed:
            key = bytes(b % 256 for b in commId)
            if key not in _cliques:
                _cliques[key] = _Clique(ndev)
                workers.append(_cliques[key].work)
            self.clique = clique = _cliques[key]
            clique.members[rank], clique.devices[rank] = self, Device().id
            changed.notify_all()
            changed.wait_for(lambda: len(clique.members) == ndev or clique.is_over)
            if clique.is_over:
                raise NcclError(2)
            if len({*clique.devices.values()}) < ndev and not Behaviour.may_share_gpu:
                raise NcclError(_INVALID_USAGE)  # "Duplicate GPU detected"

    def device_id(self) -> int:
        return self.clique.devices[self._rank]

    def rank_id(self) -> int:
        return self._rank

    def size(self) -> int:
        return self.clique.size

    def check_alive(self) -> None:
        if self._is_aborted:
            raise NcclError(_INVALID_ARGUMENT)

    def check_async_error(self) -> None:
        self.check_alive()
        if self.async_error:
            raise NcclError(self.async_error)

    def die(self) -> None:
        """The process of this rank is gone; others notice."""
        with changed:
            self.clique.dead.add(self._rank)
            for rank, member in self.clique.members.items():
                if rank != self._rank:
                    member.async_error = _REMOTE_ERROR

    def abort(self) -> None:
        Behaviour.log.append((self._rank, "abort", 0))
        with changed:
            self._is_aborted = True
            self.clique.drop(self._rank)
            advance_tasks()

    def destroy(self) -> None:
        self.abort()

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        sends, receives = _memory(sendbuf, count, datatype), _memory(recvbuf, count * self.size(), datatype)
        self._call("allGather", count, (count, datatype), sends, receives, None, stream)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        sends, receives = _memory(sendbuf, count, datatype), _memory(recvbuf, count, datatype)
        self._call("allReduce", count, (count, datatype, op), sends, receives, None, stream)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        sends, receives = _memory(sendbuff, count, datatype), _memory(recvbuff, count, datatype)
        self._call("broadcast", count, (count, datatype, root), sends, receives, None, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        sends = _memory(sendbuf, count, datatype)
        self._call("send", count, (count, datatype), sends, None, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        receives = _memory(recvbuf, count, datatype)
        self._call("recv", count, (count, datatype), None, receives, peer, stream)

    def _call(
        self, name: str, count: int, key: tuple[Any, ...], sends: Any, receives: Any, peer: int | None, stream: int
    ) -> None:
        self.check_alive()
        assert Device().id == self.device_id(), "NCCL is called for another GPU than the current one"
        Behaviour.log.append((self._rank, name, count))
        full_key = key if peer is not None else (name, *key)
        call = _Call(self._rank, name, full_key, sends, receives)
        _group.calls.append((self, call, peer, stream))
        if not _group.depth:
            calls, _group.calls = _group.calls, []
            _post(calls)


def _memory(pointer: int, count: int, datatype: int) -> Any:
    """The memory that a pointer of an array stands for; it stays while a call is under way, as a stream's does."""
    memory = memory_at(pointer)
    assert memory.flags.c_contiguous, "NCCL wants contiguous memory"
    found = memory.reshape(-1).view(np.uint8).view(_DTYPES[datatype])
    assert count <= found.size, f"{count} numbers of {found.dtype} in memory for {found.size}"
    return found[:count]

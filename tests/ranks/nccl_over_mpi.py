"""A stand-in for NCCL among processes: what `fake_cupy.nccl` is among threads, by messages of MPI. Calls return when
they are done, or aborted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_cupy import nccl
from fake_cupy.array import memory_at
from fake_cupy.streams import settle

_DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


class _Group(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.calls: list[tuple[Communicator, Callable[[], Any]]] = []


_group = _Group()


def groupStart() -> None:
    _group.depth += 1


def groupEnd() -> None:
    _group.depth -= 1
    if not _group.depth:
        calls, _group.calls = _group.calls, []
        _carry_out(calls)


def _carry_out(calls: list[tuple[Communicator, Callable[[], Any]]]) -> None:
    settle()
    requests = [(comm, start()) for comm, start in calls]
    for comm, request in requests:
        while not request.Test():
            comm.check_async_error()
            time.sleep(1e-4)


class Communicator:
    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        from mpi4py import MPI

        assert len(commId) == 128
        self._comm, self._is_aborted = MPI.COMM_WORLD.Dup(), False

    def check_async_error(self) -> None:
        if self._is_aborted:
            raise nccl.NcclError(4)

    def abort(self) -> None:
        self._is_aborted = True

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        x, out = _memory(sendbuf, count, datatype), _memory(recvbuf, count * self._comm.size, datatype)
        self._call(lambda: self._comm.Iallgather(x, out))

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        x, out = _memory(sendbuf, count, datatype).copy(), _memory(recvbuf, count, datatype)
        self._call(lambda: self._comm.Iallreduce(x, out))

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        x, out = _memory(sendbuff, count, datatype), _memory(recvbuff, count, datatype)
        out[...] = x if self._comm.rank == root else out
        self._call(lambda: self._comm.Ibcast(out, root))

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        x = _memory(sendbuf, count, datatype)
        self._call(lambda: self._comm.Isend(x, peer))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        out = _memory(recvbuf, count, datatype)
        self._call(lambda: self._comm.Irecv(out, peer))

    def _call(self, start: Callable[[], Any]) -> None:
        self.check_async_error()
        _group.calls.append((self, start))
        if not _group.depth:
            calls, _group.calls = _group.calls, []
            _carry_out(calls)


def _memory(pointer: int, count: int, datatype: int) -> Any:
    memory = memory_at(pointer)
    assert memory.flags.c_contiguous
    return memory.reshape(-1).view(np.uint8).view(_DTYPES[datatype])[:count]


def install() -> None:
    """`cupy.cuda.nccl`, as far as `fake_cupy` has installed it, connects processes."""
    nccl.NcclCommunicator, nccl.groupStart, nccl.groupEnd = Communicator, groupStart, groupEnd  # type: ignore

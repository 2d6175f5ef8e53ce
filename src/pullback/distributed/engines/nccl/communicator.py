"""One communicator of NCCL: connected under a deadline, called with arrays, aborted from any thread.

Data travel as bytes, so every dtype does. Calls are queued on CuPy's current stream.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ....arrays.backends import StreamPlace
from ....errors import CollectiveTimeoutError, WorldError
from ....ops.collective.exchange import Concatenation, Exchange, FromRoot
from ....ops.collective.world import Call, make_call
from ..peers import run_bounded, wait_until

_LOG = logging.getLogger("pullback")
#: Bytes of NCCL's id, and of a message that ranks exchange while they connect.
_ID_BYTES, _MESSAGE_BYTES = 128, 1024
#: Seconds that a thread has to end its calls of NCCL before these are aborted with the communicator, and that an abort
#: may take before nobody waits for it any more.
_CALL_SECONDS, _ABORT_SECONDS = 0.1, 5.0
#: The dtypes whose sums NCCL computes, by its names. Half precision is widened before.
_SUMMED = {
    f"{kind}{bits}": f"NCCL_{kind.upper()}{bits}"
    for kind, sizes in {"int": (8, 32, 64), "uint": (8, 32, 64), "float": (32, 64)}.items()
    for bits in sizes
}

Meet = Callable[[Call, Any, list[Any], Exchange], list[Any]]


class NotConnected(Exception):  # noqa: N818 - a finding that all ranks share, not yet an error
    """NCCL could not connect the ranks; all ranks know, and why."""


class Meeting(NamedTuple):
    """The ranks that connect: `host` is their world of processes, `meet` its collectives on the channel in use."""

    host: Any
    meet: Meet


class Communicator:
    """A communicator on one GPU."""

    def __init__(self, cupy: Any, nccl: Any, own: Any) -> None:
        self._cupy, self._nccl, self._own = cupy, nccl, own
        self._calling = threading.Lock()
        self._is_aborted = False

    @contextmanager
    def calls(self) -> Iterator[None]:
        """NCCL is called inside: an abort waits for the end if that comes soon."""
        with self._calling:
            if self._is_aborted:
                raise RuntimeError("NCCL's communicator was aborted.")
            yield

    @contextmanager
    def group(self) -> Iterator[None]:
        """Calls that NCCL starts together; sends and receives of ranks that wait for each other must be."""
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()

    def all_gather(self, x: Any, out: Any) -> None:
        """The bytes of all ranks, one behind the other."""
        self._own.allGather(x.data.ptr, out.data.ptr, x.nbytes, self._nccl.NCCL_UINT8, self._stream)

    def all_reduce(self, x: Any, out: Any) -> None:
        """The sum over ranks, in an order of NCCL's."""
        dtype = getattr(self._nccl, _SUMMED[x.dtype.name])
        self._own.allReduce(x.data.ptr, out.data.ptr, x.size, dtype, self._nccl.NCCL_SUM, self._stream)

    def broadcast(self, x: Any, out: Any, root: int) -> None:
        self._own.broadcast(x.data.ptr, out.data.ptr, x.nbytes, self._nccl.NCCL_UINT8, root, self._stream)

    def send(self, x: Any, target: int) -> None:
        self._own.send(x.data.ptr, x.nbytes, self._nccl.NCCL_UINT8, target, self._stream)

    def receive(self, out: Any, source: int) -> None:
        self._own.recv(out.data.ptr, out.nbytes, self._nccl.NCCL_UINT8, source, self._stream)

    @property
    def _stream(self) -> int:
        return int(self._cupy.cuda.get_current_stream().ptr)

    def find_problem(self) -> str:
        """What NCCL found while calls were under way, such as a peer that is gone; "" if nothing."""
        if self._is_aborted:
            return ""
        try:
            self._own.check_async_error()
        except (self._nccl.NcclError, KeyError) as problem:  # CuPy raises KeyError for codes that it has no name for
            return "" if problem.args == (7,) else str(problem)  # 7: still in progress
        return ""

    def abort(self) -> None:
        """End all calls, also those that hang, and free their streams: what they should have brought is undefined."""
        is_quiet = self._calling.acquire(timeout=_CALL_SECONDS)
        try:
            if self._is_aborted:
                return
            self._is_aborted = True
            run_bounded(self._own.abort, _ABORT_SECONDS, TimeoutError)
        except TimeoutError:
            _LOG.warning("NCCL did not abort a communicator within %g s.", _ABORT_SECONDS)
        finally:
            if is_quiet:
                self._calling.release()


def find_trouble(host: Any) -> WorldError | None:
    """The error of another rank, as far as the processes know."""
    found: WorldError | None = host.peers.find_trouble(host.count)
    return found


def is_summed(dtype: Any) -> bool:
    """Whether NCCL computes sums of this dtype."""
    return dtype.name in _SUMMED


def connect(cupy: Any, nccl: Any, meeting: Meeting, place: StreamPlace, name: str) -> Communicator:
    """A communicator of all ranks, each on its GPU. All ranks call this; all raise `NotConnected` if one cannot connect
    and says so, and `CollectiveTimeoutError` if one never comes.
    """
    host = meeting.host
    identity = _share_identity(nccl, meeting, name)
    own, problem = None, ""
    try:
        own = _construct(host, lambda: _make(nccl, host.size, identity, host.rank), place)
    except WorldError as error:
        host.fail(error)
        raise
    except Exception as error:
        problem = f"rank {host.rank}: {type(error).__name__}: {error}"
    problems = _gather_texts(meeting, f"result of connecting {name}", problem)
    if not any(problems):
        return Communicator(cupy, nccl, own)
    if own is not None:
        Communicator(cupy, nccl, own).abort()
    raise NotConnected("; ".join(filter(None, problems)))


def _share_identity(nccl: Any, meeting: Meeting, name: str) -> bytes:
    """The id that rank 0 makes."""
    message = np.zeros(_MESSAGE_BYTES, np.uint8)
    if meeting.host.rank == 0:
        try:
            # signed numbers before CuPy 14
            message[:_ID_BYTES] = np.array([b % 256 for b in nccl.get_unique_id()], np.uint8)
        except Exception as error:
            _write_text(message[_ID_BYTES:], f"rank 0: {type(error).__name__}: {error}")
    call = make_call(f"NCCL's id for {name}", FromRoot(0), (("uint8", message.shape),))
    (found,) = meeting.meet(call, np, [message], FromRoot(0))
    if problem := _read_text(found[_ID_BYTES:]):
        raise NotConnected(problem)
    return bytes(found[:_ID_BYTES])


def _make(nccl: Any, size: int, identity: bytes, rank: int) -> Any:
    try:
        return nccl.NcclCommunicator(size, identity, rank)
    except TypeError:  # before CuPy 14
        return nccl.NcclCommunicator(size, tuple(b - 256 if b > 127 else b for b in identity), rank)


def _construct(host: Any, make: Callable[[], Any], place: StreamPlace) -> Any:
    """NCCL's constructor blocks until all ranks have come, and there is nothing to abort before it returns: so it runs
    in a thread, which hangs until the process ends if one never comes.
    """
    found: list[Any] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            with place.enter():
                found.append(make())
        except Exception as error:
            failed.append(error)

    def check() -> None:
        if (trouble := find_trouble(host)) is not None:
            raise trouble

    def give_up() -> Exception:
        return CollectiveTimeoutError(
            f"NCCL did not connect the {host.size} ranks within {host.timeout:g} s, though all were ready.\n"
            "  NCCL_DEBUG=INFO shows what it waits for; NCCL_SOCKET_IFNAME names the network interface to use."
        )

    threading.Thread(target=work, name="NCCL", daemon=True).start()
    wait_until(lambda: bool(found or failed), host.timeout, check, give_up)
    if failed:
        raise failed[0]
    return found[0]


def _gather_texts(meeting: Meeting, name: str, text: str) -> list[str]:
    message = np.zeros((1, _MESSAGE_BYTES), np.uint8)
    _write_text(message[0], text)
    call = make_call(name, Concatenation(0), (("uint8", message.shape),))
    (found,) = meeting.meet(call, np, [message], Concatenation(0))
    return [_read_text(row) for row in found]


def _write_text(memory: Any, text: str) -> None:
    data = text.encode(errors="replace")[: len(memory)]
    memory[: len(data)] = np.frombuffer(data, np.uint8)


def _read_text(memory: Any) -> str:
    return bytes(memory).partition(b"\0")[0].decode(errors="replace")

"""Faults of collectives that GPUs carry out: a thread follows those under way, and ends those that never will be over.

NCCL's calls return before a GPU is done, and a GPU that waits for a rank that is gone waits for ever, as does the host
once it wants a result. So whatever goes wrong is found here: NCCL tells of a lost peer, a rank tells of its error over
the world of processes, or time is up. The communicators are then aborted, which frees streams and hosts that wait for
them, and the error is raised where the host waits next, or comes to a collective.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from ....arrays.call_site import format_line
from ....errors import CollectiveTimeoutError, RankLostError, WorldError
from ....ops.collective.world import Call
from ..peers import ANSWER_SECONDS
from .communicator import Communicator, find_trouble

#: Seconds between looks at what is under way.
_LOOK_SECONDS = 0.005
#: Seconds that collectives have to end by themselves, once a rank has failed: those that all ranks came to do.
_GRACE_SECONDS = 1.0
#: The number of a collective that no rank comes to.
_NEVER = 1 << 62

Line = tuple[CodeType, int]


class Operation:
    """A collective under way. Time counts while NCCL is called, and from when the GPU has come to it: what it has to do
    before may take long.
    """

    def __init__(self, call: Call, number: int, line: Line, comm: Communicator, kept: Any) -> None:
        self._call, self.number, self._line, self.comm = call, number, line, comm
        #: Arrays of another stream, which must live until this is over.
        self.kept = kept
        self.begun: Any = None
        self.ended: Any = None
        self.is_called = False
        self.since = 0.0
        self._has_begun = False

    def __str__(self) -> str:
        return f"collective {self.number}, {self._call} at {format_line(*self._line)}"

    def is_over(self) -> bool:
        return self.is_called and (self.ended is None or _has_happened(self.ended))

    def seconds_waited(self) -> float:
        """How long the ranks have kept this one waiting."""
        if self.is_called and not self._has_begun:
            self._has_begun = _has_happened(self.begun)
            self.since = time.monotonic()
        return time.monotonic() - self.since


class Watch:
    """The thread that follows collectives; `host` is the world of processes."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._comms: list[Communicator] = []
        self._pending: list[Operation] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._troubled_since = 0.0
        self._error: WorldError | None = None
        self._failing = threading.Lock()
        #: Whether the program has heard of an error.
        self._is_told = False
        self._is_closed = False

    def add(self, comm: Communicator) -> None:
        self._comms.append(comm)

    @contextmanager
    def follow(self, cupy: Any, operation: Operation) -> Iterator[None]:
        """NCCL is called inside, on the current stream. Followed from before, since calls may hang too."""
        operation.since = time.monotonic()
        with self._changed:
            self._pending.append(operation)
            self._start()
            self._changed.notify()
        try:
            with operation.comm.calls():
                operation.begun = record_event(cupy)
                yield
                operation.ended = record_event(cupy)
        except Exception as problem:
            what = f"{type(problem).__name__}: {problem}"
            self._fail(self._await_trouble() or self._describe_failure(operation, what))
            self._raise_error(problem)
        finally:
            operation.is_called = True
        self._raise_error()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Errors that are raised inside are those that `check` would raise."""
        try:
            yield
        except WorldError:
            self._is_told = True
            raise

    def check_peers(self) -> None:
        """Raise the error of a rank that came to a collective and has given up since: its GPU will not come."""
        with self.telling():
            if (trouble := find_trouble(self._host)) is not None:
                self._host.fail(trouble)
                raise trouble

    def check(self) -> None:
        """Raise the error that was found, once: a program that has heard of it may look at what there is."""
        if not self._is_told:
            self._raise_error()

    def _raise_error(self, cause: Exception | None = None) -> None:
        if self._error is not None:
            self._is_told = True
            raise type(self._error)(*self._error.args) from cause

    def close(self, timeout: float) -> None:
        """Wait for what is under way, and end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, timeout)
            self._is_closed = True
            self._changed.notify_all()
        for comm in self._comms:
            comm.abort()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch over NCCL", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._pending) or self._is_closed)
                self._pending = [each for each in self._pending if not each.is_over()]
                pending = list(self._pending)
                self._changed.notify_all()
            if pending and (error := self._find_error(pending)) is not None:
                self._fail(error)
            time.sleep(_LOOK_SECONDS)

    def _find_error(self, pending: list[Operation]) -> WorldError | None:
        if self._error is not None:
            return None
        for comm in dict.fromkeys(each.comm for each in pending):
            if problem := comm.find_problem():
                trouble = self._await_trouble()
                stuck = next((each for each in pending if each.comm is comm and not each.is_over()), None)
                return None if stuck is None else trouble or self._describe_failure(stuck, problem)
        if (trouble := self._find_trouble()) is not None:
            return trouble
        # those behind it on a stream wait for the first, not for a rank
        late = next((each for each in pending if each.seconds_waited() > self._host.timeout), None)
        return None if late is None else self._trouble() or self._describe_late(late)

    def _find_trouble(self) -> WorldError | None:
        """The error of a rank, if what is under way has had time to end by itself."""
        if (trouble := self._trouble()) is None:
            self._troubled_since = 0.0
            return None
        self._troubled_since = self._troubled_since or time.monotonic()
        return trouble if time.monotonic() - self._troubled_since > _GRACE_SECONDS else None

    def _trouble(self) -> WorldError | None:
        """The error of this rank or another, as far as hosts know."""
        return self._host.error or find_trouble(self._host)

    def _await_trouble(self) -> WorldError | None:
        """The same, after a while in which another rank may tell more than NCCL does here."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while (trouble := self._trouble()) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return trouble

    def _describe_failure(self, operation: Operation, problem: str) -> RankLostError:
        return RankLostError(f"rank {self._host.rank} could not complete {operation}: {problem}")

    def _describe_late(self, operation: Operation) -> CollectiveTimeoutError:
        """All ranks have come to it, and then the GPU of one did not."""
        places = self._host.peers.find_missing(_NEVER)  # all ranks say where they are
        lines = [f"  rank {r} {at or 'does not answer'}" for r, at in places.items() if r != self._host.rank]
        what = f"the GPU of some rank did not come to {operation}, within {self._host.timeout:g} s."
        return CollectiveTimeoutError("\n".join([what, *lines]))

    def _fail(self, error: WorldError) -> None:
        """The ranks do not go on together. Others are told first, since an abort may take its time."""
        with self._failing:
            if self._error is None:
                self._error = error
                self._host.fail(error)
                for comm in self._comms:
                    comm.abort()


def record_event(cupy: Any) -> Any:
    event = cupy.cuda.Event(disable_timing=True)
    cupy.cuda.get_current_stream().record(event)
    return event


def _has_happened(event: Any) -> bool:
    try:
        return bool(event.done)
    except Exception:  # a GPU that failed: whoever waits for it raises
        return True

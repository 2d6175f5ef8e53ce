"""What a rank knows of the others besides their arrays: whether they run, where they are, what went wrong there."""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from ...arrays.call_site import format_line, user_line
from ...errors import CollectiveTimeoutError, MismatchError, RankLostError, WorldError
from ...ops.collective.world import name_ranks
from .processes import Processes

R = TypeVar("R")
#: What can have become of a rank. Errors are named by their class: all ranks then raise the same.
RUNNING, ENDED, RAISED, DIED = "running", "ended", "raised", "died"
_ERRORS: dict[str, type[WorldError]] = {
    kind.__name__: kind for kind in (WorldError, MismatchError, CollectiveTimeoutError, RankLostError)
}
#: All states, in the order of their numbers in shared memory.
STATES = (RUNNING, ENDED, RAISED, DIED, *_ERRORS)
#: Seconds that a rank has to say where it is, once others ask.
ANSWER_SECONDS = 0.5
#: How often a waiting rank looks again before it lets others run, and for how many seconds before it sleeps between.
_SPINS, _YIELDING = 200, 0.002


class Peers(ABC):
    """The other ranks, as seen by one. Collectives of each channel are counted from 0."""

    rank: int
    size: int
    #: Those of other ranks on this machine.
    processes: Processes

    @abstractmethod
    def announce(self, state: str, text: str) -> None:
        """Tell the others what became of this rank."""

    @abstractmethod
    def states(self) -> list[tuple[str, str]]:
        """For each rank its state and what it says of it."""

    @abstractmethod
    def has_done(self, rank: int, number: int, channel: int = 0) -> bool:
        """Whether a rank has done its part in a collective, whatever became of it since."""

    @abstractmethod
    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        """The ranks that have not come to a collective, and where each is; "" for one that does not answer."""

    @abstractmethod
    def gather_texts(self, number: int, text: str) -> list[str]:
        """The texts that all ranks have for the collective of a number; "" for one that has none in time."""

    @abstractmethod
    def leave(self) -> None:
        """Tell the others that this process is about to end, whatever it has announced before."""

    @abstractmethod
    def has_left(self, rank: int) -> bool: ...

    @abstractmethod
    def close(self) -> None: ...

    def wait_for_others_to_leave(self, timeout: float) -> bool:
        """Stay until all others are about to end too, since a launcher may end them once one process is gone; False if
        they do not.
        """

        def are_over() -> bool:
            states = enumerate(self.states())
            return all(state in (ENDED, DIED) or self.has_left(r) for r, (state, _) in states if r != self.rank)

        try:
            wait_until(are_over, timeout, lambda: None, TimeoutError)
        except TimeoutError:
            return False
        return True

    def find_running(self) -> list[int]:
        """The other ranks that know of no failure."""
        return [r for r, (state, _) in enumerate(self.states()) if state == RUNNING and r != self.rank]

    def kill_stuck(self) -> None:
        """End the processes of this machine that will not end: they know of no failure, or are stopped."""
        running = self.find_running()
        for r in range(self.size):
            if r in running or self.processes.is_stopped(r):
                self.processes.kill(r)

    def has_failed(self) -> bool:
        """Whether a rank has raised, failed or died."""
        return any(state not in (RUNNING, ENDED) for state, _ in self.states())

    def find_trouble(self, number: int) -> WorldError | None:
        """The error to raise where a rank has failed, though it may have come to a collective before."""
        for rank, (state, text) in enumerate(self.states()):
            if state != RUNNING and not (state == ENDED and self.has_done(rank, number)):
                return self._make_error(rank, state, text, f"before collective {number}.")
        return None

    def find_absence(self, number: int, channel: int, describe: Callable[[], str]) -> WorldError | None:
        """The error to raise where a rank cannot come to a collective any more; `describe` says what is waited for, and
        where. What became of a rank after it did its part is left to the next collective.
        """
        for rank, (state, text) in enumerate(self.states()):
            is_own_end = state in (ENDED, RAISED, DIED)
            if state != RUNNING and not (is_own_end and self.has_done(rank, number, channel)):
                waits = f"rank {self.rank} waits for it at collective {number}: {describe()}" if is_own_end else ""
                return self._make_error(rank, state, text, waits)
        return None

    def _make_error(self, rank: int, state: str, text: str, more: str) -> WorldError:
        if state in _ERRORS:
            return _ERRORS[state](text)
        return RankLostError(f"rank {rank} of {self.size} {state}{f' {text}' if text else ''}\n  {more}")

    def late_error(self, number: int, what: str, timeout: float, channel: int = 0) -> CollectiveTimeoutError:
        """The error that names the ranks that did not come to a collective, and what they do instead."""
        missing = self.find_missing(number, channel)
        lines = [
            f"  rank {r} {at or 'does not answer: it is stopped, or inside native code'}" for r, at in missing.items()
        ]
        who = name_ranks([*missing]) if missing else "some rank"
        return CollectiveTimeoutError(
            "\n".join([f"{who} did not come to collective {number} within {timeout:g} s: {what}", *lines])
        )


def wait_until(
    is_done: Callable[[], bool], timeout: float, check: Callable[[], None], give_up: Callable[[], Exception]
) -> None:
    """Wait until something is so. `check` is called now and then, and raises where it never will be; `give_up` makes
    the error to raise after `timeout` seconds.
    """
    for _ in range(_SPINS):
        if is_done():
            return
    start = time.monotonic()
    while not is_done():
        try:
            check()
        except Exception:
            if is_done():  # the last rank has come, and failed since
                return
            raise
        waited = time.monotonic() - start
        if waited > timeout:
            raise give_up()
        if waited < _YIELDING:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
        else:
            time.sleep(0.0001 if waited < 1.0 else 0.001)


def run_bounded(function: Callable[[], R], timeout: float, give_up: Callable[[], Exception]) -> R:
    """Call a function that may never return, such as one of MPI's that all ranks must call; raise after `timeout`
    seconds. It then still hangs, in a thread that ends with the process.
    """
    found: list[R] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="bounded call", daemon=True)
    thread.start()
    thread.join(timeout)
    if failed:
        raise failed[0]
    if not found:
        raise give_up()
    return found[0]


def describe_place(thread: int, count: int) -> str:
    """Where a thread of this process is, for other ranks to print."""
    frame: Any = sys._current_frames().get(thread)
    at = "has ended" if frame is None else f"is at {format_line(*user_line(frame))}"
    return f"has come to {count} collectives and {at}"

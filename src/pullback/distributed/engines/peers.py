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

R = TypeVar("R")
#: What can have become of a rank. Errors are named by their class: all ranks then raise the same.
RUNNING, ENDED, RAISED = "running", "ended", "raised"
_ERRORS: dict[str, type[WorldError]] = {
    kind.__name__: kind for kind in (WorldError, MismatchError, CollectiveTimeoutError, RankLostError)
}
#: All states, in the order of their numbers in shared memory.
STATES = (RUNNING, ENDED, RAISED, *_ERRORS)
#: Seconds that a rank has to say where it is, once others ask.
ANSWER_SECONDS = 0.5
#: How often a waiting rank looks again before it lets others run, and for how many seconds before it sleeps between.
_SPINS, _YIELDING = 200, 0.002


class Peers(ABC):
    """The other ranks, as seen by one. Collectives are counted from 0."""

    rank: int
    size: int

    @abstractmethod
    def announce(self, state: str, text: str, number: int) -> None:
        """Tell the others what became of this rank, before its collective of a number."""

    @abstractmethod
    def states(self, number: int) -> list[tuple[str, str]]:
        """For each rank its state and what it says of it. One that ended after the collective of a number still counts
        as running.
        """

    @abstractmethod
    def find_missing(self, number: int, channel: int = 0) -> dict[int, str]:
        """The ranks that have not come to a collective, and where each is; "" for one that does not answer."""

    @abstractmethod
    def gather_texts(self, number: int, text: str) -> list[str]:
        """The texts that all ranks have for the collective of a number; "" for one that has none in time."""

    @abstractmethod
    def wait_for_others_to_end(self, timeout: float) -> bool:
        """Stay until all others have ended or failed too, since a launcher may end them once one process is gone;
        False if they do not.
        """

    @abstractmethod
    def close(self) -> None: ...

    def find_trouble(self, number: int) -> WorldError | None:
        """The error to raise where a rank cannot come to a collective any more."""
        for rank, (state, text) in enumerate(self.states(number)):
            if state == RUNNING or rank == self.rank:
                continue
            if state == ENDED:
                return RankLostError(f"rank {rank} ended before collective {number}.")
            if state == RAISED:
                return RankLostError(f"rank {rank} of {self.size} raised {text}")
            return _ERRORS[state](text)
        return None

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
        check()
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

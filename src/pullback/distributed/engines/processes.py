"""Processes of other ranks on this machine: which of them are gone, which are stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

#: Seconds between looks.
_LOOK_SECONDS = 0.02


class Processes:
    """The processes of ranks, by their numbers. Those that cannot be seen at first, since they run in containers of
    their own, are not watched.
    """

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self._numbers = {r: number for r, number in numbers.items() if process_state(number) not in "ZX"}
        self._gone: set[int] = set()
        self._next_look = 0.0

    def find_gone(self) -> set[int]:
        """The ranks whose processes have ended."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self._gone |= {r for r, number in self._numbers.items() if process_state(number) in "ZX"}
        return self._gone

    def select(self, ranks: Sequence[int]) -> Processes:
        """Those of some ranks, which are numbered from 0 in this order. One that is gone by now is still watched."""
        found = Processes({})
        found._numbers = {i: self._numbers[r] for i, r in enumerate(ranks) if r in self._numbers}
        return found

    def describe_end(self, rank: int) -> str:
        return f"process {self._numbers[rank]} is gone"

    def is_stopped(self, rank: int) -> bool:
        return rank in self._numbers and process_state(self._numbers[rank]) in "Tt"

    def kill(self, rank: int) -> None:
        """End a process, if it is one of this machine."""
        if rank in self._numbers and rank not in self._gone:
            with suppress(OSError):
                os.kill(self._numbers[rank], signal.SIGKILL)


def process_state(process: int) -> str:
    """The state of a process as /proc names it: T stopped, Z ended, X gone, R otherwise."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "X"
    except OSError:
        return "R"
    return "R"

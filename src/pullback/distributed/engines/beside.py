"""Collectives that go on beside the caller's computation, in a thread of their own, where a core is free for it."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

from ...arrays.call_site import format_line, user_line
from ...arrays.timing import clock
from ...ops.collective.world import Started


class Running(Started):
    """A collective that another thread runs."""

    def __init__(self, work: Callable[[], list[Any]]) -> None:
        self._work = work
        self._done = threading.Event()
        self._results: list[Any] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results = self._work()
        except BaseException as error:
            self._error = error
        self.ended = clock()
        self._done.set()

    def wait(self, timeout: float | None = None) -> list[Any]:
        self._done.wait(timeout)  # its own waits have deadlines
        if self._error is not None:
            raise self._error
        return self._results


class Beside:
    """A thread that runs collectives one after the other, in the order in which they were started. `line` is the user's
    that started the one that runs.
    """

    def __init__(self) -> None:
        self.line: tuple[CodeType, int] | None = None
        self._queue: queue.SimpleQueue[Running] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], list[Any]]) -> Running:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
            self._thread.start()
        line = user_line(sys._getframe(1))

        def work_from_line() -> list[Any]:
            self.line = line
            return work()

        started = Running(work_from_line)
        self._queue.put(started)
        return started

    def describe_line(self) -> str:
        return "the start" if self.line is None else format_line(*self.line)

    def finish(self, timeout: float) -> None:
        """Wait until what was started is over, since it uses what is released next."""
        if self._thread is not None:
            self.start(list).wait(timeout)

    def _run(self) -> None:
        while True:
            self._queue.get().run()


def has_free_core(local_ranks: int) -> bool:
    """Whether this rank has a core besides those that its threads compute on: a thread that communicates would take
    turns with them otherwise, which costs more than it hides.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    everywhere = os.cpu_count() or 1
    cores = len(affinity(0)) if affinity is not None else everywhere
    if cores * local_ranks > everywhere:  # not bound: the ranks share what there is
        cores //= local_ranks
    computing = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return cores > (int(computing) if computing.isdecimal() else cores)

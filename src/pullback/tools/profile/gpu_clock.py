"""Times of work on a GPU, by events on its streams: nothing waits for them until the profile is over."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ...arrays.imported import imported_module
from ...arrays.timing import GPU, WIDTH, clock


class Mark(NamedTuple):
    """An event that was recorded on a stream."""

    event: Any
    stream: int


class GpuClock:
    """Records events on the current stream, and finds out in the end when each happened."""

    def __init__(self, cupy: Any, log: deque[Any]) -> None:
        self._cupy, self._log = cupy, log
        self._streams: dict[int, int] = {}
        self._first = self.mark().event
        self._first.synchronize()
        self._start = clock()

    def mark(self) -> Mark:
        """Record an event on the current stream."""
        stream = self._cupy.cuda.get_current_stream()
        event = self._cupy.cuda.Event()
        event.record(stream)
        return Mark(event, self._streams.setdefault(stream.ptr, len(self._streams)))

    def finish(self) -> None:
        """Wait for the streams, and write the times of work on them in place of those at which it was launched."""
        log = list(self._log)
        for at in range(0, len(log), WIDTH):
            if log[at] == GPU:
                work = log[at + 1]
                log[at + 2], log[at + 3] = self._time_of(work.before), self._time_of(work.after)
        self._log.clear()
        self._log.extend(log)

    def _time_of(self, mark: Mark) -> int:
        mark.event.synchronize()
        return self._start + int(1e6 * self._cupy.cuda.get_elapsed_time(self._first, mark.event))


def start_gpu_clock(log: deque[Any]) -> GpuClock | None:
    """A clock, where CuPy is in use and has a device."""
    cupy = imported_module("cupy")
    if cupy is None or not cupy.cuda.runtime.getDeviceCount():
        return None
    return GpuClock(cupy, log)

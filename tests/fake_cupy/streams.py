"""The stand-in's streams and events. Arrays are computed at once; what other libraries queue is a task, and whatever
uses arrays on a stream, or waits for it, first waits for its tasks.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

#: Held while tasks change, and notified then.
changed = threading.Condition()
#: What tries to complete tasks, and says whether it could; called again until nothing changes.
workers: list[Callable[[], bool]] = []
_numbers = itertools.count(1000)
_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


class Task:
    """Something that a stream does when everything before it is done."""

    def __init__(self) -> None:
        self.done = False
        self.stream: Stream | None = None

    @property
    def is_next(self) -> bool:
        return not self.done and self.stream is not None and self.stream.first_task() is self

    def advance(self) -> bool:
        """Complete the task if nothing else has to; whether it is complete now."""
        return False


class _Wait(Task):
    """A stream waits for what another had to do when an event was recorded."""

    def __init__(self, awaited: Task) -> None:
        Task.__init__(self)
        self._awaited = awaited

    def advance(self) -> bool:
        self.done = self._awaited.done
        return self.done


class Event:
    """An event, which has happened when all tasks before it are done."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.task: Task | None = None
        self.seconds = 0.0

    def record(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).record(self)

    @property
    def done(self) -> bool:
        return self.task is None or self.task.done

    def synchronize(self) -> None:
        with changed:
            changed.wait_for(lambda: self.done)


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds between two events; here, between the calls that recorded them."""
    return 1e3 * (end.seconds - start.seconds)


class Stream:
    """A stream; `log` says what was asked of any."""

    log: ClassVar[list[str]] = []

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = 0 if null else next(_numbers)
        self._tasks: list[Task] = []
        _streams.add(self)

    def __enter__(self) -> Stream:
        _current.entered.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _current.entered.pop()

    def first_task(self) -> Task | None:
        self._tasks = [task for task in self._tasks if not task.done]
        return self._tasks[0] if self._tasks else None

    def add(self, task: Task) -> None:
        task.stream = self
        with changed:
            self._tasks.append(task)
            advance_tasks()

    @property
    def done(self) -> bool:
        return not self._tasks or self.first_task() is None

    def settle(self) -> None:
        """Wait until all tasks are done."""
        if self._tasks:
            with changed:
                changed.wait_for(lambda: self.done)

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.settle()

    def record(self, event: Any = None) -> Any:
        self.log.append("record")
        event = Event() if event is None else event
        with changed:
            event.task = self._tasks[-1] if not self.done else None
        event.seconds = time.perf_counter()
        return event

    def wait_event(self, event: Any) -> None:
        self.log.append("wait_event")
        if event is not None and not event.done:
            self.add(_Wait(event.task))


class _Current(threading.local):
    """The streams that a thread has entered; the last one is current. Each thread has a first one of its own, since
    threads stand for processes in some tests.
    """

    def __init__(self) -> None:
        self.entered = [Stream(null=True)]


_current = _Current()


def current_stream(device_id: int = -1) -> Stream:
    return _current.entered[-1]


def find_stream(pointer: int) -> Stream:
    """The stream of a pointer; 0 stands for the thread's first."""
    return next(s for s in list(_streams) if s.ptr == pointer) if pointer else _current.entered[0]


def settle() -> None:
    """Wait until the current stream has done everything, as an array operation on it does."""
    _current.entered[-1].settle()


def advance_tasks() -> None:
    """Complete all tasks that can be. Called with the lock held."""
    progress = True
    while progress:
        first = [task for stream in list(_streams) if (task := stream.first_task()) is not None]
        progress = sum(task.advance() for task in first) + sum(work() for work in workers) > 0
    changed.notify_all()

"""Ranks as threads of one process: for tests, debuggers and notebooks, without any package."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...arrays.argument_checks import short_repr
from ...arrays.call_site import format_line, user_line
from ...errors import ArgumentError, CollectiveTimeoutError, RankLostError, WorldError
from ...ops.collective.exchange import Exchange
from ...ops.collective.world import Call, Finished, Started, World, caller_line, check_agreement, name_ranks
from ...settings import override_modes
from .beside import Beside

R = TypeVar("R")
#: Seconds that ranks have to come to a collective.
TIMEOUT = 60.0


def run(function: Callable[[], R], ranks: int, *, timeout: float = TIMEOUT, overlap: bool = False) -> list[R]:
    """Call a function on each of some ranks, which are threads of this process, and return what each returned. They
    meet at collectives; a rank that waits longer than `timeout` seconds there raises an error that names the late ranks
    and the lines they are at. An error of one rank ends the others, and is raised. With `overlap`, sums of gradients go
    on beside the backward pass, as they do among processes that have cores for it.

    >>> import numpy as np, pullback as pb
    >>> data = np.arange(8.0)
    >>> def loss(w):
    ...     mine = data[pb.distributed.rank() :: pb.distributed.world_size()]
    ...     return pb.distributed.total(pb.sum((mine * pb.distributed.shared(w)) ** 2))
    >>> pb.distributed.run(lambda: float(pb.grad(loss)(1.0)), 4)
    [280.0, 280.0, 280.0, 280.0]
    """
    if not callable(function):
        raise ArgumentError(f"run: wants a function, got {short_repr(function)}.")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= 4096:
        raise ArgumentError(f"run: the number of ranks is between 1 and 4096, got {short_repr(ranks)}.")
    if not timeout > 0:
        raise ArgumentError(f"run: the timeout is a number of seconds above 0, got {short_repr(timeout)}.")
    group = _Group(ranks, timeout)
    side = _Group(ranks, timeout, group) if overlap else None
    results: list[Any] = [None] * ranks

    def work(rank: int) -> None:
        group.threads[rank] = threading.get_ident()
        try:
            with override_modes(rank=_ThreadRank(group, side, rank)):
                results[rank] = function()
        except BaseException as error:
            group.leave(rank, error)
        else:
            group.leave(rank, None)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, i), name=f"rank {i}", daemon=True)
        for i in range(ranks)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive() and not group.is_over():
                thread.join(0.5)
    except BaseException as error:  # an interrupt: the ranks leave at their next collective
        group.fail(error)
        raise
    if group.first_error is not None:
        raise group.first_error
    return results


class _ThreadRank(World):
    level = "threads"

    def __init__(self, group: _Group, side: _Group | None, rank: int) -> None:
        self.rank, self.size, self._group, self._side = rank, group.size, group, side
        self.local_rank, self.local_size, self.timeout = rank, group.size, group.timeout
        self.runs_beside, self._beside = side is not None, Beside()

    def meet(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> list[Any]:
        return self._group.meet(self.rank, call, xp, arrays, exchange)

    def start(
        self, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange, outs: Sequence[Any] | None = None
    ) -> Started:
        side = self._side
        if side is None:
            return Finished(self.meet(call, xp, arrays, exchange))
        return self._beside.start(lambda: side.meet(self.rank, call, xp, arrays, exchange))

    def shrink(self) -> tuple[World, list[int]]:
        raise WorldError(
            "shrink: ranks that are threads of a process do not die apart from it.\n"
            "  An error that one of them raised is raised by pb.distributed.run; catch it there, and run with fewer."
        )

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size} threads>"


class _Meeting:
    """A collective that ranks have come to, or are coming to."""

    def __init__(self, size: int) -> None:
        self.calls: dict[int, Call] = {}
        self.lines: dict[int, str] = {}
        self.arrays: list[Sequence[Any]] = [()] * size
        self.results: list[list[Any]] | None = None
        self.left = 0

    def describe(self, rank: int | None = None) -> str:
        """What a rank called, and where; without one, the first that came."""
        rank = next(iter(self.calls)) if rank is None else rank
        return f"{self.calls[rank]} at {self.lines[rank]}"


class _Group:
    """What ranks of one process share. Each counts its collectives, and meets the others at those of one number. One
    that is beside a `main` one fails with it.
    """

    def __init__(self, size: int, timeout: float, main: _Group | None = None) -> None:
        self.size, self.timeout, self._main = size, timeout, main
        self.threads: dict[int, int] = {}
        self.first_error: BaseException | None = None
        self._condition = threading.Condition()
        self._counts = [0] * size
        self._meetings: dict[int, _Meeting] = {}
        self._gone: dict[int, BaseException | None] = {}
        #: When the last rank may leave after an error: one that comes to no collective cannot be stopped.
        self._grace = 0.0

    def meet(self, rank: int, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> list[Any]:
        line = caller_line()
        with self._condition:
            self._raise_first()
            number = self._counts[rank]
            self._counts[rank] += 1
            meeting = self._meetings.setdefault(number, _Meeting(self.size))
            meeting.calls[rank], meeting.lines[rank], meeting.arrays[rank] = call, line, arrays
            if len(meeting.calls) == self.size:
                self._complete(number, meeting, xp, exchange)
            else:
                self._wait(number, meeting)
            assert meeting.results is not None
            found = meeting.results[rank]
            meeting.left += 1
            if meeting.left == self.size:
                del self._meetings[number]
            return found

    def leave(self, rank: int, error: BaseException | None) -> None:
        """A rank has ended: those who wait for it need not."""
        with self._condition:
            self._gone[rank] = error
            if error is not None and self.first_error is None:
                error.add_note(f"raised by rank {rank} of {self.size}")
                self._fail(error)
            self._condition.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._condition:
            self._fail(error)

    def is_over(self) -> bool:
        """Whether nothing is waited for any more: all ranks have ended, or one does not after an error."""
        return len(self._gone) == self.size or (self._grace > 0.0 and time.monotonic() > self._grace)

    def _fail(self, error: BaseException) -> None:
        if self.first_error is None:
            self.first_error, self._grace = error, time.monotonic() + 1.0
        self._condition.notify_all()

    def _raise_first(self) -> None:
        """Every rank gets an error of its own: tracebacks grow where one is raised again."""
        if self._main is not None and self._main.first_error is not None:
            self._main._raise_first()
        error = self.first_error
        if isinstance(error, WorldError):
            raise type(error)(*error.args)
        if error is not None:
            lost = [r for r, e in self._gone.items() if e is error]
            what = f"{name_ranks(lost)} raised {type(error).__name__}" if lost else f"a {type(error).__name__} ended it"
            raise RankLostError(f"the world of {self.size} ranks has come apart: {what}: {error}")

    def _complete(self, number: int, meeting: _Meeting, xp: Any, exchange: Exchange) -> None:
        ranks = range(self.size)
        try:
            check_agreement(number, [meeting.calls[r] for r in ranks], meeting.describe)
            # by the last rank for all of them, since arrays may change once a rank has gone on
            meeting.results = [
                [
                    exchange.join(xp, [exchange.part(x, r, target) for r, x in enumerate(of_ranks)], of_ranks[target])
                    for of_ranks in zip(*meeting.arrays, strict=True)
                ]
                for target in ranks
            ]
        except BaseException as error:
            self._fail(error)
            raise
        self._condition.notify_all()

    def _wait(self, number: int, meeting: _Meeting) -> None:
        deadline = time.monotonic() + self.timeout
        while meeting.results is None:
            self._raise_first()
            missing = [r for r in range(self.size) if r not in meeting.calls]
            if ended := [r for r in missing if r in self._gone]:
                here = meeting.describe()
                self._fail(RankLostError(f"{name_ranks(ended)} returned before collective {number}: {here}"))
            elif (left := deadline - time.monotonic()) <= 0.0:
                self._fail(self._describe_late(number, meeting, missing))
            else:
                self._condition.wait(left if self._main is None else min(left, 0.05))

    def _describe_late(self, number: int, meeting: _Meeting, missing: Sequence[int]) -> CollectiveTimeoutError:
        frames = sys._current_frames()
        here = meeting.describe()
        lines = []
        for r in missing:
            frame = frames.get(self.threads.get(r, 0))
            at = format_line(*user_line(frame)) if frame is not None else "not started"
            lines.append(f"  rank {r}, after {self._counts[r]} collectives, is at {at}")
        return CollectiveTimeoutError(
            f"{name_ranks(missing)} did not come to collective {number} within {self.timeout:g} s: {here}\n"
            + "\n".join(lines)
        )

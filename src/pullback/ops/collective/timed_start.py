"""Collectives that go on beside the caller, while a time profile looks on: how long each was under way, and how long
this rank waited for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from threading import get_ident
from typing import Any

from ...arrays.call_site import user_line
from ...arrays.timing import BESIDE, MEETING, clock, span
from ...settings import modes
from .exchange import Exchange
from .world import Call, Finished, Started, World


class TimedStart(Started):
    """A collective under way, with the line that started it."""

    def __init__(self, started: Started, call: Call, start: int, line: tuple[Any, int]) -> None:
        self._started, self._call, self._start, self._line = started, call, start, line

    def wait(self) -> list[Any]:
        with span(MEETING, self._call):
            found = self._started.wait()
        instruments = modes().instruments
        if instruments is not None and instruments.write is not None and self._started.ended:
            end = self._started.ended
            instruments.write((BESIDE, self._call, self._start, end, *self._line, 0, 0, get_ident()))
        return found


def start_in_time(world: World, call: Call, xp: Any, arrays: Sequence[Any], exchange: Exchange) -> Started:
    """`world.start`; where a profile listens, it hears of the collective."""
    instruments = modes().instruments
    if instruments is None or instruments.write is None:
        return world.start(call, xp, arrays, exchange)
    start = clock()
    started = world.start(call, xp, arrays, exchange)
    line = user_line(sys._getframe(1))
    if type(started) is not Finished:
        return TimedStart(started, call, start, line)
    instruments.write((MEETING, call, start, clock(), *line, 0, 0, get_ident()))  # it was waited for here
    return started

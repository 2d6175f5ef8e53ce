"""The default random generator: where it stands, and records of what a run drew from it, to draw the same again.

A run that may be repeated draws through a record of its own (`drawing`), which is local to its context. So a second run
neither moves the generator nor sees what other threads drew in between, and there is nothing to put back after it.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple

from ..errors import RecomputeError

__all__ = ["Draws", "State", "ahead", "cursor", "draw", "drawing", "read", "write"]


class State(NamedTuple):
    """The default generator at one moment: its key as two whole numbers, and how many keys it has handed out."""

    words: tuple[int, int]
    drawn: int


_guard = Lock()
_state: State | None = None


class Draws:
    """What one run drew, in its order: a run of numbers that follow each other is one entry. `complete` once the run is
    over; what draws from it then draws the same again.
    """

    __slots__ = ("_firsts", "_places", "complete", "count")

    def __init__(self) -> None:
        self._firsts: list[State] = []
        self._places: list[int] = []
        self.count = 0
        self.complete = False

    def append(self, state: State) -> None:
        if not self.count or state != _after(self[self.count - 1]):
            self._firsts.append(state)
            self._places.append(self.count)
        self.count += 1

    def __getitem__(self, place: int) -> State:
        entry = bisect_right(self._places, place) - 1
        first = self._firsts[entry]
        return State(first.words, first.drawn + place - self._places[entry])


class Cursor:
    """Where a run stands in its record, and the cursor of the run around it, from which a first run draws."""

    __slots__ = ("_around", "_draws", "position")

    def __init__(self, draws: Draws, around: Cursor | None) -> None:
        self._draws, self._around = draws, around
        self.position = 0

    @property
    def repeats(self) -> bool:
        """Whether this run, or one around it, is a second one: it leaves the generator alone."""
        return self._draws.complete or (self._around is not None and self._around.repeats)

    def peek(self) -> State | None:
        """What comes next, None if it is up to the generator."""
        if self.position < self._draws.count:
            return self._draws[self.position]
        return None if self._around is None else self._around.peek()

    def advance(self) -> State:
        draws = self._draws
        if self.position == draws.count:
            if draws.complete:
                raise RecomputeError(
                    f"random: the recomputation draws more random numbers than the first run, which drew {draws.count}."
                    "\n  Something that the function depends on changed in between; pass it as an argument."
                )
            draws.append(_next() if self._around is None else self._around.advance())
        self.position += 1
        return draws[self.position - 1]


_cursor: ContextVar[Cursor | None] = ContextVar("pullback_draws", default=None)
cursor = _cursor.get


@contextmanager
def drawing(draws: Draws) -> Iterator[Cursor]:
    """Draw through a record, from its start."""
    mine = Cursor(draws, cursor())
    token = _cursor.set(mine)
    try:
        yield mine
    finally:
        _cursor.reset(token)


class _Coming(Draws):
    """What the generator would hand out from some state on."""

    __slots__ = ("_first",)

    def __init__(self, first: State) -> None:
        Draws.__init__(self)
        self._first = first
        self.count, self.complete = sys.maxsize, True

    def __getitem__(self, place: int) -> State:
        return State(self._first.words, self._first.drawn + place)


@contextmanager
def ahead() -> Iterator[None]:
    """Draw what comes next, and leave the generator where it stands."""
    with drawing(_Coming(read())):
        yield


def read() -> State:
    """Where the generator stands, or stood when the run that is repeated was here."""
    with _guard:
        mine = cursor()
        return (mine and mine.peek()) or _known()


def write(state: State) -> None:
    """Put the generator elsewhere. A second run does not: it draws what the first one drew."""
    global _state
    with _guard:
        mine = cursor()
        if mine is None or not mine.repeats:
            _state = state


def draw() -> State:
    """The state of the generator, which moves on: each goes to one caller alone, whatever thread it runs in."""
    with _guard:
        mine = cursor()
        return _next() if mine is None else mine.advance()


def _next() -> State:
    global _state
    now = _known()
    _state = _after(now)
    return now


def _after(state: State) -> State:
    return State(state.words, state.drawn + 1)


def _known() -> State:
    global _state
    if _state is None:
        seed = os.urandom(8)
        _state = State((int.from_bytes(seed[:4], "little"), int.from_bytes(seed[4:], "little")), 0)
    return _state

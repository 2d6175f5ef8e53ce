"""The default random generator: its state, and records of what a run drew from it, for replay.

A run that may be repeated draws through its own record (`use_draws`), which is local to its context. So a second run
neither advances the generator nor sees what other threads drew in between, and nothing must be restored after it.
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

from ...arrays.call_site import format_line, user_line
from ...errors import DeterminismError, RecomputeError
from ...settings import is_deterministic


class State(NamedTuple):
    """The default generator at one moment: its key as two integers, and how many keys it has handed out."""

    words: tuple[int, int]
    drawn: int


_guard = Lock()
_state: State | None = None
#: The key from the operating system, if no seed was given.
_unseeded: tuple[int, int] | None = None


class Draws:
    """What one run drew, in order: consecutive draws are one entry. `complete` once the run has
    ended; from then on it is replayed.
    """

    __slots__ = ("_firsts", "_places", "complete", "count")

    def __init__(self) -> None:
        self._firsts: list[State] = []
        self._places: list[int] = []
        self.count = 0
        self.complete = False

    def append(self, state: State) -> None:
        if not self.count or state != _following_state(self[self.count - 1]):
            self._firsts.append(state)
            self._places.append(self.count)
        self.count += 1

    def __getitem__(self, place: int) -> State:
        entry = bisect_right(self._places, place) - 1
        first = self._firsts[entry]
        return State(first.words, first.drawn + place - self._places[entry])


class Cursor:
    """The position of a run in its record, and the cursor of the enclosing run, from which a first run draws."""

    __slots__ = ("_around", "_draws", "position")

    def __init__(self, draws: Draws, around: Cursor | None) -> None:
        self._draws, self._around = draws, around
        self.position = 0

    @property
    def is_replay(self) -> bool:
        """Whether this run, or an enclosing one, is a replay: it leaves the generator alone."""
        return self._draws.complete or (self._around is not None and self._around.is_replay)

    def peek(self) -> State | None:
        """The next recorded draw, None if the generator decides."""
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
            draws.append(_advance_state() if self._around is None else self._around.advance())
        self.position += 1
        return draws[self.position - 1]


_cursor: ContextVar[Cursor | None] = ContextVar("pullback_draws", default=None)
cursor = _cursor.get


@contextmanager
def use_draws(draws: Draws) -> Iterator[Cursor]:
    """Draw through a record, from its start."""
    mine = Cursor(draws, cursor())
    token = _cursor.set(mine)
    try:
        yield mine
    finally:
        _cursor.reset(token)


class _FutureDraws(Draws):
    """The draws of the generator from some state on."""

    __slots__ = ("_first",)

    def __init__(self, first: State) -> None:
        Draws.__init__(self)
        self._first = first
        self.count, self.complete = sys.maxsize, True

    def __getitem__(self, place: int) -> State:
        return State(self._first.words, self._first.drawn + place)


@contextmanager
def preview_draws() -> Iterator[None]:
    """Draw the coming numbers without advancing the generator."""
    with use_draws(_FutureDraws(read_state())):
        yield


def read_state() -> State:
    """The generator's state, or in a replay its state at this point of the first run."""
    with _guard:
        mine = cursor()
        return (mine and mine.peek()) or _current_state()


def write_state(state: State) -> None:
    """Set the generator's state. A replay does not: it draws what the first run drew."""
    global _state
    with _guard:
        mine = cursor()
        if mine is None or not mine.is_replay:
            _state = state


def next_state() -> State:
    """Take the generator's state and advance it: each state goes to one caller only, in whatever thread."""
    with _guard:
        mine = cursor()
        return _advance_state() if mine is None else mine.advance()


def _advance_state() -> State:
    global _state
    now = _current_state()
    _state = _following_state(now)
    return now


def _following_state(state: State) -> State:
    return State(state.words, state.drawn + 1)


def _current_state() -> State:
    global _state, _unseeded
    if _state is None:
        seed = os.urandom(8)
        _unseeded = int.from_bytes(seed[:4], "little"), int.from_bytes(seed[4:], "little")
        _state = State(_unseeded, 0)
    if _state.words == _unseeded and is_deterministic():
        raise DeterminismError(
            "random: the default generator has no seed, so its numbers differ from run to run.\n"
            f"  drawn at {format_line(*user_line(sys._getframe(1)))}\n"
            "  Call pb.random.seed(number) first, or pass a key."
        )
    return _state

"""The random streams of a loop: their states before a step, so that a repeated step draws the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from ...ops.replay.default_stream import Draws, cursor, use_draws
from ...ops.replay.streams import STREAMS, rewind_lock, stream_of


class StreamReplay:
    """The default stream, which the first run records; the global streams; the given generators."""

    __slots__ = ("_draws", "_start", "_streams")

    def __init__(self, generators: Sequence[Any] = ()) -> None:
        self._draws = Draws()
        self._streams = [*STREAMS, *map(stream_of, generators)]
        self._start = [0, *self._read_foreign_states()]

    def _read_foreign_states(self) -> list[Any]:
        return [stream.get() for stream in self._streams]

    def states(self) -> list[Any]:
        """The states of all streams, inside of a run."""
        mine = cursor()
        return [0 if mine is None else mine.position, *self._read_foreign_states()]

    def rewind(self, states: list[Any]) -> None:
        """Restore the states of all streams, inside of a run."""
        mine = cursor()
        if mine is not None:
            mine.position = states[0]
        for stream, state in zip(self._streams, states[1:], strict=True):
            stream.put(state)

    @contextmanager
    def replay_from_start(self) -> Iterator[None]:
        """Draw what was drawn from the start on. The first run advances the streams; any other leaves them as it found
        them.
        """
        # the first run fills the record of draws, later ones read it
        repeats, now = self._draws.complete, self._read_foreign_states()
        # global streams are shared by all threads
        with rewind_lock if repeats else nullcontext(), use_draws(self._draws):
            try:
                if repeats:
                    self.rewind(self._start)
                yield
            finally:
                self._draws.complete = True
                if repeats:
                    self.rewind([0, *now])

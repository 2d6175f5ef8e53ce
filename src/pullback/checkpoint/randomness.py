"""The random streams of a loop: where they stand before a step, so that the step draws the same when it runs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from ..ops.default_stream import Draws, cursor, drawing
from ..ops.streams import STREAMS, rewinding, stream_of

__all__ = ["Replay"]


class Replay:
    """Our own stream, of which the first run leaves a record; those that every function can reach; some generators'."""

    __slots__ = ("_draws", "_start", "_streams")

    def __init__(self, generators: Sequence[Any] = ()) -> None:
        self._draws = Draws()
        self._streams = [*STREAMS, *map(stream_of, generators)]
        self._start = [0, *self._others()]

    def _others(self) -> list[Any]:
        return [stream.get() for stream in self._streams]

    def states(self) -> list[Any]:
        """Where all streams stand, inside of a run."""
        mine = cursor()
        return [0 if mine is None else mine.position, *self._others()]

    def rewind(self, states: list[Any]) -> None:
        """Put all streams where they stood, inside of a run."""
        mine = cursor()
        if mine is not None:
            mine.position = states[0]
        for stream, state in zip(self._streams, states[1:], strict=True):
            stream.put(state)

    @contextmanager
    def from_start(self) -> Iterator[None]:
        """Draw what was drawn from the start on. The first run leaves the streams where it got to; after any other they
        go on as if nothing had been rewound.
        """
        repeats, now = self._draws.complete, self._others()
        with rewinding if repeats else nullcontext(), drawing(self._draws):
            try:
                if repeats:
                    self.rewind(self._start)
                yield
            finally:
                self._draws.complete = True
                if repeats:
                    self.rewind([0, *now])

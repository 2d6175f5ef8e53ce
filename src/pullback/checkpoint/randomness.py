"""The random streams that a function may draw from in, their states out, to be drawn from again in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from .streams import common_streams, same, stream_of

__all__ = ["Replay"]


class Replay:
    """The streams that every function can reach, and those of some generators."""

    __slots__ = ("_pairs",)

    def __init__(self, generators: Sequence[Any] = ()) -> None:
        own = {id(g): g for g in generators}
        self._pairs = [*common_streams(), *map(stream_of, own.values())]

    def states(self) -> list[Any]:
        """Where all streams stand."""
        return [get() for get, _ in self._pairs]

    def rewind(self, states: list[Any]) -> None:
        """Put all streams where they stood."""
        for (_, set_state), state in zip(self._pairs, states, strict=True):
            set_state(state)

    @contextlib.contextmanager
    def replayed(self, states: list[Any]) -> Iterator[None]:
        """Draw again what was drawn from `states` on; afterwards the streams go on as if nothing had been rewound.

        Where they stand at `states` now, this is the first run, and they stay where it leaves them.
        """
        now = self.states()
        first = all(same(a, b) for a, b in zip(now, states, strict=True))
        self.rewind(states)
        try:
            yield
        finally:
            if not first:
                self.rewind(now)

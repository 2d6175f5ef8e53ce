"""The random streams that a function may draw from in, their states out, to be drawn from again in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.random

__all__ = ["Streams", "random_states"]

#: Streams that any function may draw from: pairs of a function that answers the state and one that sets it.
random_states: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
    (lambda: np.random.get_state(legacy=False), np.random.set_state),
]


class Streams:
    """The streams of `random_states`, and those of some NumPy generators."""

    __slots__ = ("_pairs",)

    def __init__(self, generators: Sequence[np.random.Generator] = ()) -> None:
        bits = {id(g.bit_generator): g.bit_generator for g in generators}
        own = [(lambda b=b: b.state, lambda state, b=b: setattr(b, "state", state)) for b in bits.values()]
        self._pairs = [*random_states, *own]

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
        first = all(_same(a, b) for a, b in zip(now, states, strict=True))
        self.rewind(states)
        try:
            yield
        finally:
            if not first:
                self.rewind(now)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)

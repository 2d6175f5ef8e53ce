"""The random streams that a function may draw from in, their states out, to be drawn from again in the same way."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.random

__all__ = ["GENERATORS", "Streams", "random_states"]

#: Objects of NumPy that have a stream of their own.
GENERATORS = (np.random.Generator, np.random.RandomState)

#: Streams that any function may draw from: pairs of a function that answers the state and one that sets it.
random_states: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
    (lambda: np.random.get_state(legacy=False), np.random.set_state),
]


class Streams:
    """The streams of `random_states`, and those of some generators."""

    __slots__ = ("_pairs",)

    def __init__(self, generators: Sequence[Any] = ()) -> None:
        own = {id(g): g for g in generators}
        self._pairs = [*random_states, *map(_stream_of, own.values())]

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


def _stream_of(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    if isinstance(generator, np.random.RandomState):
        return functools.partial(generator.get_state, legacy=False), generator.set_state
    bits = generator.bit_generator
    return functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)

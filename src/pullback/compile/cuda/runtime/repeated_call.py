"""A call with the very arrays of the call before: what is known of them, so that little is asked before the launch.

The device computes while Python makes results ready, but waits for what Python does before a launch.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from .recycling import HeldResult, are_idle, note_holder
from .short_plans import BoundLaunch

#: So many sets of results are remembered: a loop keeps one while the next is computed.
_MAX_ROUNDS = 4


class Round(NamedTuple):
    """Arrays of results, and what computes them: the addresses for which there was a graph, or launches without one."""

    results: list[HeldResult]
    key: tuple[int, ...]
    launches: list[BoundLaunch] | None


class RepeatedCall:
    """Arrays by identity, their addresses, and rounds of results in the memory of one stream. It keeps no argument
    alive, and is forgotten with the first of them.
    """

    __slots__ = ("__weakref__", "addresses", "ids", "memory", "references", "rounds")

    def __init__(self, arrays: Sequence[Any], addresses: list[int]) -> None:
        self.addresses = addresses
        self.memory: object = None
        self.rounds: list[Round] = []
        #: None if one of the arrays is gone: another may have its identity.
        self.ids: tuple[int, ...] | None = tuple(map(id, arrays))
        own = weakref.ref(self)

        def forget(_: Any) -> None:
            if (repeated := own()) is not None:
                repeated.ids = None

        self.references = [weakref.ref(x, forget) for x in arrays]

    def take_round(self) -> Round | None:
        """Results that nothing refers to. Whoever asks has the lock of the stream."""
        rounds = self.rounds
        for number, found in enumerate(rounds):
            if are_idle(found.results):
                if number < len(rounds) - 1:
                    rounds.append(rounds.pop(number))
                return found
        return None

    def add_round(self, memory: object, found: Round) -> None:
        if memory is not self.memory:
            self.memory, self.rounds = memory, []
            note_holder(self)
        if len(self.rounds) >= _MAX_ROUNDS:
            del self.rounds[0]
        self.rounds.append(found)

    def release(self) -> None:
        self.rounds = []

"""A call with the very arrays of the call before: what is known of them, so that little is asked before the launch.

The device computes while Python makes results ready, but waits for what Python does before a launch.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from .recycling import HeldResult, are_idle, note_holder

#: So many sets of results are remembered: a loop keeps one while the next is computed, and a third is found to be idle
#: while the device computes that one. Calls before this third one is made, and its bytes at most.
MAX_ROUNDS = 3
_CALLS_BEFORE_SPARE, _SPARE_BYTES = 8, 16 << 20


class Round(NamedTuple):
    """Arrays of results, and the addresses of arguments and results for which there was a graph."""

    results: list[HeldResult]
    key: tuple[int, ...]


class RepeatedCall:
    """Arrays by identity, their addresses, and rounds of results in the memory of one stream. It keeps no argument
    alive, and is forgotten with the first of them. `next` is a round that was idle when `taken` times results had been
    taken from this memory: as long as none are, nothing can refer to it.
    """

    __slots__ = ("__weakref__", "addresses", "calls", "ids", "memory", "next", "references", "rounds", "taken")

    def __init__(self, arrays: Sequence[Any], addresses: list[int]) -> None:
        self.addresses = addresses
        self.memory: object = None
        self.next: Round | None = None
        self.taken = self.calls = 0
        self.rounds: list[Round] = []
        #: None if one of the arrays is gone: another may have its identity.
        self.ids: tuple[int, ...] | None = tuple(map(id, arrays))
        own = weakref.ref(self)

        def forget(_: Any) -> None:
            if (repeated := own()) is not None:
                repeated.ids = None

        self.references = [weakref.ref(x, forget) for x in arrays]

    def find_round(self) -> Round | None:
        """Results that nothing refers to. The caller has the lock of the stream."""
        for found in self.rounds:
            if are_idle(found.results):
                return found
        return None

    def needs_spare(self, nbytes: int) -> bool:
        """Whether another round, of so many bytes, is worth its memory: this call comes often."""
        self.calls += 1
        return len(self.rounds) < MAX_ROUNDS and self.calls > _CALLS_BEFORE_SPARE and nbytes <= _SPARE_BYTES

    def add_round(self, memory: object, found: Round) -> None:
        if memory is not self.memory:
            self.memory, self.rounds, self.next = memory, [], None
            note_holder(self)
        if len(self.rounds) >= MAX_ROUNDS:
            del self.rounds[0]
        self.rounds.append(found)

    def release(self) -> None:
        self.rounds, self.next = [], None

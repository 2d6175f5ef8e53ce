"""Values that nodes keep in, the cheapest of them taken away out."""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import Any

from ..arrays.ledger import owner_of
from .recipes import Held, cost, drop_together, gone

__all__ = ["Eviction"]


class Eviction:
    """The values that may be taken away, ranked by what it costs to have them again.

    Seconds (of the value, and of what is gone around it), divided by bytes and by how long nobody has asked for it. A
    ranking serves for a sixteenth of what it ranks, since making it costs more than to compute a small value again.
    """

    __slots__ = ("_holders", "_ranking", "_serves", "count", "nbytes")

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 0
        self._holders: dict[int, weakref.ref[Held]] = {}
        self._ranking: list[list[Any]] = []
        self._serves = 0

    def enter(self, held: Held) -> None:
        """One more that may be taken away."""
        held.made.held = self._holders[id(held)] = weakref.ref(held)

    def free(self, wanted: int) -> None:
        """Take away the cheapest until so many bytes are free, or nothing is left that frees any."""
        progress = True
        while wanted > 0:
            if not self._ranking or self._serves <= 0:
                if not progress:
                    return
                self._rank()
                progress = False
            freed = self._take_away(self._ranking.pop()) if self._ranking else 0
            progress = progress or freed > 0
            wanted -= freed

    def memories(self) -> dict[int, list[Held]]:
        """The values that are held now, those in one piece of memory together."""
        found: dict[int, list[Held]] = {}
        for key, reference in list(self._holders.items()):
            held = reference()
            if held is None:
                del self._holders[key]
            elif held.array is not None:
                found.setdefault(id(owner_of(held.array)), []).append(held)
        return found

    def _rank(self) -> None:
        now = perf_counter()
        ranked = [(_score(holders, now), holders) for holders in self.memories().values()]
        ranked.sort(key=lambda entry: -entry[0])
        self._ranking = [[held.made.held for held in holders] for _, holders in ranked]
        self._serves = len(ranked) // 16 + 1

    def _take_away(self, ranked: list[Any]) -> int:
        holders = [held for reference in ranked if (held := reference()) is not None and held.array is not None]
        freed = drop_together(holders) if holders else 0
        if freed:
            self._serves -= 1
            self.count += len(holders)
            self.nbytes += freed
            for held in holders:
                gone(held.made)
        return freed


def _score(holders: list[Held], now: float) -> float:
    idle = now - max(held.used for held in holders)
    nbytes = int(owner_of(holders[0].array).nbytes)
    return sum(cost(held.made) for held in holders) / (nbytes * (idle + 1e-6))

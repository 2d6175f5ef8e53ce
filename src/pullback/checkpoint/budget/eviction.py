"""Eviction: which saved values a budget drops first."""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import Any

from ...arrays.memory_ledger import owner_of
from .value_recipes import EvictableValue, evict_together, mark_evicted, recompute_cost


class EvictionQueue:
    """The values that may be evicted, ranked by what it costs to recompute them.

    Seconds (of the value, and of the evicted values around it), divided by bytes and by how long it was unused. A
    ranking serves for a sixteenth of what it ranks, since making it costs more than recomputing a small value.
    """

    __slots__ = ("_holders", "_ranking", "_uses_left", "count", "nbytes")

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 0
        self._holders: dict[int, weakref.ref[EvictableValue]] = {}
        self._ranking: list[list[Any]] = []
        self._uses_left = 0

    def register(self, held: EvictableValue) -> None:
        """Add a value that may be evicted."""
        held.recipe.holder_ref = self._holders[id(held)] = weakref.ref(held)

    def free(self, wanted: int) -> None:
        """Evict the cheapest until so many bytes are free, or nothing is left that frees any."""
        progress = True
        while wanted > 0:
            # a ranking gets old: evictions make their neighbors dearer
            if not self._ranking or self._uses_left <= 0:
                if not progress:
                    return
                self._rank()
                progress = False
            freed = self._evict(self._ranking.pop()) if self._ranking else 0
            progress = progress or freed > 0
            wanted -= freed

    def held_by_memory(self) -> dict[int, list[EvictableValue]]:
        """The values held now, grouped by the piece of memory they lie in."""
        found: dict[int, list[EvictableValue]] = {}
        for key, reference in list(self._holders.items()):
            held = reference()
            if held is None:
                del self._holders[key]
            elif held.array is not None:
                found.setdefault(id(owner_of(held.array)), []).append(held)
        return found

    def _rank(self) -> None:
        now = perf_counter()
        ranked = [(_score_holders(holders, now), holders) for holders in self.held_by_memory().values()]
        ranked.sort(key=lambda entry: -entry[0])
        self._ranking = [[held.recipe.holder_ref for held in holders] for _, holders in ranked]
        self._uses_left = len(ranked) // 16 + 1

    def _evict(self, ranked: list[Any]) -> int:
        holders = [held for reference in ranked if (held := reference()) is not None and held.array is not None]
        # views of one piece of memory go together, or nothing is freed
        freed = evict_together(holders) if holders else 0
        if freed:
            self._uses_left -= 1
            self.count += len(holders)
            self.nbytes += freed
            for held in holders:
                mark_evicted(held.recipe)
        return freed


def _score_holders(holders: list[EvictableValue], now: float) -> float:
    # what the backward pass needs soon was used last
    idle = now - max(held.used for held in holders)
    nbytes = int(owner_of(holders[0].array).nbytes)
    return sum(recompute_cost(held.recipe) for held in holders) / (nbytes * (idle + 1e-6))

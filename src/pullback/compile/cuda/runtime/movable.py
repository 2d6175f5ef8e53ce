"""Graphs whose arguments and results lie elsewhere in the next call: the launches that use them get other addresses."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from .driver import Driver

#: A graph is changed, rather than made again, if no more launches than these lie elsewhere.
MAX_MOVED = 32


class MovableGraph:
    """A graph that was captured for arrays at some addresses (`starts`, with their sizes in bytes). An address in one
    of them moves with it, whatever launch uses it, in loops too. `fixed` are addresses that products of the library
    use, which cannot be moved.
    """

    def __init__(
        self, driver: Driver, graph: int, fixed: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
    ) -> None:
        self.driver, self.graph, self.starts = driver, graph, list(starts)
        self.pointers = driver.pointers_of(graph)
        by_start: dict[int, list[int]] = {}
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if size:
                by_start.setdefault(start, []).append(i)
        #: Arrays that start at the same address, in its order; they can only move together.
        self.groups = [by_start[start] for start in sorted(by_start)]
        firsts, ends = sorted(by_start), [starts[g[0]] + max(sizes[i] for i in g) for g in self.groups]
        self.overlap = any(end > start for end, start in zip(ends, firsts[1:], strict=False))

        def find(address: int) -> Iterator[int]:
            at = bisect.bisect(firsts, address) - 1
            if at >= 0 and address < ends[at]:
                yield at

        self.fixed = {at for address in fixed for at in find(address)}
        #: For each group, the launches that use it, and as which of their parameters.
        self.uses: list[list[tuple[int, int]]] = [[] for _ in self.groups]
        for number, pointers in enumerate(self.pointers):
            for place, address in enumerate(pointers):
                for at in find(address):
                    self.uses[at].append((number, place))

    def move(self, starts: Sequence[int]) -> bool:
        """Whether the graph is for arrays at other addresses from now on."""
        moved: list[tuple[int, int]] = []
        for at, (first, *others) in enumerate(self.groups):
            by = starts[first] - self.starts[first]
            if any(starts[i] != starts[first] for i in others) or (by and (self.overlap or at in self.fixed)):
                return False
            if by:
                moved.append((at, by))
        touched = {number for at, _ in moved for number, _ in self.uses[at]}
        if len(touched) > MAX_MOVED:
            return False
        for at, by in moved:
            for number, place in self.uses[at]:
                self.pointers[number][place] += by
        for number in touched:
            self.driver.move_launch(self.graph, number, self.pointers[number])
        self.starts = list(starts)
        return True

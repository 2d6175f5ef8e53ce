"""Kernel in, kernels out: a chain of costly functions, each waiting for the last, is cut into one loop for each.

In one loop over the whole chain a processor finds too little to do while it waits. In a loop over one link the elements
are independent of each other, and of values that are stored anyway the cut costs nothing but reading them again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from .loops import Buffer, Kernel, Line, Store, row_major

__all__ = ["split"]

#: What a function weighs that is worth a loop of its own.
HEAVY = 12
#: Above so many bytes of a value, reading it again comes from far away.
NEAR = 1 << 17


def split(kernel: Kernel) -> list[Kernel]:
    """The kernel in pieces that each have at most one costly function after another."""
    if kernel.inner or sum(line.weight >= HEAVY for line in kernel.lines) < 2 or not _is_plain(kernel):
        return [kernel]
    lines = [line for line in kernel.used() if line.args]
    stored = {id(s.line) for s in kernel.stores}
    cuts = _cuts(lines, stored)
    return _Pieces(kernel, lines, cuts).kernels() if cuts else [kernel]


def _is_plain(kernel: Kernel) -> bool:
    """Whether a kernel without rows works in near memory, and writes nothing where it reads or where indices say."""
    lines = kernel.used()
    read = {id(line.buffer) for line in lines if line.buffer is not None}
    near = all(math.prod(kernel.extents) * line.dtype.itemsize <= NEAR for line in lines)
    return near and not any(s.args or id(s.buffer) in read for s in kernel.stores)


def _cuts(lines: Sequence[Line], stored: set[int]) -> list[int]:
    """Before which lines to cut: between two costly functions, where the fewest values have to be stored for it."""
    last_use = {id(a): i for i, line in enumerate(lines) for a in line.args}
    cuts: list[int] = []
    depth: dict[int, int] = {}
    first = 0  # where a cut may be made: after the latest costly function
    for i, line in enumerate(lines):
        before = max((depth.get(id(a), 0) for a in line.args), default=0)
        if line.weight >= HEAVY and before >= HEAVY:
            cuts.append(min(range(i, first, -1), key=lambda at: _crossing(lines, at, last_use, stored)))
            depth = {}
            for other in lines[cuts[-1] : i]:
                depth[id(other)] = other.weight + max((depth.get(id(a), 0) for a in other.args), default=0)
            before = max((depth.get(id(a), 0) for a in line.args), default=0)
        depth[id(line)] = line.weight + before
        first = i if line.weight >= HEAVY else first
    return cuts


def _crossing(lines: Sequence[Line], at: int, last_use: dict[int, int], stored: set[int]) -> int:
    """How many values a cut would have to store."""
    return sum(last_use.get(id(x), -1) >= at and id(x) not in stored for x in lines[:at])


def _is_line_itself(store: Store, kernel: Kernel) -> bool:
    """Whether what is stored can be read in place of the value: in its dtype, and along no more axes than it has."""
    wide = [i for i, n in enumerate(kernel.extents) if n != 1]
    moves_with = all((i in store.line.axes) == bool(store.strides[i]) for i in wide)
    return moves_with and store.line.dtype == store.buffer.dtype


class _Pieces:
    """The pieces of one kernel while they are made: each value is a line of its own piece, and loaded in the others."""

    def __init__(self, kernel: Kernel, lines: Sequence[Line], cuts: Sequence[int]) -> None:
        self.kernel = kernel
        self.piece = {id(line): sum(i >= cut for cut in cuts) for i, line in enumerate(lines)}
        self.lines = lines
        self.pieces = [Kernel(kernel.extents, 0) for _ in range(len(cuts) + 1)]
        self.known: dict[tuple[int, int], Line] = {}
        self.stores = {id(s.line): s for s in reversed(kernel.stores) if not s.word and _is_line_itself(s, kernel)}

    def kernels(self) -> list[Kernel]:
        for line in self.lines:
            number = self.piece[id(line)]
            args = tuple(self._line(a, number) for a in line.args)
            self._keep(line, number, dataclasses.replace(line, args=args))
        for store in self.kernel.stores:
            number = self.piece.get(id(store.line), 0)
            moved = dataclasses.replace(store, line=self._line(store.line, number))
            self.pieces[number].stores.append(moved)
        return [p for p in self.pieces if p.stores]

    def _line(self, line: Line, number: int) -> Line:
        """The line as piece `number` knows it."""
        if (id(line), number) not in self.known:
            found = line
            if line.args:
                store = self._stored(line)
                used = frozenset(i for i, s in enumerate(store.strides) if s)
                found = Line(
                    "load", store.buffer.dtype, used, buffer=store.buffer, strides=store.strides, offset=store.offset
                )
            self._keep(line, number, found)
        return self.known[id(line), number]

    def _keep(self, line: Line, number: int, found: Line) -> None:
        self.known[id(line), number] = found
        self.pieces[number].lines.append(found)

    def _stored(self, line: Line) -> Store:
        """Where the line lies in memory; from now on if it did not."""
        if id(line) not in self.stores:
            extents = self.kernel.extents
            own = tuple(n if i in line.axes else 1 for i, n in enumerate(extents))
            strides = tuple(s if i in line.axes else 0 for i, s in enumerate(row_major(own)))
            store = Store(line, Buffer("arena", math.prod(own), line.dtype), strides)
            self.stores[id(line)] = store
            self.kernel.stores.append(store)
        return self.stores[id(line)]

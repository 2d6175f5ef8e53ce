"""Kernel in, kernels out: a chain of costly functions, each waiting for the one before, becomes one loop for each.

In one loop over the whole chain a processor has too little independent work while it waits. In a loop over one link the
elements are independent, and where a value is stored anyway the cut only costs loading it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..loop_ir import Buffer, Kernel, KernelLine, Steps, Store, load_line, row_major_strides
from ..target import Limits


def split_steps(steps: Steps, limits: Limits) -> Steps:
    pieces = [piece for s in steps.steps for piece in (split_kernel(s, limits) if isinstance(s, Kernel) else (s,))]
    return dataclasses.replace(steps, steps=pieces)


def split_kernel(kernel: Kernel, limits: Limits) -> list[Kernel]:
    """The kernel in pieces, none of which has one costly function depending on another."""
    several = sum(line.weight >= limits.costly_weight for line in kernel.lines) > 1
    if kernel.inner or not several or not _is_plain(kernel, limits.near_bytes):
        return [kernel]
    lines = [line for line in kernel.live_lines() if line.args]
    stored = {id(s.line) for s in kernel.stores}
    cuts = _find_cuts(lines, stored, limits.costly_weight)
    return _Splitter(kernel, lines, cuts).build_pieces() if cuts else [kernel]


def _is_plain(kernel: Kernel, near_bytes: int) -> bool:
    """Whether a kernel without rows works in near memory, and neither scatters nor overwrites what it reads."""
    lines = kernel.live_lines()
    read = {id(line.buffer) for line in lines if line.buffer is not None}
    near = all(math.prod(kernel.extents) * line.dtype.itemsize <= near_bytes for line in lines)
    return near and not any(s.args or id(s.buffer) in read for s in kernel.stores)


def _find_cuts(lines: Sequence[KernelLine], stored: set[int], costly: float) -> list[int]:
    """Before which lines to cut: between two costly functions, where the fewest values must be stored."""
    last_use = {id(a): i for i, line in enumerate(lines) for a in line.args}
    cuts: list[int] = []
    depth: dict[int, int] = {}
    first = 0  # where a cut may be made: after the latest costly function
    for i, line in enumerate(lines):
        before = max((depth.get(id(a), 0) for a in line.args), default=0)
        if line.weight >= costly and before >= costly:
            cuts.append(min(range(i, first, -1), key=lambda at: _count_crossing(lines, at, last_use, stored)))
            depth = {}  # restarts at the cut: what comes before is in another loop
            for other in lines[cuts[-1] : i]:
                depth[id(other)] = other.weight + max((depth.get(id(a), 0) for a in other.args), default=0)
            before = max((depth.get(id(a), 0) for a in line.args), default=0)
        depth[id(line)] = line.weight + before
        first = i if line.weight >= costly else first
    return cuts


def _count_crossing(lines: Sequence[KernelLine], at: int, last_use: dict[int, int], stored: set[int]) -> int:
    """How many values a cut must store."""
    return sum(last_use.get(id(x), -1) >= at and id(x) not in stored for x in lines[:at])


def _is_line_itself(store: Store, kernel: Kernel) -> bool:
    """Whether a load from the store equals its line: in the line's dtype, and along no more axes than it has."""
    wide = [i for i, n in enumerate(kernel.extents) if n != 1]
    follows_axes = all((i in store.line.axes) == bool(store.strides[i]) for i in wide)
    return follows_axes and store.line.dtype == store.buffer.dtype


class _Splitter:
    """The pieces of one kernel while they are built: each value is a line of one piece, and loaded in the others."""

    def __init__(self, kernel: Kernel, lines: Sequence[KernelLine], cuts: Sequence[int]) -> None:
        self.kernel = kernel
        self.piece = {id(line): sum(i >= cut for cut in cuts) for i, line in enumerate(lines)}
        self.lines = lines
        self.pieces = [Kernel(kernel.extents, 0) for _ in range(len(cuts) + 1)]
        self.known: dict[tuple[int, int], KernelLine] = {}
        self.stores = {id(s.line): s for s in reversed(kernel.stores) if not s.word and _is_line_itself(s, kernel)}

    def build_pieces(self) -> list[Kernel]:
        for line in self.lines:
            number = self.piece[id(line)]
            args = tuple(self._line_in_piece(a, number) for a in line.args)
            self._record(line, number, dataclasses.replace(line, args=args))
        for store in self.kernel.stores:
            # what no piece computes is a load or a number, which any piece can store
            number = self.piece.get(id(store.line), 0)
            in_piece = dataclasses.replace(store, line=self._line_in_piece(store.line, number))
            self.pieces[number].stores.append(in_piece)
        return [p for p in self.pieces if p.stores]

    def _line_in_piece(self, line: KernelLine, number: int) -> KernelLine:
        """The line in piece `number`: its own, or a load."""
        if (id(line), number) not in self.known:
            found = line
            if line.args:
                store = self._find_store(line)
                found = load_line(store.buffer, store.strides, store.offset)
            self._record(line, number, found)
        return self.known[id(line), number]

    def _record(self, line: KernelLine, number: int, found: KernelLine) -> None:
        self.known[id(line), number] = found
        self.pieces[number].lines.append(found)

    def _find_store(self, line: KernelLine) -> Store:
        """The store of the line, added if there is none."""
        if id(line) not in self.stores:
            extents = self.kernel.extents
            # one element along axes on which it does not depend
            own = tuple(n if i in line.axes else 1 for i, n in enumerate(extents))
            strides = tuple(s if i in line.axes else 0 for i, s in enumerate(row_major_strides(own)))
            store = Store(line, Buffer("arena", math.prod(own), line.dtype), strides)
            self.stores[id(line)] = store
            self.kernel.stores.append(store)
        return self.stores[id(line)]

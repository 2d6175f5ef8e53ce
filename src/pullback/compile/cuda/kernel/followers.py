"""A sum and what follows it in, one kernel out: each row has the points of one place, and goes on with their sum."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from ...loop_ir import Buffer, Kernel, KernelLine, Store, phase_after

#: Rows go across memory here, so that more points are read at its full speed by two launches.
MAX_POINTS = 1 << 17


def join_follower(sums: Kernel, follower: Kernel, unread: Collection[Buffer] = ()) -> Kernel | None:
    """One kernel for one that folds into places and one that takes a point for each of these places; None unless what
    the second reads of the first is its own place. Sums that are `unread` afterwards are not stored.
    """
    kept = _kept_axes(sums)
    points = [i for i, n in enumerate(follower.extents) if n != 1]
    if kept is None or [sums.extents[i] for i in kept] != [follower.extents[i] for i in points]:
        return None
    if follower.inner or follower.division is not None or any(s.word or s.args for s in follower.stores):
        return None
    if not set(sums.reads()).isdisjoint(follower.writes()) or not set(sums.writes()).isdisjoint(follower.writes()):
        return None
    return _Joiner(sums, follower, kept, points).join(unread)


def _kept_axes(sums: Kernel) -> list[int] | None:
    """The axes along which a kernel of nothing but short sums keeps its places apart; None for another kernel."""
    wide = [i for i, n in enumerate(sums.extents) if n != 1]
    folds = all(s.word and not s.args and not s.accumulates for s in sums.stores)
    if sums.inner or sums.division is not None or not folds or not 0 < math.prod(sums.extents) <= MAX_POINTS:
        return None
    kept = [i for i in wide if sums.stores[0].strides[i]]
    same = all([i for i in wide if s.strides[i]] == kept for s in sums.stores)
    return kept if same and len(kept) < len(wide) else None


class _Joiner:
    """Two kernels while they are joined: rows are the places, and a row has what is folded there."""

    def __init__(self, sums: Kernel, follower: Kernel, kept: list[int], points: list[int]) -> None:
        self.sums, self.follower, self.kept, self.points = sums, follower, kept, points
        self.order = [*kept, *(i for i, n in enumerate(sums.extents) if n != 1 and i not in kept)]
        self.inner = len(self.order) - len(kept)
        self.known: dict[int, KernelLine] = {}

    def join(self, unread: Collection[Buffer]) -> Kernel | None:
        for line in self.sums.live_lines():
            args = tuple(self.known[id(a)] for a in line.args)
            axes = frozenset(k for k, i in enumerate(self.order) if i in line.axes)
            strides = tuple(line.strides[i] for i in self.order) if line.buffer is not None else ()
            self.known[id(line)] = replace(line, args=args, axes=axes, strides=strides)
        folds = {id(s.buffer): (s, self._fold(s)) for s in self.sums.stores}
        for line in self.follower.live_lines():
            found = self._follow(line, folds)
            if found is None:
                return None
            self.known[id(line)] = found
        stores = [
            Store(fold, s.buffer, (*(s.strides[i] for i in self.kept), *[0] * self.inner), s.offset)
            for s, fold in folds.values()
            if s.buffer not in unread
        ]
        stores += [
            replace(s, line=self.known[id(s.line)], strides=self._once_a_row(s.strides)) for s in self.follower.stores
        ]
        lines = [*self.known.values(), *(fold for _, fold in folds.values())]
        return Kernel(tuple(self.sums.extents[i] for i in self.order), self.inner, lines, stores)

    def _fold(self, store: Store) -> KernelLine:
        rows = frozenset(range(len(self.kept)))
        return KernelLine("fold", store.buffer.dtype, rows, 0, (self.known[id(store.line)],), word=store.word)

    def _follow(self, line: KernelLine, folds: dict[int, tuple[Store, KernelLine]]) -> KernelLine | None:
        """A line of the second kernel, known once a row; a sum itself where it is loaded from its place."""
        if line.buffer is not None and id(line.buffer) in folds:
            store, fold = folds[id(line.buffer)]
            own = [line.strides[i] for i in self.points]
            is_own = (
                line.kind == "load" and own == [store.strides[i] for i in self.kept] and line.offset == store.offset
            )
            return fold if is_own else None
        args = tuple(self.known[id(a)] for a in line.args)
        axes = frozenset(k for k, i in enumerate(self.points) if i in line.axes)
        # what reads memory waits for the sum, as all that follows it
        phase = max(1, phase_after(args))
        strides = self._once_a_row(line.strides) if line.buffer is not None else ()
        return replace(line, args=args, axes=axes, strides=strides, phase=phase)

    def _once_a_row(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        return (*(strides[i] for i in self.points), *[0] * self.inner)

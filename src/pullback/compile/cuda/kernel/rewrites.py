"""Kernel in, kernels out that need no more than one walk each: folds of rows through memory, overlapping windows one
place at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...loop_ir import Buffer, Kernel, KernelLine, Store, load_line, phase_after, row_major_strides
from .grid import is_injective


def change_lines(kernel: Kernel, change: Callable[[KernelLine], KernelLine]) -> Kernel:
    """A kernel whose lines are changed, arguments first."""
    known: dict[int, KernelLine] = {}
    for line in kernel.live_lines():
        args = tuple(known[id(a)] for a in line.args)
        same = all(a is b for a, b in zip(args, line.args, strict=True))
        known[id(line)] = change(line if same else replace(line, args=args))
    stores = [replace(s, line=known[id(s.line)], args=tuple(known[id(a)] for a in s.args)) for s in kernel.stores]
    return Kernel(kernel.extents, kernel.inner, list(known.values()), stores)


def reorder_axes(kernel: Kernel, order: Sequence[int]) -> Kernel:
    """A kernel without rows whose domain has its axes in another order."""

    def change(line: KernelLine) -> KernelLine:
        axes = frozenset(new for new, old in enumerate(order) if old in line.axes)
        return replace(line, axes=axes, strides=tuple(line.strides[i] for i in order) if line.strides else ())

    changed = change_lines(kernel, change)
    stores = [replace(s, strides=tuple(s.strides[i] for i in order)) for s in changed.stores]
    return Kernel(tuple(kernel.extents[i] for i in order), 0, changed.lines, stores)


def prepare_lines(kernel: Kernel) -> Kernel:
    """A kernel whose folds, and stores that fold or have indices, take values of their own dtype, and whose numbers of
    elements are computed, not loaded.
    """
    known = change_lines(kernel, _prepare_line)
    stores = [replace(s, line=_cast(s.line, s.buffer.dtype)) if s.word or s.args else s for s in known.stores]
    return replace(known, stores=stores)


def _prepare_line(line: KernelLine) -> KernelLine:
    if line.kind == "load" and line.buffer is not None and line.buffer.counts:
        return replace(line, kind="count")
    return replace(line, args=(_cast(line.args[0], line.dtype),)) if line.kind == "fold" else line


def _cast(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    if line.dtype == dtype:
        return line
    return KernelLine("cast", dtype, line.axes, phase_after((line,)), (line,), weight=0)


@dataclass(frozen=True, slots=True)
class UnfoldedRows:
    """A kernel without rows: the folds of a phase are a kernel that leaves their results in memory, where others load
    them; what is stored along the row in that phase is stored there. Then what is stored once a row, over the rows
    alone, and all the rest.
    """

    phases: list[Kernel]
    by_row: Kernel | None
    rest: Kernel | None


def unfold_rows(kernel: Kernel) -> UnfoldedRows:
    outer = len(kernel.extents) - kernel.inner
    strides = (*row_major_strides(kernel.extents[:outer]), *[0] * kernel.inner)
    folded: dict[int, list[Store]] = {}

    def change(line: KernelLine) -> KernelLine:
        if line.kind != "fold":
            return replace(line, phase=0) if line.phase else line
        buffer = Buffer("scratch", math.prod(kernel.extents[:outer]), line.dtype)
        store = Store(line.args[0], buffer, strides, word=line.word, points=math.prod(kernel.extents))
        folded.setdefault(line.phase, []).append(store)
        return load_line(buffer, strides)

    rest = replace(change_lines(kernel, change), inner=0)
    by_row: list[Store] = []
    others: list[Store] = []
    for before, store in zip(kernel.stores, rest.stores, strict=True):
        is_plain = not store.word and not store.args
        if is_plain and not any(store.strides[outer:]):
            by_row.append(store)
        else:
            (folded[before.phase] if is_plain and before.phase in folded else others).append(store)
    return UnfoldedRows(
        [replace(rest, lines=[], stores=stores) for stores in folded.values()],
        _drop_row(rest, by_row, outer) if by_row else None,
        replace(rest, stores=others) if others else None,
    )


def _drop_row(kernel: Kernel, stores: Sequence[Store], outer: int) -> Kernel:
    """Stores that happen once a row, over the rows alone."""
    rows = replace(kernel, extents=kernel.extents[:outer], lines=[], stores=list(stores))

    def change(line: KernelLine) -> KernelLine:
        return replace(line, strides=line.strides[:outer]) if line.buffer is not None else line

    rows = change_lines(rows, change)
    return replace(rows, stores=[replace(s, strides=s.strides[:outer]) for s in rows.stores])


def join_parts(folds: Sequence[Store], partial: Sequence[Buffer], by_row: Kernel, used: Collection[Buffer]) -> Kernel:
    """A kernel over rows, and the parts of their folds along each: the folds of these, and what is stored once a row.
    The results that are `used` elsewhere are stored too.
    """
    places = math.prod(by_row.extents)
    parts = partial[0].size // places
    strides = (*row_major_strides(by_row.extents), places)
    axes = frozenset(range(len(by_row.extents)))
    made = {
        s.buffer: KernelLine("fold", s.buffer.dtype, axes, 0, (load_line(b, strides),), word=s.word)
        for s, b in zip(folds, partial, strict=True)
    }

    def change(line: KernelLine) -> KernelLine:
        if line.buffer in made:
            return made[line.buffer]
        line = replace(line, phase=phase_after(line.args))
        return line if line.buffer is None else replace(line, strides=(*line.strides, 0))

    rows = change_lines(by_row, change)
    stores = [replace(s, strides=(*s.strides, 0)) for s in rows.stores]
    stores += [Store(x, b, (*strides[:-1], 0)) for b, x in made.items() if b in used]
    return Kernel((*by_row.extents, parts), 1, [], stores)


def sum_after_rows(kernel: Kernel) -> list[Kernel]:
    """A kernel whose values that are folded over rows go through memory, and the kernels that fold them."""
    strides = row_major_strides(kernel.extents)
    plain = [s for s in kernel.stores if not s.word]
    values: dict[int, Store] = {}
    sums = []
    for store in (s for s in kernel.stores if s.word):
        buffer = Buffer("scratch", math.prod(kernel.extents), store.line.dtype)
        value = values.setdefault(id(store.line), Store(store.line, buffer, strides))
        sums.append(replace(store, line=load_line(value.buffer, strides)))
    rows = replace(kernel, stores=[*plain, *values.values()])
    return [rows, Kernel(kernel.extents, 0, [s.line for s in sums], sums)]


def fix_axes(kernel: Kernel, axes: Sequence[int], point: Sequence[int]) -> Kernel:
    """The part of a kernel at one point along some axes."""
    extents = tuple(1 if i in axes else n for i, n in enumerate(kernel.extents))

    def moved(offset: int, strides: tuple[int, ...]) -> int:
        return offset + sum(strides[a] * i for a, i in zip(axes, point, strict=True))

    def change(line: KernelLine) -> KernelLine:
        return replace(line, offset=moved(line.offset, line.strides)) if line.buffer is not None else line

    part = replace(change_lines(kernel, change), extents=extents)
    points = math.prod(extents)
    return replace(part, stores=[replace(s, offset=moved(s.offset, s.strides), points=points) for s in part.stores])


def separate_windows(kernel: Kernel) -> list[Kernel]:
    """A kernel with one folding store whose places overlap, cut so that those of each part do not."""
    (store,) = kernel.stores
    moving = [i for i, (n, s) in enumerate(zip(kernel.extents, store.strides, strict=True)) if n != 1 and s]
    choices = [c for r in range(len(moving) + 1) for c in itertools.combinations(moving, r)]
    for axes in sorted(choices, key=lambda c: math.prod(kernel.extents[i] for i in c)):
        rest = [i for i in moving if i not in axes]
        if is_injective([kernel.extents[i] for i in rest], [store.strides[i] for i in rest]):
            break
    points = itertools.product(*(range(kernel.extents[i]) for i in axes))
    return [fix_axes(kernel, axes, point) for point in points]

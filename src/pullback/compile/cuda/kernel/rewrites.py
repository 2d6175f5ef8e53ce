"""Kernel in, kernels out that need no more than one walk each: folds of rows through memory, overlapping windows one
place at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
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


def cast_folds(kernel: Kernel) -> Kernel:
    """A kernel whose folding stores take values of their own dtype."""
    return replace(kernel, stores=[_cast_fold(s) if s.word else s for s in kernel.stores])


def _cast_fold(store: Store) -> Store:
    line, dtype = store.line, store.buffer.dtype
    return store if line.dtype == dtype else replace(store, line=cast_line(line, dtype))


def cast_line(line: KernelLine, dtype: np.dtype[Any]) -> KernelLine:
    return KernelLine("cast", dtype, line.axes, phase_after((line,)), (line,), weight=0)


def unfold_rows(kernel: Kernel) -> list[Kernel]:
    """The kernel without rows: each fold is a kernel that leaves its result in memory, where others load it."""
    rank = len(kernel.extents)
    outer = rank - kernel.inner
    strides = (*row_major_strides(kernel.extents[:outer]), *[0] * kernel.inner)
    folded: list[Kernel] = []

    def change(line: KernelLine) -> KernelLine:
        if line.kind != "fold":
            return replace(line, phase=0) if line.phase else line
        (value,) = line.args
        value = value if value.dtype == line.dtype else cast_line(value, line.dtype)
        buffer = Buffer("scratch", math.prod(kernel.extents[:outer]), line.dtype)
        store = Store(value, buffer, strides, word=line.word, points=math.prod(kernel.extents))
        folded.append(Kernel(kernel.extents, 0, [value], [store]))
        return load_line(buffer, strides)

    rest = replace(change_lines(kernel, change), inner=0)
    by_row = [s for s in rest.stores if not s.word and not s.args and not any(s.strides[outer:])]
    others = [s for s in rest.stores if s not in by_row]
    found = [*folded, *([_drop_row(rest, by_row, outer)] if by_row else [])]
    return [*found, replace(rest, stores=others)] if others else found


def _drop_row(kernel: Kernel, stores: Sequence[Store], outer: int) -> Kernel:
    """Stores that happen once a row, over the rows alone."""
    rows = replace(kernel, extents=kernel.extents[:outer], lines=[], stores=list(stores))

    def change(line: KernelLine) -> KernelLine:
        return replace(line, strides=line.strides[:outer]) if line.buffer is not None else line

    rows = change_lines(rows, change)
    return replace(rows, stores=[replace(s, strides=s.strides[:outer]) for s in rows.stores])


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

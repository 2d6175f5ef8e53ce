"""The conditions under which values may share one loop (fusion is legal), checked.

A kernel runs once over every point of its domain. Let a line's axes be those of the domain on which its value depends.
Fusion is right if and only if the loop computes the same value at each point as each equation alone would, and writes
each result once; the five conditions below ensure it, and none of them depends on two sizes that happen to be equal.

1. *A line depends on what its arguments depend on.* Its axes contain those of its arguments (of a load, those along
   which memory is traversed), so a value that is hoisted out of a row's loop really is one scalar for the row.
2. *A line is computed when its arguments are known.* A fold over the row is known only after the loop that folds it, so
   the phase of a line or a store is at least that of each argument, and one more if the argument is a fold. A fold does
   not depend on the row: its axes are outer ones, and they contain the outer axes of what it folds.
3. *A store writes one value to one place.* Two points of the domain with the same place must have the same value, so
   the value depends only on axes along which the place moves, and the place moves injectively along these.
4. *A store that folds counts each element once.* Each point of the domain folds its value in, so the elements that are
   folded must be the points of the domain: a value of fewer axes than the domain would be counted once for each point
   of an axis it does not have, and one stored after the row's loop only once for all of them. Memory of a half dtype
   would round at each, so nothing folds into it.
5. *A value overwrites its argument in place only where nothing else reads it.* Memory that a kernel reads and writes,
   be it a donated argument or a place of the arena that a dead buffer leaves to a new one, is read at the place that
   is written, by plain loads, in one loop, at one point of the domain alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import MiscompiledError
from .loop_ir import Blocks, Buffer, Kernel, KernelLine, Store, visits_once
from .vocabulary import is_half

#: In kernels of more points, two buffers in one place are compared by the corners of the domain alone.
MAX_ENUMERATED_POINTS = 1 << 16


def check_legality(steps: Iterable[object], placed: bool = True) -> None:
    """Raise `MiscompiledError` if a kernel violates one of the conditions: a bug of ours, never of the program. Unless
    these are the steps that were `placed` in the arena, the buffers' offsets there mean nothing.
    """
    for step in steps:
        if isinstance(step, Kernel) and 0 not in step.extents:  # an empty domain is always legal
            for problem in _problems(step, placed):
                raise MiscompiledError(f"a kernel over {step.extents} is not legal: {problem}.")
        elif isinstance(step, Blocks):
            check_legality(step.steps, placed)


def _problems(kernel: Kernel, placed: bool) -> Iterator[str]:
    wide = frozenset(i for i, n in enumerate(kernel.extents) if n != 1)
    row = frozenset(range(len(kernel.extents) - kernel.inner, len(kernel.extents)))
    for line in kernel.live_lines():
        yield from _line_problems(line, wide, row)
    for store in kernel.stores:
        yield from _store_problems(store, kernel, wide)
        for line in kernel.live_lines():
            if line.buffer is not None and _buffers_overlap(line.buffer, store.buffer, placed):
                yield from _overwriting_problems(line, line.buffer, store, kernel)


def _line_problems(line: KernelLine, wide: frozenset[int], row: frozenset[int]) -> Iterator[str]:
    name = line.name
    # memory along which a load walks is what it depends on, beside its indices
    walked = frozenset(i for i, stride in enumerate(line.strides) if stride)
    own = walked.union(*(a.axes for a in line.args)) & wide
    if line.kind == "fold":
        if not row:
            yield f"{name} folds a row, and there are no rows"
        if line.axes & row & wide:
            yield f"{name} folds a row, yet differs along the row"
        own -= row
    if not own <= line.axes:
        yield f"{name} depends on axes {sorted(own)}, and is declared on {sorted(line.axes)}"
    known = max((a.phase + (a.kind == "fold") for a in line.args), default=0)
    if line.phase < known:
        yield f"{name} is in phase {line.phase}, and its arguments are known in {known}"


def _store_problems(store: Store, kernel: Kernel, wide: frozenset[int]) -> Iterator[str]:
    moving = frozenset(i for i, stride in enumerate(store.strides) if stride)
    points = math.prod(kernel.extents)
    known = max(line.phase + (line.kind == "fold") for line in (store.line, *store.args))
    if store.phase < known:
        yield f"a store happens in phase {store.phase}, and its value is known in {known}"
    if store.word and store.points != points:
        yield f"{store.word}: {store.points} elements folded at {points} points of the domain"
    if store.word and is_half(store.buffer.dtype):
        yield f"{store.word}: folded into memory of {store.buffer.dtype}, which rounds each time"
    if not store.word and not store.args and not store.line.axes & wide <= moving:
        yield f"a value on axes {sorted(store.line.axes & wide)} is stored along {sorted(moving)}"
    if not store.word and not store.args and not _is_injective(store, kernel):
        yield f"strides {store.strides} repeat a place"


def _is_injective(store: Store, kernel: Kernel) -> bool:
    """Whether no two points that differ along the moving axes share a place: each stride exceeds all below it."""
    # sorted by stride: each must reach beyond all that smaller ones cover together
    span = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(store.strides, kernel.extents, strict=True) if s and n != 1):
        if stride <= span:
            return False
        span += stride * (n - 1)
    return True


def _buffers_overlap(a: Buffer, b: Buffer, placed: bool) -> bool:
    """Whether two buffers are one, or share bytes of the arena, once they are placed there."""
    if not placed or a is b or a.kind != "arena" or b.kind != "arena" or a.offset < 0 or b.offset < 0:
        return a is b
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def _overwriting_problems(line: KernelLine, source: Buffer, store: Store, kernel: Kernel) -> Iterator[str]:
    read, written = (source.offset, line.strides, line.offset), (store.buffer.offset, store.strides, store.offset)
    at_the_place = line.kind == "load" and read == written
    as_long = source.dtype.itemsize == store.buffer.dtype.itemsize
    in_one_visit = not kernel.inner and not store.args and not store.word and visits_once(kernel, store.strides)
    if not (at_the_place and as_long and in_one_visit) and _accesses_overlap(line, source, store, kernel):
        yield f"{store.buffer} is written over {source}, which the kernel reads elsewhere or again"


def _accesses_overlap(line: KernelLine, source: Buffer, store: Store, kernel: Kernel) -> bool:
    """Whether a byte is both read and written: two parts of one buffer, such as those of a concatenation, may be
    disjoint. For a kernel with too many points to enumerate, the corners decide.
    """
    if line.places or store.places:  # indices may point anywhere
        return True
    few = tuple(min(n, 2) if math.prod(kernel.extents) > MAX_ENUMERATED_POINTS else n for n in kernel.extents)
    last = [n - 1 if n > m else 1 for n, m in zip(kernel.extents, few, strict=True)]
    read, written = (
        _touched_bytes(x.strides, x.offset, buffer, few, last) for x, buffer in ((line, source), (store, store.buffer))
    )
    return bool(np.intersect1d(read, written).size)


def _touched_bytes(
    strides: tuple[int, ...], offset: int, buffer: Buffer, extents: tuple[int, ...], steps: Sequence[int]
) -> Any:
    """The bytes of the elements at the points of a box with strides."""
    where = np.zeros(1, np.int64) + offset
    for stride, n, step in zip(strides, extents, steps, strict=True):
        where = (where[:, None] + np.arange(n) * step * stride).reshape(-1) if stride else where
    start = max(buffer.offset, 0) if buffer.kind == "arena" else 0
    return start + (where[:, None] * buffer.dtype.itemsize + np.arange(buffer.dtype.itemsize)).reshape(-1)

"""Steps in, steps out: kernels that are worth several threads in blocks, and after them what puts the blocks' sums
together.

How many blocks there are follows from the kernel alone, never from the number of threads, and what the blocks folded is
put together in order. So the result is the same to the last bit on any number of threads, one included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..cost import nanoseconds
from ..fuse import Step, phase
from ..loops import Buffer, Division, Kernel, Line, Product, Store
from .blas import blas_threads
from .domain import Domain
from .panels import is_tiled
from .pool_text import MOST

__all__ = ["divided"]

#: Programs that have less than this many nanoseconds to share stay whole, and in others the steps of less than `SHORT`;
#: a block takes at least so long. Once the threads are awake, a short kernel that another thread's cache would have to
#: fetch again costs more than asking them.
WORTH, SHORT, BLOCK = 40_000, 8_000, 4_000
#: Pieces of different blocks lie in different lines of the cache, or two threads would fight for one.
LINE = 64
#: A product in tiles is shared in at most so many parts, each a multiple of so many columns or rows.
PARTS, PART = 4, 32
#: A matrix product of more nanoseconds is one for several threads of the BLAS.
LARGE = 500_000


def divided(steps: Sequence[Step], vector_bytes: int) -> list[Step]:
    """The same program, with its long kernels in blocks."""
    steps = [_side_by_side(step, vector_bytes) if isinstance(step, Product) else step for step in steps]
    times = [nanoseconds(step) for step in steps]
    if sum(t for t, step in zip(times, steps, strict=True) if t >= SHORT and _is_shared(step)) < WORTH:
        return list(steps)
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Kernel):
            found += _in_blocks(step, vector_bytes)
        else:
            found.append(_batch(step) if isinstance(step, Product) else step)
    return found


def _is_shared(step: Step) -> bool:
    return isinstance(step, Kernel) or (isinstance(step, Product) and step.out.shape[0] > 1)


def _side_by_side(step: Product, vector_bytes: int) -> Product:
    """A long product in tiles as a batch of several: columns (or else rows) of the result side by side. Each element is
    summed up as before.
    """
    _, rows, columns = step.out.shape
    count = min(_blocks(nanoseconds(step)), PARTS)
    if count == 1 or step.out.shape[0] > 1 or not is_tiled(step, vector_bytes):
        return step
    while count > 1 and columns % (count * PART) and rows % (count * PART):
        count //= 2
    along = columns % (count * PART) == 0
    wide, tall = (columns // count, rows) if along else (columns, rows // count)
    out, left, right = step.out, step.left, step.right
    by = wide if along else tall * out.strides[1]
    parts = (
        replace(out, shape=(count, tall, wide), strides=(by, *out.strides[1:])),
        replace(left, shape=(count, tall, left.shape[2]),
                strides=(0 if along else tall * left.strides[1], *left.strides[1:])),
        replace(right, shape=(count, right.shape[1], wide),
                strides=(wide * right.strides[2] if along else 0, *right.strides[1:])),
    )  # fmt: skip
    return replace(step, out=parts[0], left=parts[1], right=parts[2])


def _batch(step: Product) -> Product:
    """A batch of products in blocks, where the BLAS can be told to stay on the thread that calls it. Large matrices
    are left to the BLAS's own threads, one after the other.
    """
    time, batch = nanoseconds(step), step.out.shape[0]
    apart = all(step.out.buffer is not x.buffer for x in (step.left, step.right)) and step.out.strides[0] != 0
    if batch == 1 or time < SHORT or time / batch > LARGE or not apart or blas_threads() is None:
        return step
    return replace(step, blocks=min(_blocks(time), batch))


def _blocks(time: float) -> int:
    """A power of two, so that a thread's share in one kernel is its share in the next: its caches hold it."""
    return min(MOST, 1 << max(1, int(time / BLOCK)).bit_length() - 1)


def _in_blocks(kernel: Kernel, vector_bytes: int) -> list[Step]:
    time = nanoseconds(kernel)
    if time < SHORT or any(s.args or s.onto for s in kernel.stores):  # places may be the same in two blocks
        return [kernel]
    domain = Domain(kernel, vector_bytes)
    folds = [line for line in kernel.used() if line.kind == "fold"]
    later = _later(kernel) if folds and not domain.rows else []
    if later is None:
        return [kernel]
    stores = [s for s in kernel.stores if s not in later]
    count = domain.rows if folds and domain.rows else len(domain.sizes)
    wanted = _blocks(time)
    possible = [g for g in range(count) if _ranges(domain, g) > 1 and _is_free(kernel, domain, stores, g)]
    if not possible or wanted == 1:
        return [kernel]
    group = _best(domain, possible, wanted)
    return _cut(kernel, domain, group, min(wanted, _ranges(domain, group)), stores, later)


def _ranges(domain: Domain, group: int) -> int:
    """Into how many blocks a group can be cut."""
    return domain.sizes[group] // domain.unit(group)


def _best(domain: Domain, possible: list[int], wanted: int) -> int:
    """The outermost group that can be cut into as many blocks as wanted, else the one that can be cut into most."""
    enough = [g for g in possible if _ranges(domain, g) >= wanted]
    return enough[0] if enough else max(possible, key=lambda g: _ranges(domain, g))


def _later(kernel: Kernel) -> list[Store] | None:
    """The stores of a single row that wait for its folds or have one value for it; None if something along the row
    waits for a fold: then the row is walked more than once, and is not cut.
    """
    if any(line.phase and line.kind == "fold" for line in kernel.used()):
        return None
    later = [s for s in kernel.stores if not s.word and not any(s.strides)]
    return None if any(s.phase for s in kernel.stores if s not in later) else later


def _is_free(kernel: Kernel, domain: Domain, stores: list[Store], group: int) -> bool:
    """Whether blocks along a group touch nothing of each other's: what is written differs along it, so that what is
    read of it is read at the same point, or it is folded into pieces.
    """
    return all(_can_be_in_pieces(kernel, s) for s in stores if not domain.strides(s.strides)[group])


def _can_be_in_pieces(kernel: Kernel, store: Store) -> bool:
    """Whether a store can go to a piece for each block: it folds, and fills its whole buffer."""
    size = math.prod(n for n, stride in zip(kernel.extents, store.strides, strict=True) if stride)
    return bool(store.word) and size == store.buffer.size


def _cut(
    kernel: Kernel, domain: Domain, group: int, blocks: int, stores: list[Store], later: list[Store]
) -> list[Step]:
    """The kernel in blocks along a group, and the kernels that put together what the blocks fold."""
    apart: dict[Buffer, int] = {}

    def pieces(dtype: np.dtype[Any], size: int) -> Buffer:
        step = -(-size * dtype.itemsize // LINE) * LINE // dtype.itemsize
        buffer = Buffer("arena", blocks * step, dtype)
        apart[buffer] = step
        return buffer

    during: list[Store] = []
    after: list[Step] = []
    for store in stores:
        if store.word and not domain.strides(store.strides)[group]:
            there = store.buffer
            store = replace(store, buffer=pieces(there.dtype, there.size))
            after.append(_together(store, there, blocks, apart[store.buffer]))
        during.append(store)
    if group >= domain.rows:
        folds = [line for line in kernel.used() if line.kind == "fold"]
        partial = {id(line): pieces(line.dtype, 1) for line in folds}
        during += [Store(line, partial[id(line)], (0,) * len(kernel.extents)) for line in folds]
        after += _afterwards(later, domain, partial, apart, blocks)
    return [replace(kernel, stores=during, division=Division(domain.groups[group][-1], blocks, apart)), *after]


def _together(store: Store, target: Buffer, blocks: int, step: int) -> Kernel:
    """The kernel that folds pieces into the buffer they belong to, one after the other."""
    size = target.size
    extents, strides, to = ((blocks, size), (step, 1), (0, 1)) if size > 1 else ((blocks,), (step,), (0,))
    line = _load(store.buffer, strides)
    return Kernel(extents, 0, [line], [Store(line, target, to, 0, store.word, points=blocks * size)])


def _load(buffer: Buffer, strides: tuple[int, ...]) -> Line:
    axes = frozenset(i for i, s in enumerate(strides) if s)
    return Line("load", buffer.dtype, axes, buffer=buffer, strides=strides)


def _afterwards(
    later: list[Store], domain: Domain, partial: dict[int, Buffer], apart: dict[Buffer, int], blocks: int
) -> list[Step]:
    """A kernel whose row is the blocks' folds: it folds them, and computes what waits for them."""
    kernel = Kernel((blocks,), 1)
    known: dict[int, Line] = {}

    def again(line: Line) -> Line:
        if line.kind == "fold":
            buffer = partial[id(line)]
            return Line("fold", line.dtype, frozenset(), 0, (_load(buffer, (apart[buffer],)),), word=line.word)
        args = tuple(known[id(a)] for a in line.args)
        strides = (0,) if line.buffer is not None else ()
        return replace(line, args=args, axes=frozenset(), strides=strides, phase=phase(args))

    for line in Kernel((), 0, [], later).used():
        if line.kind == "fold" or not domain.differs(line):
            known[id(line)] = again(line)
    kernel.lines += known.values()
    kernel.stores += [replace(s, line=known[id(s.line)], strides=(0,)) for s in later]
    return [kernel] if later else []

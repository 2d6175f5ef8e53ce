"""A kernel's domain as threads see it: axes merged under one counter, and how wide an access of memory may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...loop_ir import Buffer, Kernel, KernelLine, Layout, Loop, Steps, Store
from ...schedule.arena import round_up
from ...vocabulary import is_half

#: The bytes of the widest access of a thread.
VECTOR_BYTES = 16
#: The most lines of which a thread computes several points at once.
MAX_VECTOR_LINES = 64
#: Indices below this are 32 bits; a vector and a block more still fit.
_SMALL_INDEX = 2**31 - 2**20

Access = KernelLine | Store


class Grid:
    """The axes of a kernel in groups, each with a size and one stride for every access. `sides` has a number for each
    axis: groups never join axes of different sides. `alignments` are those of buffers that may not start at a multiple
    of `VECTOR_BYTES`, in bytes.
    """

    def __init__(self, kernel: Kernel, sides: Sequence[int], alignments: Mapping[Buffer, int]) -> None:
        self.kernel, self.alignments = kernel, alignments
        self.lines = kernel.live_lines()
        self.accesses: list[Access] = [*(x for x in self.lines if x.buffer is not None), *kernel.stores]
        self.groups = self._merge_axes(sides)
        self.sizes = [math.prod(kernel.extents[a] for a in g) for g in self.groups]
        self.side_of = [sides[g[0]] for g in self.groups]
        self.index_type = "int" if self._farthest() < _SMALL_INDEX else "long long"

    def _merge_axes(self, sides: Sequence[int]) -> list[list[int]]:
        extents, groups = self.kernel.extents, list[list[int]]()
        for axis in (i for i, n in enumerate(extents) if n != 1):
            last = groups[-1][-1] if groups else -1
            joins = bool(groups) and sides[last] == sides[axis]
            if joins and all(x.strides[last] == x.strides[axis] * extents[axis] for x in self.accesses):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return groups

    def _farthest(self) -> int:
        """The largest number that an index or a counter may become."""
        farthest = math.prod(self.kernel.extents)
        for x in self.accesses:
            walked = sum(abs(s) * (n - 1) for s, n in zip(x.strides, self.kernel.extents, strict=True))
            pointed = sum(abs(s) * n for s, n in x.places)
            farthest = max(farthest, abs(x.offset) + walked + pointed)
        return farthest

    def groups_on(self, side: int) -> list[int]:
        return [g for g, own in enumerate(self.side_of) if own == side]

    def size_of(self, groups: Sequence[int]) -> int:
        return math.prod(self.sizes[g] for g in groups)

    def stride(self, x: Access, group: int) -> int:
        return x.strides[self.groups[group][-1]]

    def vector_width(self, group: int) -> int:
        """How many elements along a group fit one access of 16 bytes, for each access that moves along it; one where
        registers hold no more, since the text is repeated for each.
        """
        if len(self.lines) > MAX_VECTOR_LINES:
            return 1
        # elements at indices are anywhere, and numbers that count are computed
        direct = [x for x in self.accesses if not x.places and not (isinstance(x, KernelLine) and x.kind == "count")]
        if any(self.stride(x, group) not in (0, 1) for x in direct):
            return 1
        # what is folded is stored when all is done, one by one
        vectors = [x for x in direct if self.stride(x, group) and not (isinstance(x, Store) and x.word)]
        width = 8 if vectors and all(x.buffer is not None and is_half(x.buffer.dtype) for x in vectors) else 4
        width = min((width, *(self._aligned_width(x, group) for x in vectors)))
        while self.sizes[group] % width:
            width //= 2
        return width

    def unroll(self, lines: int, width: int) -> int:
        """How often a loop over vectors is unrolled: long bodies take long to compile, and wait less for memory."""
        return max(1, min(4, 2 * MAX_VECTOR_LINES // (lines * width)))

    def _aligned_width(self, x: Access, group: int) -> int:
        assert x.buffer is not None
        itemsize = x.buffer.dtype.itemsize
        others = [self.stride(x, g) for g in range(len(self.groups)) if g != group]
        starts = math.gcd(VECTOR_BYTES, self.alignments.get(x.buffer, VECTOR_BYTES))
        return math.gcd(starts, *(itemsize * n for n in (*others, x.offset))) // itemsize


def is_injective(extents: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two points share a place: each stride reaches beyond all that smaller ones cover together."""
    span = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, extents, strict=True) if n != 1):
        if stride <= span:
            return False
        span += stride * (n - 1)
    return True


def shares_memory(reads: Sequence[Buffer], writes: Sequence[Buffer]) -> bool:
    """Whether what is read and what is written may overlap: one buffer, or two in one place of the arena."""
    for a in reads:
        for b in writes:
            placed = a.kind == b.kind == "arena" and a.offset >= 0 and b.offset >= 0
            if a is b or (placed and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes):
                return True
    return False


def count_blocks(count: int, threads: int) -> int:
    return round_up(count, threads) // threads


def alignments_inside(loop: Loop, program: Steps, alignments: Mapping[Buffer, int]) -> dict[Buffer, int]:
    """Those of the arrays of a nested program, in every round."""
    inner: dict[Buffer, int] = {}
    given = [*zip(program.inputs, loop.inputs, loop.moves, strict=True)]
    made = [*zip(program.new_outputs, loop.outputs, loop.shifts, strict=False)]
    for buffer, layout, by in (*given, *made):
        inner[buffer] = math.gcd(inner.get(buffer, VECTOR_BYTES), _layout_alignment(layout, by, alignments))
    return inner


def _layout_alignment(layout: Layout, by: int, alignments: Mapping[Buffer, int]) -> int:
    """The alignment of an array that starts where a layout does, and advances."""
    itemsize = layout.buffer.dtype.itemsize
    return math.gcd(alignments.get(layout.buffer, VECTOR_BYTES), layout.offset * itemsize, by * itemsize)

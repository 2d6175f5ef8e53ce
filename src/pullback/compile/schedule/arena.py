"""Memory planning, steps in, arena offsets out: buffers that are never alive together share a place."""

from __future__ import annotations

import bisect
import heapq

from ..loop_ir import Buffer, Kernel, Step, visits_once

ALIGNMENT = 64


def plan_arena(steps: list[Step]) -> int:
    """Assign the arena's buffers their offsets; returns the bytes the arena needs."""
    first, last = _lifetimes(steps)
    shares = _find_in_place(steps, first, last)
    ends = _ends_with_reuse(shares, last)
    free = _FreeList()
    leaving: list[tuple[int, int, int]] = []
    for buffer in sorted(first, key=lambda b: (first[b], -b.nbytes)):
        if buffer in shares:
            buffer.offset = shares[buffer].offset
            continue
        while leaving and leaving[0][0] < first[buffer]:
            free.give(*heapq.heappop(leaving)[1:])
        buffer.offset = free.take(padded_size(buffer))
        heapq.heappush(leaving, (ends[buffer], buffer.offset, padded_size(buffer)))
    return free.top


def _ends_with_reuse(shares: dict[Buffer, Buffer], last: dict[Buffer, int]) -> dict[Buffer, int]:
    """The last step that uses a buffer's place: its own, or that of the buffer that takes the place over."""
    ends = dict(last)
    for buffer in sorted(shares, key=lambda b: -last[b]):
        ends[shares[buffer]] = max(ends[shares[buffer]], ends[buffer])
    return ends


class _FreeList:
    """The gaps of the arena, in order; everything above `top` is free."""

    def __init__(self) -> None:
        self.top = 0
        self.gaps: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """Allocate bytes at the lowest offset where they are free."""
        for i, (start, end) in enumerate(self.gaps):
            room = end - start >= size or end == self.top
            if room:
                self.gaps[i : i + 1] = [(start + size, end)] if start + size < end else []
                self.top = max(self.top, start + size)
                return start
        self.top += size
        return self.top - size

    def give(self, offset: int, size: int) -> None:
        """Free bytes, merged with adjacent gaps."""
        at = bisect.bisect(self.gaps, (offset, offset))
        start, end = offset, offset + size
        if at < len(self.gaps) and self.gaps[at][0] == end:
            end = self.gaps.pop(at)[1]
        if at and self.gaps[at - 1][1] == start:
            at -= 1
            start = self.gaps.pop(at)[0]
        self.gaps.insert(at, (start, end))


def padded_size(buffer: Buffer) -> int:
    """The bytes a buffer takes in the arena."""
    return -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT


def find_reused_buffers(steps: list[Step]) -> dict[Buffer, Buffer]:
    """Buffers that reuse the place of another one, which is read for the last time in the step that fills them."""
    return _find_in_place(steps, *_lifetimes(steps))


def _lifetimes(steps: list[Step]) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for i, step in enumerate(steps):
        for buffer in (*step.writes(), *step.reads()):
            if buffer.kind == "arena":
                first.setdefault(buffer, i)
                last[buffer] = i
    return first, last


def _find_in_place(steps: list[Step], first: dict[Buffer, int], last: dict[Buffer, int]) -> dict[Buffer, Buffer]:
    """Results of kernels that may overwrite an argument that dies there: read and written at the same places."""
    shares: dict[Buffer, Buffer] = {}
    taken: set[Buffer] = set()
    for i, step in enumerate(steps):
        # only elementwise: each point reads its place before it writes it, and no other point reads it
        if not isinstance(step, Kernel) or step.inner or any(s.word for s in step.stores):
            continue
        lines = [line for line in step.live_lines() if line.buffer is not None]
        dying = [line for line in lines if line.kind == "load" and line.buffer in last and last[line.buffer] == i]
        for store in step.stores:
            if first.get(store.buffer) != i:
                continue
            for line in dying:
                source = line.buffer
                same = line.strides == store.strides and line.offset == store.offset == 0
                same = same and visits_once(step, store.strides)
                alone = sum(other.buffer is source for other in lines) == 1 and source not in taken
                sizes = [(b.nbytes, b.dtype.itemsize) for b in (source, store.buffer) if b is not None]
                if source is not None and same and alone and sizes[0] == sizes[1]:
                    shares[store.buffer] = source
                    taken.add(source)
                    break
    return shares

"""Memory planning, steps in, arena offsets out: buffers that are never alive together share a place."""

from __future__ import annotations

import bisect
import heapq
from dataclasses import replace

from ..loop_ir import Blocks, Buffer, Host, Kernel, Loop, Step, Steps, visits_once
from ..target import Target


def plan_memory(steps: Steps, target: Target) -> Steps:
    """A program whose nested programs are planned, with the offsets of its buffers and the bytes that it works in."""
    arena = plan_arena(steps.steps, target.limits.alignment)
    own = arena + int(max((_scratch_bytes(step, target) for step in steps.steps), default=0))
    inner = [program.workspace for step in steps.steps if isinstance(step, Loop) for program in step.programs]
    nested = round_up(own, target.limits.alignment)
    return replace(steps, arena=arena, nested=nested, workspace=nested + max(inner) if inner else own)


def _scratch_bytes(step: Step, target: Target) -> int:
    """The memory that a step needs beside its buffers; several blocks of a kernel may run at the same time."""
    if isinstance(step, Blocks):
        return max(_scratch_bytes(inner, target) for inner in step.steps)
    if isinstance(step, Host):
        return 0 if step.routine is None else target.scratch_bytes(step)
    if not isinstance(step, Kernel):
        return 0
    return target.scratch_bytes(step) * (1 if step.division is None else step.division.blocks)


def plan_arena(steps: list[Step], alignment: int) -> int:
    """Assign the arena's buffers their offsets; returns the bytes the arena needs."""
    first, last = _lifetimes(steps)
    shares = _find_in_place(steps, first, last)
    ends = _ends_with_reuse(shares, last)
    free = _FreeList()
    leaving: list[tuple[int, int, int]] = []
    # the largest of those that begin together first, which leaves the fewest gaps
    for buffer in sorted(first, key=lambda b: (first[b], -b.nbytes)):
        if buffer in shares:
            buffer.offset = shares[buffer].offset
            continue
        while leaving and leaving[0][0] < first[buffer]:
            free.give(*heapq.heappop(leaving)[1:])
        size = round_up(buffer.nbytes or 1, alignment)
        buffer.offset = free.take(size)
        heapq.heappush(leaving, (ends[buffer], buffer.offset, size))
    return free.top


def _ends_with_reuse(shares: dict[Buffer, Buffer], last: dict[Buffer, int]) -> dict[Buffer, int]:
    """The last step that uses a buffer's place: its own, or that of the buffer that takes the place over."""
    ends = dict(last)
    # the last to take a place over first, so that a chain of them passes its end on
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
            # the topmost gap can grow
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


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


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
        if not isinstance(step, Kernel) or step.inner or any(s.word or s.args for s in step.stores):
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

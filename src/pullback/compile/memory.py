"""Steps in, offsets out: every buffer of the arena gets a place, and those that are never alive together share it."""

from __future__ import annotations

from .fuse import Step
from .loops import Buffer, Kernel

__all__ = ["planned"]

ALIGNMENT = 64


def planned(steps: list[Step]) -> int:
    """Give the arena's buffers their offsets; the bytes the arena needs."""
    first, last = _lifetimes(steps)
    order = sorted(first, key=lambda b: (first[b], -b.nbytes))
    placed: list[Buffer] = []
    shares = _in_place(steps, first, last)
    total = 0
    for buffer in order:
        if buffer in shares:
            buffer.offset = shares[buffer].offset
        else:
            alive = [p for p in placed if last[p] >= first[buffer] and first[p] <= last[buffer]]
            buffer.offset = _gap(sorted((p.offset, _padded(p)) for p in alive), _padded(buffer))
        placed.append(buffer)
        total = max(total, buffer.offset + _padded(buffer))
    return total


def _padded(buffer: Buffer) -> int:
    return -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT


def _lifetimes(steps: list[Step]) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for i, step in enumerate(steps):
        for buffer in (*step.writes(), *step.reads()):
            if buffer.kind == "arena":
                first.setdefault(buffer, i)
                last[buffer] = i
    return first, last


def _gap(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest offset at which so many bytes are free."""
    at = 0
    for offset, length in taken:
        if offset - at >= size:
            break
        at = max(at, offset + length)
    return at


def _in_place(steps: list[Step], first: dict[Buffer, int], last: dict[Buffer, int]) -> dict[Buffer, Buffer]:
    """Results of kernels that may lie where an argument lies that dies there: read and written at the same places."""
    shares: dict[Buffer, Buffer] = {}
    for i, step in enumerate(steps):
        if not isinstance(step, Kernel) or step.inner or any(s.word for s in step.stores):
            continue
        lines = [line for line in step.used() if line.buffer is not None]
        dying = [
            line
            for line in lines
            if line.kind == "load" and line.buffer in last and last[line.buffer] == i and first[line.buffer] < i
        ]
        for store in step.stores:
            if first.get(store.buffer) != i or store.buffer in shares:
                continue
            for line in dying:
                source = line.buffer
                same = line.strides == store.strides and line.offset == store.offset == 0
                alone = sum(other.buffer is source for other in lines) == 1 and source not in shares.values()
                if source is not None and same and alone and source.nbytes == store.buffer.nbytes:
                    shares[store.buffer] = source
                    break
    return shares

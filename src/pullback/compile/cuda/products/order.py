"""Which steps must keep their order: a step must not read or write what another one writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...loop_ir import Buffer, Kernel, Layout, Product, Step


@dataclass(slots=True)
class Accesses:
    """What some steps read and write."""

    steps: list[Step] = field(default_factory=list)
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)

    def add(self, steps: Sequence[Step]) -> None:
        self.steps += steps
        self.reads.update(b for step in steps for b in step.reads())
        self.writes.update(b for step in steps for b in step.writes())

    def must_precede(self, other: Accesses) -> bool:
        """Whether these steps must be done before others begin."""
        if not self.writes.isdisjoint(other.reads) or not self.reads.isdisjoint(other.writes):
            return True
        shared = self.writes & other.writes
        return bool(shared) and not all(_write_apart(buffer, self.steps, other.steps) for buffer in shared)


def accesses_of(steps: Sequence[Step]) -> Accesses:
    found = Accesses()
    found.add(steps)
    return found


def conflict(first: Sequence[Step], second: Sequence[Step]) -> bool:
    """Whether steps must all run before others."""
    return bool(first) and bool(second) and accesses_of(first).must_precede(accesses_of(second))


def _write_apart(buffer: Buffer, first: Sequence[Step], second: Sequence[Step]) -> bool:
    """Whether steps write to different parts of a buffer."""
    return all(
        a is not None and b is not None and _are_disjoint(a, b)
        for a in _regions(buffer, first)
        for b in _regions(buffer, second)
    )


def _regions(buffer: Buffer, steps: Sequence[Step]) -> Iterator[Layout | None]:
    """The parts of a buffer that steps write; None if a step may write anywhere."""
    for step in steps:
        if isinstance(step, Product):
            if step.out.buffer is buffer:
                yield step.out
        elif isinstance(step, Kernel):
            for store in (s for s in step.stores if s.buffer is buffer):
                yield (
                    None if store.args or store.parts > 1 else Layout(buffer, step.extents, store.strides, store.offset)
                )
        elif buffer in step.writes():
            yield None


def _are_disjoint(a: Layout, b: Layout) -> bool:
    """Whether two regions share no element for certain: within steps of some length, each keeps to its own part."""
    for length in {abs(s) for x in (a, b) for s, n in zip(x.strides, x.shape, strict=True) if s and n > 1}:
        parts = [_part_within(x, length) for x in (a, b)]
        if all(parts):
            (start, end), (other, until) = parts  # type: ignore[misc]
            if end <= other or until <= start:
                return True
    return False


def _part_within(x: Layout, length: int) -> tuple[int, int] | None:
    """The elements that a region touches within each `length` of memory; None if they have no such part."""
    short = [(s, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1 and s % length]
    start = x.offset % length
    end = start + sum(s * (n - 1) for s, n in short) + 1
    return (start, end) if all(s > 0 for s, _ in short) and end <= length else None

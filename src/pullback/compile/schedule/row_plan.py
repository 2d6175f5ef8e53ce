"""Kernel in, the values of a row out that are saved for a later pass over it, rather than computed again."""

from __future__ import annotations

from ..loop_ir import Kernel, KernelLine
from ..target import Limits
from .arena import round_up
from .domain import Domain


class RowPlan:
    """Which lines are saved: in which phase, where in the scratch memory; `bytes` is what they need together."""

    def __init__(self, domain: Domain, limits: Limits) -> None:
        self.domain = domain
        self.limits = limits
        self.offsets: dict[int, int] = {}
        #: The phase in which a saved line is computed.
        self.phases: dict[int, int] = {}
        self.bytes = 0

    def __contains__(self, line: KernelLine) -> bool:
        return id(line) in self.offsets

    def is_saved_before(self, line: KernelLine, phase: int) -> bool:
        return id(line) in self.phases and self.phases[id(line)] < phase

    def save(self, line: KernelLine, phase: int) -> None:
        if line not in self:
            self.offsets[id(line)] = self.bytes
            self.phases[id(line)] = phase
            # rows start in cache lines of their own, and have room for whole vectors
            elements = self.domain.row + self.domain.lanes - 1
            self.bytes += round_up(elements * line.dtype.itemsize, self.limits.cache_line_bytes)


def count_phases(kernel: Kernel) -> int:
    """The passes over a row: one more after each fold that something else waits for."""
    phases = [line.phase for line in kernel.live_lines()] + [store.phase for store in kernel.stores]
    return 1 + max(phases, default=0)


def plan_rows(domain: Domain, limits: Limits) -> RowPlan:
    """Save what a pass uses that an earlier one computes, if it is heavy."""
    plan, used = RowPlan(domain, limits), domain.kernel.live_lines()
    first = _first_uses(domain, used)
    heavy: dict[int, int] = {}
    for line in used:
        # what computing it again would cost, with all it depends on along the row
        heavy[id(line)] = line.weight + sum(heavy[id(a)] for a in line.args if domain.varies_along_row(a))
    for phase in reversed(range(1, count_phases(domain.kernel))):
        stack = phase_targets(domain.kernel, phase, used)
        seen: set[int] = set()
        while stack:
            line = stack.pop()
            if id(line) in seen or not domain.varies_along_row(line) or line.kind in ("load", "fold"):
                continue
            seen.add(id(line))
            if first[id(line)] < phase and heavy[id(line)] > limits.max_row_recompute_weight:
                plan.save(line, first[id(line)])
            else:
                stack.extend(line.args)
    return plan


def _first_uses(domain: Domain, used: list[KernelLine]) -> dict[int, int]:
    """The first pass that uses each line along the row: before it, there is nothing to save."""
    first: dict[int, int] = {}
    for phase in range(count_phases(domain.kernel)):
        stack = phase_targets(domain.kernel, phase, used)
        while stack:
            line = stack.pop()
            if id(line) not in first and domain.varies_along_row(line):
                first[id(line)] = phase
                stack.extend(line.args)
    return first


def phase_targets(kernel: Kernel, phase: int, used: list[KernelLine]) -> list[KernelLine]:
    """The lines that the row's loop must compute in a phase: what it folds or stores along the row."""
    folded = [line.args[0] for line in used if line.kind == "fold" and line.phase == phase]
    return [*folded, *(x for s in kernel.stores if s.phase == phase for x in (s.line, *s.args))]


def row_scratch_bytes(kernel: Kernel, limits: Limits) -> int:
    """The bytes that saved rows of a kernel need."""
    return plan_rows(Domain(kernel, limits), limits).bytes if count_phases(kernel) > 1 else 0

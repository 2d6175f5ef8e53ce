"""Row scratch: values of a row that a later phase needs, saved in memory that stays in the L1 cache."""

from __future__ import annotations

from ...loop_ir import Kernel, KernelLine
from ...schedule.domain import Domain
from ..builder.function_text import INDEX
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, llvm_element_type
from .access import emit_load, emit_store, from_memory

#: Lines lighter than this are recomputed in a later phase of a row rather than saved.
MAX_RECOMPUTED_WEIGHT = 6


class RowScratch:
    """Which lines are saved, each at an offset of the scratch memory; `bytes` is what they need together."""

    def __init__(self, domain: Domain, used: list[KernelLine], phases: int) -> None:
        self.domain = domain
        self.offsets: dict[int, int] = {}
        self.bytes = 0
        heavy: dict[int, int] = {}
        for line in used:
            heavy[id(line)] = line.weight + sum(heavy[id(a)] for a in line.args if domain.varies_along_row(a))
        for phase in reversed(range(1, phases)):
            self._choose_lines(phase, used, heavy)

    def __contains__(self, line: KernelLine) -> bool:
        return id(line) in self.offsets

    def _choose_lines(self, phase: int, used: list[KernelLine], heavy: dict[int, int]) -> None:
        """Save what a phase uses from earlier ones, if it is heavy."""
        stack = phase_targets(self.domain.kernel, self, phase, used)
        seen: set[int] = set()
        while stack:
            line = stack.pop()
            if id(line) in seen or not self.domain.varies_along_row(line) or line.kind in ("load", "fold"):
                continue
            seen.add(id(line))
            if line.phase < phase and heavy[id(line)] > MAX_RECOMPUTED_WEIGHT:
                self._reserve(line)
            else:
                stack.extend(line.args)

    def _reserve(self, line: KernelLine) -> None:
        if line not in self:
            self.offsets[id(line)] = self.bytes
            self.bytes += -(-self.domain.row * line.dtype.itemsize // 64) * 64

    def _element_address(self, builder: IRBuilder, line: KernelLine, counters: list[str]) -> str:
        """The address of an element of a saved row."""
        place, step, rows = "0", 1, self.domain.rows
        for size, counter in zip(reversed(self.domain.sizes[rows:]), reversed(counters[rows:]), strict=True):
            product = counter if step == 1 else builder.assign(f"mul nsw {INDEX} {counter}, {step}")
            place = product if place == "0" else builder.assign(f"add nsw {INDEX} {place}, {product}")
            step *= size
        row = builder.assign(f"getelementptr inbounds i8, ptr %scratch, {INDEX} {self.offsets[id(line)]}")
        return builder.assign(
            f"getelementptr inbounds {llvm_element_type(line.dtype, True)}, ptr {row}, {INDEX} {place}"
        )

    def store_line(
        self, builder: IRBuilder, line: KernelLine, value: IRValue, counters: list[str], mask: str | None
    ) -> None:
        emit_store(builder, value, self._element_address(builder, line, counters), line.dtype, mask)

    def load_line(self, builder: IRBuilder, line: KernelLine, counters: list[str], mask: str | None) -> IRValue:
        return from_memory(
            builder, emit_load(builder, self._element_address(builder, line, counters), line.dtype, mask), line.dtype
        )


def phase_targets(kernel: Kernel, scratch: RowScratch, phase: int, used: list[KernelLine]) -> list[KernelLine]:
    """The lines that the row's loop must compute in a phase: what it folds, stores along the row, or saves."""
    folded = [line.args[0] for line in used if line.kind == "fold" and line.phase == phase]
    stored = [x for s in kernel.stores if s.phase == phase for x in (s.line, *s.args)]
    return [*folded, *stored, *(line for line in used if line in scratch and line.phase == phase)]

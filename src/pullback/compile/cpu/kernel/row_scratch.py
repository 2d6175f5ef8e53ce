"""Row scratch: values of a row that a later phase needs, saved in memory that stays in the L1 cache."""

from __future__ import annotations

from ...loop_ir import KernelLine
from ...schedule.row_plan import RowPlan
from ..builder.function_text import INDEX
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, llvm_element_type
from .access import emit_load, emit_store, from_memory


class RowScratch:
    """Emits the loads and stores of the lines that a plan saves."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan

    def _element_address(self, builder: IRBuilder, line: KernelLine, counters: list[str]) -> str:
        """The address of an element of a saved row."""
        domain = self.plan.domain
        place, step, rows = "0", 1, domain.rows
        for size, counter in zip(reversed(domain.sizes[rows:]), reversed(counters[rows:]), strict=True):
            product = counter if step == 1 else builder.assign(f"mul nsw {INDEX} {counter}, {step}")
            place = product if place == "0" else builder.assign(f"add nsw {INDEX} {place}, {product}")
            step *= size
        row = builder.assign(f"getelementptr inbounds i8, ptr %scratch, {INDEX} {self.plan.offsets[id(line)]}")
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

"""Row scratch: values of a row that a later phase needs, saved in memory that stays in the L1 cache."""

from __future__ import annotations

from ...loop_ir import KernelLine, row_major_strides
from ...schedule.row_plan import RowPlan
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_load, emit_store
from ..builder.vector_types import IRValue


class RowScratch:
    """Emits the loads and stores of the lines that a plan saves."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan

    def _element_address(self, builder: IRBuilder, line: KernelLine, counters: list[str]) -> str:
        """The address of an element of a saved row."""
        domain = self.plan.domain
        strides = row_major_strides(tuple(domain.sizes[domain.rows :]))
        terms = zip(counters[domain.rows :], strides, strict=True)
        offset = self.plan.offsets[id(line)] // line.dtype.itemsize
        return emit_address(builder, line.dtype, "%scratch", *terms, offset=offset)

    def store_line(self, builder: IRBuilder, line: KernelLine, value: IRValue, counters: list[str]) -> None:
        """Save a whole vector: lanes beyond the row are overwritten by the next row, or lie in the room after it."""
        emit_store(builder, value, self._element_address(builder, line, counters), line.dtype)

    def load_line(self, builder: IRBuilder, line: KernelLine, counters: list[str]) -> IRValue:
        return emit_load(builder, self._element_address(builder, line, counters), line.dtype)

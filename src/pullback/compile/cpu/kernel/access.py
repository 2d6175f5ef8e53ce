"""The elements of a kernel's buffers: where they are, and their loads and stores, contiguous or strided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...loop_ir import Buffer
from ...varying import Operand
from ..builder.function_text import INDEX, FunctionText
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_gather, emit_load, emit_scatter, emit_store
from ..builder.vector_types import IRValue, format_number, llvm_element_type


@dataclass(frozen=True, slots=True)
class ElementRef:
    """Elements of a buffer: the strides of the counters, and the pointer they start from if it is not the buffer's."""

    buffer: Buffer
    strides: Sequence[int]
    offset: int
    counters: Sequence[str]
    base: str | None = None

    @property
    def lane_stride(self) -> int:
        """The stride between the lanes of a vector."""
        return self.strides[-1] if self.strides else 0


class BufferAccess:
    """The memory of one function: its parameters are the buffers, in the order of their first use."""

    def __init__(self, text: FunctionText) -> None:
        self.text = text
        self.buffers: list[Buffer] = []
        self._status = ""

    def status_slot(self) -> str:
        """Where loops note an index out of range: a slot, so that none waits for the memory of the round before."""
        if not self._status:
            self._status = self.text.first_slot("i32", "0")
        return self._status

    def end(self) -> None:
        """Add what was noted to `%status`, at the end of the function. Only a block that found something writes there:
        others, on other threads, might put back what they read before.
        """
        if self._status:
            builder = self.text.builder(1)
            noted = builder.assign(f"load i32, ptr {self._status}")
            end = self.text.begin_if(builder.assign(f"icmp ne i32 {noted}, 0"))
            there = builder.assign("load i32, ptr %status")
            builder.emit(f"store i32 {builder.assign(f'or i32 {noted}, {there}')}, ptr %status")
            self.text.end_if(end)

    def pointer(self, buffer: Buffer) -> str:
        # its position is that of the function's parameter
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"%b{self.buffers.index(buffer)}"

    def address(self, builder: IRBuilder, place: ElementRef) -> str:
        terms = zip(place.counters, place.strides, strict=False)
        pointer = place.base or self.pointer(place.buffer)
        return emit_address(builder, place.buffer.dtype, pointer, *terms, offset=place.offset)

    def load(self, builder: IRBuilder, place: ElementRef, mask: str | None) -> IRValue:
        address, dtype = self.address(builder, place), place.buffer.dtype
        if builder.lanes > 1 and place.lane_stride != 1:
            return emit_gather(builder, _lane_addresses(builder, place, address), dtype, mask)
        return emit_load(builder, address, dtype, mask)

    def store(self, builder: IRBuilder, value: IRValue, place: ElementRef, mask: str | None) -> None:
        address, dtype = self.address(builder, place), place.buffer.dtype
        if builder.lanes > 1 and place.lane_stride != 1:
            emit_scatter(builder, value, _lane_addresses(builder, place, address), dtype, mask)
        else:
            emit_store(builder, value, address, dtype, mask)


def _lane_addresses(builder: IRBuilder, place: ElementRef, address: str) -> str:
    """The addresses of lanes that are not contiguous."""
    lanes, element = builder.lanes, llvm_element_type(place.buffer.dtype, True)
    steps = lane_offsets(builder, place.lane_stride)
    return builder.assign(f"getelementptr {element}, ptr {address}, <{lanes} x {INDEX}> {steps}")


def lane_offsets(builder: IRBuilder, stride: int) -> str:
    """The vector of 0, stride, 2 stride, ..."""
    if isinstance(stride, Operand):
        by = format_number(stride, np.dtype(np.int64), builder.lanes)
        return builder.assign(f"mul <{builder.lanes} x {INDEX}> {lane_offsets(builder, 1)}, {by}")
    return f"<{', '.join(f'{INDEX} {i * stride}' for i in range(builder.lanes))}>"

"""Loads and stores: of one element, of contiguous or strided vectors, whole or masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...loop_ir import Buffer
from ..builder.function_text import INDEX
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, llvm_element_type, llvm_type, type_suffix


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

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return f"%b{self.buffers.index(buffer)}"

    def address(self, builder: IRBuilder, place: ElementRef) -> str:
        at = str(place.offset)
        for stride, counter in zip(place.strides, place.counters, strict=False):
            if stride:
                product = counter if stride == 1 else builder.assign(f"mul nsw {INDEX} {counter}, {stride}")
                at = product if at == "0" else builder.assign(f"add nsw {INDEX} {at}, {product}")
        pointer = place.base or self.pointer(place.buffer)
        kind = llvm_element_type(place.buffer.dtype, True)
        return pointer if at == "0" else builder.assign(f"getelementptr inbounds {kind}, ptr {pointer}, {INDEX} {at}")

    def load(self, builder: IRBuilder, place: ElementRef, mask: str | None) -> IRValue:
        address = self.address(builder, place)
        if builder.lanes > 1 and place.lane_stride != 1:
            found = emit_gather(builder, place.buffer, _lane_addresses(builder, place, address), mask)
        else:
            found = emit_load(builder, address, place.buffer.dtype, mask)
        return from_memory(builder, found, place.buffer.dtype)

    def store(self, builder: IRBuilder, value: IRValue, place: ElementRef, mask: str | None) -> None:
        address = self.address(builder, place)
        if builder.lanes > 1 and place.lane_stride != 1:
            name = _to_memory(builder, value, place.buffer.dtype)
            _emit_scatter(builder, name, place, _lane_addresses(builder, place, address), mask)
        else:
            emit_store(builder, value, address, place.buffer.dtype, mask)


def from_memory(builder: IRBuilder, found: str, dtype: np.dtype[Any]) -> IRValue:
    """What was loaded, as a value: booleans are bytes in memory."""
    if dtype.kind != "b":
        return IRValue(found, dtype, builder.lanes)
    zero = "0" if builder.lanes == 1 else "zeroinitializer"
    return IRValue(
        builder.assign(f"icmp ne {llvm_type(dtype, builder.lanes, True)} {found}, {zero}"), dtype, builder.lanes
    )


def _to_memory(builder: IRBuilder, value: IRValue, dtype: np.dtype[Any]) -> str:
    if dtype.kind != "b":
        return value.name
    return builder.assign(
        f"zext {llvm_type(dtype, builder.lanes)} {value.name} to {llvm_type(dtype, builder.lanes, True)}"
    )


def emit_load(builder: IRBuilder, address: str, dtype: np.dtype[Any], mask: str | None) -> str:
    """Load contiguous elements. Under a mask, those outside are not accessed."""
    kind, element, lanes = llvm_type(dtype, builder.lanes, True), llvm_element_type(dtype, True), builder.lanes
    if mask is None:
        return builder.assign(f"load {kind}, ptr {address}, align {dtype.itemsize}")
    name = f"llvm.masked.load.v{lanes}{type_suffix(element)}.p0"
    builder.declared.add(f"declare {kind} @{name}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
    given = f"ptr {address}, i32 {dtype.itemsize}, <{lanes} x i1> {mask}, {kind} {_filler_lanes(element)}"
    return builder.assign(f"call {kind} @{name}({given})")


def emit_store(builder: IRBuilder, value: IRValue, address: str, dtype: np.dtype[Any], mask: str | None) -> None:
    kind, lanes = llvm_type(dtype, builder.lanes, True), builder.lanes
    name = _to_memory(builder, value, dtype)
    if mask is None:
        builder.emit(f"store {kind} {name}, ptr {address}, align {dtype.itemsize}")
        return
    function = f"llvm.masked.store.v{lanes}{type_suffix(llvm_element_type(dtype, True))}.p0"
    builder.declared.add(f"declare void @{function}({kind}, ptr, i32 immarg, <{lanes} x i1>)")
    builder.emit(f"call void @{function}({kind} {name}, ptr {address}, i32 {dtype.itemsize}, <{lanes} x i1> {mask})")


def _lane_addresses(builder: IRBuilder, place: ElementRef, address: str) -> str:
    """The addresses of lanes that are not contiguous."""
    lanes, element = builder.lanes, llvm_element_type(place.buffer.dtype, True)
    steps = ", ".join(f"{INDEX} {i * place.lane_stride}" for i in range(lanes))
    return builder.assign(f"getelementptr {element}, ptr {address}, <{lanes} x {INDEX}> <{steps}>")


def emit_gather(builder: IRBuilder, buffer: Buffer, places: str, mask: str | None) -> str:
    """Load each lane from its own address."""
    dtype, lanes = buffer.dtype, builder.lanes
    kind, element = llvm_type(dtype, lanes, True), llvm_element_type(dtype, True)
    name = f"llvm.masked.gather.v{lanes}{type_suffix(element)}.v{lanes}p0"
    builder.declared.add(f"declare {kind} @{name}(<{lanes} x ptr>, i32 immarg, <{lanes} x i1>, {kind})")
    chosen = f"<{lanes} x i1> {mask or 'splat (i1 true)'}"
    given = f"<{lanes} x ptr> {places}, i32 {dtype.itemsize}, {chosen}, {kind} {_filler_lanes(element)}"
    return builder.assign(f"call {kind} @{name}({given})")


def _emit_scatter(builder: IRBuilder, name: str, place: ElementRef, places: str, mask: str | None) -> None:
    dtype, lanes = place.buffer.dtype, builder.lanes
    kind, element = llvm_type(dtype, lanes, True), llvm_element_type(dtype, True)
    function = f"llvm.masked.scatter.v{lanes}{type_suffix(element)}.v{lanes}p0"
    builder.declared.add(f"declare void @{function}({kind}, <{lanes} x ptr>, i32 immarg, <{lanes} x i1>)")
    chosen = f"<{lanes} x i1> {mask or 'splat (i1 true)'}"
    builder.emit(f"call void @{function}({kind} {name}, <{lanes} x ptr> {places}, i32 {dtype.itemsize}, {chosen})")


def _filler_lanes(element: str) -> str:
    """The value of lanes that were not loaded: one, so that even an integer division by it is safe."""
    one = "1.0" if element in ("float", "double") else "1"
    return f"splat ({element} {one})"

"""Indexed access: offsets of indices, checked against their axes, and loads at them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder.function_text import INDEX
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_gather
from ..builder.vector_types import BOOL, IRValue, llvm_element_type, llvm_type
from .access import BufferAccess, ElementRef, lane_offsets

_WHOLE = np.dtype(np.int64)


def index_offset(
    access: BufferAccess,
    builder: IRBuilder,
    slots: Sequence[tuple[int, int]],
    indices: Sequence[IRValue],
    mask: str | None,
    branches: bool = False,
) -> IRValue:
    """The offset of indices in elements; `slots` are the (stride, size) of their axes. A negative index counts from the
    end; one out of range sets the status, and points at the first element. If it `branches`, one that is in its axis as
    it stands costs a comparison.
    """
    before, builder.dtype = builder.dtype, _WHOLE
    total: IRValue | None = None
    for (stride, size), index in zip(slots, indices, strict=True):
        index = builder.cast(index, _WHOLE)
        checked = (_branch_on_index if branches else _wrap_index)(access, builder, index, size, mask)
        by = builder.multiply(checked, builder.constant(stride))
        total = by if total is None else builder.add(total, by)
    builder.dtype = before
    assert total is not None
    return total


def _branch_on_index(access: BufferAccess, builder: IRBuilder, index: IRValue, size: int, mask: str | None) -> IRValue:
    found = access.text.first_slot(INDEX, "0")
    builder.emit(f"store {INDEX} {index.name}, ptr {found}")
    unusual = builder.assign(f"icmp uge {INDEX} {index.name}, {builder.constant(size).name}")
    end = access.text.begin_if(unusual)
    builder.emit(f"store {INDEX} {_wrap_index(access, builder, index, size, mask).name}, ptr {found}")
    access.text.end_if(end)
    return builder.assign_value(f"load {INDEX}, ptr {found}", _WHOLE)


def _wrap_index(access: BufferAccess, builder: IRBuilder, index: IRValue, size: int, mask: str | None) -> IRValue:
    wrapped = builder.select(
        builder.less(index, builder.constant(0)), builder.add(index, builder.constant(size)), index
    )
    kind = llvm_type(_WHOLE, builder.lanes)
    # unsigned, so that one comparison finds negative ones too
    inside = builder.assign_value(f"icmp ult {kind} {wrapped.name}, {builder.constant(size).name}", BOOL)
    # lanes outside of the row hold no index
    if mask is not None:
        unused = builder.assign_value(
            f"xor {llvm_type(BOOL, builder.lanes)} {mask}, {builder.number(True, BOOL).name}", BOOL
        )
        inside = builder.logical_or(inside, unused)
    _note_out_of_range(access, builder, inside)
    # memory is accessed in any case, so a bad index points at the first element
    safe = builder.select(inside, wrapped, builder.constant(0))
    return safe if mask is None else builder.select(IRValue(mask, BOOL, builder.lanes), safe, builder.constant(0))


def _note_out_of_range(access: BufferAccess, builder: IRBuilder, inside: IRValue) -> None:
    """Set the status if an index was out of range; the loop goes on, so that it has no branches."""
    every = inside.name
    if builder.lanes > 1:
        every = builder.call(f"llvm.vector.reduce.and.v{builder.lanes}i1", BOOL, inside, lanes=1).name
    bad = builder.assign(f"xor i1 {every}, true")
    wide = builder.assign(f"zext i1 {bad} to i32")
    slot = access.status_slot()
    there = builder.assign(f"load i32, ptr {slot}")
    builder.emit(f"store i32 {builder.assign(f'or i32 {there}, {wide}')}, ptr {slot}")


def shift_base(
    access: BufferAccess,
    scalar: IRBuilder,
    place: ElementRef,
    slots: Sequence[tuple[int, int]],
    indices: Sequence[IRValue],
    branches: bool,
) -> ElementRef:
    """A place shifted by indices that are the same for all lanes."""
    by = index_offset(access, scalar, slots, indices, None, branches)
    element = llvm_element_type(place.buffer.dtype, True)
    base = scalar.assign(f"getelementptr {element}, ptr {access.pointer(place.buffer)}, {INDEX} {by.name}")
    return ElementRef(place.buffer, place.strides, place.offset, place.counters, base)


def load_lanes_at(
    access: BufferAccess,
    builder: IRBuilder,
    place: ElementRef,
    slots: Sequence[tuple[int, int]],
    indices: Sequence[IRValue],
    mask: str | None,
) -> IRValue:
    """Load each lane at its own indices."""
    lanes = builder.lanes
    by = index_offset(access, builder, slots, indices, mask)
    base = access.address(builder, place)
    if place.lane_stride:
        steps = lane_offsets(builder, place.lane_stride)
        by = builder.assign_value(f"add <{lanes} x {INDEX}> {by.name}, {steps}", by.dtype)
    element = llvm_element_type(place.buffer.dtype, True)
    places = builder.assign(f"getelementptr {element}, ptr {base}, <{lanes} x {INDEX}> {by.name}")
    return emit_gather(builder, places, place.buffer.dtype, mask)

"""Memory in LLVM text: addresses, and loads and stores of one element or a vector, whole, masked or lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...vocabulary import is_half
from .half_types import HALF_BITS, narrow_half, widen_half
from .ir_builder import IRBuilder
from .vector_types import IRValue, llvm_element_type, llvm_type, type_suffix

#: Vectors of so many bytes are masked by instructions of their own.
_MASKED_BYTES = 64
#: A number known now, or the name of one that is known when the code runs.
Number = int | str


def emit_address(
    builder: IRBuilder, dtype: np.dtype[Any], pointer: str, *terms: tuple[Number, Number], offset: int = 0
) -> str:
    """The address of an element: the offset, plus each term's counter times its stride."""
    at = str(offset)
    for counter, stride in terms:
        # terms of zero would only lengthen the text that LLVM parses
        if str(stride) != "0" and str(counter) != "0":
            by = str(counter) if str(stride) == "1" else builder.assign(f"mul nsw i64 {counter}, {stride}")
            at = by if at == "0" else builder.assign(f"add nsw i64 {at}, {by}")
    kind = llvm_element_type(dtype, True)
    return pointer if at == "0" else builder.assign(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {at}")


def emit_load(
    builder: IRBuilder, address: str, dtype: np.dtype[Any], mask: str | None = None, missing: Number = 1
) -> IRValue:
    """Load contiguous elements, half dtypes as float32. Under a mask, those outside are not accessed; they become
    `missing`, which is one where even an integer division by it must be safe.
    """
    kind = llvm_type(dtype, builder.lanes, True)
    if is_half(dtype):
        return widen_half(builder, emit_load(builder, address, HALF_BITS, mask, missing), dtype.name)
    if mask is None:
        return _from_memory(builder, builder.assign(f"load {kind}, ptr {address}, align {dtype.itemsize}"), dtype)
    return _emit_masked_load(builder, "load", f"ptr {address}", dtype, mask, missing)


def emit_gather(builder: IRBuilder, addresses: str, dtype: np.dtype[Any], mask: str | None) -> IRValue:
    """Load each lane from its own address."""
    if is_half(dtype):
        return widen_half(builder, emit_gather(builder, addresses, HALF_BITS, mask), dtype.name)
    return _emit_masked_load(builder, "gather", f"<{builder.lanes} x ptr> {addresses}", dtype, mask, 1)


def _emit_masked_load(
    builder: IRBuilder, how: str, place: str, dtype: np.dtype[Any], mask: str | None, missing: Number
) -> IRValue:
    kind, element, truths = llvm_type(dtype, builder.lanes, True), llvm_element_type(dtype, True), _truths(builder)
    name = _intrinsic(builder, how, dtype)
    builder.declared.add(f"declare {kind} @{name}({place.rpartition(' ')[0]}, i32 immarg, {truths}, {kind})")
    filler = f"splat ({element} {missing}{'.0' if dtype.kind == 'f' else ''})"
    chosen = f"{truths} {mask or 'splat (i1 true)'}"
    return _from_memory(
        builder, builder.assign(f"call {kind} @{name}({place}, i32 {dtype.itemsize}, {chosen}, {kind} {filler})"), dtype
    )


def emit_store(builder: IRBuilder, value: IRValue, address: str, dtype: np.dtype[Any], mask: str | None = None) -> None:
    if is_half(dtype):
        emit_store(builder, narrow_half(builder, value, dtype.name), address, HALF_BITS, mask)
        return
    kind, name = llvm_type(dtype, builder.lanes, True), _to_memory(builder, value, dtype)
    if mask is None:
        builder.emit(f"store {kind} {name}, ptr {address}, align {dtype.itemsize}")
    # one lane of two bytes under a mask is stored as a word of four by LLVM 22, over what lies behind it
    elif mask.startswith("<") and (builder.vector_bytes < _MASKED_BYTES or mask.count("true") == 1):
        _emit_pieces(builder, name, address, dtype, mask.count("true"))
    else:
        _emit_masked_store(builder, "store", name, f"ptr {address}", dtype, mask)


def _emit_pieces(builder: IRBuilder, value: str, address: str, dtype: np.dtype[Any], used: int) -> None:
    """Store the first lanes of a vector, in pieces whose lanes are powers of two: masked stores of short vectors are
    slow on some processors.
    """
    kind, element, start = llvm_type(dtype, builder.lanes, True), llvm_element_type(dtype, True), 0
    for size in (1 << i for i in reversed(range(used.bit_length())) if used >> i & 1):
        place = emit_address(builder, dtype, address, offset=start)
        if size == 1:
            piece, of = builder.assign(f"extractelement {kind} {value}, i32 {start}"), element
        else:
            lanes = ", ".join(f"i32 {start + i}" for i in range(size))
            of = f"<{size} x {element}>"
            piece = builder.assign(f"shufflevector {kind} {value}, {kind} poison, <{size} x i32> <{lanes}>")
        builder.emit(f"store {of} {piece}, ptr {place}, align {dtype.itemsize}")
        start += size


def emit_scatter(builder: IRBuilder, value: IRValue, addresses: str, dtype: np.dtype[Any], mask: str | None) -> None:
    """Store each lane to its own address."""
    if is_half(dtype):
        emit_scatter(builder, narrow_half(builder, value, dtype.name), addresses, HALF_BITS, mask)
        return
    place = f"<{builder.lanes} x ptr> {addresses}"
    _emit_masked_store(builder, "scatter", _to_memory(builder, value, dtype), place, dtype, mask)


def _emit_masked_store(
    builder: IRBuilder, how: str, value: str, place: str, dtype: np.dtype[Any], mask: str | None
) -> None:
    kind, truths, name = llvm_type(dtype, builder.lanes, True), _truths(builder), _intrinsic(builder, how, dtype)
    builder.declared.add(f"declare void @{name}({kind}, {place.rpartition(' ')[0]}, i32 immarg, {truths})")
    chosen = f"{truths} {mask or 'splat (i1 true)'}"
    builder.emit(f"call void @{name}({kind} {value}, {place}, i32 {dtype.itemsize}, {chosen})")


def _intrinsic(builder: IRBuilder, how: str, dtype: np.dtype[Any]) -> str:
    lanes, element = builder.lanes, type_suffix(llvm_element_type(dtype, True))
    return f"llvm.masked.{how}.v{lanes}{element}.{f'v{lanes}' if how in ('gather', 'scatter') else ''}p0"


def _truths(builder: IRBuilder) -> str:
    return f"<{builder.lanes} x i1>"


def _from_memory(builder: IRBuilder, found: str, dtype: np.dtype[Any]) -> IRValue:
    """What was loaded, as a value: booleans are bytes in memory."""
    if dtype.kind == "b":
        zero = "0" if builder.lanes == 1 else "zeroinitializer"
        found = builder.assign(f"icmp ne {llvm_type(dtype, builder.lanes, True)} {found}, {zero}")
    return IRValue(found, dtype, builder.lanes)


def _to_memory(builder: IRBuilder, value: IRValue, dtype: np.dtype[Any]) -> str:
    if dtype.kind != "b":
        return value.name
    narrow, wide = llvm_type(dtype, builder.lanes), llvm_type(dtype, builder.lanes, True)
    return builder.assign(f"zext {narrow} {value.name} to {wide}")


def constant_mask(used: int, lanes: int) -> str | None:
    """The mask of the first lanes; None for all of them."""
    return None if used == lanes else f"<{', '.join(f'i1 {str(i < used).lower()}' for i in range(lanes))}>"


def emit_lane_mask(builder: IRBuilder, name: str, used: str) -> None:
    """The mask of as many lanes as a number says when the code runs."""
    lanes, count = builder.lanes, builder.splat(IRValue(used, np.dtype(np.int64)))
    steps = ", ".join(f"i64 {i}" for i in range(lanes))
    builder.emit(f"{name} = icmp ult <{lanes} x i64> <{steps}>, {count.name}")

"""Half dtypes in LLVM text: sixteen bits of memory as float32 values, and float32 values rounded to such bits.

bfloat16 is the upper half of a float32, by shifts and one addition on integers, so that the bits are the same on every
machine; float16 has instructions of its own. In a vector of bfloat16, each word of four bytes has an even place of the
row and the odd one after it; where lanes are paired, values are all even places and then all odd ones, so that widening
and narrowing take each word apart and put it together in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .ir_builder import IRBuilder
from .vector_types import BOOL, IRValue, llvm_type

_FLOAT = np.dtype(np.float32)
_BITS = np.dtype(np.uint32)
#: The dtype of half numbers in memory, as far as LLVM is told.
HALF_BITS = np.dtype(np.uint16)


def widen_half(builder: IRBuilder, bits: IRValue, name: str) -> IRValue:
    """The float32 of a half dtype's bits."""
    if name == "bfloat16" and _is_paired(builder, bits):
        words = _bits_as(builder, bits, _BITS, bits.lanes // 2)
        odd = _on_bits(builder, "and", words, 0xFFFF0000)
        return _reinterpret(builder, _join(builder, _on_bits(builder, "shl", words, 16), odd), _FLOAT)
    if name == "bfloat16":
        wide = builder.cast(bits, _BITS)
        return _reinterpret(builder, _on_bits(builder, "shl", wide, 16), _FLOAT)
    half = _vector("half", bits.lanes)
    number = builder.assign(f"bitcast {llvm_type(HALF_BITS, bits.lanes)} {bits.name} to {half}")
    return IRValue(builder.assign(f"fpext {half} {number} to {llvm_type(_FLOAT, bits.lanes)}"), _FLOAT, bits.lanes)


def narrow_half(builder: IRBuilder, value: IRValue, name: str) -> IRValue:
    """The bits of a value rounded to a half dtype: to the nearest, of two to the even one; NaN stays NaN."""
    if name == "bfloat16":
        rounded = _round_bits(builder, builder.cast(value, _FLOAT))
        if _is_paired(builder, rounded):
            even, odd = (_part(builder, rounded, start) for start in (0, rounded.lanes // 2))
            odd = _on_bits(builder, "and", odd, 0xFFFF0000)
            words = _combine(builder, "or", _on_bits(builder, "lshr", even, 16), odd)
            return _bits_as(builder, words, HALF_BITS, rounded.lanes)
        return builder.cast(_on_bits(builder, "lshr", rounded, 16), HALF_BITS)
    value, half = _to_odd_float32(builder, value), _vector("half", value.lanes)
    number = builder.assign(f"fptrunc {llvm_type(_FLOAT, value.lanes)} {value.name} to {half}")
    bits = builder.assign(f"bitcast {half} {number} to {llvm_type(HALF_BITS, value.lanes)}")
    return IRValue(bits, HALF_BITS, value.lanes)


def round_to_half(builder: IRBuilder, value: IRValue, name: str) -> IRValue:
    """A value rounded to a half dtype, as a float32."""
    if name != "bfloat16":
        return widen_half(builder, narrow_half(builder, value, name), name)
    rounded = _round_bits(builder, builder.cast(value, _FLOAT))
    return _reinterpret(builder, _on_bits(builder, "and", rounded, 0xFFFF0000), _FLOAT)


def _round_bits(builder: IRBuilder, value: IRValue) -> IRValue:
    """The bits of a float32 whose upper half is the nearest bfloat16."""
    bits = _reinterpret(builder, value, _BITS)
    # a half of the last kept bit, less one unit where that bit is even: so ties go to even, and carries to the exponent
    even = _on_bits(builder, "and", _on_bits(builder, "lshr", bits, 16), 1)
    moved = _combine(builder, "add", _on_bits(builder, "add", bits, 0x7FFF), even)
    if not builder.has_long_nans:
        return moved  # a quiet NaN without lower bits stays what it is
    quiet = _on_bits(builder, "or", bits, 0x400000)
    kind, lanes = llvm_type(_BITS, value.lanes), value.lanes
    floats = llvm_type(_FLOAT, lanes)
    is_nan = builder.assign(f"fcmp uno {floats} {value.name}, {value.name}")
    truths = llvm_type(BOOL, lanes)
    return IRValue(builder.assign(f"select {truths} {is_nan}, {kind} {quiet.name}, {kind} {moved.name}"), _BITS, lanes)


def _to_odd_float32(builder: IRBuilder, value: IRValue) -> IRValue:
    """A float32 that rounds to float16 as the float64 it comes from: cut off, and odd if something was cut off."""
    if value.dtype != np.dtype(np.float64):
        return builder.cast(value, _FLOAT)
    near, lanes = builder.cast(value, _FLOAT), value.lanes
    back = builder.cast(near, value.dtype)
    kind = llvm_type(value.dtype, lanes)
    sizes = [
        builder.call(f"llvm.fabs.{builder.suffix(value.dtype)}", value.dtype, x, lanes=lanes) for x in (back, value)
    ]
    further = builder.assign(f"fcmp ogt {kind} {sizes[0].name}, {sizes[1].name}")
    differs = builder.assign(f"fcmp one {kind} {back.name}, {value.name}")
    less, odd = (
        IRValue(builder.assign(f"zext {llvm_type(BOOL, lanes)} {x} to {llvm_type(_BITS, lanes)}"), _BITS, lanes)
        for x in (further, differs)
    )
    cut = _combine(builder, "sub", _reinterpret(builder, near, _BITS), less)
    return _reinterpret(builder, _combine(builder, "or", cut, odd), _FLOAT)


def pair_mask(builder: IRBuilder, mask: str) -> str:
    """A mask of places of the row as one of lanes."""
    if not builder.is_paired or builder.lanes <= 2:
        return mask
    lanes, truths = builder.lanes, llvm_type(BOOL, builder.lanes)
    order = ", ".join(f"i32 {i}" for i in (*range(0, lanes, 2), *range(1, lanes, 2)))
    return builder.assign(f"shufflevector {truths} {mask}, {truths} poison, <{lanes} x i32> <{order}>")


def _is_paired(builder: IRBuilder, x: IRValue) -> bool:
    return builder.is_paired and x.lanes > 2  # two lanes are in the same order either way


def _part(builder: IRBuilder, x: IRValue, start: int) -> IRValue:
    """Half of the lanes."""
    kind, count = llvm_type(x.dtype, x.lanes), x.lanes // 2
    order = ", ".join(f"i32 {start + i}" for i in range(count))
    return IRValue(
        builder.assign(f"shufflevector {kind} {x.name}, {kind} poison, <{count} x i32> <{order}>"), x.dtype, count
    )


def _join(builder: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The lanes of two values, one after the other."""
    kind, count = llvm_type(x.dtype, x.lanes), 2 * x.lanes
    order = ", ".join(f"i32 {i}" for i in range(count))
    return IRValue(
        builder.assign(f"shufflevector {kind} {x.name}, {kind} {y.name}, <{count} x i32> <{order}>"), x.dtype, count
    )


def _bits_as(builder: IRBuilder, x: IRValue, dtype: np.dtype[Any], lanes: int) -> IRValue:
    """The same bits as another number of lanes."""
    source, target = llvm_type(x.dtype, x.lanes), llvm_type(dtype, lanes)
    return IRValue(builder.assign(f"bitcast {source} {x.name} to {target}"), dtype, lanes)


def _vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _reinterpret(builder: IRBuilder, x: IRValue, dtype: np.dtype[Any]) -> IRValue:
    """The same bits as another dtype."""
    return _bits_as(builder, x, dtype, x.lanes)


def _on_bits(builder: IRBuilder, instruction: str, x: IRValue, number: int) -> IRValue:
    text = str(number) if x.lanes == 1 else f"splat (i32 {number})"
    return IRValue(builder.assign(f"{instruction} {llvm_type(x.dtype, x.lanes)} {x.name}, {text}"), x.dtype, x.lanes)


def _combine(builder: IRBuilder, instruction: str, x: IRValue, y: IRValue) -> IRValue:
    kind = llvm_type(x.dtype, x.lanes)
    return IRValue(builder.assign(f"{instruction} {kind} {x.name}, {y.name}"), x.dtype, x.lanes)

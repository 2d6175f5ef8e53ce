"""The function that transposes a square of a matrix, so that strided columns become vectors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address, emit_lane_mask, emit_load, emit_store
from ..builder.vector_types import IRValue, llvm_type


def render_transpose(dtype: np.dtype[Any], lanes: int, declared: set[str]) -> str:
    """The function `@NAME(to, from, apart, wide, columns, rows)`: `columns` columns, `apart` elements from each other
    and each with `rows` contiguous elements, become rows that are `wide` elements apart. A full square of
    `lanes` is always written; missing elements are zero.
    """
    builder = IRBuilder(lanes, itertools.count(), declared)
    builder.dtype = dtype
    emit_lane_mask(builder, "%there", "%rows")
    vectors = [_load_column(builder, dtype, i) for i in range(lanes)]
    for k, vector in enumerate(transpose_square(builder, vectors, dtype)):
        emit_store(builder, vector, emit_address(builder, dtype, "%to", (k, "%wide")), dtype)
    parameters = "ptr noalias %to, ptr noalias %from, i64 %apart, i64 %wide, i64 %columns, i64 %rows"
    body = "\n".join(builder.lines)
    return f"define internal void @NAME({parameters}) noinline #0 {{\nentry:\n{body}\n  ret void\n}}"


def _load_column(builder: IRBuilder, dtype: np.dtype[Any], i: int) -> IRValue:
    """Column i, masked: nothing is read where there is none."""
    lanes = builder.lanes
    inside = builder.assign(f"icmp ugt i64 %columns, {i}")
    mask = builder.assign(f"select i1 {inside}, <{lanes} x i1> %there, <{lanes} x i1> zeroinitializer")
    return emit_load(builder, emit_address(builder, dtype, "%from", (i, "%apart")), dtype, mask, missing=0)


def transpose_square(builder: IRBuilder, rows: list[IRValue], dtype: np.dtype[Any]) -> list[IRValue]:
    """Transpose a square: at each power of two, the off-diagonal blocks are swapped."""
    lanes, rows = builder.lanes, list(rows)
    kind, step = llvm_type(dtype, lanes), 1
    while step < lanes:
        # lanes with this bit set come from the other row
        upper = [lanes + i - step if i & step else i for i in range(lanes)]
        lower = [lanes + i if i & step else i + step for i in range(lanes)]
        for i in range(lanes):
            if not i & step:
                x, y = rows[i], rows[i + step]
                rows[i], rows[i + step] = (
                    builder.assign_value(
                        f"shufflevector {kind} {x.name}, {kind} {y.name}, {_shuffle_mask(chosen)}", dtype
                    )
                    for chosen in (upper, lower)
                )
        step *= 2
    return rows


def _shuffle_mask(chosen: list[int]) -> str:
    return f"<{len(chosen)} x i32> <{', '.join(f'i32 {i}' for i in chosen)}>"

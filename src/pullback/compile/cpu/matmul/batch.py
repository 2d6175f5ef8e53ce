"""Batch of matrix products in, LLVM text out: blocks of the batch, each on one thread."""

from __future__ import annotations

from typing import Any

from ...loop_ir import Product
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import llvm_element_type
from .gemm import BlasConstants, emit_one_product


def render_batch(
    step: Product, blocks: int, shared: BlasConstants, counter: Any, declared: set[str], function: str | None
) -> str:
    """The function `@NAME(pointers, block, worker)`: a block's products, one after the other."""
    builder = IRBuilder(1, counter, declared)
    element, batch = llvm_element_type(step.out.buffer.dtype), step.out.shape[0]
    moved = []
    for i, layout in enumerate((step.out, step.left, step.right)):
        place = builder.assign(f"getelementptr ptr, ptr %given, i64 {i}")
        pointer = builder.assign(f"load ptr, ptr {place}")
        by = builder.assign(f"mul nsw i64 %i, {layout.strides[0]}")
        moved.append(builder.assign(f"getelementptr inbounds {element}, ptr {pointer}, i64 {by}"))
    emit_one_product(step, moved, builder, shared, function)
    return "\n".join([
        "define internal void @NAME(ptr %given, i64 %block, i64 %worker) #0 {", "entry:",
        f"  %lo.a = mul nuw nsw i64 %block, {batch}", f"  %lo = udiv i64 %lo.a, {blocks}",
        f"  %hi.a = add nuw nsw i64 %lo.a, {batch}", f"  %hi = udiv i64 %hi.a, {blocks}",
        "  br label %loop", "loop:", "  %i = phi i64 [ %lo, %entry ], [ %n, %loop ]", *builder.lines,
        "  %n = add nuw nsw i64 %i, 1", "  %m = icmp ult i64 %n, %hi", "  br i1 %m, label %loop, label %end",
        "end:", "  ret void", "}",
    ])  # fmt: skip

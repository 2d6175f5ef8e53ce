"""Batch of matrix products in, LLVM text out: blocks of the batch, each on one thread."""

from __future__ import annotations

from typing import Any

from ..loops import Product
from .lanes import element_type
from .products import Globals, one_product
from .words import Words

__all__ = ["batch_text"]


def batch_text(
    step: Product, blocks: int, shared: Globals, counter: Any, declared: set[str], function: str | None
) -> str:
    """The function `@NAME(pointers, block, worker)`: a block's products, one after the other."""
    words = Words(1, counter, declared)
    element, batch = element_type(step.out.buffer.dtype), step.out.shape[0]
    moved = []
    for i, layout in enumerate((step.out, step.left, step.right)):
        place = words.emit(f"getelementptr ptr, ptr %given, i64 {i}")
        pointer = words.emit(f"load ptr, ptr {place}")
        by = words.emit(f"mul nsw i64 %i, {layout.strides[0]}")
        moved.append(words.emit(f"getelementptr inbounds {element}, ptr {pointer}, i64 {by}"))
    one_product(step, moved, words, shared, function)
    return "\n".join([
        "define internal void @NAME(ptr %given, i64 %block, i64 %worker) #0 {", "entry:",
        f"  %lo.a = mul nuw nsw i64 %block, {batch}", f"  %lo = udiv i64 %lo.a, {blocks}",
        f"  %hi.a = add nuw nsw i64 %lo.a, {batch}", f"  %hi = udiv i64 %hi.a, {blocks}",
        "  br label %loop", "loop:", "  %i = phi i64 [ %lo, %entry ], [ %n, %loop ]", *words.lines,
        "  %n = add nuw nsw i64 %i, 1", "  %m = icmp ult i64 %n, %hi", "  br i1 %m, label %loop, label %end",
        "end:", "  ret void", "}",
    ])  # fmt: skip

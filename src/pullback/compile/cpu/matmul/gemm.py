"""Matrix product in, LLVM text out: a call of the BLAS, or of a function of the module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...loop_ir import Layout, Product
from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import format_number, llvm_element_type

#: The names under which the BLAS's functions are linked.
SYMBOLS = {f"pb_{name}": name for name in ("sgemm", "dgemm")}


class BlasConstants:
    """Constants that the BLAS takes by address, each once in a module."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def integer(self, value: int) -> str:
        self.lines[f"@int{value}"] = f"@int{value} = internal constant i32 {value}"
        return f"@int{value}"

    def letter(self, value: str) -> str:
        self.lines[f"@letter{value}"] = f"@letter{value} = internal constant i8 {ord(value)}"
        return f"@letter{value}"

    def number(self, value: float, dtype: np.dtype[Any]) -> str:
        text = format_number(value, dtype)
        name = f"@number{text[2:]}{llvm_element_type(dtype)}"
        self.lines[name] = f"{name} = internal constant {llvm_element_type(dtype)} {text}"
        return name


def emit_product(
    step: Product, pointers: list[str], builder: IRBuilder, shared: BlasConstants, tag: int, function: str | None
) -> None:
    """Append the product's instructions; `pointers` are those of out, left and right at their offsets.

    `function` is the name of a function that computes one element of the batch, None for the BLAS.
    """
    batch = step.out.shape[0]
    if batch == 1:
        emit_one_product(step, pointers, builder, shared, function)
        return
    dtype = step.out.buffer.dtype
    builder.emit(f"br label %P{tag}")
    builder.lines.append(f"P{tag}:")
    builder.emit(f"%p{tag} = load i64, ptr %slot{tag}")
    moved = []
    for pointer, layout in zip(pointers, (step.out, step.left, step.right), strict=True):
        by = builder.assign(f"mul nsw i64 %p{tag}, {layout.strides[0]}")
        moved.append(builder.assign(f"getelementptr inbounds {llvm_element_type(dtype)}, ptr {pointer}, i64 {by}"))
    emit_one_product(step, moved, builder, shared, function)
    builder.emit(f"%q{tag} = add nuw nsw i64 %p{tag}, 1")
    builder.emit(f"store i64 %q{tag}, ptr %slot{tag}")
    builder.emit(f"%r{tag} = icmp ult i64 %q{tag}, {batch}")
    builder.emit(f"br i1 %r{tag}, label %P{tag}, label %Q{tag}")
    builder.lines.append(f"Q{tag}:")


def emit_one_product(
    step: Product, pointers: list[str], builder: IRBuilder, shared: BlasConstants, function: str | None
) -> None:
    """Row-major out = left @ right is column-major out^T = right^T @ left^T, which the BLAS computes."""
    if function is not None:
        builder.emit(f"call void @{function}({', '.join('ptr ' + p for p in pointers)})")
        return
    dtype = step.out.buffer.dtype
    out, left, right = pointers
    _, rows, columns = step.out.shape
    depth = step.left.shape[2]
    trans_right, ld_right = _leading_dimension(step.right)
    trans_left, ld_left = _leading_dimension(step.left)
    name = "pb_sgemm" if dtype.itemsize == 4 else "pb_dgemm"
    builder.declared.add(f"declare void @{name}({', '.join(['ptr'] * 13)})")
    args = [
        shared.letter(trans_right), shared.letter(trans_left), shared.integer(columns), shared.integer(rows),
        shared.integer(depth), shared.number(step.alpha, dtype), right, shared.integer(ld_right), left,
        shared.integer(ld_left), shared.number(step.beta, dtype), out, shared.integer(max(columns, 1)),
    ]  # fmt: skip
    builder.emit(f"call void @{name}({', '.join('ptr ' + a for a in args)})")


def _leading_dimension(matrix: Layout) -> tuple[str, int]:
    """Whether the BLAS must transpose the matrix, and the distance between its rows (or columns)."""
    _, rows, columns = matrix.shape
    _, row, column = matrix.strides
    if column == 1 and (row >= columns or rows == 1):
        return "N", max(row if rows > 1 else columns, columns, 1)
    if row == 1 and (column >= rows or columns == 1):
        return "T", max(column if columns > 1 else rows, rows, 1)
    if columns == 1:
        return "N", max(row, 1)
    if rows == 1:
        return "T", max(column, 1)
    raise AssertionError(f"no leading dimension for {matrix}")

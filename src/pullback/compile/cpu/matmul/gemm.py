"""Matrix products in, LLVM text out: calls of the BLAS, or of a function of the module, one by one or in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...loop_ir import Layout, Product
from ...varying import Operand, VaryingFloat
from ..builder.function_text import FunctionText
from ..builder.ir_builder import IRBuilder
from ..builder.memory import emit_address
from ..builder.vector_types import format_number, llvm_element_type
from ..runtime.blas import PRODUCTS, find_products

#: The names under which the BLAS's functions are linked.
SYMBOLS = {f"pb_{name}": name for name in PRODUCTS}


class BlasConstants:
    """Constants that the BLAS takes by address, each once in a module."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def integer(self, value: int, dtype: np.dtype[Any]) -> str:
        if isinstance(value, Operand):
            return format_number(value, dtype, prefix="ptr_")
        kind = llvm_element_type(dtype)
        name = f"@{kind}.{value}"
        self.lines[name] = f"{name} = internal constant {kind} {value}"
        return name

    def letter(self, value: str) -> str:
        self.lines[f"@letter{value}"] = f"@letter{value} = internal constant i8 {ord(value)}"
        return f"@letter{value}"

    def number(self, value: float, dtype: np.dtype[Any]) -> str:
        text = format_number(value, dtype, prefix="ptr_")
        if isinstance(value, VaryingFloat):
            return text
        name = f"@number{text[2:]}{llvm_element_type(dtype)}"
        self.lines[name] = f"{name} = internal constant {llvm_element_type(dtype)} {text}"
        return name


def emit_batch(
    text: FunctionText, step: Product, pointers: list[str], shared: BlasConstants, function: str | None,
    start: str = "0", end: str | int = "",
) -> None:  # fmt: skip
    """Products of a batch one after the other, all or some of them; `pointers` are those of out, left and right at
    their offsets. `function` is the name of a function that computes one element, None for the BLAS.
    """
    first, *rest = step.out.shape[:-2]
    loops = [text.open(end or first, start=start), *map(text.open, rest)]
    builder = text.builder(1)
    counters = text.counters[-len(loops) :]
    # matrices along an axis of the batch are one stride apart; a stride of zero repeats one
    moved = [
        emit_address(builder, layout.buffer.dtype, pointer, *zip(counters, layout.strides[:-2], strict=True))
        for pointer, layout in zip(pointers, (step.out, step.left, step.right), strict=True)
    ]
    emit_one_product(step, moved, builder, shared, function)
    for loop in reversed(loops):
        text.close(loop)


def render_batch(step: Product, shared: BlasConstants, declared: set[str], function: str | None) -> str:
    """The function `@NAME(pointers, block, worker)`: a block's products, one after the other."""
    text, batch = FunctionText(declared=declared), step.out.shape[0]
    builder = text.builder(1)
    places = [builder.assign(f"getelementptr ptr, ptr %given, i64 {i}") for i in range(3)]
    pointers = [builder.assign(f"load ptr, ptr {place}") for place in places]
    first = builder.assign(f"mul nuw nsw i64 %block, {batch}")
    bounds = [first, builder.assign(f"add nuw nsw i64 {first}, {batch}")]
    low, high = (builder.assign(f"udiv i64 {x}, {step.blocks}") for x in bounds)
    emit_batch(text, step, pointers, shared, function, low, high)
    return text.render("define internal void @NAME(ptr %given, i64 %block, i64 %worker)")


def emit_one_product(
    step: Product, pointers: list[str], builder: IRBuilder, shared: BlasConstants, function: str | None
) -> None:
    """Row-major out = left @ right is column-major out^T = right^T @ left^T, which the BLAS computes."""
    if function is not None:
        builder.emit(f"call void @{function}({', '.join('ptr ' + p for p in pointers)})")
        return
    dtype, (*_, rows, columns) = step.out.buffer.dtype, step.out.shape
    is_vector = rows == 1 or columns == 1
    args = _vector_arguments(step, pointers, shared) if is_vector else _matrix_arguments(step, pointers, shared)
    name = f"pb_{'s' if dtype.itemsize == 4 else 'd'}{'gemv' if is_vector else 'gemm'}"
    builder.declared.add(f"declare void @{name}({', '.join(['ptr'] * len(args))})")
    builder.emit(f"call void @{name}({', '.join('ptr ' + a for a in args)})")


def _matrix_arguments(step: Product, pointers: list[str], shared: BlasConstants) -> list[str]:
    """The BLAS takes every scalar by address, so they are constants of the module."""
    dtype, (out, left, right), (*_, rows, columns) = step.out.buffer.dtype, pointers, step.out.shape
    (trans_left, ld_left), (trans_right, ld_right) = _leading_dimension(step.left), _leading_dimension(step.right)
    sizes = (columns, rows, step.left.shape[-1], ld_right, ld_left, step.out.strides[-2])
    wide, high, deep, by_right, by_left, by_out = (shared.integer(n, find_products().integer) for n in sizes)
    return [
        shared.letter(trans_right), shared.letter(trans_left), wide, high, deep, shared.number(step.alpha, dtype),
        right, by_right, left, by_left, shared.number(step.beta, dtype), out, by_out,
    ]  # fmt: skip


def _vector_arguments(step: Product, pointers: list[str], shared: BlasConstants) -> list[str]:
    """A column, or a row: out^T = right^T @ left^T is a column. A function for matrices copies the matrix first, which
    takes several times as long as the product.
    """
    dtype, (out, left, right) = step.out.buffer.dtype, pointers
    (trans_left, ld_left), (trans_right, ld_right) = _leading_dimension(step.left), _leading_dimension(step.right)
    if step.out.shape[-1] == 1:
        matrix, shape, ld, lies_by_rows = left, step.left.shape[-2:], ld_left, trans_left == "N"
        vector, apart, out_apart = right, ld_right if trans_right == "N" else 1, step.out.strides[-2]
    else:
        matrix, shape, ld, lies_by_rows = right, step.right.shape[:-3:-1], ld_right, trans_right == "T"
        vector, apart, out_apart = left, ld_left if trans_left == "T" else 1, 1
    # the BLAS sees a matrix that lies row by row as its transpose
    sizes = (*(shape[::-1] if lies_by_rows else shape), ld, apart, out_apart)
    rows, columns, by_matrix, by_vector, by_out = (shared.integer(n, find_products().integer) for n in sizes)
    return [
        shared.letter("T" if lies_by_rows else "N"), rows, columns, shared.number(step.alpha, dtype), matrix, by_matrix,
        vector, by_vector, shared.number(step.beta, dtype), out, by_out,
    ]  # fmt: skip


def _leading_dimension(matrix: Layout) -> tuple[str, int]:
    """Whether the BLAS must transpose the matrix, and the distance between its rows (or columns)."""
    rows, columns = matrix.shape[-2:]
    row, column = matrix.strides[-2:]
    if column == 1 and (row >= columns or rows == 1):
        return "N", max(row if rows > 1 else columns, columns, 1)
    if row == 1 and (column >= rows or columns == 1):
        return "T", max(column if columns > 1 else rows, rows, 1)
    if columns == 1:
        return "N", max(row, 1)
    if rows == 1:
        return "T", max(column, 1)
    raise AssertionError(f"no leading dimension for {matrix}")

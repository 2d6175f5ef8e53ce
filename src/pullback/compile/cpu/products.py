"""Matrix product in, LLVM text out: a call of the BLAS, or for small ones loops of our own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..loops import Layout, Product
from .lanes import element_type, number_text
from .words import Words

__all__ = ["SYMBOLS", "Globals", "one_product", "product_text"]

#: The names under which the BLAS's functions are linked.
SYMBOLS = {f"pb_{name}": name for name in ("sgemm", "dgemm", "sgemv", "dgemv")}


class Globals:
    """Constants that the BLAS wants by address, each once in a module."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def integer(self, value: int) -> str:
        self.lines[f"@int{value}"] = f"@int{value} = internal constant i32 {value}"
        return f"@int{value}"

    def letter(self, value: str) -> str:
        self.lines[f"@letter{value}"] = f"@letter{value} = internal constant i8 {ord(value)}"
        return f"@letter{value}"

    def number(self, value: float, dtype: np.dtype[Any]) -> str:
        text = number_text(value, dtype)
        name = f"@number{text[2:]}{element_type(dtype)}"
        self.lines[name] = f"{name} = internal constant {element_type(dtype)} {text}"
        return name


def product_text(
    step: Product, pointers: list[str], words: Words, shared: Globals, tag: int, function: str | None
) -> None:
    """Append the product's instructions; `pointers` are those of out, left and right at their offsets.

    `function` is the name of a function that does one element of the batch, None for the BLAS.
    """
    batch = step.out.shape[0]
    if batch == 1:
        one_product(step, pointers, words, shared, function)
        return
    dtype = step.out.buffer.dtype
    words.say(f"br label %P{tag}")
    words.lines.append(f"P{tag}:")
    words.say(f"%p{tag} = load i64, ptr %slot{tag}")
    moved = []
    for pointer, layout in zip(pointers, (step.out, step.left, step.right), strict=True):
        by = words.emit(f"mul nsw i64 %p{tag}, {layout.strides[0]}")
        moved.append(words.emit(f"getelementptr inbounds {element_type(dtype)}, ptr {pointer}, i64 {by}"))
    one_product(step, moved, words, shared, function)
    words.say(f"%q{tag} = add nuw nsw i64 %p{tag}, 1")
    words.say(f"store i64 %q{tag}, ptr %slot{tag}")
    words.say(f"%r{tag} = icmp ult i64 %q{tag}, {batch}")
    words.say(f"br i1 %r{tag}, label %P{tag}, label %Q{tag}")
    words.lines.append(f"Q{tag}:")


def one_product(step: Product, pointers: list[str], words: Words, shared: Globals, function: str | None) -> None:
    """Row-major out = left @ right is column-major out^T = right^T @ left^T, which is what the BLAS is asked for."""
    if function is not None:
        words.say(f"call void @{function}({', '.join('ptr ' + p for p in pointers)})")
        return
    dtype = step.out.buffer.dtype
    out, left, right = pointers
    _, rows, columns = step.out.shape
    depth = step.left.shape[2]
    trans_right, ld_right = _leading(step.right)
    trans_left, ld_left = _leading(step.left)
    name = "pb_sgemm" if dtype.itemsize == 4 else "pb_dgemm"
    words.declared.add(f"declare void @{name}({', '.join(['ptr'] * 13)})")
    args = [
        shared.letter(trans_right), shared.letter(trans_left), shared.integer(columns), shared.integer(rows),
        shared.integer(depth), shared.number(step.alpha, dtype), right, shared.integer(ld_right), left,
        shared.integer(ld_left), shared.number(step.beta, dtype), out, shared.integer(max(columns, 1)),
    ]  # fmt: skip
    words.say(f"call void @{name}({', '.join('ptr ' + a for a in args)})")


def _leading(matrix: Layout) -> tuple[str, int]:
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

"""A product with a long K and a small result becomes several with a part of K each, and a kernel that adds them up.

One block of threads after the other along K would leave most of the machine idle. The parts are added in their order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ...loop_ir import Buffer, Kernel, KernelLine, Layout, Product, load_line, product_operands
from ...vocabulary import value_dtype
from ..kernel.rewrites import change_lines
from .choose import MULTIPROCESSORS, count_blocks
from .tile import Tail, add_lines

#: The shortest K that is worth a second launch, the least that a part has of it, and the most parts.
LONG_K = 1024
MIN_PART = 128
MAX_PARTS = 32


def count_parts(product: Product) -> int:
    """In how many parts K is cut: as many as give the machine's multiprocessors a block each, of equal length."""
    depth = product.left.shape[-1]
    blocks = count_blocks(product, 32, 32)
    if depth < LONG_K or 2 * blocks > MULTIPROCESSORS:
        return 1
    wanted = min(MAX_PARTS, 2 * MULTIPROCESSORS // blocks, depth // MIN_PART)
    return next(n for n in range(wanted, 0, -1) if depth % n == 0)


def split_product(product: Product, tail: Tail, parts: int) -> tuple[Product, Kernel]:
    """The product of each part, and the tail of their sum."""
    out, size = product.out, product.out.size
    left, right = product_operands(product)
    buffer = Buffer("arena", parts * size, value_dtype(out.buffer.dtype))
    piece = left.shape[-1] // parts
    inner = Product(
        Layout(buffer, (parts, *out.shape), (size, *tail.strides)),
        _cut(left, len(left.shape) - 1, parts, piece),
        _cut(right, len(right.shape) - 2, parts, piece),
    )
    loads = [load_line(buffer, tail.load.strides, i * size) for i in range(parts)]
    total = functools.reduce(add_lines, loads)
    kernel = change_lines(tail.kernel, lambda line: total if line is tail.load else line)
    return inner, Kernel(kernel.extents, 0, [*_lines_of(total), *kernel.lines], kernel.stores)


def _lines_of(line: KernelLine) -> list[KernelLine]:
    return [x for arg in line.args for x in _lines_of(arg)] + [line]


def _cut(matrix: Layout, axis: int, parts: int, piece: int) -> Layout:
    """A matrix in pieces along an axis, which are a batch."""
    shape: Sequence[int] = [*matrix.shape[:axis], piece, *matrix.shape[axis + 1 :]]
    return Layout(matrix.buffer, (parts, *shape), (piece * matrix.strides[axis], *matrix.strides), matrix.offset)

"""A product with a long K and a small result becomes several with a part of K each, and a kernel that adds them up.

One block of threads after the other along K would leave most of the machine idle. The parts are added in a fixed order.
"""

from __future__ import annotations

from ...loop_ir import Buffer, Kernel, KernelLine, Layout, Product, load_line, product_operands, row_major_strides
from ...vocabulary import is_float8, value_dtype
from ..kernel.rewrites import change_lines, reorder_axes
from .choose import CUT_DEPTH, MULTIPROCESSORS, count_blocks, tile_shape
from .tile import Tail, add_lines

#: The shortest K that is worth a second launch, the least that a part has of it, and the most parts.
LONG_K = 1024
MIN_PART = 128
MAX_PARTS = 32
#: The same for products that have large tiles, and so many blocks in all.
MAX_COMPOSED_PARTS = 128
WANTED_BLOCKS = 5 * MULTIPROCESSORS


def count_parts(product: Product) -> int:
    """In how many parts K is cut: as many as give the machine's multiprocessors a block each, of equal length."""
    if product.axes is not None:
        return _count_composed_parts(product)
    depth = product.depth
    blocks = count_blocks(product, 32, 32)
    if is_float8(product.left.buffer.dtype) or depth < LONG_K or 2 * blocks > MULTIPROCESSORS:
        return 1
    wanted = min(MAX_PARTS, 2 * MULTIPROCESSORS // blocks, depth // MIN_PART)
    return next(n for n in range(wanted, 0, -1) if depth % n == 0)


def _count_composed_parts(product: Product) -> int:
    """The same where tiles are large, and a cut lies within one of the axes that K is made of."""
    shape = tile_shape(product)
    blocks = count_blocks(product, shape.rows, shape.columns)
    if product.depth < LONG_K or 2 * blocks > MULTIPROCESSORS:
        return 1
    wanted = min(MAX_COMPOSED_PARTS, WANTED_BLOCKS // blocks, product.depth // CUT_DEPTH)
    return next(n for n in range(wanted, 0, -1) if _cut_sizes(product, n) is not None)


def _cut_sizes(product: Product, parts: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The axes that count parts, and those of K within each; None if a part would end within an axis."""
    sizes = (product.depth,) if product.axes is None else product.axes[1]
    outer: list[int] = []
    for number, n in enumerate(sizes):
        if parts % n:
            whole = n % parts == 0
            return ((*outer, parts), (n // parts, *sizes[number + 1 :])) if whole else None
        outer.append(n)
        parts //= n
    return tuple(outer), (1,)


def split_product(product: Product, tail: Tail, parts: int) -> tuple[Product, Kernel]:
    """The product of each part, and the tail of their sum."""
    out, size = product.out, product.out.size
    cut = _cut_sizes(product, parts)
    assert cut is not None, "parts are counted so that they are whole"
    left, right = product_operands(product)
    batch = len(out.shape) - 2
    rows, _, _ = map(len, product.axes or ((1,), (1,), (1,)))
    buffer = Buffer("arena", parts * size, value_dtype(out.buffer.dtype))
    outer, inner = cut
    steps = tuple(size * step for step in row_major_strides(outer))
    piece = Product(
        Layout(buffer, (*outer, *out.shape), (*steps, *tail.strides)),
        _cut(left, batch + rows, outer, inner),
        _cut(right, batch, outer, inner),
        axes=None if product.axes is None else (product.axes[0], inner, product.axes[2]),
    )
    loads = [load_line(buffer, tail.load.strides, i * size) for i in range(parts)]
    total = _sum_pairs(loads)
    kernel = change_lines(tail.kernel, lambda line: total if line is tail.load else line)
    whole = Kernel(kernel.extents, 0, [*_lines_of(total), *kernel.lines], kernel.stores)
    # the parts are most of what is read: in the order in which they lie
    return piece, reorder_axes(whole, sorted(range(len(kernel.extents)), key=lambda i: -tail.load.strides[i]))


def _sum_pairs(lines: list[KernelLine]) -> KernelLine:
    """The sum of lines, halves first: a long chain would be deeper than Python's recursion goes."""
    if len(lines) == 1:
        return lines[0]
    half = (len(lines) + 1) // 2
    return add_lines(_sum_pairs(lines[:half]), _sum_pairs(lines[half:]))


def _lines_of(line: KernelLine) -> list[KernelLine]:
    return [x for arg in line.args for x in _lines_of(arg)] + [line]


def _cut(matrix: Layout, start: int, outer: tuple[int, ...], inner: tuple[int, ...]) -> Layout:
    """A matrix in pieces along the axes of K, which start at one: the first are a batch, each with what is left."""
    whole = len(outer) - 1
    end = start + whole + len(inner)
    strides = matrix.strides[start:end]
    # the last axis that counts parts is a piece of one that goes on within them
    taken = (*strides[:whole], strides[whole] * inner[0])
    shape = (*outer, *matrix.shape[:start], *inner, *matrix.shape[end:])
    kept = (*matrix.strides[:start], *strides[whole:], *matrix.strides[end:])
    return Layout(matrix.buffer, shape, (*taken, *kept), matrix.offset)

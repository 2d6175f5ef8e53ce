"""Products that read a copy where it was copied from, though an axis of the copy is several there: patches of a grid.

Nothing is laid out then: a tile computes the places of what it reads. The library cannot, so small products and dtypes
for which it is the better way read the copy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ...loop_ir import Buffer, KernelLine, Layout, Product, product_operands, row_major_strides
from .choose import SMALL_PRODUCT, count_multiplications

#: Of each axis of a copy: its size, its stride in the copy, and in the source.
Way = Sequence[tuple[int, int, int]]
#: Sizes and strides of the axes that make up one, the last fastest.
_Axes = list[tuple[int, int]]


def read_composed(product: Product, copy: Buffer, way: Way, load: KernelLine) -> Product | None:
    """The product with arguments in a copy read from its source; None if they cannot be, or should not."""
    is_worth = product.out.buffer.dtype.name == "float32" and count_multiplications(product) > SMALL_PRODUCT
    if not is_worth or load.buffer is None or load.dtype != product.out.buffer.dtype:
        return None
    batch = len(product.out.shape) - 2
    rows, depth, _ = map(len, product.axes or ((1,), (1,), (1,)))
    operands = zip(product_operands(product), (rows, depth), strict=True)
    left, right = (_split_matrix(m, copy, way, load, (batch, batch + n)) for m, n in operands)
    if left is None or right is None:
        return None
    (own_left, own_rows, inner), (own_right, other, own_columns) = left, right
    joined = _join_axes(inner, other)
    if joined is None:
        return None
    inner, other = joined
    sizes = [tuple(n for n, _ in axes) for axes in (own_rows, inner, own_columns)]
    return replace(
        product,
        left=_with_axes(own_left, batch, (*own_rows, *inner)),
        right=_with_axes(own_right, batch, (*other, *own_columns)),
        axes=(sizes[0], sizes[1], sizes[2]),
    )


def _with_axes(layout: Layout, batch: int, axes: Sequence[tuple[int, int]]) -> Layout:
    shape = (*layout.shape[:batch], *(n for n, _ in axes))
    return replace(layout, shape=shape, strides=(*layout.strides[:batch], *(s for _, s in axes)))


def _split_matrix(
    matrix: Layout, copy: Buffer, way: Way, load: KernelLine, starts: tuple[int, int]
) -> tuple[Layout, _Axes, _Axes] | None:
    """A matrix where it is read, and the axes that its rows and its columns are made of, which start at two numbers.
    Neighbours must stay neighbours.
    """
    axes = list(zip(matrix.shape, matrix.strides, strict=True))
    rows, columns = axes[starts[0] : starts[1]], axes[starts[1] :]
    if matrix.buffer is not copy:
        return matrix, rows, columns
    others, first, second = (_split_axes(part, way) for part in (axes[: starts[0]], rows, columns))
    if matrix.offset or others is None or first is None or second is None or load.buffer is None:
        return None
    if len(others) != starts[0] or 1 not in (first[-1][1], second[-1][1]):
        return None
    strides = (*(s for _, s in others), *matrix.strides[starts[0] :])
    return Layout(load.buffer, matrix.shape, strides, load.offset), _merge(first), _merge(second)


def _split_axes(axes: _Axes, way: Way) -> _Axes | None:
    split = [_split_axis(n, stride, way) for n, stride in axes]
    return None if any(x is None for x in split) else [axis for x in split if x is not None for axis in x]


def _split_axis(n: int, stride: int, way: Way) -> _Axes | None:
    """The axes of the source that an axis of the copy is made of."""
    if n == 1:
        return [(1, 0)]
    found: _Axes = []
    step = stride
    for size, own, there in sorted(way, key=lambda axis: axis[1]):
        if size > 1 and own == step and step < stride * n:
            found.append((size, there))
            step *= size
    return found[::-1] if found and step == stride * n else None


def _merge(axes: _Axes) -> _Axes:
    """Axes of which none goes on where the next ends."""
    found: _Axes = []
    for n, stride in axes:
        if found and found[-1][1] == n * stride:
            found[-1] = found[-1][0] * n, stride
        else:
            found.append((n, stride))
    return found


def _join_axes(a: _Axes, b: _Axes) -> tuple[_Axes, _Axes] | None:
    """The same sizes for two axes of one length, each made of several: those of one, where the other has one."""
    sizes_a, sizes_b = (tuple(n for n, _ in axes) for axes in (a, b))
    if sizes_a == sizes_b:
        return a, b
    if len(a) == 1:
        return _divide(a[0], sizes_b), b
    return (a, _divide(b[0], sizes_a)) if len(b) == 1 else _refine(a, b)


def _divide(axis: tuple[int, int], sizes: Sequence[int]) -> _Axes:
    return [(n, axis[1] * step) for n, step in zip(sizes, row_major_strides(tuple(sizes)), strict=True)]


def _refine(a: _Axes, b: _Axes) -> tuple[_Axes, _Axes] | None:
    """Axes cut where either is; None if a cut of one falls between elements of the other."""
    cuts = sorted({math.prod(n for n, _ in axes[i:]) for axes in (a, b) for i in range(len(axes) + 1)}, reverse=True)
    if any(long % short for long, short in itertools.pairwise(cuts)):
        return None
    sizes = [long // short for long, short in itertools.pairwise(cuts)]
    found = []
    for axes in (a, b):
        left, own = list(sizes), list[tuple[int, int]]()
        for n, stride in axes:
            taken: list[int] = []
            while math.prod(taken) < n:
                taken.append(left.pop(0))
            own += _divide((n, stride), taken)
        found.append(own)
    return found[0], found[1]

"""Layouts of arrays as those of matrices: (*batch, rows, columns), with as few axes for the batch as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loop_ir import Layout
from .fuse import Fuser


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """The axes of a contraction by their letters: those of both arguments and the result, of one argument and the
    result, and those that are summed; with the letters of the arguments and the result, all sizes, and the dtype.
    """

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]
    labels: tuple[str, str]
    result: str
    sizes: dict[str, int]
    dtype: np.dtype[Any]


def as_matrices(
    f: Fuser, x: Any, label: str, groups: Sequence[list[str]], axes: ProductAxes, dtype: Any = None
) -> Layout:
    """An argument of a product as (*batch, rows, columns), in the product's dtype or another; copied only where strides
    do not allow it.
    """
    layout = f.widened_layout(x, dtype or axes.dtype)
    found = view_as_matrices(layout, label, groups, axes.sizes)
    return found if found is not None else copy_as_matrices(f, layout, label, groups, axes.sizes)


def view_as_matrices(
    layout: Layout, label: Sequence[str], groups: Sequence[list[str]], sizes: dict[str, int]
) -> Layout | None:
    """A layout as matrices, if their rows and their columns have a single stride each and the BLAS takes them. `groups`
    are the axes of the batch, of the rows and of the columns, by their letters.
    """
    strides = {c: 0 if n == 1 else s for c, n, s in zip(label, layout.shape, layout.strides, strict=True)}
    batch, rows, columns = ([(sizes[c], strides.get(c, 0)) for c in group] for group in groups)
    sides = _merge_axes(rows), _merge_axes(columns)
    if sides[0] is None or sides[1] is None or not _is_blas_matrix(*sides[0], *sides[1]):
        return None
    axes = [*batch, sides[0], sides[1]]
    return Layout(layout.buffer, tuple(n for n, _ in axes), tuple(s for _, s in axes), layout.offset)


def copy_as_matrices(
    f: Fuser, layout: Layout, label: Sequence[str], groups: Sequence[list[str]], sizes: dict[str, int]
) -> Layout:
    """A copy of a layout in the order of the groups, whose axes always merge; matrices that repeat are copied once."""
    strides = {c: 0 if n == 1 else s for c, n, s in zip(label, layout.shape, layout.strides, strict=True)}
    order = [c for group in groups for c in group if group is not groups[0] or strides.get(c, 0)]
    shape = tuple(sizes[c] for c in order)
    copy = f.copy_layout(Layout(layout.buffer, shape, tuple(strides.get(c, 0) for c in order), layout.offset))
    found = view_as_matrices(copy, order, groups, sizes)
    assert found is not None
    return found


def merge_batch(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Matrices of one batch, with its axes merged where all layouts have a single stride for two of them."""
    batch = layouts[0].shape[:-2]
    merged: list[tuple[int, tuple[int, ...]]] = []
    for axis in reversed(range(len(batch))):
        n, strides = batch[axis], tuple(x.strides[axis] for x in layouts)
        if n == 1:
            continue
        size, inner = merged[-1] if merged else (1, ())
        if merged and all(s == t * size for s, t in zip(strides, inner, strict=True)):
            merged[-1] = n * size, inner
        else:
            merged.append((n, strides))
    merged = merged[::-1] or [(1, (1,) * len(layouts))]
    return tuple(
        Layout(
            x.buffer, (*(n for n, _ in merged), *x.shape[-2:]), (*(s[i] for _, s in merged), *x.strides[-2:]), x.offset
        )
        for i, x in enumerate(layouts)
    )


def with_one_batch_axis(f: Fuser, matrices: Layout) -> Layout:
    """Matrices whose batch can be one axis: these, or a copy."""
    is_one = len(merge_batch((matrices,))[0].shape) == 3
    return matrices if is_one else f.copy_layout(matrices)


def _merge_axes(axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Several axes (size, stride) as one, if a single stride covers them."""
    # from the innermost axis outwards: each stride must be the length of all inside
    size, stride = 1, 0
    for n, s in reversed(axes):
        if n == 1:
            continue
        if size > 1 and s != stride * size:
            return None
        stride = s if size == 1 else stride
        size *= n
    return size, stride if size > 1 else 1


def _is_blas_matrix(rows: int, by_row: int, columns: int, by_column: int) -> bool:
    """Whether one axis is contiguous and the other's stride at least its length, or there is one row or column."""
    by_columns, by_rows = by_row == 1 and by_column >= rows, by_column == 1 and by_row >= columns
    return by_columns or by_rows or (columns == 1 and by_row > 0) or (rows == 1 and by_column > 0)

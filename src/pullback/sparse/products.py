"""Products of sparse matrices with dense ones, from places and numbers: fused functions, so each is one native pass.

    y[i, :] = sum of data[k] x[cols[k], :] over the k with rows[k] = i

A gather, a product and a scatter-add. Their derivatives are such passes again: with the places exchanged for that of x,
and a sum over columns for that of data; so every order, every transform and every target follows from the ops.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import ndim, shape
from ..ops.elementwise.pointwise import multiply
from ..ops.fusion import fuse
from ..ops.index import indexing
from ..ops.round_once import rounds_once
from ..ops.shape.reshaping import reshape
from .entries import Entries
from .pattern import Pattern, expand_stretches


@fuse(name="sparse_product")
@rounds_once
def multiply_entries(data: Any, x: Any, rows: Any, cols: Any, size: int) -> Any:
    """The product with a vector, or with the columns of a matrix."""
    wide = data if ndim(x) == 1 else reshape(data, (-1, 1))
    return add_rows(multiply(wide, indexing.take(x, cols, axis=0)), rows, size)


@fuse(name="sparse_product")
@rounds_once
def multiply_blocks(data: Any, x: Any, rows: Any, cols: Any, size: int) -> Any:
    """The same for blocks: the parts of x that the blocks meet, all products at once, and their sums."""
    _, r, c = shape(data)
    count, *columns = shape(x)
    parts = indexing.take(reshape(x, (count // c, c, *(columns or (1,)))), cols, axis=0)
    return reshape(add_rows(matmul(data, parts), rows, size), (size * r, *columns))


def add_rows(values: Any, places: Any, size: int) -> Any:
    """Zeros of so many rows, with each of the values added to the one at its place."""
    return indexing.scatter_at(values, (places,), (size, *shape(values)[1:]))


def multiply_dense(entries: Entries, x: Any) -> Any:
    """The product of a sparse matrix with a vector or a matrix."""
    data, pattern = entries
    rows, cols = pattern.places_for(data)
    run = multiply_blocks if pattern.format == "bsr" else multiply_entries
    return run(data, x, rows, cols, pattern.grid[0])


@functools.lru_cache(maxsize=16)
def plan_sparse_product(left: Pattern, right: Pattern) -> tuple[Pattern, Any, Any, Any]:
    """The pattern of a product of two sparse matrices; then for each product of two numbers in it the place of either
    factor among its matrix's numbers, and of the entry that it is added to.
    """
    # an entry (i, j) of the left matrix meets every entry (j, k) of the right one: row j, which lies together once
    # the right matrix is sorted by rows
    order = np.argsort(right.rows, kind="stable")
    counts = np.bincount(right.rows, minlength=right.shape[0])
    starts = np.cumsum(counts) - counts
    met = counts[left.cols]
    of_left = np.repeat(np.arange(left.rows.size), met)
    of_right = order[expand_stretches(starts[left.cols], met)]
    found = Pattern("coo", (left.shape[0], right.shape[1]), left.rows[of_left], right.cols[of_right])
    merge = found.by_rows
    return merge.pattern, of_left, of_right, merge.targets


def multiply_sparse(left: Entries, right: Entries) -> Entries:
    """The product of two sparse matrices of single numbers, sorted by rows."""
    pattern, of_left, of_right, targets = plan_sparse_product(left.pattern, right.pattern)
    return Entries(multiply_pairs(left.data, right.data, of_left, of_right, targets, pattern.rows.size), pattern)


@fuse(name="sparse_product")
@rounds_once
def multiply_pairs(x: Any, y: Any, of_x: Any, of_y: Any, targets: Any, size: int) -> Any:
    """The numbers of a product of two sparse matrices."""
    return add_rows(multiply(indexing.take(x, of_x, axis=0), indexing.take(y, of_y, axis=0)), targets, size)

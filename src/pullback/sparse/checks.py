"""Checks of what a sparse matrix is made of: its shape, its numbers and their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import to_host
from ..arrays.spec import spec_of
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from ..ops.concrete import as_bare_array
from ..ops.dispatch import as_value, ndim, shape


def check_shape(wanted: Any, what: str) -> tuple[int, int]:
    sizes = tuple(wanted) if isinstance(wanted, (tuple, list)) else ()
    if len(sizes) != 2 or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in sizes):
        raise ArgumentError(f"{what}: the shape is a pair of numbers of rows and columns, got {wanted!r}.")
    if sizes[0] * sizes[1] >= 2**63:
        raise ArgumentError(f"{what}: a matrix of {sizes[0]} x {sizes[1]} has more places than 64 bits can count.")
    return int(sizes[0]), int(sizes[1])


def check_numbers(data: Any, rank: int, what: str) -> Any:
    data = as_value(data)
    if ndim(data) != rank:
        wanted = "a vector of numbers" if rank == 1 else "blocks, of shape (blocks, rows, columns)"
        raise ShapeError(f"{what}: wants {wanted}, got shape {shape(data)}.")
    if spec_of(data).dtype.kind not in "biufcV":
        raise DtypeError(f"{what}: wants numbers, got {spec_of(data).dtype}.")
    return data


def check_places(places: Any, size: int, what: str) -> Any:
    found = to_host(as_bare_array(places, what))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise IndexingError(f"{what}: wants a vector of integers, got {found.dtype} of shape {found.shape}.")
    found = found.astype(np.int64)
    if found.size and (found.min() < 0 or found.max() >= size):
        bad = found[(found < 0) | (found >= size)][0]
        raise IndexingError(f"{what}: {bad} is not from 0 to {size - 1}.")
    return found


def expand_starts(indptr: Any, count: int, entries: int, what: str) -> Any:
    starts = to_host(as_bare_array(indptr, f"{what}: indptr"))
    if starts.ndim != 1 or starts.size != count + 1 or starts.dtype.kind not in "iu":
        raise ShapeError(
            f"{what}: indptr wants {count + 1} integers, one more than rows (of csc columns, of bsr rows of blocks), "
            f"got {starts.dtype} of shape {starts.shape}."
        )
    steps = np.diff(starts.astype(np.int64))
    if starts[0] != 0 or starts[-1] != entries or (steps < 0).any():
        raise ArgumentError(f"{what}: indptr starts at 0, never falls and ends at the number of indices, {entries}.")
    return np.repeat(np.arange(count), steps)


def check_lengths(data: Any, rows: Any, cols: Any, what: str) -> None:
    count = spec_of(data).shape[0]
    if not count == rows.size == cols.size:
        raise ShapeError(f"{what}: {count} numbers, {rows.size} rows and {cols.size} columns; wants one of each.")


def check_block(block: Any, sizes: tuple[int, int], what: str) -> tuple[int, int]:
    """The sizes of blocks, which must divide those of the matrix."""
    pair = tuple(block) if isinstance(block, (tuple, list)) else ()
    if len(pair) != 2 or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in pair):
        raise ArgumentError(f"{what}: a block is a pair of numbers of rows and columns, got {block!r}.")
    r, c = map(int, pair)
    if sizes[0] % r or sizes[1] % c:
        raise ShapeError(f"{what}: blocks of {r} x {c} do not divide a matrix of {sizes[0]} x {sizes[1]}.")
    return r, c

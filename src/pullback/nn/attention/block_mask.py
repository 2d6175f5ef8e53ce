"""Block masks: which blocks of keys a block of queries may attend to, found before attention runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.argument_checks import check_count, check_functions
from ...arrays.backends import to_host
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...arrays.value import Value
from ...errors import ArgumentError, ArgumentTypeError, ConversionError, DtypeError, ShapeError
from ...ops.concrete import strip_derivatives
from ...transforms.vectorize import vmap

#: Bands of queries are joined while that adds at most this share of scores that are masked.
_MOST_WASTE = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class BlockMask:
    """What `create_block_mask` found: `mask_mod`, the four sizes it was asked about (batch and heads may be 1 for all
    alike), and for each block of queries (row) and of keys (column) whether any pair of it may attend, `visited`, and
    whether all may, `full`; both hold for all batch elements and heads together.
    """

    mask_mod: Callable[..., Any]
    shape: tuple[int, int, int, int]
    block_size: int
    visited: np.ndarray
    full: np.ndarray

    def sparsity(self) -> float:
        """The share of scores, in percent, that lie in blocks without any pair that may attend.

        >>> import pullback as pb
        >>> mask = pb.nn.create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, 2)
        >>> mask.sparsity()
        37.5
        """
        widths = np.diff(block_edges(self.shape[3], self.block_size))
        heights = np.diff(block_edges(self.shape[2], self.block_size))
        return 100.0 * (1.0 - float(heights @ self.visited @ widths) / max(self.shape[2] * self.shape[3], 1))

    def check_fit(self, wanted: tuple[int, int, int, int]) -> None:
        """Raise unless it was made for these sizes."""
        pairs = list(zip(self.shape, wanted, strict=True))
        if any(n not in (1, m) for n, m in pairs[:2]) or self.shape[2:] != wanted[2:]:
            raise ShapeError(
                f"flex_attention: the block mask is for (batch, heads, queries, keys) = {self.shape}, the arguments "
                f"have {wanted}.\n  Make one for these sizes: create_block_mask(mask_mod, None, None, "
                f"{wanted[2]}, {wanted[3]})."
            )

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, block_size={self.block_size}, sparsity={self.sparsity():.1f}%)"


@dataclass(frozen=True, slots=True)
class Band:
    """Queries `start` to `stop`, the ranges of keys they meet, and whether pairs of these are masked."""

    start: int
    stop: int
    keys: tuple[tuple[int, int], ...]
    is_masked: bool


@attributed_to_caller
def create_block_mask(
    mask_mod: Callable[..., Any],
    batch: int | None,
    heads: int | None,
    queries: int,
    keys: int,
    block_size: int = 128,
) -> BlockMask:
    """The block mask of `mask_mod(b, h, q_idx, kv_idx)`, which is true where a query may attend to a key; `batch` and
    `heads` are None if it does not depend on them. `flex_attention` skips blocks in which no pair may attend, and
    asks `mask_mod` about those alone in which some may not.

    `mask_mod` is called with positions, 0-d values of a `vmap`. It may read arrays of pullback, as `pb.take(a, b)`;
    what it reads must not change afterwards.

    >>> import pullback as pb
    >>> pb.nn.create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 4), None, None, 16, 16, 4)
    BlockMask(shape=(1, 1, 16, 16), block_size=4, sparsity=56.2%)
    """
    check_functions("create_block_mask", mask_mod)
    size = check_count(block_size, "create_block_mask: block_size")
    counts = (1 if batch is None else batch, 1 if heads is None else heads, queries, keys)
    shape = tuple(check_count(n, "create_block_mask: a size", 0) for n in counts)
    rows, columns = block_edges(shape[2], size), block_edges(shape[3], size)
    visited = np.zeros((len(rows) - 1, len(columns) - 1), bool)
    full = visited.copy()
    if all(shape):
        everywhere = [np.arange(n) for n in shape]
        for i in range(len(rows) - 1):
            places = [*everywhere[:2], np.arange(rows[i], rows[i + 1]), everywhere[3]]
            allowed = _known_truths(at_places(mask_mod, places)).reshape(-1, shape[3])
            visited[i] = np.logical_or.reduceat(allowed.any(axis=0), columns[:-1])
            full[i] = np.logical_and.reduceat(allowed.all(axis=0), columns[:-1])
    return BlockMask(mask_mod, (shape[0], shape[1], shape[2], shape[3]), size, visited, full)


def _known_truths(allowed: Any) -> np.ndarray:
    found = strip_derivatives(allowed)
    if isinstance(found, Value):
        raise ConversionError(
            "create_block_mask: the mask depends on values that are not known here (of a program that is traced, or "
            "of a transform).\n  Make the block mask outside, or pass mask_mod= to flex_attention, which asks it "
            "about every pair."
        )
    host: np.ndarray = np.asarray(to_host(found))
    return host


def at_places(mask_mod: Callable[..., Any], places: list[Any]) -> Any:
    """`mask_mod` at each combination of positions, of shape (batch, heads, queries, keys)."""
    allowed = for_each_pair(mask_mod, 0)(*places)
    if spec_of(allowed).dtype.kind != "b" or spec_of(allowed).ndim != 4:
        raise DtypeError(
            f"flex_attention: mask_mod returned {spec_of(allowed)} for all pairs, wanted one boolean for each."
        )
    return allowed


def for_each_pair(function: Callable[..., Any], arrays: int) -> Callable[..., Any]:
    """A function of so many scalars and (b, h, q_idx, kv_idx), as one of arrays of four axes and four rows of
    positions: what is `vmap` four times.
    """

    def at_one(*args: Any) -> Any:
        out = function(*args)
        if out is None or isinstance(out, (tuple, list, dict)):  # most often a forgotten `return`
            raise ArgumentTypeError(
                f"flex_attention: {'score_mod' if arrays else 'mask_mod'} returned a {type(out).__name__}, wanted one "
                "value."
            )
        return out

    mapped: Callable[..., Any] = at_one
    for axis in (3, 2, 1, 0):
        mapped = vmap(mapped, in_axes=(*(0,) * arrays, *(0 if i == axis else None for i in range(4))))
    return mapped


def block_edges(length: int, size: int) -> np.ndarray:
    """Where blocks of so many rows begin, and the end."""
    return np.append(np.arange(0, length, size), length)


def bands_of(mask: BlockMask, heads: int, most_scores: int) -> list[Band]:
    """Blocks of queries, joined to bands of at most so many scores (of all heads together) where few are masked."""
    rows = block_edges(mask.shape[2], mask.block_size)
    made: list[tuple[int, int]] = []
    single = [_score_count(mask, i, i + 1) for i in range(len(rows) - 1)]
    for i in range(len(single)):
        first = made[-1][0] if made else i
        joined = _score_count(mask, first, i + 1)
        if made and heads * joined <= most_scores and joined <= _MOST_WASTE * sum(single[first : i + 1]):
            made[-1] = (first, i + 1)
        else:
            made.append((i, i + 1))
    return [_band(mask, rows, first, last) for first, last in made]


def _met_blocks(mask: BlockMask, first: int, last: int) -> np.ndarray:
    """The blocks of keys that some rows meet; one at least, so that there is a softmax to be zero."""
    met: np.ndarray = np.logical_or.reduce(mask.visited[first:last], axis=0)
    met[0] |= not met.any()
    return met


def _score_count(mask: BlockMask, first: int, last: int) -> int:
    height = min(last * mask.block_size, mask.shape[2]) - first * mask.block_size
    widths = np.diff(block_edges(mask.shape[3], mask.block_size))
    return int(height * widths[_met_blocks(mask, first, last)].sum())


def _band(mask: BlockMask, rows: np.ndarray, first: int, last: int) -> Band:
    met = _met_blocks(mask, first, last)
    turns = np.flatnonzero(np.diff(met, prepend=False, append=False))
    ends = np.minimum(turns * mask.block_size, mask.shape[3]).reshape(-1, 2)
    ranges = tuple((int(a), int(b)) for a, b in ends)
    return Band(int(rows[first]), int(rows[last]), ranges, not mask.full[first:last, met].all())


def check_block_mask(given: Any) -> BlockMask:
    if not isinstance(given, BlockMask):
        raise ArgumentError(
            f"flex_attention: block_mask is what create_block_mask returns, got a {type(given).__name__}."
        )
    return given

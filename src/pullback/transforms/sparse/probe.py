"""Where the elements of a linear map with nonnegative weights come from, found by running it.

It is run on numbers whose sums cannot be mistaken. For one result with weights w_i >= 0 on the elements i,

    sum w_i = 1,  sum w_i d_i = m,  sum w_i d_i^2 = m^2   =>   sum w_i (d_i - m)^2 = 0   =>   d_i = m where w_i > 0,

so if this holds for every digit d of the index numbers, the result has one source, and m spells its number. The same
argument, with a coordinate for d, proves that a result reads only elements that share a coordinate with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: A pattern is a boolean matrix, one row for each element of a value, one column for each input of the function.
Matrix: TypeAlias = "csr_matrix[Any]"
#: Flat arrays in, the flat results out.
FlatFunction = Callable[[Any], list[Any]]
#: An axis of an argument and the axis of the result that counts the same thing.
AxisLink = tuple[int, int]

#: Digits of this base and their squares are exact in every floating-point dtype.
_BASE = 16
#: Up to here whole numbers are exact in float64.
_EXACT = 2.0**53


def single_sources(run: FlatFunction, size: int) -> list[tuple[Any, Any]] | None:
    """For each result, the number of the one element (of `size`) that each of its elements is a copy of, and whether
    there is one; None if an element is anything but a copy or zero.
    """
    counts = run(np.ones(size))
    # Ones in: an element that is a copy of one element, or zero, gives 1 or 0.
    if not all(np.isin(count, (0, 1)).all() for count in counts):
        return None
    found = [np.zeros(count.size, np.intp) for count in counts]
    place, rest = 1, np.arange(size)
    while place < size:
        digit = (rest % _BASE).astype(np.float64)
        for number, mean, square in zip(found, run(digit), run(digit * digit), strict=True):
            if not np.array_equal(square, mean * mean):
                return None
            number += place * mean.astype(np.intp)
        place, rest = place * _BASE, rest // _BASE
    return [(number, count == 1) for number, count in zip(found, counts, strict=True)]


def coordinate(shape: Sequence[int], axis: int) -> Any:
    """Each element's place along an axis."""
    along = np.arange(shape[axis], dtype=np.float64).reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return np.broadcast_to(along, shape)


def linked_axes(run: Callable[[Any], Any], shape: Sequence[int], out_shape: Sequence[int]) -> list[AxisLink]:
    """The pairs (axis of the argument, axis of the result) such that each result reads only elements whose place
    along the one is its own along the other. `run` takes and returns whole arrays.
    """
    weight = run(np.ones(shape))
    links: list[AxisLink] = []
    for a, n in enumerate(shape):
        # An axis of size one links to anything, which tells nothing.
        candidates = [b for b, m in enumerate(out_shape) if n == m > 1 and all(b != taken for _, taken in links)]
        if not candidates:
            continue
        place = coordinate(shape, a)
        mean, square = run(place), run(place * place)
        for b in candidates:
            own = coordinate(out_shape, b)
            if _is_exact(square) and _is_equal(mean, own * weight) and _is_equal(square, own * own * weight):
                links.append((a, b))
                break
    return links


def same_coordinate(run: Callable[[Any, Any], Any], shapes: Sequence[Sequence[int]], axes: AxisLink) -> bool:
    """Whether two arguments of a product meet only where their places along two axes are equal: sum w (a - c)^2 = 0."""
    (left, right), (a, c) = shapes, axes
    if left[a] != right[c]:
        return False
    one, other = coordinate(left, a), coordinate(right, c)
    squares = run(one * one, np.ones(right)) + run(np.ones(left), other * other)
    return _is_exact(squares) and _is_equal(squares, 2 * run(one, other))


def _is_exact(values: Any) -> bool:
    return bool(values.dtype == np.float64 and (not values.size or np.abs(values).max() < _EXACT))


def _is_equal(left: Any, right: Any) -> bool:
    return bool(np.array_equal(left, right))


def unit_sources(
    run: Callable[[Any], Any], shape: Sequence[int], out_shape: Sequence[int], links: Sequence[AxisLink]
) -> tuple[Any, Any]:
    """Every pair (result element, source) by number: one run for each place along the axes that have no link. The
    others are run all at once, since each result reads one place of theirs only.
    """
    free = [a for a in range(len(shape)) if all(a != linked for linked, _ in links)]
    strides = [int(np.prod(shape[a + 1 :])) for a in range(len(shape))]
    own = np.zeros(tuple(out_shape), np.intp)
    for a, b in links:
        own = own + strides[a] * coordinate(out_shape, b).astype(np.intp)
    own = own.reshape(-1)
    results, sources = [], []
    for place in np.ndindex(*(shape[a] for a in free)):
        unit = np.zeros(tuple(shape))
        unit[tuple(place[free.index(a)] if a in free else slice(None) for a in range(len(shape)))] = 1.0
        hit = np.flatnonzero(run(unit))
        results.append(hit)
        sources.append(own[hit] + sum(strides[a] * i for a, i in zip(free, place, strict=True)))
    return np.concatenate(results or [own[:0]]), np.concatenate(sources or [own[:0]])


def unite_rows(pattern: Matrix, links: Sequence[AxisLink], shape: Sequence[int], wanted: Sequence[int]) -> Matrix:
    """Each result has what all elements that share its places along the linked axes have together."""
    # First unite the rows of each group, then copy the union to each result: both are products of matrices.
    groups = math.prod(shape[a] for a, _ in links)
    of_source, of_result = _group_numbers(shape, [a for a, _ in links]), _group_numbers(wanted, [b for _, b in links])
    together = boolean_matrix(of_source, np.arange(of_source.size), groups, of_source.size) @ pattern
    return copy_rows(together, of_result, None)


def _group_numbers(shape: Sequence[int], axes: Sequence[int]) -> Any:
    """Each element's group: its places along some axes, as one number."""
    number = np.zeros(tuple(shape), np.intp)
    for axis in axes:
        number = number * shape[axis] + coordinate(shape, axis).astype(np.intp)
    return number.reshape(-1)


def copy_rows(pattern: Matrix, source: Any, there: Any) -> Matrix:
    """The rows at `source`, empty where there is none."""
    if there is None or there.all():
        if source.size == pattern.shape[0] and np.array_equal(source, np.arange(source.size)):
            return pattern
        return pattern[source, :]
    return boolean_matrix(np.flatnonzero(there), source[there], source.size, pattern.shape[0]) @ pattern


def boolean_matrix(rows: Any, columns: Any, height: int, width: int) -> Matrix:
    """The matrix that is true at the places given."""
    from scipy.sparse import csr_matrix

    return csr_matrix((np.ones(len(rows), bool), (rows, columns)), shape=(height, width))

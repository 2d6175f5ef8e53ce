"""Rows of patterns: copied, selected and united.

A pattern is a boolean matrix, one row for each element of a value, one column for each input of the function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .probe import AxisLink, coordinate

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    Matrix = csr_matrix[Any]


def unite_rows(pattern: Matrix, links: Sequence[AxisLink], shape: Sequence[int], wanted: Sequence[int]) -> Matrix:
    """Each result has what all elements that share its places along the linked axes have together."""
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

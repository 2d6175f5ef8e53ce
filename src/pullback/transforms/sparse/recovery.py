"""Directions of products from a coloring, and the entries of the matrix recovered from the products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.tensor import Tensor
from ...arrays.value import Value
from ...errors import ArgumentError, ConversionError, GraphError
from .coloring import Coloring
from .op_call import as_numpy

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    Matrix = csr_matrix[Any]


def color_indicators(colors: Any, count: int) -> Any:
    """For each color, ones where it is."""
    return (colors == np.arange(count)[:, None]).astype(np.float64)


def check_direction(size: int) -> Any:
    """A generic direction, the same at every run; away from zero, so that no column is missed."""
    rng = np.random.default_rng(20)
    return rng.uniform(0.5, 1.5, size) * rng.choice((-1.0, 1.0), size)


def numbers_of(value: Any) -> Any:
    """The elements of a product; a SciPy matrix can hold nothing else."""
    while isinstance(value, Tensor):
        if value.node is not None:
            raise GraphError(
                "plan: f uses tensors that require a gradient, but a SciPy matrix carries no derivatives.\n"
                "  Run it under pb.no_grad(), or detach them."
            )
        value = value.value
    if isinstance(value, Value):
        raise ConversionError(
            f"plan: f uses {value!r}, a value of another transform that a SciPy matrix cannot follow."
        )
    return as_numpy(value)


def entry_places(pattern: Matrix, colors: Coloring, symmetric: bool) -> Any:
    """Where each nonzero is found in the products, laid one after the other: from the column's group where it is alone
    in its row there, else from the row's group, which for a symmetric matrix is its mirror image's column's group.
    """
    height, width = pattern.shape
    rows = np.repeat(np.arange(height), np.diff(pattern.indptr))
    columns = pattern.indices.astype(np.intp)
    alone = _is_alone(rows, colors.columns[columns], height)
    in_columns = colors.columns[columns] * height + rows
    if symmetric:
        mirrored = colors.columns[rows]
        fine = alone | _is_alone(columns, mirrored, width)
        places = np.where(alone, in_columns, mirrored * width + columns)
    else:
        fine = alone | _is_alone(columns, colors.rows[rows], width)
        start = colors.column_count * height
        places = np.where(alone, in_columns, start + colors.rows[rows] * width + columns)
    if not fine.all():
        raise ArgumentError("the coloring does not show every entry of the pattern.")
    return places


def _is_alone(lines: Any, colors: Any, count: int) -> Any:
    """For each entry, whether no other on its line has its color."""
    taking_part = colors >= 0
    width = int(colors.max(initial=-1)) + 1
    keys = lines * max(1, width) + colors
    met = np.bincount(keys[taking_part], minlength=max(1, count * max(1, width)))
    return taking_part & (met[np.where(taking_part, keys, 0)] == 1)


def find_wrong_rows(matrix: Matrix, direction: Any, product: Any, precision: float) -> Any:
    """The rows in which the matrix did not make the product. (J - M) v = 0 at a direction picked before J was known
    means J = M, up to rounding; there is room for that by row, and by the size of the whole.
    """
    made = matrix @ direction
    size = abs(matrix) @ np.abs(direction)
    with np.errstate(invalid="ignore"):
        off = np.abs(product - made)
    known = np.isfinite(off)
    room = precision**0.5 * size + 100 * precision * np.max(size[known], initial=0.0)
    return np.flatnonzero(known & (off > room))

"""Banded matrices, solved by elimination within the band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from ...errors import ArgumentError
from ...ops.batching import move_batch_first
from ...ops.dispatch import apply, ndim, shape
from ...ops.op import Op
from ...ops.shape.arrange import concat
from ...transforms.custom.rules import make_custom_record
from .operator import StructuredOperator, check_rank, register_operator


@final
@dataclass(frozen=True, eq=False)
class Banded(StructuredOperator):
    """A matrix with so many diagonals below and above the main one. `bands` has a row for each, from the uppermost to
    the lowest, as SciPy has them: A[i, j] is bands[upper + i - j, j]. Corners of bands that lie outside of the matrix
    are not read.

    >>> import numpy as np, pullback as pb
    >>> A = pb.implicit.Banded(np.array([[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [1.0, 1.0, 0.0]]), lower=1, upper=1)
    >>> np.round(pb.linear_solve(A, np.array([5.0, 6.0, 5.0])), 6)
    array([1., 1., 1.])
    """

    bands: Any
    lower: int
    upper: int
    static: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def __post_init__(self) -> None:
        rows, size = check_rank("Banded: bands", self.bands, 2)
        for name, count in (("lower", self.lower), ("upper", self.upper)):
            if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or not 0 <= count < size:
                raise ArgumentError(f"Banded: {name} is a number of diagonals below {size}, got {count!r}.")
        if rows != self.lower + self.upper + 1:
            raise ArgumentError(f"Banded: {rows} bands for {self.lower} below, {self.upper} above and the main one.")

    @property
    def size(self) -> int:
        return shape(self.bands)[1]

    @property
    def T(self) -> Banded:
        """A[j, i] is bands[upper + j - i, i]: the rows in reverse order, each moved along by its distance."""
        rows = [_shift(self.bands[self.upper + k], k) for k in range(self.lower, -self.upper - 1, -1)]
        return Banded(concat([row[None] for row in rows]), self.upper, self.lower)

    def multiply(self, v: Any) -> Any:
        """The diagonal k below the main one takes v_j to the row j + k."""
        total = None
        for k in range(-self.upper, self.lower + 1):
            share = _shift(self.bands[self.upper + k] * v, k)
            total = share if total is None else total + share
        return total

    def solve_directly(self, b: Any) -> Any:
        return apply(_banded_solve_op, self.bands, b, lower=int(self.lower), upper=int(self.upper))


def _shift(row: Any, k: int) -> Any:
    """A row moved by k places to the right, with zeros where nothing comes from."""
    if k == 0:
        return row
    if k > 0:
        return concat([0 * row[:k], row[:-k]])
    return concat([row[-k:], 0 * row[k:]])


def _solve_bare(xp: Any, bands: Any, b: Any, lower: int, upper: int) -> Any:
    """x over the last axis of b; one matrix for all, or one for each of the first axis."""
    if bands.ndim > 2:
        return xp.stack([_solve_bare(xp, *pair, lower, upper) for pair in zip(bands, b, strict=True)])
    if xp is not np:
        return _solve_dense_bands(xp, bands, b, lower, upper)
    from scipy.linalg import solve_banded

    columns = b.reshape(-1, b.shape[-1]).T
    try:
        found = solve_banded((lower, upper), _clear_corners(bands, lower, upper), columns, check_finite=False)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)
    return found.T.reshape(b.shape).astype(b.dtype, copy=False)


def _clear_corners(bands: Any, lower: int, upper: int) -> Any:
    """The bands with zeros outside of the matrix."""
    cleared = bands.copy()
    for k in range(1, upper + 1):
        cleared[upper - k, :k] = 0
    for k in range(1, lower + 1):
        cleared[upper + k, -k:] = 0
    return cleared


def _solve_dense_bands(xp: Any, bands: Any, b: Any, lower: int, upper: int) -> Any:
    """On a GPU, whose libraries have no banded solver for one matrix, the whole matrix."""
    size = bands.shape[1]
    matrix = xp.zeros((size, size), bands.dtype)
    for k in range(-upper, lower + 1):
        places = xp.arange(max(0, -k), min(size, size - k))
        matrix[places + k, places] = bands[upper + k, places]
    return xp.linalg.solve(matrix, b.reshape(-1, size).T).T.reshape(b.shape)


def _batch_solve(size: int, axes: tuple[int | None, ...], bands: Any, b: Any, lower: int, upper: int) -> Any:
    """One matrix for all stays one; matrices of a batch inside are repeated for each element of this one."""
    b = move_batch_first(b, axes[1], size)
    if axes[0] is not None or ndim(bands) > 2:
        bands = move_batch_first(bands, axes[0], size)
    return apply(_banded_solve_op, bands, b, lower=lower, upper=upper), 0


_banded_solve_op: Op = make_custom_record(
    "banded_solve", ("bands", "b"), _solve_bare, None, None, _batch_solve, lambda bands, b, lower, upper: b,
)  # fmt: skip
register_operator(Banded)

"""Matrices that are eliminated in two steps: a diagonal with a correction of low rank, and two by two blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...errors import ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.linalg.determinants import slogdet
from ...ops.linalg.linear_systems import solve
from ...ops.reduce import reductions
from ...ops.shape.arrange import concat
from ..linear.direct import solve_dense
from .operator import (
    InvertibleOperator,
    StructuredOperator,
    check_rank,
    check_square,
    multiply_part,
    register_operator,
    size_of,
    solve_part,
)


@final
@dataclass(frozen=True, eq=False)
class LowRankPlusDiagonal(InvertibleOperator):
    """diag(diagonal) + left right^T, with left and right of a few columns; without `right`, it is `left` too.

    Solved by the matrix of that few rows, I + right^T D^-1 left (Woodbury): D x + left c = b with c = right^T x.

    >>> import numpy as np, pullback as pb
    >>> A = pb.implicit.LowRankPlusDiagonal(np.array([1.0, 2.0, 3.0]), np.ones((3, 1)))
    >>> x = pb.linear_solve(A, np.array([1.0, 2.0, 3.0]))
    >>> bool(np.allclose((np.diag([1.0, 2.0, 3.0]) + 1) @ x, [1.0, 2.0, 3.0]))
    True
    """

    diagonal: Any
    left: Any
    right: Any = None

    def __post_init__(self) -> None:
        (size,) = check_rank("LowRankPlusDiagonal: diagonal", self.diagonal, 1)
        left = check_rank("LowRankPlusDiagonal: left", self.left, 2)
        right = left if self.right is None else check_rank("LowRankPlusDiagonal: right", self.right, 2)
        if left[0] != size or right != left:
            raise ShapeError(
                f"LowRankPlusDiagonal: a diagonal of {size} with left {left} and right {right}, wanted ({size}, rank)."
            )

    @property
    def size(self) -> int:
        return shape(self.diagonal)[0]

    @property
    def T(self) -> LowRankPlusDiagonal:
        return self if self.right is None else LowRankPlusDiagonal(self.diagonal, self.right, self.left)

    def multiply(self, v: Any) -> Any:
        return self.diagonal * v + matmul(self.left, matmul(self._rows(), v))

    def solve_directly(self, b: Any) -> Any:
        first = b / self.diagonal
        inner = solve_dense(self._inner(), matmul(self._rows(), first))
        return first - matmul(self.left, inner) / self.diagonal

    def logdet(self) -> Any:
        return reductions.sum(pointwise.log(pointwise.abs(self.diagonal))) + slogdet(self._inner())[1]

    def inverse_diagonal(self) -> Any:
        scaled = self._rows() / self.diagonal
        inner = solve(self._inner(), scaled)
        return 1 / self.diagonal - reductions.sum(self.left.T * inner, 0) / self.diagonal

    def _rows(self) -> Any:
        """right^T."""
        return self.left.T if self.right is None else self.right.T

    def _inner(self) -> Any:
        """I + right^T D^-1 left."""
        rank, spec = shape(self.left)[1], spec_of(self.left)
        one = namespace_on(spec.device).eye(rank, dtype=spec.dtype)
        return one + matmul(self._rows() / self.diagonal, self.left)


@final
@dataclass(frozen=True, eq=False)
class BlockMatrix(StructuredOperator):
    """Two by two blocks: [[upper, right], [left, lower]], where `upper` is easy to solve with, an array or an operator.

    Solved by the complement of upper (Schur), lower - left upper^-1 right, which is dense.

    >>> import numpy as np, pullback as pb
    >>> upper = pb.implicit.Diagonal(np.array([1.0, 2.0]))
    >>> A = pb.implicit.BlockMatrix(upper, np.ones((2, 1)), np.ones((1, 2)), np.zeros((1, 1)))
    >>> np.round(pb.linear_solve(A, np.array([2.0, 3.0, 2.0])), 6)
    array([1., 1., 1.])
    """

    upper: Any
    right: Any
    left: Any
    lower: Any

    def __post_init__(self) -> None:
        first, second = check_square("BlockMatrix: upper", self.upper), check_square("BlockMatrix: lower", self.lower)
        right, left = check_rank("BlockMatrix: right", self.right, 2), check_rank("BlockMatrix: left", self.left, 2)
        if right != (first, second) or left != (second, first):
            raise ShapeError(
                f"BlockMatrix: blocks of {first} and {second} rows with right {right} and left {left}, "
                f"wanted {(first, second)} and {(second, first)}."
            )

    @property
    def size(self) -> int:
        return size_of(self.upper) + size_of(self.lower)

    @property
    def T(self) -> BlockMatrix:
        return BlockMatrix(self.upper.T, self.left.T, self.right.T, self.lower.T)

    def multiply(self, v: Any) -> Any:
        first, second = v[: size_of(self.upper)], v[size_of(self.upper) :]
        return concat([
            multiply_part(self.upper, first) + matmul(self.right, second),
            matmul(self.left, first) + multiply_part(self.lower, second),
        ])  # fmt: skip

    def solve_directly(self, b: Any) -> Any:
        first, second = b[: size_of(self.upper)], b[size_of(self.upper) :]
        dense = self.lower.to_dense() if isinstance(self.lower, StructuredOperator) else self.lower
        across = solve_part(self.upper, self.right)
        alone = solve_part(self.upper, first)
        below = solve_dense(dense - matmul(self.left, across), second - matmul(self.left, alone))
        return concat([alone - matmul(across, below), below])


register_operator(LowRankPlusDiagonal)
register_operator(BlockMatrix)

"""Kronecker products and block diagonals, whose solves are those of their factors and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from ...errors import ArgumentError
from ...ops.elementwise import pointwise
from ...ops.shape.arrange import concat, split
from ...ops.shape.reshaping import reshape
from .operator import (
    InvertibleOperator,
    check_square,
    inverse_diagonal_part,
    logdet_part,
    multiply_part,
    register_operator,
    size_of,
    solve_part,
)


@final
@dataclass(frozen=True, eq=False)
class Kronecker(InvertibleOperator):
    """The Kronecker product of two square matrices, arrays or operators: every element of the left one times the whole
    right one. With a vector as a matrix X of rows, it multiplies as left X right^T, and the inverse as the inverses.

    >>> import numpy as np, pullback as pb
    >>> A, B = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[4.0, 0.0], [1.0, 2.0]])
    >>> x = pb.linear_solve(pb.implicit.Kronecker(A, B), np.arange(4.0))
    >>> bool(np.allclose(np.kron(A, B) @ x, np.arange(4.0)))
    True
    """

    left: Any
    right: Any

    def __post_init__(self) -> None:
        check_square("Kronecker: left", self.left)
        check_square("Kronecker: right", self.right)

    @property
    def size(self) -> int:
        return size_of(self.left) * size_of(self.right)

    @property
    def T(self) -> Kronecker:
        return Kronecker(self.left.T, self.right.T)

    def multiply(self, v: Any) -> Any:
        rows = reshape(v, (size_of(self.left), size_of(self.right)))
        return reshape(multiply_part(self.left, multiply_part(self.right, rows.T).T), (self.size,))

    def solve_directly(self, b: Any) -> Any:
        rows = reshape(b, (size_of(self.left), size_of(self.right)))
        return reshape(solve_part(self.left, solve_part(self.right, rows.T).T), (self.size,))

    def logdet(self) -> Any:
        return size_of(self.right) * logdet_part(self.left) + size_of(self.left) * logdet_part(self.right)

    def inverse_diagonal(self) -> Any:
        left, right = inverse_diagonal_part(self.left), inverse_diagonal_part(self.right)
        return reshape(pointwise.multiply(left[:, None], right), (self.size,))


@final
@dataclass(frozen=True, eq=False)
class BlockDiagonal(InvertibleOperator):
    """Square matrices, arrays or operators, along the diagonal, and zeros elsewhere.

    >>> import numpy as np, pullback as pb
    >>> A = pb.implicit.BlockDiagonal([np.array([[2.0, 1.0], [1.0, 3.0]]), pb.implicit.Diagonal(np.array([4.0]))])
    >>> np.round(pb.linear_solve(A, np.array([3.0, 4.0, 2.0])), 6)
    array([1. , 1. , 0.5])
    """

    blocks: Any

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, (list, tuple)) or not self.blocks:
            raise ArgumentError(f"BlockDiagonal: blocks is a list of square matrices, got {self.blocks!r}.")
        for i, block in enumerate(self.blocks):
            check_square(f"BlockDiagonal: blocks[{i}]", block)

    @property
    def size(self) -> int:
        return sum(map(size_of, self.blocks))

    @property
    def T(self) -> BlockDiagonal:
        return BlockDiagonal([block.T for block in self.blocks])

    def multiply(self, v: Any) -> Any:
        return concat([multiply_part(block, part) for block, part in zip(self.blocks, self._cut(v), strict=True)])

    def solve_directly(self, b: Any) -> Any:
        return concat([solve_part(block, part) for block, part in zip(self.blocks, self._cut(b), strict=True)])

    def logdet(self) -> Any:
        total = logdet_part(self.blocks[0])
        for block in self.blocks[1:]:
            total = total + logdet_part(block)
        return total

    def inverse_diagonal(self) -> Any:
        return concat([inverse_diagonal_part(block) for block in self.blocks])

    def _cut(self, v: Any) -> list[Any]:
        sizes = [size_of(block) for block in self.blocks]
        return split(v, [sum(sizes[:i]) for i in range(1, len(sizes))]) if len(sizes) > 1 else [v]


register_operator(Kronecker)
register_operator(BlockDiagonal)

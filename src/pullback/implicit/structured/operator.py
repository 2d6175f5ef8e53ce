"""What structured matrices share: products by `@`, transposes, dense copies, and solves whose derivatives are solves.

A matrix is a tree of its parts, so that it may be an argument of every transform, and gradients have its form. A class
says how a vector is multiplied, and how a system is solved if nothing needs to be differentiated: derivatives are those
of `linear_solve`, which calls the solver as a method and checks what it returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, final

from ...arrays.backends import namespace_on
from ...arrays.spec import spec_of
from ...arrays.trees import flatten, register_tree
from ...errors import ShapeError
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import shape
from ...ops.elementwise import pointwise
from ...ops.linalg.determinants import slogdet
from ...ops.linalg.linear_systems import inv
from ...ops.reduce import reductions
from ...ops.shape.arrange import diagonal
from ...transforms.boundary import as_array_leaf
from ...transforms.vectorize import vmap
from ..linear.direct import solve_dense


class StructuredOperator(ABC):
    """A square matrix that is given by its parts."""

    #: NumPy leaves `array @ operator` to Python, which refuses it.
    __array_ufunc__ = None

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def T(self) -> StructuredOperator:
        """The transpose."""

    @abstractmethod
    def multiply(self, v: Any) -> Any:
        """The product with a vector."""

    @abstractmethod
    def solve_directly(self, b: Any) -> Any:
        """x with A x = b for a vector, NaN or infinite where A is singular; without derivatives."""

    @property
    def shape(self) -> tuple[int, int]:
        """As arrays have it."""
        return self.size, self.size

    @property
    def ndim(self) -> int:
        """As arrays have it."""
        return 2

    def __matmul__(self, other: Any) -> Any:
        other = as_array_leaf(other, type(self).__name__)
        if len(shape(other)) not in (1, 2) or shape(other)[0] != self.size:
            raise ShapeError(f"{type(self).__name__}: a matrix of {self.size} rows times the shape {shape(other)}.")
        if len(shape(other)) == 2:
            return vmap(self.multiply, 1, 1)(other)
        return self.multiply(other)

    def to_dense(self) -> Any:
        """The whole matrix as an array."""
        spec = spec_of(flatten(self)[0][0])
        return self @ namespace_on(spec.device).eye(self.size, dtype=spec.dtype)


class InvertibleOperator(StructuredOperator):
    """One whose structure gives the determinant and the diagonal of the inverse."""

    @abstractmethod
    def logdet(self) -> Any:
        """The logarithm of the absolute value of the determinant."""

    @abstractmethod
    def inverse_diagonal(self) -> Any:
        """The diagonal of the inverse."""


def register_operator(kind: type) -> type:
    """A dataclass of parts as a tree; fields named in `static` belong to its structure. Rebuilding checks nothing:
    transforms put other things into the places of arrays.
    """
    static = getattr(kind, "static", ())
    names = [field.name for field in fields(kind) if field.name not in static]

    def take_apart(operator: Any) -> tuple[Any, ...]:
        parts = tuple(getattr(operator, name) for name in names)
        return parts, tuple(getattr(operator, name) for name in static), tuple(names)

    def put_together(rest: tuple[Any, ...], parts: Any) -> Any:
        operator: Any = object.__new__(kind)
        for name, part in (*zip(names, parts, strict=True), *zip(static, rest, strict=True)):
            object.__setattr__(operator, name, part)
        return operator

    return register_tree(kind, take_apart, put_together)


@final
@dataclass(frozen=True, eq=False)
class Diagonal(InvertibleOperator):
    """A diagonal matrix: `diagonal` is a vector.

    >>> import numpy as np, pullback as pb
    >>> pb.linear_solve(pb.implicit.Diagonal(np.array([2.0, 4.0])), np.array([1.0, 1.0]))
    array([0.5 , 0.25])
    """

    diagonal: Any

    def __post_init__(self) -> None:
        check_rank("Diagonal: diagonal", self.diagonal, 1)

    @property
    def size(self) -> int:
        return shape(self.diagonal)[0]

    @property
    def T(self) -> Diagonal:
        return self

    def multiply(self, v: Any) -> Any:
        return pointwise.multiply(self.diagonal, v)

    def solve_directly(self, b: Any) -> Any:
        return pointwise.divide(b, self.diagonal)

    def logdet(self) -> Any:
        return reductions.sum(pointwise.log(pointwise.abs(self.diagonal)))

    def inverse_diagonal(self) -> Any:
        return pointwise.divide(1.0, self.diagonal)


def check_rank(what: str, x: Any, rank: int) -> tuple[int, ...]:
    """The shape of a part, which must have so many axes."""
    found = shape(as_array_leaf(x, what))
    if len(found) != rank or 0 in found:
        raise ShapeError(f"{what} has shape {found}, wanted {rank} axes of at least one element.")
    return found


def check_square(what: str, part: Any) -> int:
    """The size of a part that is a square array or an operator."""
    if isinstance(part, StructuredOperator):
        return part.size
    rows, columns = check_rank(what, part, 2)
    if rows != columns:
        raise ShapeError(f"{what} has shape {(rows, columns)}, wanted a square matrix.")
    return rows


# parts that are arrays or operators


def size_of(part: Any) -> int:
    """The number of rows of a part."""
    return part.size if isinstance(part, StructuredOperator) else shape(part)[0]


def multiply_part(part: Any, x: Any) -> Any:
    """A part times a vector or a matrix."""
    return part @ x if isinstance(part, StructuredOperator) else matmul(part, x)


def solve_part(part: Any, b: Any) -> Any:
    """x with part x = b for a vector or the columns of a matrix; without derivatives."""
    if isinstance(part, StructuredOperator):
        return vmap(part.solve_directly, 1, 1)(b) if len(shape(b)) == 2 else part.solve_directly(b)
    return solve_dense(part, b.T).T if len(shape(b)) == 2 else solve_dense(part, b)


def logdet_part(part: Any) -> Any:
    """The logarithm of the absolute determinant of a part."""
    if isinstance(part, StructuredOperator):
        return require_invertible(part).logdet()
    return slogdet(part)[1]


def inverse_diagonal_part(part: Any) -> Any:
    """The diagonal of the inverse of a part."""
    if isinstance(part, StructuredOperator):
        return require_invertible(part).inverse_diagonal()
    return diagonal(inv(part))


def require_invertible(part: StructuredOperator) -> InvertibleOperator:
    """A part with a determinant, or an error."""
    if not isinstance(part, InvertibleOperator):
        raise ShapeError(f"{type(part).__name__}: the structure gives no determinant.\n  Use its to_dense().")
    return part


register_operator(Diagonal)

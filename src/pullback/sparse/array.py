"""`SparseArray`: a matrix that stores its nonzeros, with operators and derivatives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, final

from ..arrays.argument_checks import check_functions
from ..arrays.conversion_advice import stand_in_for_product
from ..arrays.dtypes import as_dtype
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import register_tree
from ..arrays.value import Value
from ..errors import ArgumentError, ArgumentTypeError, ConversionError, ShapeError
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions
from ..ops.shape import reshaping
from ..public_names import explain_missing_attributes
from . import arithmetic, products, structure
from .conversions import from_library, is_library_matrix, to_library
from .entries import Entries
from .numpy_functions import call_ufunc, refuse_function
from .pattern import Format, Pattern


@final
class SparseArray:
    """A sparse matrix: the numbers in `data`, and their places in `pattern`, which is fixed.

    It is a tree with the one leaf `data`. So derivatives with respect to a sparse array are sparse arrays of the same
    pattern, `vmap` takes a batch of numbers on one pattern, and jit, optimizers and files take it as they take arrays.
    Made by `pb.sparse.csr`, `coo`, `csc`, `bsr`, `from_scipy`, `from_dense` and `diagonal`.

    >>> import numpy as np, pullback as pb
    >>> A = pb.sparse.csr(np.array([1.0, 2.0, 3.0]), [0, 2, 1], [0, 2, 3], (2, 3))
    >>> A @ np.array([1.0, 1.0, 1.0])
    array([3., 3.])
    >>> pb.grad(lambda A: pb.sum(A @ np.array([1.0, 2.0, 4.0])))(A)
    <sparse 2 x 3, 3 entries of float64, csr>
    >>> _.data
    array([1., 4., 2.])
    """

    __slots__ = ("__weakref__", "data", "pattern")
    __array_priority__ = 1001
    data: Any
    pattern: Pattern

    def __init__(self, data: Any, pattern: Pattern) -> None:
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "pattern", pattern)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ArgumentError(f"A.{name} = ...: a sparse array does not change.\n  Use A.with_data(numbers).")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError("A[index] = ...: a sparse array does not change.\n  Use A.with_data(numbers), or A + B.")

    def __reduce__(self) -> Any:
        return SparseArray, (self.data, self.pattern)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def ndim(self) -> int:
        """The number of axes: two."""
        return 2

    @property
    def size(self) -> int:
        """The number of elements of the matrix, zeros included."""
        return self.shape[0] * self.shape[1]

    @property
    def nnz(self) -> int:
        """How many numbers are stored."""
        return self.pattern.nnz

    @property
    def format(self) -> Format:
        """How they are stored: "coo", "csr", "csc" or "bsr"."""
        return self.pattern.format

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return spec_of(self.data).dtype

    @property
    def device(self) -> str:
        """Where the numbers live."""
        return spec_of(self.data).device

    @property
    def rows(self) -> Any:
        """The row of each number; of "bsr" the row of blocks of each block."""
        return self.pattern.rows

    @property
    def cols(self) -> Any:
        """The column of each number; of "bsr" the column of blocks of each block."""
        return self.pattern.cols

    @property
    def indices(self) -> Any:
        """As in SciPy: the column of each number, of "csc" its row."""
        return self.pattern.indices

    @property
    def indptr(self) -> Any:
        """As in SciPy: where each row (of "csc" each column) starts among the numbers."""
        if self.format == "coo":
            raise ArgumentError("indptr: numbers of the format coo are in any order.\n  Sort them: A.tocsr().indptr.")
        return self.pattern.indptr

    @property
    def requires_grad(self) -> bool:
        """Whether the numbers are a tensor that requires a gradient."""
        return isinstance(self.data, Tensor) and self.data.requires_grad

    @property
    def grad(self) -> SparseArray | None:
        """The gradient that backward passes accumulated, on the same pattern; None before the first."""
        found = self.data.grad if isinstance(self.data, Tensor) else None
        return None if found is None else SparseArray(found, self.pattern)

    def _entries(self, what: str) -> Entries:
        """The numbers and places of one matrix; of a batch outside of `vmap` there are none."""
        found, pattern = shape(self.data), self.pattern
        block = pattern.block if pattern.format == "bsr" else ()
        if found != (pattern.rows.size, *block):
            if len(found) <= 1 + len(block):
                raise ShapeError(f"{what}: the numbers have shape {found}, the pattern has {pattern.nnz} entries.")
            raise ShapeError(
                f"{what}: this holds numbers of shape {shape(self.data)}, a batch of matrices on one pattern.\n"
                "  Take one matrix, or use pb.vmap."
            )
        entries = Entries(self.data, pattern)
        # true and true are true, not two: nothing is linear in booleans, so there is one of each place
        return structure.sum_duplicates(entries) if self.dtype.kind == "b" else entries

    def with_data(self, data: Any) -> SparseArray:
        """A matrix of the same pattern with other numbers, in the same order.

        >>> import numpy as np, pullback as pb
        >>> A = pb.sparse.diagonal(np.array([1.0, 2.0]))
        >>> A.with_data(np.array([3.0, 4.0])).todense()
        array([[3., 0.],
               [0., 4.]])
        """
        if shape(data) != shape(self.data):
            raise ShapeError(f"with_data: the numbers have shape {shape(data)}, the pattern wants {shape(self.data)}.")
        return SparseArray(data, self.pattern)

    def detach(self) -> SparseArray:
        """The same matrix as a constant."""
        data = self.data
        return SparseArray(data.detach() if isinstance(data, Value) else data, self.pattern)

    def astype(self, dtype: Any) -> SparseArray:
        """The matrix with numbers of another dtype."""
        # the whole part of a sum is not the sum of whole parts, and true and true are not two
        is_linear = self.dtype.kind != "b" and as_dtype(dtype).kind not in "biu"
        given = self if is_linear or not self.pattern.has_duplicates else self.sum_duplicates()
        return SparseArray(reshaping.astype(given.data, dtype), given.pattern)

    def map(self, function: Callable[[Any], Any]) -> SparseArray:
        """The function of every element, one that maps zero to zero, so that the pattern is kept.

        >>> import numpy as np, pullback as pb
        >>> pb.sparse.diagonal(np.array([1.0, 4.0])).map(pb.sqrt).data
        array([1., 2.])
        """
        check_functions("map", function)
        return SparseArray(*arithmetic.map_entries(self._entries("map"), function))

    @property
    def T(self) -> SparseArray:
        """The transpose; of a "csr" matrix it is "csc", with the same numbers."""
        return SparseArray(*structure.transpose(self._entries("A.T")))

    def transpose(self) -> SparseArray:
        """The transpose."""
        return self.T

    def tocsr(self) -> SparseArray:
        """The numbers in the order of rows and columns, those of one place added up."""
        return SparseArray(*structure.sort_entries(self._entries("tocsr"), "csr"))

    def tocsc(self) -> SparseArray:
        """The numbers in the order of columns and rows, those of one place added up."""
        return SparseArray(*structure.sort_entries(self._entries("tocsc"), "csc"))

    def tocoo(self) -> SparseArray:
        """The numbers as they are, with a row and a column for each; blocks are taken apart."""
        return SparseArray(*structure.list_entries(self._entries("tocoo")))

    def tobsr(self, blocksize: tuple[int, int]) -> SparseArray:
        """The numbers in dense blocks of a shape that divides the matrix's."""
        return SparseArray(*structure.gather_blocks(self._entries("tobsr"), blocksize))

    def sum_duplicates(self) -> SparseArray:
        """The matrix with one number for each place."""
        return SparseArray(*structure.sum_duplicates(self._entries("sum_duplicates")))

    def todense(self) -> Any:
        """The matrix as a dense array."""
        return structure.to_dense(self._entries("todense"))

    def to_scipy(self) -> Any:
        """A SciPy matrix (CuPy's on a GPU) of the same format. It holds plain numbers, so a matrix that carries
        derivatives is refused: detach it.
        """
        return to_library(self._entries("to_scipy"))

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The sum of all elements, or a dense vector of sums along an axis, which `keepdims` keeps with length one."""
        return structure.sum_entries(self._entries("sum"), axis, keepdims)

    def mean(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The mean of all elements, or a dense vector of means along an axis; zeros count."""
        total = self.sum(axis, keepdims=keepdims)
        return pointwise.divide(total, self.size // max(1, spec_of(total).size))

    def diagonal(self) -> Any:
        """The main diagonal, as a dense vector."""
        return structure.take_diagonal(self._entries("diagonal"))

    def trace(self) -> Any:
        """The sum of the main diagonal."""
        return reductions.sum(self.diagonal())

    def __getitem__(self, index: Any) -> Any:
        found = structure.take_items(self._entries("A[index]"), index)
        return SparseArray(*found) if isinstance(found, Entries) else found

    def __matmul__(self, other: Any) -> Any:
        other = _as_operand(other)
        if isinstance(other, SparseArray):
            _check_product(self.shape, other.shape)
            left, right = (x.tocoo()._entries("A @ B") for x in (self, other))
            return SparseArray(*products.multiply_sparse(left, right))
        _check_product(self.shape, shape(other))
        return products.multiply_dense(self._entries("A @ x"), other)

    def __rmatmul__(self, other: Any) -> Any:
        other = _as_operand(other)
        if isinstance(other, SparseArray):
            return other.__matmul__(self)
        if ndim(other) not in (1, 2) or shape(other)[-1] != self.shape[0]:
            raise ShapeError(f"x @ A: x has shape {shape(other)}, the sparse matrix {self.shape}.")
        if ndim(other) == 1:
            return self.T @ other
        return reshaping.permute_dims(self.T @ reshaping.permute_dims(other, (1, 0)), (1, 0))

    def dot(self, other: Any) -> Any:
        """The product with a vector or a matrix, dense or sparse: A @ x."""
        return self @ other

    def __mul__(self, other: Any) -> SparseArray:
        other = _as_operand(other)
        if isinstance(other, SparseArray):
            return SparseArray(*arithmetic.multiply_entries(self._entries("A * B"), other._entries("A * B")))
        return SparseArray(*arithmetic.combine_with_dense(self._entries("A * x"), other, pointwise.multiply, "*"))

    __rmul__ = __mul__

    def multiply(self, other: Any) -> SparseArray:
        """The product of elements with a number, a dense array that broadcasts to this shape, or a sparse matrix."""
        found: SparseArray = self * other
        return found

    def __truediv__(self, other: Any) -> SparseArray:
        other = _as_operand(other)
        if isinstance(other, SparseArray):
            raise ArgumentError("A / B: zeros of B are not stored, and would divide zeros of A.\n  Use A.todense().")
        return SparseArray(*arithmetic.combine_with_dense(self._entries("A / x"), other, pointwise.divide, "/"))

    def __add__(self, other: Any) -> Any:
        return self._join(other, pointwise.add, "+")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._join(other, pointwise.subtract, "-")

    def __rsub__(self, other: Any) -> Any:
        return self._join(other, lambda x, y: pointwise.subtract(y, x), "-")

    def _join(self, other: Any, combine: Callable[[Any, Any], Any], sign: str) -> Any:
        """The sum or difference with a sparse matrix, or with a dense one, which makes it dense."""
        other = _as_operand(other)
        entries = self._entries(f"A {sign} B")
        if isinstance(other, SparseArray):
            return SparseArray(*arithmetic.join_entries(entries, other._entries(f"A {sign} B"), combine, sign))
        if not isinstance(other, Value) and ndim(other) == 0 and other == 0:  # where Python's sum starts
            return SparseArray(combine(entries.data, other), entries.pattern)
        return arithmetic.join_dense(entries, other, combine, sign)

    def __neg__(self) -> SparseArray:
        return SparseArray(pointwise.negative(self.data), self.pattern)

    def __pos__(self) -> SparseArray:
        return self

    def __abs__(self) -> SparseArray:
        return self.map(pointwise.abs)

    def __pow__(self, power: Any) -> SparseArray:
        if isinstance(power, SparseArray) or ndim(as_value(power)):
            raise ArgumentError(
                "A ** p: p is a number.\n  Use A.todense(), or A.with_data to change the stored numbers alone."
            )
        return self.map(lambda x: x**power)

    def conj(self) -> SparseArray:
        """The complex conjugate."""
        return SparseArray(pointwise.conj(self.data), self.pattern) if self.dtype.kind == "c" else self

    def __repr__(self) -> str:
        rows, columns = self.shape
        data = self.data
        if not hasattr(data, "dtype"):
            return f"<sparse {rows} x {columns} of {data!r}>"
        batch = ndim(data) - (3 if self.format == "bsr" else 1)
        many = f", batch of {'x'.join(map(str, shape(data)[:batch]))}" if batch > 0 else ""
        end = ", requires_grad" * self.requires_grad
        return f"<sparse {rows} x {columns}, {self.nnz} entries of {data.dtype}, {self.format}{many}{end}>"

    def __eq__(self, other: object) -> Any:
        raise ArgumentTypeError(
            "A == B, A != B: zeros are equal, so almost every element of the result would be stored.\n"
            "  Compare A.todense(), or A.data where the patterns are equal."
        )

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ArgumentTypeError("bool(): a sparse matrix is neither true nor false.\n  Use A.nnz, or A.todense().")

    def __len__(self) -> int:
        raise ArgumentTypeError("len(): a sparse matrix has rows and columns.\n  Use A.shape[0], or A.nnz.")

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.shape[0]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if (stand_in := stand_in_for_product(self, sys._getframe(1))) is not None:
            return stand_in
        raise ConversionError(
            "this function takes dense arrays, and a sparse one is not made dense unasked.\n"
            "  Use A.todense(), A.map(f) for functions of each element, or the methods of A."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(self, ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return refuse_function(function)


def _as_operand(x: Any) -> Any:
    """The other side of an operator: a sparse array, of SciPy's matrices too, or a dense value."""
    if isinstance(x, SparseArray):
        return x
    return SparseArray(*from_library(x)) if is_library_matrix(x) else as_value(x)


def _check_product(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if len(right) not in (1, 2) or left[1] != right[0]:
        raise ShapeError(f"A @ x: the sparse matrix has shape {left}, x has {right}.")


def _unflatten(pattern: Pattern, children: Any) -> SparseArray:
    # what a transform puts in the place of the numbers need not be an array
    (data,) = children
    return SparseArray(data, pattern)


explain_missing_attributes(
    SparseArray,
    "SparseArray",
    """
    argmax argmin asformat asfptype copy count_nonzero eliminate_zeros getnnz imag max maximum min minimum nonzero power
    real reshape setdiag sqrt toarray todia todok tolil
    """,
)
register_tree(SparseArray, lambda A: ((A.data,), A.pattern, ("data",)), _unflatten)

"""Operators of SciPy's sparse matrices (CuPy's on a GPU) with tensors and values of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ops.dispatch import ndim, shape
from ..ops.index.normalize import namespace_for
from ..ops.shape.reshaping import permute_dims
from . import products
from .array import SparseArray
from .conversions import from_library, is_library_matrix


def operate_on_library_matrix(name: str, left: Any, right: Any) -> Any:
    """What an operator makes of two operands, one of them a library's sparse matrix, whose numbers are constants."""
    matrix, x = (left, right) if is_library_matrix(left) else (right, left)
    if not is_library_matrix(matrix):
        return NotImplemented
    # in SciPy * is the product of matrices for what is called a matrix, and of elements for what is called an array
    is_product = name == "matmul" or (name == "mul" and ndim(x) > 0 and _is_matrix_class(type(matrix)))
    if is_product:
        return _multiply_library_matrix(left, right)
    matrix = SparseArray(*from_library(matrix))
    return getattr(matrix, f"__{name}__" if x is right else f"__r{name}__", lambda _: NotImplemented)(x)


def _is_matrix_class(kind: type) -> bool:
    return any(base.__name__ == "spmatrix" for base in kind.__mro__)


def _multiply_library_matrix(left: Any, right: Any) -> Any:
    for factor in (left, right):
        if is_library_matrix(factor) and len(factor.shape) != 2:
            raise ShapeError(f"A @ x: wants a sparse matrix, got a sparse array of shape {factor.shape}.")
    if is_library_matrix(left):
        if ndim(right) not in (1, 2) or shape(right)[0] != left.shape[-1]:
            raise ShapeError(f"A @ x: the sparse matrix has shape {left.shape}, x has {shape(right)}.")
        return _multiply(left, right, False)
    if ndim(left) not in (1, 2) or shape(left)[-1] != right.shape[0]:
        raise ShapeError(f"x @ A: x has shape {shape(left)}, the sparse matrix {right.shape}.")
    if ndim(left) == 1:
        return _multiply(right, left, True)
    return permute_dims(_multiply(right, permute_dims(left, (1, 0)), True), (1, 0))


def _multiply(matrix: Any, x: Any, transposed: bool) -> Any:
    """A x or A^T x. Its arrays are used as they are, so that a compiled function reads them at each call."""
    if matrix.format not in ("coo", "csr", "csc"):
        matrix = matrix.tocsr()
    xp = namespace_for(x)
    height, width = matrix.shape
    if matrix.format == "coo":
        rows, cols = matrix.row, matrix.col
    else:
        count = height if matrix.format == "csr" else width
        starts = matrix.indptr
        major = xp.repeat(xp.arange(count, dtype=starts.dtype), _counts(xp, starts))
        rows, cols = (major, matrix.indices) if matrix.format == "csr" else (matrix.indices, major)
    if transposed:
        return products.multiply_entries(matrix.data, x, cols, rows, width)
    return products.multiply_entries(matrix.data, x, rows, cols, height)


def _counts(xp: Any, starts: Any) -> Any:
    counts = starts[1:] - starts[:-1]
    return counts if xp is np else counts.tolist()  # CuPy repeats by known numbers

"""Products by NumPy's names, all composites: dot, inner, vdot, vecdot, matvec, vecmat, kron, cross."""

from __future__ import annotations

from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError, ShapeError
from ..axes import normalize_axis
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..families import conjugate_if_complex
from ..index import indexing
from ..round_once import rounds_once
from ..shape import arrange, reshaping
from ..signatures import of_two_arrays
from . import matrix_products
from .einsum import contract_operands


@of_two_arrays
@attributed_to_caller
def dot(x: Any, y: Any, /) -> Any:
    """The sum over the last axis of x and the last but one of y (its only one, for a vector); scalars multiply.

    >>> import numpy as np, pullback as pb
    >>> pb.dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x, y = as_value(x), as_value(y)
    if not ndim(x) or not ndim(y):
        return pointwise.multiply(x, y)
    if ndim(x) <= 2 and ndim(y) <= 2:
        return matrix_products.matmul(x, y)
    return matrix_products.tensordot(x, y, axes=((-1,), (-2 if ndim(y) > 1 else -1,)))


@of_two_arrays
@attributed_to_caller
def inner(x: Any, y: Any, /) -> Any:
    """The sum over the last axes of both; scalars multiply.

    >>> import numpy as np, pullback as pb
    >>> pb.inner(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x, y = as_value(x), as_value(y)
    if not ndim(x) or not ndim(y):
        return pointwise.multiply(x, y)
    return matrix_products.tensordot(x, y, axes=((-1,), (-1,)))


@of_two_arrays
@attributed_to_caller
def vdot(x: Any, y: Any, /) -> Any:
    """The sum of conj(x) y over all elements of both, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.vdot(np.array([1j]), np.array([1j]))
    array(1.+0.j)
    """
    x, y = reshaping.reshape(as_value(x), (-1,)), reshaping.reshape(as_value(y), (-1,))
    return matrix_products.matmul(conjugate_if_complex(x), y)


@of_two_arrays
@attributed_to_caller
def vecdot(x: Any, y: Any, /, *, axis: int = -1) -> Any:
    """The sum of conj(x) y along an axis; the other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.vecdot(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    x, y = as_value(x), as_value(y)
    if not ndim(x) or not ndim(y):
        raise ShapeError(f"vecdot: wants arrays of one axis or more, got shapes {shape(x)} and {shape(y)}.")
    if axis >= 0:  # the axis is counted from the front of each as they broadcast
        rank = max(ndim(x), ndim(y))
        axis = normalize_axis(axis, rank, "vecdot") - rank
    x, y = (reshaping.moveaxis(v, normalize_axis(axis, ndim(v), "vecdot"), -1) for v in (x, y))
    if shape(x)[-1] != shape(y)[-1]:
        raise ShapeError(f"vecdot: axes of size {shape(x)[-1]} and {shape(y)[-1]} do not match.")
    letters = "bcdefghijklmnopqrstuvwxyz"
    of_x, of_y = (letters[: ndim(v) - 1][::-1] + "a" for v in (x, y))
    return contract_operands([conjugate_if_complex(x), y], [of_x, of_y], max(of_x, of_y, key=len)[:-1])


@of_two_arrays
@attributed_to_caller
def matvec(x: Any, y: Any, /) -> Any:
    """Matrices times vectors, the last axes of each; the other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.matvec(np.ones((5, 2, 3)), np.ones((5, 3))).shape
    (5, 2)
    """
    x, y = as_value(x), as_value(y)
    if ndim(x) < 2 or not ndim(y):
        raise ShapeError(f"matvec: wants matrices and vectors, got shapes {shape(x)} and {shape(y)}.")
    return reshaping.squeeze(matrix_products.matmul(x, reshaping.expand_dims(y, -1)), -1)


@of_two_arrays
@attributed_to_caller
def vecmat(x: Any, y: Any, /) -> Any:
    """Conjugated vectors times matrices, the last axes of each; the other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.vecmat(np.ones((5, 2)), np.ones((5, 2, 3))).shape
    (5, 3)
    """
    x, y = as_value(x), as_value(y)
    if ndim(y) < 2 or not ndim(x):
        raise ShapeError(f"vecmat: wants vectors and matrices, got shapes {shape(x)} and {shape(y)}.")
    return reshaping.squeeze(matrix_products.matmul(reshaping.expand_dims(conjugate_if_complex(x), -2), y), -2)


@of_two_arrays
@attributed_to_caller
def kron(x: Any, y: Any, /) -> Any:
    """The Kronecker product: each element of x replaced by that element times y.

    >>> import numpy as np, pullback as pb
    >>> pb.kron(np.array([1, 10]), np.array([1, 2]))
    array([ 1,  2, 10, 20])
    """
    x, y = as_value(x), as_value(y)
    rank = max(ndim(x), ndim(y))
    of_x, of_y = ((1,) * (rank - ndim(v)) + shape(v) for v in (x, y))
    left = reshaping.reshape(x, tuple(k for n in of_x for k in (n, 1)))
    right = reshaping.reshape(y, tuple(k for n in of_y for k in (1, n)))
    return reshaping.reshape(pointwise.multiply(left, right), tuple(a * b for a, b in zip(of_x, of_y, strict=True)))


@of_two_arrays
@attributed_to_caller
@rounds_once
def cross(x: Any, y: Any, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of three elements (two are taken to lie in a plane) along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = as_value(x), as_value(y)
    x = reshaping.moveaxis(x, normalize_axis(axisa, ndim(x), "cross"), -1)
    y = reshaping.moveaxis(y, normalize_axis(axisb, ndim(y), "cross"), -1)
    if not {shape(x)[-1], shape(y)[-1]} <= {2, 3}:
        raise ShapeError(f"cross: vectors have two or three elements, got {shape(x)[-1]} and {shape(y)[-1]}.")
    if shape(x)[-1] == shape(y)[-1] == 2:
        raise ArgumentError(
            "cross: two vectors of two elements have a product that is no vector.\n  Pad them with zeros."
        )

    def component(v: Any, i: int) -> Any:
        return indexing.getitem(v, (..., i)) if i < shape(v)[-1] else 0.0

    def minor(i: int, j: int) -> Any:
        return pointwise.subtract(
            pointwise.multiply(component(x, i), component(y, j)), pointwise.multiply(component(x, j), component(y, i))
        )

    parts = reshaping.broadcast_together(minor(1, 2), minor(2, 0), minor(0, 1))
    rank = ndim(parts[0]) + 1
    return arrange.stack(parts, axis=normalize_axis(axisc, rank, "cross"))

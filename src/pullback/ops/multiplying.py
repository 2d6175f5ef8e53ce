"""Products by NumPy's names, all composites: dot, inner, vdot, vecdot, matvec, vecmat, kron, cross."""

from __future__ import annotations

from typing import Any

from ..arrays.node import signed
from ..errors import ArgumentError, ShapeError
from . import arranging, contracting, indexing, shaping
from . import elementwise as pointwise
from .axes import one_axis
from .dispatch import as_value, ndim, shape
from .einsum import contract
from .families import is_complex

__all__ = ["cross", "dot", "inner", "kron", "matvec", "vdot", "vecdot", "vecmat"]


@signed
def dot(x: Any, y: Any, /) -> Any:
    """The sum over the last axis of x and the last but one of y (its only one, for a vector); numbers multiply.

    >>> import numpy as np, pullback as pb
    >>> pb.dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x, y = as_value(x), as_value(y)
    if not ndim(x) or not ndim(y):
        return pointwise.multiply(x, y)
    if ndim(x) <= 2 and ndim(y) <= 2:
        return contracting.matmul(x, y)
    return contracting.tensordot(x, y, axes=((-1,), (-2 if ndim(y) > 1 else -1,)))


@signed
def inner(x: Any, y: Any, /) -> Any:
    """The sum over the last axes of both; numbers multiply.

    >>> import numpy as np, pullback as pb
    >>> pb.inner(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array(11.)
    """
    x, y = as_value(x), as_value(y)
    if not ndim(x) or not ndim(y):
        return pointwise.multiply(x, y)
    return contracting.tensordot(x, y, axes=((-1,), (-1,)))


@signed
def vdot(x: Any, y: Any, /) -> Any:
    """The sum of conj(x) y over all elements of both, flattened.

    >>> import numpy as np, pullback as pb
    >>> pb.vdot(np.array([1j]), np.array([1j]))
    array(1.+0.j)
    """
    x, y = shaping.reshape(as_value(x), (-1,)), shaping.reshape(as_value(y), (-1,))
    return contracting.matmul(_conjugate(x), y)


def _conjugate(x: Any) -> Any:
    return pointwise.conj(x) if is_complex(x) else x


@signed
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
        axis = one_axis(axis, rank, "vecdot") - rank
    x, y = (shaping.moveaxis(v, one_axis(axis, ndim(v), "vecdot"), -1) for v in (x, y))
    if shape(x)[-1] != shape(y)[-1]:
        raise ShapeError(f"vecdot: axes of size {shape(x)[-1]} and {shape(y)[-1]} do not match.")
    letters = "bcdefghijklmnopqrstuvwxyz"
    of_x, of_y = (letters[: ndim(v) - 1][::-1] + "a" for v in (x, y))
    return contract([_conjugate(x), y], [of_x, of_y], max(of_x, of_y, key=len)[:-1])


@signed
def matvec(x: Any, y: Any, /) -> Any:
    """Matrices times vectors, the last axes of each; the other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.matvec(np.ones((5, 2, 3)), np.ones((5, 3))).shape
    (5, 2)
    """
    x, y = as_value(x), as_value(y)
    if ndim(x) < 2 or not ndim(y):
        raise ShapeError(f"matvec: wants matrices and vectors, got shapes {shape(x)} and {shape(y)}.")
    return shaping.squeeze(contracting.matmul(x, shaping.expand_dims(y, -1)), -1)


@signed
def vecmat(x: Any, y: Any, /) -> Any:
    """Conjugated vectors times matrices, the last axes of each; the other axes broadcast.

    >>> import numpy as np, pullback as pb
    >>> pb.vecmat(np.ones((5, 2)), np.ones((5, 2, 3))).shape
    (5, 3)
    """
    x, y = as_value(x), as_value(y)
    if ndim(y) < 2 or not ndim(x):
        raise ShapeError(f"vecmat: wants vectors and matrices, got shapes {shape(x)} and {shape(y)}.")
    return shaping.squeeze(contracting.matmul(shaping.expand_dims(_conjugate(x), -2), y), -2)


@signed
def kron(x: Any, y: Any, /) -> Any:
    """The Kronecker product: each element of x replaced by that element times y.

    >>> import numpy as np, pullback as pb
    >>> pb.kron(np.array([1, 10]), np.array([1, 2]))
    array([ 1,  2, 10, 20])
    """
    x, y = as_value(x), as_value(y)
    rank = max(ndim(x), ndim(y))
    of_x, of_y = ((1,) * (rank - ndim(v)) + shape(v) for v in (x, y))
    left = shaping.reshape(x, tuple(k for n in of_x for k in (n, 1)))
    right = shaping.reshape(y, tuple(k for n in of_y for k in (1, n)))
    return shaping.reshape(pointwise.multiply(left, right), tuple(a * b for a, b in zip(of_x, of_y, strict=True)))


@signed
def cross(x: Any, y: Any, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of three elements (two are taken to lie in a plane) along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = as_value(x), as_value(y)
    x = shaping.moveaxis(x, one_axis(axisa, ndim(x), "cross"), -1)
    y = shaping.moveaxis(y, one_axis(axisb, ndim(y), "cross"), -1)
    if not {shape(x)[-1], shape(y)[-1]} <= {2, 3}:
        raise ShapeError(f"cross: vectors have two or three elements, got {shape(x)[-1]} and {shape(y)[-1]}.")
    if shape(x)[-1] == shape(y)[-1] == 2:
        raise ArgumentError(
            "cross: two vectors of two elements have a product that is no vector.\n  Pad them with zeros."
        )

    def part(v: Any, i: int) -> Any:
        return indexing.getitem(v, (..., i)) if i < shape(v)[-1] else 0.0

    def turned(i: int, j: int) -> Any:
        return pointwise.subtract(
            pointwise.multiply(part(x, i), part(y, j)), pointwise.multiply(part(x, j), part(y, i))
        )

    parts = shaping.broadcast_together(turned(1, 2), turned(2, 0), turned(0, 1))
    rank = ndim(parts[0]) + 1
    return arranging.stack(parts, axis=one_axis(axisc, rank, "cross"))

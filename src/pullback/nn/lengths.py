"""Vectors and weights in, the same of a fixed length out: by norm, learned length or largest singular value."""

from __future__ import annotations

from typing import Any

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import random, reducing, shaping
from ..ops.axes import one_axis, whole
from ..ops.contracting import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import divide, equal, less, multiply, square, where
from ..ops.linalg import vector_norm
from ..ops.reducing import held_fixed, root_of
from .arguments import floats, key_beside

__all__ = ["cosine_similarity", "normalize", "spectral_norm", "weight_norm"]


def at_least(x: Any, least: float) -> Any:
    """x, and a constant where it is below the least."""
    return where(less(x, least), least, x)


@signed
def normalize(x: Any, /, p: float = 2.0, *, axis: Any = -1, eps: float = 1e-12) -> Any:
    """x over its p-norm along an axis, or over `eps` where the norm is smaller.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = floats(x, "normalize")
    return divide(x, at_least(vector_norm(x, axis=axis, keepdims=True, ord=p), eps))


@signed
def cosine_similarity(x: Any, y: Any, /, *, axis: int = -1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x and y along an axis; a norm below `eps` counts as `eps`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.cosine_similarity(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    array([0.70710678, 0.        ])
    """
    x, y = shaping.broadcast_together(floats(x, "cosine_similarity"), floats(y, "cosine_similarity"))
    axis = one_axis(axis, ndim(x), "cosine_similarity")
    # Each is divided by its own norm first: the product of two small norms would underflow.
    x, y = (divide(v, at_least(vector_norm(v, axis=axis, keepdims=True), eps)) for v in (x, y))
    return reducing.sum(multiply(x, y), axis=axis)


def _not_zero(size: Any) -> Any:
    return where(equal(size, 0), 1.0, size)


@signed
def weight_norm(v: Any, g: Any, /, *, axis: int | None = 0) -> Any:
    """g v / |v|: a direction v and its length g apart, one length for each place along an axis (None: one for all).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.weight_norm(np.array([[3.0, 4.0]]), np.array([10.0]))
    array([[6., 8.]])
    """
    v, g = floats(v, "weight_norm"), as_value(g)
    others = None if axis is None else tuple(a for a in range(ndim(v)) if a != one_axis(axis, ndim(v), "weight_norm"))
    size = root_of(reducing.sum(square(v), axis=others, keepdims=True))
    if spec_of(g).size != spec_of(size).size:
        raise ShapeError(f"weight_norm: {spec_of(g).size} lengths for {spec_of(size).size} directions.")
    return multiply(v, divide(shaping.reshape(g, shape(size)), _not_zero(size)))


def spectral_norm(
    weight: Any, /, u: Any = None, *, axis: int = 0, steps: int = 1, eps: float = 1e-12, key: Any = None
) -> tuple[Any, Any]:
    """A weight over its largest singular value, found by power iteration from the vector u: `(weight, u)`.

    The u that comes back starts the next call nearer to the answer; without one it is drawn. As a matrix the weight has
    one row for each place along `axis`. The vectors are constants to every derivative, which makes the first one
    right as soon as they have converged; for higher ones divide by `pb.linalg.matrix_norm(weight, ord=2)`.

    >>> import numpy as np, pullback as pb
    >>> w, u = pb.nn.spectral_norm(np.diag([4.0, 2.0]), np.ones(2), steps=50)
    >>> w.round(6)
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    weight = floats(weight, "spectral_norm")
    if ndim(weight) < 2:
        raise ShapeError(f"spectral_norm: wants a matrix or more axes, got shape {shape(weight)}.")
    if whole(steps, "spectral_norm: steps") < 0:
        raise ArgumentError(f"spectral_norm: steps must not be negative, got {steps}.")
    axis = one_axis(axis, ndim(weight), "spectral_norm")
    rows = shape(weight)[axis]
    if u is None:
        u = random.normal(size=rows, key=key_beside(key, weight, "normal"), dtype=spec_of(weight).dtype)
    if shape(as_value(u)) != (rows,):
        raise ShapeError(f"spectral_norm: u has shape {shape(as_value(u))}, the weight has {rows} rows.")
    return _over_largest(weight, held_fixed(as_value(u)), axis, steps, eps)


def _over_largest(weight: Any, u: Any, axis: int, steps: int, eps: float) -> tuple[Any, Any]:
    matrix = shaping.reshape(shaping.moveaxis(weight, axis, 0), (shape(weight)[axis], -1))
    fixed = held_fixed(matrix)
    v = normalize(matmul(u, fixed), eps=eps)
    for _ in range(steps):
        u = normalize(matmul(fixed, v), eps=eps)
        v = normalize(matmul(u, fixed), eps=eps)
    return _divided(weight, matrix, u, v), u


@signed
def _divided(weight: Any, matrix: Any, u: Any, v: Any) -> Any:
    return divide(weight, _not_zero(reducing.sum(multiply(u, matmul(matrix, v)))))

"""Normalization of vectors and weights: by a norm, a learned length, or the largest singular value."""

from __future__ import annotations

from typing import Any

from ...arrays.node import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from ...ops import random
from ...ops.axes import as_integer, normalize_axis
from ...ops.contract.matrix_products import matmul
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import divide, equal, less, multiply, square, where
from ...ops.linalg import vector_norm
from ...ops.reduce import reductions
from ...ops.reduce.reductions import as_constant, safe_sqrt
from ...ops.shape import reshaping
from ..arguments import as_floats, key_on_device_of


def clamp_min(x: Any, least: float) -> Any:
    """x, and the constant `least` where it is below that."""
    return where(less(x, least), least, x)


@attributed_to_caller
def normalize(x: Any, /, p: float = 2.0, *, axis: Any = -1, eps: float = 1e-12) -> Any:
    """x over its p-norm along an axis, or over `eps` where the norm is smaller.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = as_floats(x, "normalize")
    return divide(x, clamp_min(vector_norm(x, axis=axis, keepdims=True, ord=p), eps))


@attributed_to_caller
def cosine_similarity(x: Any, y: Any, /, *, axis: int = -1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x and y along an axis; a norm below `eps` counts as `eps`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.cosine_similarity(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    array([0.70710678, 0.        ])
    """
    x, y = reshaping.broadcast_together(as_floats(x, "cosine_similarity"), as_floats(y, "cosine_similarity"))
    axis = normalize_axis(axis, ndim(x), "cosine_similarity")
    # Each is divided by its own norm first: the product of two small norms would underflow.
    x, y = (divide(v, clamp_min(vector_norm(v, axis=axis, keepdims=True), eps)) for v in (x, y))
    return reductions.sum(multiply(x, y), axis=axis)


def _one_where_zero(size: Any) -> Any:
    return where(equal(size, 0), 1.0, size)


@attributed_to_caller
def weight_norm(v: Any, g: Any, /, *, axis: int | None = 0) -> Any:
    """g v / |v|: a direction v and its length g apart, one length for each index along an axis (None: one for all).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.weight_norm(np.array([[3.0, 4.0]]), np.array([10.0]))
    array([[6., 8.]])
    """
    v, g = as_floats(v, "weight_norm"), as_value(g)
    others = (
        None if axis is None else tuple(a for a in range(ndim(v)) if a != normalize_axis(axis, ndim(v), "weight_norm"))
    )
    size = safe_sqrt(reductions.sum(square(v), axis=others, keepdims=True))
    if spec_of(g).size != spec_of(size).size:
        raise ShapeError(f"weight_norm: {spec_of(g).size} lengths for {spec_of(size).size} directions.")
    return multiply(v, divide(reshaping.reshape(g, shape(size)), _one_where_zero(size)))


def spectral_norm(
    weight: Any, /, u: Any = None, *, axis: int = 0, steps: int = 1, eps: float = 1e-12, key: Any = None
) -> tuple[Any, Any]:
    """A weight over its largest singular value, found by power iteration from the vector u: `(weight, u)`.

    The returned u is a better start for the next call; without one it is drawn. As a matrix the weight has
    one row for each index along `axis`. The vectors are constants to every derivative, which makes the first one
    right as soon as they have converged; for higher ones divide by `pb.linalg.matrix_norm(weight, ord=2)`.

    >>> import numpy as np, pullback as pb
    >>> w, u = pb.nn.spectral_norm(np.diag([4.0, 2.0]), np.ones(2), steps=50)
    >>> w.round(6)
    array([[1. , 0. ],
           [0. , 0.5]])
    """
    weight = as_floats(weight, "spectral_norm")
    if ndim(weight) < 2:
        raise ShapeError(f"spectral_norm: wants a matrix or more axes, got shape {shape(weight)}.")
    if as_integer(steps, "spectral_norm: steps") < 0:
        raise ArgumentError(f"spectral_norm: steps must not be negative, got {steps}.")
    axis = normalize_axis(axis, ndim(weight), "spectral_norm")
    rows = shape(weight)[axis]
    if u is None:
        u = random.normal(size=rows, key=key_on_device_of(key, weight, "normal"), dtype=spec_of(weight).dtype)
    if shape(as_value(u)) != (rows,):
        raise ShapeError(f"spectral_norm: u has shape {shape(as_value(u))}, the weight has {rows} rows.")
    return _iterate_and_divide(weight, as_constant(as_value(u)), axis, steps, eps)


def _iterate_and_divide(weight: Any, u: Any, axis: int, steps: int, eps: float) -> tuple[Any, Any]:
    matrix = reshaping.reshape(reshaping.moveaxis(weight, axis, 0), (shape(weight)[axis], -1))
    fixed = as_constant(matrix)
    v = normalize(matmul(u, fixed), eps=eps)
    for _ in range(steps):
        u = normalize(matmul(fixed, v), eps=eps)
        v = normalize(matmul(u, fixed), eps=eps)
    return _divide_by_sigma(weight, matrix, u, v), u


@attributed_to_caller
def _divide_by_sigma(weight: Any, matrix: Any, u: Any, v: Any) -> Any:
    return divide(weight, _one_where_zero(reductions.sum(multiply(u, matmul(matrix, v)))))

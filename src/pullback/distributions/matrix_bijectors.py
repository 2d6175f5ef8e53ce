"""Bijectors onto matrices: covariance matrices from their factors, factors of correlation matrices from numbers."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import exp, log, softplus, sqrt, square, tanh
from ..ops.elementwise.transcendental import atanh
from ..ops.linalg.factorizations import cholesky
from ..ops.placement import move
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import diagonal
from ..ops.shape.reshaping import matrix_transpose, reshape
from ..ops.value_objects import value_object
from .bijectors import Bijector, Shape
from .vector_bijectors import running_sum


@final
@value_object
class CholeskyProduct(Bijector):
    """From lower triangular matrices L with a positive diagonal to L L^T: all symmetric positive definite matrices.

    >>> import numpy as np
    >>> from pullback.distributions import CholeskyProduct
    >>> CholeskyProduct().forward(np.array([[2.0, 0.0], [1.0, 1.0]])).tolist()
    [[4.0, 2.0], [2.0, 2.0]]
    """

    rank = 2

    def forward(self, x: Any) -> Any:
        x = as_value(x)
        return matmul(x, matrix_transpose(x))

    def inverse(self, y: Any) -> Any:
        return cholesky(as_value(y))

    def log_det(self, x: Any) -> Any:
        # of the lower triangle of L L^T by that of L: the product of 2 L_ii^(n - i) over i = 0, 1, ...
        x = as_value(x)
        size = spec_of(x).shape[-1]
        counts = _constant(np.arange(size, 0, -1.0), x)
        return size * math.log(2.0) + total(counts * log(diagonal(x, axis1=-2, axis2=-1)), axis=-1)


@final
@value_object
class CorrelationCholesky(Bijector):
    """From n (n - 1) / 2 numbers to the Cholesky factors of n by n correlation matrices: lower triangles whose rows
    have length one. The hyperbolic tangent of each number is the share of what its row has left.

    >>> import numpy as np
    >>> from pullback.distributions import CorrelationCholesky
    >>> CorrelationCholesky().forward(np.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    rank = 1
    image_rank = 2

    def forward(self, x: Any) -> Any:
        shares, left = self._shares(as_value(x))
        return (shares + _constant(np.eye(spec_of(shares).shape[-1]), shares)) * left

    def inverse(self, y: Any) -> Any:
        y = as_value(y)
        rows, columns = np.tril_indices(spec_of(y).shape[-1], -1)
        # what a row has left, summed from its end, where small numbers keep their digits
        left = sqrt(running_sum(square(y)[..., ::-1])[..., ::-1])
        return atanh(y[..., rows, columns] / left[..., rows, columns])

    def log_det(self, x: Any) -> Any:
        # L_ij = tanh(x_ij) left_ij, and left depends on numbers before j: the diagonal is (1 - tanh^2 x_ij) left_ij
        x = as_value(x)
        _, left = self._shares(x)
        rows, columns = np.tril_indices(spec_of(left).shape[-1], -1)
        return total(_log_rest(x) + log(left[..., rows, columns]), axis=-1)

    def _shares(self, x: Any) -> tuple[Any, Any]:
        """The share of each place below the diagonal, and how much length its row has left before it."""
        size = _side_of_strict(spec_of(x).shape)
        rows, columns = np.tril_indices(size, -1)
        place = np.zeros((rows.size, size, size))
        place[np.arange(rows.size), rows, columns] = 1.0
        # products keep every transform; a row's numbers before j are those of columns below j
        before = np.cumsum(place, axis=-1) - place
        shares = _fill(tanh(x), _constant(place, x))
        return shares, exp(0.5 * _fill(_log_rest(x), _constant(before, x)))

    def forward_shape(self, shape: Shape) -> Shape:
        side = _side_of_strict(shape)
        return (*shape[:-1], side, side)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _log_rest(x: Any) -> Any:
    """log(1 - tanh^2 x), with its digits where tanh is 1."""
    return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


def _fill(x: Any, places: Any) -> Any:
    count, size, _ = spec_of(places).shape
    flat = matmul(x, reshape(places, (count, size * size)))
    return reshape(flat, (*spec_of(flat).shape[:-1], size, size))


def _constant(values: Any, like: Any) -> Any:
    found = spec_of(like)
    return move(values.astype(found.dtype if found.inexact else float), found.device)


def _side_of_strict(shape: Shape) -> int:
    count = shape[-1] if shape else -1
    side = (1 + math.isqrt(1 + 8 * max(count, 0))) // 2
    if count < 0 or side * (side - 1) // 2 != count:
        raise ShapeError(f"CorrelationCholesky: maps vectors of n (n - 1) / 2 numbers, got shape {shape}.")
    return side

"""Bijectors of vectors and matrices: onto the simplex, onto Cholesky factors, a matrix times a vector."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value
from ..ops.dispatch import shape as shape_of
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import exp, log, softplus
from ..ops.linalg.linear_systems import triangular_solve
from ..ops.placement import move
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import concat, diagonal
from ..ops.shape.reshaping import broadcast_to, expand_dims
from ..ops.value_objects import as_parameter, set_fields, value_object
from .bijectors import Bijector, Shape, everywhere
from .ratios import logit


def _log_places(count: int, like: Any) -> Any:
    """The logarithms of count, count - 1, ..., 1 in the dtype and place of the points."""
    found = spec_of(like)
    return move(np.log(np.arange(count, 0, -1.0)).astype(found.dtype if found.inexact else float), found.device)


def _size(x: Any, what: str) -> int:
    shape = spec_of(x).shape
    if not shape:
        raise ShapeError(f"{what}: maps vectors, got a number.")
    return shape[-1]


def running_sum(x: Any) -> Any:
    """The sums of the first numbers along the last axis: of 1, then 2, 4, ... neighbors, as native ops, where NumPy's
    is a step of the host.
    """
    found = spec_of(x)
    *lead, count = found.shape
    step = 1
    while step < count:
        nothing = move(np.zeros((*lead, step), found.dtype), found.device)
        x = x + concat([nothing, x[..., :-step]], axis=-1)
        step *= 2
    return x


@final
@value_object
class StickBreaking(Bijector):
    """From n numbers to n + 1 positive shares that sum to one: each number says which part of what is left to take.
    Zeros are mapped to equal shares.

    >>> import numpy as np
    >>> from pullback.distributions import StickBreaking
    >>> StickBreaking().forward(np.zeros(3)).round(12).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    rank = 1

    def forward(self, x: Any) -> Any:
        logs, rest = self._log_parts(as_value(x))
        return exp(concat([logs + rest[..., :-1], rest[..., -1:]], axis=-1))

    def inverse(self, y: Any) -> Any:
        y = as_value(y)
        count = _size(y, "StickBreaking.inverse") - 1
        # what is left after each share, summed from the far end so that small remainders keep their digits
        left = running_sum(y[..., ::-1])[..., ::-1]
        with np.errstate(all="ignore"):  # where nothing is left, no number says how it is shared
            return logit(y[..., :-1] / left[..., :-1]) + _log_places(count, y)

    def log_det(self, x: Any) -> Any:
        # y_k = s_k rest_k; the Jacobian is triangular with diagonal s_k (1 - s_k) rest_k
        logs, rest = self._log_parts(as_value(x))
        return total(logs + logs - self._shifted(x) + rest[..., :-1], axis=-1)

    def _shifted(self, x: Any) -> Any:
        return x - _log_places(_size(x, "StickBreaking"), x)

    def _log_parts(self, x: Any) -> tuple[Any, Any]:
        """log of the part that each number takes, and of what is left before it, and at the end."""
        shifted = self._shifted(x)
        logs, left = -softplus(-shifted), -softplus(shifted)
        start = shifted[..., :1] * 0.0
        return logs, concat([start, running_sum(left)], axis=-1)

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)


@final
@value_object
class FillTriangular(Bijector):
    """From n (n + 1) / 2 numbers to lower triangular n by n matrices with a positive diagonal: Cholesky factors. The
    diagonal is the exponential of its numbers.

    >>> import numpy as np
    >>> from pullback.distributions import FillTriangular
    >>> FillTriangular().forward(np.zeros(3)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    rank = 1
    image_rank = 2

    def forward(self, x: Any) -> Any:
        x = as_value(x)
        size = _side(_size(x, "FillTriangular"))
        rows, columns = np.tril_indices(size)
        # one matrix for each number, with a one where it goes; products keep every transform and dtype
        place = np.zeros((rows.size, size, size), spec_of(x).dtype)
        place[np.arange(rows.size), rows, columns] = 1
        on_diagonal = rows == columns
        filled = x[..., ~on_diagonal] if size > 1 else None
        below = 0.0 if filled is None else _place(filled, place[~on_diagonal])
        return below + _place(exp(x[..., on_diagonal]), place[on_diagonal])

    def inverse(self, y: Any) -> Any:
        y = as_value(y)
        rows, columns = np.tril_indices(_size(y, "FillTriangular.inverse"))
        picked = y[..., rows, columns]
        logs = log(diagonal(y, axis1=-2, axis2=-1))
        return _replace(picked, logs, rows == columns)

    def log_det(self, x: Any) -> Any:
        x = as_value(x)
        rows, columns = np.tril_indices(_side(_size(x, "FillTriangular")))
        return total(x[..., rows == columns], axis=-1)

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], _side(shape[-1]), _side(shape[-1]))

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2)


def _place(x: Any, places: Any) -> Any:
    count, size, _ = places.shape
    flat = matmul(x, places.reshape(count, size * size))
    return flat.reshape((*spec_of(flat).shape[:-1], size, size))


def _replace(picked: Any, logs: Any, at: Any) -> Any:
    """`picked` with the numbers of `logs` in the marked places of the last axis."""
    order = np.empty(at.size, int)
    order[~at], order[at] = np.arange((~at).sum()), (~at).sum() + np.arange(at.sum())
    return concat([picked[..., ~at], logs], axis=-1)[..., order]


def _side(count: int) -> int:
    side = (math.isqrt(8 * count + 1) - 1) // 2
    if side * (side + 1) // 2 != count:
        raise ShapeError(f"FillTriangular: {count} numbers fill no triangle; wanted n (n + 1) / 2 of them.")
    return side


@final
@value_object
class TriangularAffine(Bijector):
    """y = loc + scale_tril @ x for vectors, with a lower triangular matrix.

    >>> import numpy as np
    >>> from pullback.distributions import TriangularAffine
    >>> TriangularAffine(np.ones(2), np.array([[2.0, 0.0], [1.0, 1.0]])).forward(np.ones(2)).tolist()
    [3.0, 3.0]
    """

    rank = 1
    loc: Any
    scale_tril: Any

    def __post_init__(self) -> None:
        set_fields(self, {"loc": as_parameter(self.loc), "scale_tril": as_parameter(self.scale_tril)})

    def forward(self, x: Any) -> Any:
        return self.loc + matmul(self.scale_tril, expand_dims(as_value(x), axis=-1))[..., 0]

    def inverse(self, y: Any) -> Any:
        return solve_lower(self.scale_tril, as_value(y) - self.loc)

    def log_det(self, x: Any) -> Any:
        found = total(log(magnitude(diagonal(self.scale_tril, axis1=-2, axis2=-1))), axis=-1)
        return everywhere(found, as_value(x)[..., 0])

    def forward_shape(self, shape: Shape) -> Shape:
        lead = np.broadcast_shapes(shape[:-1], shape_of(self.loc)[:-1], shape_of(self.scale_tril)[:-2])
        return (*lead, shape[-1])

    inverse_shape = forward_shape


def solve_lower(factor: Any, x: Any) -> Any:
    """factor^-1 x for vectors in the last axis, over batches of either."""
    lead = np.broadcast_shapes(spec_of(factor).shape[:-2], spec_of(x).shape[:-1])
    size = spec_of(factor).shape[-1]
    wide = broadcast_to(factor, (*lead, size, size))
    return triangular_solve(wide, expand_dims(broadcast_to(x, (*lead, size)), axis=-1), lower=True)[..., 0]

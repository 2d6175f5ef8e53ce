"""Low rank: a matrix is sent as the product of two narrow ones, which ranks find together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.argument_checks import check_count
from ...arrays.backends import namespace_on
from ...arrays.picklable import picklable
from ...arrays.spec import Spec, spec_of
from ...ops.contract.matrix_products import matmul
from ...ops.elementwise import pointwise
from ...ops.index.indexing import getitem
from ...ops.reduce import reductions
from ...ops.shape.arrange import stack
from ...ops.shape.reshaping import matrix_transpose, reshape
from .codec import Codec, Coded, Running, SumOver


@picklable
def power_sgd(rank: int = 2, seed: int = 0) -> Codec:
    """Send matrices as products of rank `rank` (PowerSGD, Vogels et al., 2019): one step of the power method on the sum
    over ranks, which starts where the last one ended. An array of more axes is a matrix with rows along the first;
    vectors and numbers, and matrices too small for it, are summed plainly. Use it inside `error_feedback`.

    Two sums a step, of (m + n) * rank numbers for a matrix of m x n.

    >>> import numpy as np, pullback as pb
    >>> rule = pb.distributed.aggregate(pb.distributed.codecs.power_sgd(rank=1))
    >>> def step():
    ...     g = np.outer(np.arange(4.0), np.arange(5.0))
    ...     return bool(np.allclose(rule.update(g, rule.init(g), g)[0], 2 * g))
    >>> pb.distributed.run(step, 2)
    [True, True]
    """
    rank = check_count(rank, "power_sgd: rank")

    def start(x: Any) -> Any:
        spec = spec_of(x)
        columns = np.random.default_rng(seed).normal(size=(_matrix_shape(spec)[1], rank))
        dtype = np.float32 if spec.half else spec.dtype
        return namespace_on(spec.device).asarray((columns / np.linalg.norm(columns, axis=0)).astype(dtype))

    def run(x: Any, right: Any, step: Any) -> Running:
        # M ~ P Q' with orthonormal P; of the sum over ranks, since P = M Q and Q = M' P are linear in M
        matrix = reshape(x, _matrix_shape(spec_of(x)))
        (left,) = yield SumOver((matmul(matrix, right),))
        left = _orthonormalize(left)
        own = matmul(matrix_transpose(matrix), left)
        (summed,) = yield SumOver((own,))
        total, sent = (reshape(matmul(left, matrix_transpose(q)), spec_of(x).shape) for q in (summed, own))
        return Coded(total, sent, _normalize_columns(summed, right))

    return Codec(f"power_sgd({rank})", start, run, lambda spec: _sent_bytes(spec, rank))


def _matrix_shape(spec: Spec) -> tuple[int, int]:
    return spec.shape[0], spec.size // spec.shape[0]


def _sent_bytes(spec: Spec, rank: int) -> float:
    if spec.ndim < 2 or not spec.size:
        return spec.nbytes
    return float(sum(_matrix_shape(spec)) * rank * max(spec.dtype.itemsize, 4))


def _orthonormalize(matrix: Any) -> Any:
    """An orthonormal basis of the columns, by Gram and Schmidt twice; zeros for those that depend on others."""
    spec = spec_of(matrix)
    least = 100 * float(np.finfo(spec.dtype).eps)
    found: list[Any] = []
    for i in range(spec.shape[1]):
        column = getitem(matrix, (slice(None), i))
        before = _norm(column)
        for other in (*found, *found):
            along = reductions.sum(pointwise.multiply(column, other))
            column = pointwise.subtract(column, pointwise.multiply(along, other))
        length = _norm(column)
        is_new = pointwise.greater(length, pointwise.multiply(before, least))
        found.append(pointwise.where(is_new, pointwise.divide(column, pointwise.where(is_new, length, 1.0)), 0.0))
    return stack(found, axis=1)


def _norm(x: Any) -> Any:
    return pointwise.sqrt(reductions.sum(pointwise.square(x)))


def _normalize_columns(matrix: Any, otherwise: Any) -> Any:
    """Columns of length one; where one is zero or not finite, that of another matrix, or it would stay so."""
    lengths = pointwise.sqrt(reductions.sum(pointwise.square(matrix), axis=0, keepdims=True))
    is_good = pointwise.logical_and(pointwise.greater(lengths, 0.0), pointwise.isfinite(lengths))
    return pointwise.where(is_good, pointwise.divide(matrix, pointwise.where(is_good, lengths, 1.0)), otherwise)

"""Matrices in, how many of their directions count out: ranks, and the singular values they are read off."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from .. import elementwise as pointwise
from .. import reducing, shaping
from ..dispatch import as_value, ndim, shape
from . import hermitian as symmetric
from . import singular
from .matrices import eps

__all__ = ["matrix_rank"]


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """How many singular values lie above `tol`, or above `rtol` times the largest. It has no derivative.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.matrix_rank(np.ones((3, 3)))
    array(1)
    """
    if tol is not None and rtol is not None:
        raise ArgumentError("matrix_rank: tol and rtol both say what counts as zero.\n  Give one of them.")
    A = pointwise.stop_gradient(as_value(A))
    if ndim(A) < 2:
        return shaping.astype(reducing.any(pointwise.not_equal(A, 0)), np.int64)
    s = pointwise.abs(symmetric.eigvalsh(A, "L")) if hermitian else singular.svdvals(A)
    if not shape(s)[-1]:
        return shaping.astype(reducing.sum(s, axis=-1), np.int64)
    bound = as_value(tol) if tol is not None else _bound(A, s, rtol)
    above = pointwise.greater(s, shaping.expand_dims(bound, -1))
    return reducing.sum(shaping.astype(above, np.int64), axis=-1)


def _bound(A: Any, s: Any, rtol: Any) -> Any:
    factor = max(shape(A)[-2:]) * eps(s.dtype) if rtol is None else as_value(rtol)
    return pointwise.multiply(reducing.max(s, axis=-1), factor)


def known(x: Any) -> Any:
    """A number where one can be told now: not of a batch, nor of a program that is only written down."""
    while type(x) is Tensor:
        x = x.value
    return int(x) if is_array(x) and not x.ndim else None

"""Matrix rank, and the tolerances of singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.tensor import Tensor
from ...errors import ArgumentError
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..reduce import reductions
from ..shape import reshaping
from . import hermitian as symmetric
from . import singular
from .common import eps


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """How many singular values lie above `tol`, or above `rtol` times the largest. It has no derivative.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.matrix_rank(np.ones((3, 3)))
    array(1)
    """
    if tol is not None and rtol is not None:
        raise ArgumentError("matrix_rank: tol and rtol both set what counts as zero.\n  Give one of them.")
    A = pointwise.stop_gradient(as_value(A))
    if ndim(A) < 2:
        return reshaping.astype(reductions.any(pointwise.not_equal(A, 0)), np.int64)
    s = pointwise.abs(symmetric.eigvalsh(A, "L")) if hermitian else singular.svdvals(A)
    if not shape(s)[-1]:
        return reshaping.astype(reductions.sum(s, axis=-1), np.int64)
    bound = as_value(tol) if tol is not None else _rank_tolerance(A, s, rtol)
    above = pointwise.greater(s, reshaping.expand_dims(bound, -1))
    return reductions.sum(reshaping.astype(above, np.int64), axis=-1)


def _rank_tolerance(A: Any, s: Any, rtol: Any) -> Any:
    factor = max(shape(A)[-2:]) * eps(s.dtype) if rtol is None else as_value(rtol)
    return pointwise.multiply(reductions.max(s, axis=-1), factor)


def concrete_number(x: Any) -> Any:
    """A number where it is concrete: not under vmap, nor in a staged program."""
    while type(x) is Tensor:
        x = x.value
    return int(x) if is_array(x) and not x.ndim else None

"""Pseudo-inverses, least squares and ranks, for matrices of any shape and rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import is_array
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import make_spec, spec_of
from ...arrays.tensor import Tensor
from ...errors import ArgumentError, ShapeError
from .. import batching
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..forms import Matrix
from ..fusion import cast_whole
from ..op import Op
from ..reduce import reductions
from ..shape import reshaping
from ..signatures import of_array
from . import common
from .common import adjoint, as_matrix, eps, float_dtype, product
from .eigen import eigvalsh, symmetrize_from
from .singular import svdvals


@of_array
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
    s = pointwise.abs(eigvalsh(A, "L")) if hermitian else svdvals(A)
    if not shape(s)[-1]:
        return reshaping.astype(reductions.sum(s, axis=-1), np.int64)
    bound = as_value(tol) if tol is not None else _rank_tolerance(A, s, rtol)
    above = pointwise.greater(s, reshaping.expand_dims(bound, -1))
    return reductions.sum(reshaping.astype(above, np.int64), axis=-1)


def _rank_tolerance(A: Any, s: Any, rtol: Any) -> Any:
    factor = max(shape(A)[-2:]) * eps(s.dtype) if rtol is None else as_value(rtol)
    return pointwise.multiply(reductions.max(s, axis=-1), factor)


def _concrete_number(x: Any) -> Any:
    """A number where it is concrete: not under vmap, nor in a staged program."""
    while type(x) is Tensor:
        x = x.value
    return int(x) if is_array(x) and not x.ndim else None


def _pinv_value(xp: Any, x: Any, rtol: Any) -> Any:
    if not x.size:
        return xp.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), float_dtype(x.dtype))
    u, s, vh = common.call_lapack(xp.linalg.svd, "pinv", x, full_matrices=False)
    kept = s > (rtol * s[..., :1].max(axis=-1))[..., None]
    inverse = xp.where(kept, 1 / xp.where(kept, s, 1), 0)
    out = xp.matmul(xp.conj(xp.swapaxes(vh, -1, -2)), inverse[..., None] * xp.conj(xp.swapaxes(u, -1, -2)))
    return common.narrow_to(out.astype(u.dtype, copy=False), x.dtype)


# Golub and Pereyra, for matrices y of one rank near x, p = pinv(x):
#   p' = -p y' p + p p^H y'^H (1 - x p) + (1 - p x) y'^H p^H p.
def _push_pinv(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    y, x, p = tangents[0], primals[0], out
    if y is None:
        return None
    yh, ph = adjoint(y), adjoint(p)
    left, right = product(product(p, ph), yh), product(yh, product(ph, p))
    first = pointwise.negative(product(product(p, y), p))
    second = pointwise.subtract(left, product(product(left, x), p))
    third = pointwise.subtract(right, product(p, product(x, right)))
    return pointwise.add(pointwise.add(first, second), third)


def _pull_pinv(bar: Any, x: Any, out: Any) -> Any:
    """Each term of the push, transposed: <bar, b y^H c> = <c bar^H b, y>."""
    p, ph, bh = out, adjoint(out), adjoint(bar)
    first = pointwise.negative(product(product(ph, bar), ph))
    left, right = product(bh, product(p, ph)), product(product(ph, p), bh)
    second = pointwise.subtract(left, product(x, product(p, left)))
    third = pointwise.subtract(right, product(product(right, p), x))
    return pointwise.add(pointwise.add(first, second), third)


def _pinv_samples(rng: Any) -> Any:
    shapes = ((3, 2), (2, 3), (2, 2, 2), (0, 2), (2, 3, 0))
    return [((rng.normal(size=s) + 3 * np.eye(*s[-2:]), np.asarray(1e-12)), {}) for s in shapes]


def _batch_pinv(op: Any, size: int, args: Any, axes: Any, static: Any) -> tuple[Any, int]:
    """The tolerances of a stack get axes of size one for the stack axes that they do not have."""
    (x, rtol), (x_axis, rtol_axis) = args, axes
    x = batching.move_batch_first(x, x_axis, size)
    return apply(op, x, batching.align_rank(rtol, rtol_axis, ndim(x) - 3)), 0


_pinv: Op = common.matrix_op(
    "pinv",
    value=_pinv_value,
    spec=lambda x, rtol: make_spec((*x.shape[:-2], x.shape[-1], x.shape[-2]), float_dtype(x.dtype), x.device),
    pulls={"x": _pull_pinv, "rtol": None},
    push=_push_pinv,
    batch=_batch_pinv,
    samples=_pinv_samples,
    form=Matrix("pinv", 12.0),
)


@of_array
@attributed_to_caller
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The pseudo-inverse: singular values up to `rtol` times the largest count as zero. Its derivative is the one
    among matrices of the same rank. With `hermitian` only the lower triangle is read, as in NumPy.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.pinv(np.array([[2.0], [0.0]]))
    array([[0.5, 0. ]])
    """
    a = as_matrix(a, "pinv")
    if rcond is not None and rtol is not None:
        raise ArgumentError("pinv: rcond and rtol are two names of one parameter.\n  Give one of them.")
    matrix = symmetrize_from(a, "L", "pinv") if hermitian else a
    return apply(_pinv, matrix, _cutoff(a, rtol if rcond is None else rcond))


def _cutoff(a: Any, rtol: Any) -> Any:
    dtype = common.real_dtype(spec_of(a).dtype)
    given = max(shape(a)[-2:]) * eps(dtype) if rtol is None else rtol
    return pointwise.stop_gradient(as_value(np.asarray(given, dtype) if isinstance(given, (int, float)) else given))


@cast_whole("high")
@attributed_to_caller
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """The x of least norm that minimizes |a x - b|, with the squared residuals of each column (none if a
    does not have full column rank), the rank and the singular values of a.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))[0]
    array([2.])
    """
    a, b = as_matrix(a, "lstsq"), as_value(b)
    one = ndim(b) == 1
    b = common.as_column(b) if one else b
    if ndim(b) < 2 or shape(a)[-2] != shape(b)[-2]:
        raise ShapeError(f"lstsq: a of shape {shape(a)} and b of shape {shape(b)} differ in the number of rows.")
    rcond = eps(spec_of(a).dtype) if rcond == -1 else rcond
    x = product(apply(_pinv, a, _cutoff(a, rcond)), b)
    misfit = pointwise.abs(pointwise.subtract(b, product(a, x)))
    residuals = reductions.sum(pointwise.square(misfit), axis=-2)
    found = matrix_rank(a, rtol=rcond)
    rows, columns = shape(a)[-2:]
    if rows <= columns or (ndim(a) == 2 and _concrete_number(found) is not None and _concrete_number(found) < columns):
        residuals = residuals[..., :0]
    return (reshaping.squeeze(x, -1) if one else x), residuals, found, svdvals(a)

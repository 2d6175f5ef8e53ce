"""QR factorization in all of NumPy's modes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.node import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from .. import statics
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..families import general, is_complex
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from .common import (
    add_optional,
    adjoint,
    antihermitian_part,
    as_column,
    as_matrix,
    batch_matrices,
    call_lapack,
    eps,
    float_dtype,
    lower_triangle,
    narrow_to,
    product,
    put_on_diagonal,
    swap_last_axes,
    upper_triangle,
)
from .gauge import depends_on_gauge, raise_where
from .linear_systems import divide_by_upper, divide_by_upper_adjoint
from .norms import vector_norm


class QR(NamedTuple):
    """The result of `qr`."""

    Q: Any
    R: Any


def _qr_spec(x: Spec, complete: bool) -> tuple[Spec, Spec]:
    m, n = x.shape[-2:]
    if m < n:
        raise ShapeError(f"qr: the op wants no fewer rows than columns, got shape {x.shape}.")
    k, dtype = m if complete else n, float_dtype(x.dtype)
    return make_spec((*x.shape[:-2], m, k), dtype, x.device), make_spec((*x.shape[:-2], k, n), dtype, x.device)


def _qr_value(xp: Any, x: Any, complete: bool) -> Any:
    out = call_lapack(xp.linalg.qr, "qr", x, mode="complete" if complete else "reduced")
    return narrow_to(tuple(out), x.dtype)


def _thin_factors(out: Any, what: str) -> tuple[Any, Any, Any]:
    """The columns of Q that multiply R, the others, and the square block of R, which must be regular."""
    q, r = out
    n = shape(r)[-1]
    size = pointwise.abs(arrange.diagonal(r, axis1=-2, axis2=-1))
    largest = reductions.sum(reductions.sum(pointwise.abs(r), axis=-1), axis=-1, keepdims=True)
    text = f"{what}: the leading columns are linearly dependent, and the factors have no derivative there."
    weak = pointwise.less_equal(size, pointwise.multiply(largest, 4 * eps(r.dtype)))
    top = raise_where(r[..., :n, :], weak, "singular", text)
    return q[..., :n], (q[..., n:] if shape(q)[-1] > n else None), top


# C = Q^H A' R^-1 = Q^H Q' + R' R^-1: the first is antihermitian, the second an upper triangle with a real diagonal. So
#   R' = T R,  T = triu(C, 1) + tril(C, -1)^H + Re diag(C),  and  Q' = A' R^-1 - Q T.
# Further columns, Q2, rotate only as much as they must: Q2' = -Q (Q2^H Q')^H.
def _fold_triangles(c: Any) -> Any:
    return put_on_diagonal(_real_diagonal(c), pointwise.add(upper_triangle(c, 1), adjoint(lower_triangle(c, -1))))


def _real_diagonal(c: Any) -> Any:
    middle = arrange.diagonal(c, axis1=-2, axis2=-1)
    return pointwise.real(middle) if is_complex(c) else middle


def _push_qr(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    q, beyond, r = _thin_factors(out, "qr")
    moved = divide_by_upper(tangents[0], r)
    fold = _fold_triangles(product(adjoint(q), moved))
    q_dot, r_dot = pointwise.subtract(moved, product(q, fold)), product(fold, r)
    if beyond is None:
        return q_dot, r_dot
    q_dot = arrange.concat([q_dot, pointwise.negative(product(q, product(adjoint(moved), beyond)))], axis=-1)
    below = zeros(make_spec((*shape(r)[:-2], shape(beyond)[-1], shape(r)[-1]), spec_of(r).dtype, spec_of(r).device))
    return q_dot, arrange.concat([r_dot, below], axis=-2)


# <Q_bar, A' R^-1 - Q T> + <R_bar, T R> = <Q_bar R^-H, A'> + <M, T> with M = R_bar R^H - Q^H Q_bar, and
# <M, T> = <N, C> with the Hermitian N that has the upper triangle of M and the real part of its diagonal.
def _pull_qr(bar: Any, out: Any) -> Any:
    q, beyond, r = _thin_factors(out, "qr")
    n = shape(r)[-1]
    q_bar, r_bar = bar
    m = None if r_bar is None else product(r_bar[..., :n, :], adjoint(r))
    inner = None if q_bar is None else q_bar[..., :n]
    if inner is not None:
        m = add_optional(m, pointwise.negative(product(adjoint(q), inner)))
    above = upper_triangle(m, 1)
    whole = add_optional(inner, product(q, put_on_diagonal(_real_diagonal(m), pointwise.add(above, adjoint(above)))))
    if beyond is not None and q_bar is not None:
        rest = _check_free_columns(q_bar[..., n:], beyond)
        whole = pointwise.subtract(whole, product(beyond, product(adjoint(rest), q)))
    return divide_by_upper_adjoint(whole, r)


def _check_free_columns(bar: Any, beyond: Any) -> Any:
    """The cotangent of the further columns, which must not depend on their choice of basis."""
    rotation = antihermitian_part(product(adjoint(beyond), bar))
    text = "qr: the loss depends on the basis of the columns beyond the rank, which is free.\n  Use mode='reduced'."
    return raise_where(bar, depends_on_gauge(rotation, True, bar), "gauge", text)


def _qr_samples(rng: Any) -> Any:
    shapes = (((3, 2), False), ((2, 3, 3), False), ((3, 2), True), ((2, 0), False), ((0, 3, 2), False), ((1, 1), True))
    return [((rng.normal(size=s) + 2 * np.eye(*s[-2:]),), {"complete": complete}) for s, complete in shapes]


_qr: Op = general(
    "qr",
    statics={"complete": statics.flag},
    doc="Orthonormal columns times an upper triangle, for matrices with no more columns than rows.",
    args=("x",),
    value=_qr_value,
    spec=_qr_spec,
    pulls={"x": _pull_qr},
    push=_push_qr,
    batch=batch_matrices,
    samples=_qr_samples,
    family="matrix",
)


@attributed_to_caller
def qr(a: Any, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and an upper triangle R with Q R = a. `mode` is "reduced", "complete" (Q is square),
    "r" (only R) or "raw" (LAPACK's reflections and their factors, with the reflections in rows as in NumPy).

    >>> import numpy as np, pullback as pb
    >>> q, r = pb.linalg.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> np.round(q @ r, 12)
    array([[3., 1.],
           [4., 2.]])
    """
    a = as_matrix(a, "qr")
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ArgumentError(f"qr: mode must be 'reduced', 'complete', 'r' or 'raw', got {mode!r}.")
    if mode == "raw":
        return _householder_reflections(a)
    m, n = shape(a)[-2:]
    q, r = apply(_qr, a[..., :m] if m < n else a, complete=mode == "complete" and m > n)
    if m < n:  # the columns beyond the first m are determined by Q
        r = arrange.concat([r, product(adjoint(q), a[..., m:])], axis=-1)
    return r if mode == "r" else QR(q, r)


def _householder_reflections(a: Any) -> tuple[Any, Any]:
    """Householder's method, column by column, with LAPACK's choice of signs: H x = (beta, 0, ...), beta real."""
    m, n = shape(a)[-2:]
    factors, columns = [], []
    for i in range(min(m, n)):
        x = a[..., i:, i]
        first, size = x[..., :1], vector_norm(x, axis=-1, keepdims=True)
        leading = pointwise.real(first) if is_complex(a) else first
        is_reduced = pointwise.equal(size, pointwise.abs(leading))  # nothing below to eliminate
        beta = pointwise.where(pointwise.less(leading, 0), size, pointwise.negative(size))
        pivot = pointwise.where(is_reduced, 1.0, pointwise.subtract(first, pointwise.where(is_reduced, 0.0, beta)))
        tau = pointwise.where(
            is_reduced, 0.0, pointwise.divide(pointwise.subtract(beta, first), pointwise.where(is_reduced, 1.0, beta))
        )
        below = pointwise.divide(x[..., 1:], pivot)
        v = as_column(arrange.concat([pointwise.add(pointwise.multiply(first, 0), 1), below], axis=-1))
        kept, rest = a[..., :i, i:], a[..., i:, i:]
        scale = reshaping.expand_dims(pointwise.conj(tau) if is_complex(a) else tau, -1)
        rest = pointwise.subtract(rest, product(pointwise.multiply(v, scale), product(adjoint(v), rest)))
        columns.append(arrange.concat([kept[..., 0], rest[..., :1, 0], below], axis=-1))
        a = arrange.concat([a[..., :i], arrange.concat([kept, rest], axis=-2)], axis=-1)
        factors.append(tau)
    rows = [reshaping.expand_dims(c, -2) for c in columns]
    if n > m:
        rows.append(swap_last_axes(a[..., m:]))
    h = arrange.concat(rows, axis=-2) if rows else swap_last_axes(a)
    return h, (arrange.concat(factors, axis=-1) if factors else a[..., 0, :0])

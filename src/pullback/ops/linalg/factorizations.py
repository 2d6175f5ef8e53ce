"""Factors of a matrix: Cholesky, LU with row exchanges, QR in all of NumPy's modes, Householder reflections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, overload

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of, zeros
from ...errors import ArgumentError, ShapeError
from .. import statics
from ..dispatch import apply, as_value, shape
from ..elementwise import pointwise
from ..families import is_complex
from ..forms import Matrix
from ..fusion import cast_whole
from ..index import indexing
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_array, of_two_arrays
from . import common
from .common import adjoint, call_lapack, product
from .gauge import depends_on_gauge, raise_where
from .linear_systems import divide_by_upper, divide_by_upper_adjoint, triangular_solve
from .norms import vector_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


def _cholesky_value(xp: Any, x: Any) -> Any:
    return common.narrow_to(call_lapack(xp.linalg.cholesky, "cholesky", common.bare_hermitian_part(xp, x)), x.dtype)


def _half_lower(x: Any) -> Any:
    """The lower triangle with half of its diagonal, whose sum with its adjoint is x if that is Hermitian."""
    n = shape(x)[-1]
    xp = namespace_for(x)
    weights = xp.tri(n, n, -1, dtype=common.real_dtype(x.dtype))
    xp.fill_diagonal(weights, 0.5)
    return pointwise.multiply(x, weights)


# L L^H = A  =>  L^-1 A' L^-H = L^-1 L' + (L^-1 L')^H, a triangle and its adjoint, so L' = L half_lower(L^-1 A' L^-H).
def _push_cholesky(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    left = triangular_solve(out, common.hermitian_part(tangents[0]), lower=True)
    both = adjoint(triangular_solve(out, adjoint(left), lower=True))
    return product(out, _half_lower(both))


def _pull_cholesky(bar: Any, out: Any) -> Any:
    inner = _half_lower(product(adjoint(out), bar))
    right = adjoint(triangular_solve(adjoint(out), adjoint(inner)))  # inner L^-1
    return common.hermitian_part(triangular_solve(adjoint(out), right))


def _cholesky_samples(rng: Any) -> Any:
    found: list[Any] = []
    for s in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)):
        x = rng.normal(size=s)
        found.append(((x @ np.swapaxes(x, -1, -2) + np.eye(s[-1]) + 0.1 * rng.normal(size=s),), {}))
    return found


_cholesky: Op = common.matrix_op(
    "cholesky",
    value=_cholesky_value,
    form=Matrix("cholesky", 0.2),
    spec=lambda x: common.square_spec(x, "cholesky"),
    pulls={"x": _pull_cholesky},
    push=_push_cholesky,
    samples=_cholesky_samples,
)


@of_array
@attributed_to_caller
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The triangle L with L L^H = a, or with `upper` the U with U^H U = a. Of a non-Hermitian matrix the
    Hermitian part is used, so gradients are Hermitian.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    found = apply(_cholesky, common.as_square(a, "cholesky"))
    return adjoint(found) if upper else found


def _lu_spec(x: Spec) -> tuple[Spec, ...]:
    *batch, m, n = x.shape
    k, dtype, order = min(m, n), common.float_dtype(x.dtype), np.dtype(np.int64)
    rows = make_spec((*batch, m), order, x.device)
    return rows, rows, make_spec((*batch, m, k), dtype, x.device), make_spec((*batch, k, n), dtype, x.device)


def _lu_value(xp: Any, x: Any) -> Any:
    """(p, q, L, U) with x = (L U)[p] and x[q] = L U."""
    *batch, m, _ = x.shape
    if not x.size:
        specs = _lu_spec(make_spec(x.shape, x.dtype))
        rows = xp.broadcast_to(xp.arange(m), (*batch, m)).copy()
        return rows, rows.copy(), *(_identity_stack(xp, spec) for spec in specs[2:])
    if xp is np:
        import scipy.linalg

        p, left, right = call_lapack(scipy.linalg.lu, "lu", x, p_indices=True)
    else:
        p, left, right = _factor_each(xp, x)
    p = p.astype(np.int64)
    return p, xp.argsort(p, axis=-1), *common.narrow_to((left, right), x.dtype)


def _identity_stack(xp: Any, spec: Spec) -> Any:
    return xp.zeros(spec.shape, spec.dtype) + xp.eye(*spec.shape[-2:], dtype=spec.dtype)


def _factor_each(xp: Any, x: Any) -> Any:
    """CuPy factors one matrix at a time, and returns the permutation as a matrix."""
    from cupyx.scipy.linalg import lu as factor

    parts = [call_lapack(factor, "lu", one) for one in x.reshape(-1, *x.shape[-2:])]
    p, left, right = (xp.stack(part) for part in zip(*parts, strict=True))
    batch = x.shape[:-2]
    return tuple(part.reshape(*batch, *part.shape[1:]) for part in (xp.argmax(p, axis=-1), left, right))


def _permute_rows(x: Any, order: Any) -> Any:
    return indexing.take_along_axis(x, reshaping.broadcast_to(common.as_column(order), shape(x)), axis=-2)


def _leading_blocks(left: Any, right: Any) -> tuple[Any, Any, int]:
    """The square blocks of the triangles, of which the upper must be regular."""
    k = shape(left)[-1]
    first, top = left[..., :k, :], right[..., :k]
    size = pointwise.abs(arrange.diagonal(top, axis1=-2, axis2=-1))
    largest = reductions.sum(reductions.sum(pointwise.abs(top), axis=-1), axis=-1, keepdims=True)
    weak = pointwise.less_equal(size, pointwise.multiply(largest, 4 * common.eps(right.dtype)))
    text = "lu: the leading square block is singular, and the factors have no derivative there."
    return first, raise_where(top, weak, text, "singular"), k


def _solve_unit_lower(left: Any, b: Any) -> Any:
    """left^-1 b for a lower triangle with ones on its diagonal."""
    return triangular_solve(left, b, lower=True, unit_diagonal=True)


# B = L U, B' = L' U + L U'. With the square blocks, F = L^-1 B' U^-1 = L^-1 L' + U' U^-1 splits into a strictly
# lower and an upper triangle; further rows and columns follow from the same equation.
def _push_lu(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    _, q, left, right = out
    moved = _permute_rows(tangents[0], q)
    first, top, k = _leading_blocks(left, right)
    f = divide_by_upper(_solve_unit_lower(first, moved[..., :k, :k]), top)
    left_dot, right_dot = product(first, arrange.tril(f, -1)), product(arrange.triu(f), top)
    if shape(left)[-2] > k:
        below = pointwise.subtract(divide_by_upper(moved[..., k:, :], top), product(left[..., k:, :], arrange.triu(f)))
        left_dot = arrange.concat([left_dot, below], axis=-2)
    if shape(right)[-1] > k:
        beyond = pointwise.subtract(
            _solve_unit_lower(first, moved[..., k:]), product(arrange.tril(f, -1), right[..., k:])
        )
        right_dot = arrange.concat([right_dot, beyond], axis=-1)
    return None, None, left_dot, right_dot


def _pull_lu(bar: Any, out: Any) -> Any:
    p, _, left, right = out
    left_bar, right_bar = bar[2:]
    first, top, k = _leading_blocks(left, right)
    m, n = shape(left)[-2], shape(right)[-1]
    f_bar = below = beyond = None
    if left_bar is not None:
        f_bar = arrange.tril(product(adjoint(first), left_bar[..., :k, :]), -1)
        if m > k:
            below = left_bar[..., k:, :]
            f_bar = pointwise.subtract(f_bar, arrange.triu(product(adjoint(left[..., k:, :]), below)))
    if right_bar is not None:
        f_bar = common.add_optional(f_bar, arrange.triu(product(right_bar[..., :k], adjoint(top))))
        if n > k:
            beyond = right_bar[..., k:]
            f_bar = pointwise.subtract(f_bar, arrange.tril(product(beyond, adjoint(right[..., k:])), -1))
    stacked_rows = _append_or_pad(f_bar, below, m - k, -2)  # to be divided by U^H
    divided = divide_by_upper_adjoint(stacked_rows, top)
    columns = _append_or_pad(divided[..., :k, :], beyond, n - k, -1)  # to be divided by L^H
    solved = triangular_solve(adjoint(first), columns, unit_diagonal=True)
    whole = solved if m == k else arrange.concat([solved, divided[..., k:, :]], axis=-2)
    return _permute_rows(whole, p)


def _append_or_pad(x: Any, more: Any, count: int, axis: int) -> Any:
    """x with rows or columns appended, zeros where there are none."""
    if more is not None:
        return arrange.concat([x, more], axis=axis)
    return arrange.pad(x, [(0, count) if i == len(shape(x)) + axis else (0, 0) for i in range(len(shape(x)))])


def _lu_samples(rng: Any) -> Any:
    shapes = ((3, 3), (3, 2), (2, 3), (2, 2, 2), (0, 0), (0, 2, 2))
    return [((rng.normal(size=s) + 3 * np.eye(*s[-2:]),), {}) for s in shapes]


# Row orders and triangles (p, q, L, U) with x = (L U)[p] and x[q] = L U.
_lu: Op = common.matrix_op(
    "lu",
    value=_lu_value,
    spec=_lu_spec,
    pulls={"x": _pull_lu},
    push=_push_lu,
    samples=_lu_samples,
    form=Matrix("lu", 0.4),
)


@overload
def lu(a: V, permute_l: Literal[False] = False, p_indices: bool = False) -> tuple[V, V, V]: ...
@overload
def lu(
    a: Plain, permute_l: Literal[False] = False, p_indices: bool = False
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
@overload
def lu(a: V, permute_l: Literal[True], p_indices: bool = False) -> tuple[V, V]: ...
@overload
def lu(a: Plain, permute_l: Literal[True], p_indices: bool = False) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def lu(a: Any, permute_l: bool, p_indices: bool = False) -> Any: ...
@attributed_to_caller
def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> Any:
    """(P, L, U) with P L U = a: a permutation, a lower triangle with ones on its diagonal, an upper triangle; as in
    SciPy. With `permute_l` only (P L, U), with `p_indices` the row indices p in place of P, so that a = (L U)[p].

    >>> import numpy as np, pullback as pb
    >>> p, l, u = pb.linalg.lu(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> l, u
    (array([[1.  , 0.  ],
           [0.25, 1.  ]]), array([[4., 4.],
           [0., 1.]]))
    """
    a = common.as_matrix(a, "lu")
    p, _, left, right = apply(_lu, a)
    if permute_l:
        return _permute_rows(left, p), right
    if p_indices:
        return p, left, right
    unit = namespace_for(a).eye(shape(a)[-2], dtype=common.float_dtype(a.dtype))
    return indexing.take(unit, p, axis=0), left, right


class QR(NamedTuple, Generic[common.Array]):
    """The result of `qr`."""

    Q: common.Array
    R: common.Array


def _qr_spec(x: Spec, complete: bool) -> tuple[Spec, Spec]:
    m, n = x.shape[-2:]
    if m < n:
        raise ShapeError(f"qr: the op wants no fewer rows than columns, got shape {x.shape}.")
    k, dtype = m if complete else n, common.float_dtype(x.dtype)
    return make_spec((*x.shape[:-2], m, k), dtype, x.device), make_spec((*x.shape[:-2], k, n), dtype, x.device)


def _qr_value(xp: Any, x: Any, complete: bool) -> Any:
    out = call_lapack(xp.linalg.qr, "qr", x, mode="complete" if complete else "reduced")
    return common.narrow_to(tuple(out), x.dtype)


def _thin_factors(out: Any, what: str) -> tuple[Any, Any, Any]:
    """The columns of Q that multiply R, the others, and the square block of R, which must be regular."""
    q, r = out
    n = shape(r)[-1]
    size = pointwise.abs(arrange.diagonal(r, axis1=-2, axis2=-1))
    largest = reductions.sum(reductions.sum(pointwise.abs(r), axis=-1), axis=-1, keepdims=True)
    text = f"{what}: the leading columns are linearly dependent, and the factors have no derivative there."
    weak = pointwise.less_equal(size, pointwise.multiply(largest, 4 * common.eps(r.dtype)))
    top = raise_where(r[..., :n, :], weak, text, "singular")
    return q[..., :n], (q[..., n:] if shape(q)[-1] > n else None), top


# C = Q^H A' R^-1 = Q^H Q' + R' R^-1: the first is antihermitian, the second an upper triangle with a real diagonal. So
#   R' = T R,  T = triu(C, 1) + tril(C, -1)^H + Re diag(C),  and  Q' = A' R^-1 - Q T.
# Further columns, Q2, rotate only as much as they must: Q2' = -Q (Q2^H Q')^H.
def _fold_triangles(c: Any) -> Any:
    return common.put_on_diagonal(
        common.real_diagonal(c), pointwise.add(arrange.triu(c, 1), adjoint(arrange.tril(c, -1)))
    )


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
    m: Any = None if r_bar is None else product(r_bar[..., :n, :], adjoint(r))
    inner = None if q_bar is None else q_bar[..., :n]
    if inner is not None:
        m = common.add_optional(m, pointwise.negative(product(adjoint(q), inner)))
    above = arrange.triu(m, 1)
    whole = common.add_optional(
        inner, product(q, common.put_on_diagonal(common.real_diagonal(m), pointwise.add(above, adjoint(above))))
    )
    if beyond is not None and q_bar is not None:
        rest = _check_free_columns(q_bar[..., n:], beyond)
        whole = pointwise.subtract(whole, product(beyond, product(adjoint(rest), q)))
    return divide_by_upper_adjoint(whole, r)


def _check_free_columns(bar: Any, beyond: Any) -> Any:
    """The cotangent of the further columns, which must not depend on their choice of basis."""
    rotation = common.antihermitian_part(product(adjoint(beyond), bar))
    text = "qr: the loss depends on the basis of the columns beyond the rank, which is free.\n  Use mode='reduced'."
    return raise_where(bar, depends_on_gauge(rotation, True, bar), text)


def _qr_samples(rng: Any) -> Any:
    shapes = (((3, 2), False), ((2, 3, 3), False), ((3, 2), True), ((2, 0), False), ((0, 3, 2), False), ((1, 1), True))
    return [((rng.normal(size=s) + 2 * np.eye(*s[-2:]),), {"complete": complete}) for s, complete in shapes]


# Only for matrices with no more columns than rows.
_qr: Op = common.matrix_op(
    "qr",
    statics={"complete": statics.flag},
    value=_qr_value,
    form=Matrix("qr", 2.0),
    spec=_qr_spec,
    pulls={"x": _pull_qr},
    push=_push_qr,
    samples=_qr_samples,
)


@overload
@cast_whole("high")
def qr(a: V, mode: Literal["reduced", "complete"] = "reduced") -> QR[V]: ...
@overload
def qr(a: Plain, mode: Literal["reduced", "complete"] = "reduced") -> QR[NDArray[Any]]: ...
@overload
def qr(a: V, mode: Literal["r"]) -> V: ...
@overload
def qr(a: Plain, mode: Literal["r"]) -> NDArray[Any]: ...
@overload
def qr(a: V, mode: Literal["raw"]) -> tuple[V, V]: ...
@overload
def qr(a: Plain, mode: Literal["raw"]) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def qr(a: Any, mode: str) -> Any: ...
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
    a = common.as_matrix(a, "qr")
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
        v = common.as_column(arrange.concat([pointwise.add(pointwise.multiply(first, 0), 1), below], axis=-1))
        kept, rest = a[..., :i, i:], a[..., i:, i:]
        scale = reshaping.expand_dims(pointwise.conj(tau) if is_complex(a) else tau, -1)
        rest = pointwise.subtract(rest, product(pointwise.multiply(v, scale), product(adjoint(v), rest)))
        columns.append(arrange.concat([kept[..., 0], rest[..., :1, 0], below], axis=-1))
        a = arrange.concat([a[..., :i], arrange.concat([kept, rest], axis=-2)], axis=-1)
        factors.append(tau)
    rows = [reshaping.expand_dims(c, -2) for c in columns]
    if n > m:
        rows.append(common.swap_last_axes(a[..., m:]))
    h = arrange.concat(rows, axis=-2) if rows else common.swap_last_axes(a)
    return h, (arrange.concat(factors, axis=-1) if factors else a[..., 0, :0])


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
def householder_product(h: Any, tau: Any) -> Any:
    """The first columns of H_1 H_2 ... H_k with H_i = 1 - tau_i v_i v_i^H, where v_i is the i-th column of h below a
    one on the diagonal: the Q of `qr(a, mode="raw")`, with h as NumPy's transposed.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.householder_product(np.array([[0.0], [1.0]]), np.array([1.0]))
    array([[ 0.],
           [-1.]])
    """
    h, tau = common.as_matrix(h, "householder_product"), as_value(tau)
    (m, n), k = shape(h)[-2:], shape(tau)[-1]
    if m < n or n < k:
        raise ShapeError(f"householder_product: {k} reflections for matrices of shape {(m, n)}; wants m >= n >= k.")
    vectors = pointwise.add(arrange.tril(h, -1), common.identity_like(h, m)[:, :n])
    q = pointwise.where(False, h, common.identity_like(h, m)[:, :n])
    for i in reversed(range(k)):
        v = common.as_column(vectors[..., i])
        scale = reshaping.expand_dims(tau[..., i], (-2, -1))
        q = pointwise.subtract(q, product(pointwise.multiply(v, scale), product(adjoint(v), q)))
    return q

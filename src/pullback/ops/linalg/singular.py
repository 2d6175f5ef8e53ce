"""Singular value decomposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, overload

import numpy as np

from ...arrays.backends import is_array
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from .. import statics
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..families import is_complex
from ..forms import Matrix
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_array
from . import common, gauge
from .common import adjoint, antihermitian_part, product
from .eigen import symmetrize_from
from .gauge import depends_on_gauge, raise_where

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


class SVD(NamedTuple, Generic[common.Array]):
    """The result of `svd`."""

    U: common.Array
    S: common.Array
    Vh: common.Array


def _spec(x: Spec, full: bool, vectors: bool) -> tuple[Spec, Spec, Spec]:
    *batch, m, n = x.shape
    k, dtype = min(m, n), common.float_dtype(x.dtype)
    left, right = (m, n) if full else (k, k)
    return (
        make_spec((*batch, m, left), dtype, x.device),
        make_spec((*batch, k), common.real_dtype(x.dtype), x.device),
        make_spec((*batch, right, n), dtype, x.device),
    )


def _value(xp: Any, x: Any, full: bool, vectors: bool) -> Any:
    return common.narrow_to(tuple(common.call_lapack(xp.linalg.svd, "svd", x, full_matrices=full)), x.dtype)


class _Factors(NamedTuple):
    """The factors, checked for use in a rule: `beyond_u` and `beyond_v` are the columns without a singular value, and
    `plain` says that all values are known to be distinct and nonzero.
    """

    u: Any
    s: Any
    v: Any
    beyond_u: Any
    beyond_v: Any
    equal: Any
    zero: Any
    plain: bool


def _usable_factors(out: Any) -> _Factors:
    u, s, vh = out
    k = shape(s)[-1]
    v = adjoint(vh)
    equal = gauge.equal_pairs(s)
    zero = pointwise.less_equal(s, _zero_threshold(s))
    plain = gauge.are_all_distinct(equal) and not zero.any()
    beyond_u, beyond_v = (x[..., k:] if shape(x)[-1] > k else None for x in (u, v))
    u, v = (x[..., :k] if shape(x)[-1] > k else x for x in (u, v))
    if not plain:
        bad = pointwise.logical_or(gauge.equal_distinct_pairs(equal), reshaping.expand_dims(zero, -1))
        u, s, v = (gauge.forbid_second_derivative(x, bad, "svd") for x in (u, s, v))
    return _Factors(u, s, v, beyond_u, beyond_v, equal, zero, plain)


def _zero_threshold(s: Any) -> Any:
    return pointwise.multiply(reductions.sum(s, axis=-1, keepdims=True), 16 * common.eps(s.dtype))


def _safe_reciprocal(x: Any, zero: Any) -> Any:
    return pointwise.where(zero, 0.0, pointwise.divide(1.0, pointwise.where(zero, 1.0, x)))


def _pairwise_sums(f: _Factors) -> tuple[Any, Any]:
    """s_i + s_j, and the mask of the pairs that both vanish."""
    sums = pointwise.add(reshaping.expand_dims(f.s, -1), reshaping.expand_dims(f.s, -2))
    if f.plain:
        return sums, False
    zero = pointwise.logical_and(reshaping.expand_dims(f.zero, -1), reshaping.expand_dims(f.zero, -2))
    return sums, zero


def _divide_by_sums(f: _Factors, x: Any, sums: Any, zero: Any) -> Any:
    return pointwise.divide(x, sums) if f.plain else gauge.divide_unless(x, sums, zero)


# A = U S V^H. With P = U^H A' V = H + K, Hermitian and antihermitian: s' = diag(H), and U' = U X + ..., V' = V Y + ...,
#   X = H / (s_j - s_i) + K / (s_j + s_i),   Y = H / (s_j - s_i) - K / (s_j + s_i);
# A' V outside the span of U adds (1 - U U^H) A' V / s, likewise for V. Where s_i = s_j the first terms are zero:
# vectors of equal values do not rotate into each other. U V^H has only the second, so its derivative is correct there.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    f = _usable_factors(out)
    along, back = product(tangents[0], f.v), product(adjoint(tangents[0]), f.u)
    inner = product(adjoint(f.u), along)
    sums, zero = _pairwise_sums(f)
    if static["vectors"] and not f.plain:
        bad = pointwise.logical_or(gauge.separates_equal(inner, f.equal, inner), depends_on_gauge(inner, zero, inner))
        inner = raise_where(inner, bad, gauge.split_error_text("svd"))
    difference = gauge.divide_by_gaps(common.hermitian_part(inner), f.s, f.equal)
    joint = _divide_by_sums(f, antihermitian_part(inner), sums, zero)
    s_dot = gauge.average_over_equal(common.real_diagonal(inner), f.equal)
    u_dot = _push_vectors(f, f.u, f.beyond_u, pointwise.add(difference, joint), along, static["vectors"])
    v_dot = _push_vectors(f, f.v, f.beyond_v, pointwise.subtract(difference, joint), back, static["vectors"])
    return u_dot, pointwise.where(f.zero, 0.0, s_dot), adjoint(v_dot)


def _spans_space(u: Any) -> bool:
    """Whether vectors span the whole space."""
    return bool(shape(u)[-2] == shape(u)[-1])


def _push_vectors(f: _Factors, u: Any, beyond: Any, inner: Any, along: Any, vectors: bool) -> Any:
    """The tangent of the vectors: within the space they span, and out of it."""
    if _spans_space(u):
        return product(u, inner)
    outside = pointwise.subtract(along, product(u, product(adjoint(u), along)))
    if vectors and not f.plain:
        bad = depends_on_gauge(outside, reshaping.expand_dims(f.zero, -2), along)
        outside = raise_where(outside, bad, gauge.split_error_text("svd"))
    outside = pointwise.multiply(outside, reshaping.expand_dims(_safe_reciprocal(f.s, f.zero), -2))
    moved = pointwise.add(product(u, inner), outside)
    if beyond is None:
        return moved
    rest = pointwise.negative(product(u, product(adjoint(outside), beyond)))  # they rotate only as much as they must
    return arrange.concat([moved, rest], axis=-1)


def _pull(bar: Any, out: Any) -> Any:
    f = _usable_factors(out)
    u_bar, s_bar, vh_bar = bar
    if u_bar is None and vh_bar is None:
        shared = pointwise.where(f.zero, 0.0, gauge.average_over_equal(s_bar, f.equal))
        return product(pointwise.multiply(f.u, reshaping.expand_dims(shared, -2)), adjoint(f.v))
    v_bar = None if vh_bar is None else adjoint(vh_bar)
    whole = product(f.u, _pull_inner(f, u_bar, s_bar, v_bar))
    if u_bar is not None and not _spans_space(f.u):
        whole = pointwise.add(whole, _pull_outside(f.u, f.beyond_u, u_bar, f))
    share = product(whole, adjoint(f.v))
    if v_bar is not None and not _spans_space(f.v):
        share = pointwise.add(share, product(f.u, adjoint(_pull_outside(f.v, f.beyond_v, v_bar, f))))
    return share


def _pull_inner(f: _Factors, u_bar: Any, s_bar: Any, v_bar: Any) -> Any:
    """The cotangent of P, checked not to depend on the basis of equal or vanishing values."""
    k = shape(f.s)[-1]
    x = None if u_bar is None else product(adjoint(f.u), u_bar[..., :k])
    y = None if v_bar is None else product(adjoint(f.v), v_bar[..., :k])
    size = _cotangent_size(u_bar, v_bar)
    sums, zero = _pairwise_sums(f)
    if not f.plain:
        x, y = _check_unrelated(f, x, y, zero, size, s_bar is not None)
    both = antihermitian_part(common.add_optional(x, y))
    difference = both if y is None else antihermitian_part(common.add_optional(x, pointwise.negative(y)))
    if is_complex(both) or not f.plain:
        both = raise_where(both, depends_on_gauge(both, f.equal, size), _TEXT)
        difference = raise_where(difference, depends_on_gauge(difference, zero, size), _TEXT)
    joint = _divide_by_sums(f, difference, sums, zero)
    inner = pointwise.add(gauge.divide_by_gaps(both, f.s, f.equal), joint)
    if s_bar is None:
        return inner
    if f.plain:
        return pointwise.add(inner, common.put_on_diagonal(s_bar))
    lost = pointwise.logical_and(f.zero, pointwise.not_equal(s_bar, 0))
    bad = pointwise.logical_or(gauge.differs_on_equal(s_bar, f.equal), reshaping.expand_dims(lost, -1))
    return pointwise.add(inner, common.put_on_diagonal(raise_where(s_bar, bad, gauge.joint_error_text("svd"))))


def _check_unrelated(f: _Factors, x: Any, y: Any, zero: Any, size: Any, joined: bool) -> tuple[Any, Any]:
    """Check the vectors of vanishing values: a loss must not relate the two sides; and those of equal values, if it
    uses the values too: it must treat all their vectors alike.
    """
    if x is not None and y is not None:
        related = pointwise.logical_and(depends_on_gauge(x, zero, size), depends_on_gauge(y, zero, size))
        x = raise_where(x, related, _TEXT)
    if joined:
        x, y = (None if z is None else _check_alike(z, f.equal, size) for z in (x, y))
    return x, y


def _check_alike(z: Any, equal: Any, size: Any) -> Any:
    """Check that a loss that uses the values too treats the vectors of equal ones alike."""
    return raise_where(z, gauge.separates_equal(common.hermitian_part(z), equal, size), gauge.joint_error_text("svd"))


def _cotangent_size(u_bar: Any, v_bar: Any) -> Any:
    """The scale for rounding errors in the cotangents."""
    parts = [reductions.sum(pointwise.abs(b), axis=(-2, -1), keepdims=True) for b in (u_bar, v_bar) if b is not None]
    return parts[0] if len(parts) == 1 else pointwise.add(*parts)


_TEXT = (
    "svd: the loss depends on the basis of equal or vanishing singular values, or on the phase of a pair of vectors; "
    "both are free.\n  Use what does not: singular values, u @ vh where none vanishes, the projector u @ u^H."
)


def _pull_outside(u: Any, beyond: Any, u_bar: Any, f: _Factors) -> Any:
    """The part of a cotangent outside the span of u, over s; where s is zero that part must vanish."""
    k = shape(u)[-1]
    inner = u_bar[..., :k]
    outside = pointwise.subtract(inner, product(u, product(adjoint(u), inner)))
    if beyond is not None:
        rest = u_bar[..., k:]
        turn = antihermitian_part(product(adjoint(beyond), rest))
        rest = raise_where(rest, depends_on_gauge(turn, True, u_bar), _TEXT)
        outside = pointwise.subtract(outside, product(beyond, product(adjoint(rest), u)))
    zero = reshaping.expand_dims(f.zero, -2)
    outside = raise_where(outside, depends_on_gauge(outside, zero, u_bar), _TEXT)
    return pointwise.multiply(outside, reshaping.expand_dims(_safe_reciprocal(f.s, f.zero), -2))


def _samples(rng: Any) -> Any:
    shapes = (((3, 2), False), ((2, 3), False), ((2, 2, 2), False), ((3, 2), True), ((2, 3), True), ((0, 2), False))
    more = (((2, 3, 0), False), ((1, 1), True), ((0, 2, 2), False))
    return [
        ((rng.normal(size=s) + 2 * np.eye(*s[-2:]),), {"full": full, "vectors": full or len(s) == 2})
        for s, full in (*shapes, *more)
    ]


_svd: Op = common.matrix_op(
    "svd",
    statics={"full": statics.flag, "vectors": statics.flag},
    value=_value,
    form=Matrix("svd", 12.0),
    spec=_spec,
    pulls={"x": _pull},
    push=_push,
    samples=_samples,
)


@overload
def svd(a: V, full_matrices: bool = True, compute_uv: Literal[True] = True, hermitian: bool = False) -> SVD[V]: ...
@overload
def svd(
    a: Plain, full_matrices: bool = True, compute_uv: Literal[True] = True, hermitian: bool = False
) -> SVD[NDArray[Any]]: ...
@overload
def svd(a: V, full_matrices: bool = True, *, compute_uv: Literal[False], hermitian: bool = False) -> V: ...
@overload
def svd(
    a: Plain, full_matrices: bool = True, *, compute_uv: Literal[False], hermitian: bool = False
) -> NDArray[Any]: ...
@overload
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any: ...
@attributed_to_caller
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """(U, S, Vh) with U S Vh = a: singular values, descending, between orthonormal columns and rows. Equal ones
    share their derivative, zero ones have none; a loss that depends on the basis of their vectors raises
    `GaugeError`. With `compute_uv=False` only S.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.svd(np.array([[3.0, 0.0], [0.0, 4.0]])).S
    array([4., 3.])
    """
    a = symmetrize_from(a, "L", "svd") if hermitian else common.as_matrix(a, "svd")
    return SVD(*apply(_svd, a, full=bool(full_matrices), vectors=True)) if compute_uv else svdvals(a)


@of_array
@attributed_to_caller
def svdvals(a: Any) -> Any:
    """The singular values, descending.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.svdvals(np.array([[3.0, 0.0], [0.0, 4.0]]))
    array([4., 3.])
    """
    a = common.as_matrix(a, "svdvals")
    if not is_array(a):
        return apply(_svd, a, full=False, vectors=False)[1]
    value = common.call_lapack(namespace_for(a).linalg.svd, "svdvals", a, compute_uv=False)  # no vectors
    return common.narrow_to(value, a.dtype)

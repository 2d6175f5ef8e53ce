"""Matrices in, singular values and vectors out."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.node import signed
from ...arrays.spec import Spec, make_spec
from .. import arranging, reducing, shaping, statics
from .. import elementwise as pointwise
from ..dispatch import apply, shape
from ..families import general, is_complex
from ..index import namespace_for
from ..op import Op
from .gauge import (
    all_apart,
    checked,
    equal_ones,
    evenly,
    in_the_way,
    joined_text,
    once,
    others,
    over_gaps,
    split_text,
    unequal,
    uneven,
)
from .hermitian import told_by
from .matrices import (
    adjoint,
    antihermitian,
    by_lapack,
    eps,
    float_dtype,
    hermitian,
    matrix,
    narrowed,
    on_diagonal,
    product,
    real_dtype,
    stacked,
    total,
)

__all__ = ["SVD", "svd", "svdvals"]


class SVD(NamedTuple):
    """What `svd` answers."""

    U: Any
    S: Any
    Vh: Any


def _spec(x: Spec, full: bool, vectors: bool) -> tuple[Spec, Spec, Spec]:
    *batch, m, n = x.shape
    k, dtype = min(m, n), float_dtype(x.dtype)
    left, right = (m, n) if full else (k, k)
    return (
        make_spec((*batch, m, left), dtype, x.device),
        make_spec((*batch, k), real_dtype(x.dtype), x.device),
        make_spec((*batch, right, n), dtype, x.device),
    )


def _value(xp: Any, x: Any, full: bool, vectors: bool) -> Any:
    return narrowed(tuple(by_lapack(xp.linalg.svd, "svd", x, full_matrices=full)), x.dtype)


class _Factors(NamedTuple):
    """The factors as a rule may use them: `beyond_u` and `beyond_v` are the columns that no singular value has, and
    `plain` says that all values are known to be apart from each other and from zero.
    """

    u: Any
    s: Any
    v: Any
    beyond_u: Any
    beyond_v: Any
    equal: Any
    zero: Any
    plain: bool


def _known(out: Any) -> _Factors:
    u, s, vh = out
    k = shape(s)[-1]
    v = adjoint(vh)
    equal = equal_ones(s)
    zero = pointwise.less_equal(s, _tiny(s))
    plain = all_apart(equal) and not zero.any()
    beyond_u, beyond_v = (x[..., k:] if shape(x)[-1] > k else None for x in (u, v))
    u, v = (x[..., :k] if shape(x)[-1] > k else x for x in (u, v))
    if not plain:
        bad = pointwise.logical_or(others(equal), shaping.expand_dims(zero, -1))
        u, s, v = (once(x, bad, "svd") for x in (u, s, v))
    return _Factors(u, s, v, beyond_u, beyond_v, equal, zero, plain)


def _tiny(s: Any) -> Any:
    return pointwise.multiply(reducing.sum(s, axis=-1, keepdims=True), 16 * eps(s.dtype))


def _reciprocal(x: Any, zero: Any) -> Any:
    return pointwise.where(zero, 0.0, pointwise.divide(1.0, pointwise.where(zero, 1.0, x)))


def _sums(f: _Factors) -> tuple[Any, Any]:
    """s_i + s_j, infinite where both vanish, and where that is."""
    sums = pointwise.add(shaping.expand_dims(f.s, -1), shaping.expand_dims(f.s, -2))
    if f.plain:
        return sums, False
    zero = pointwise.logical_and(shaping.expand_dims(f.zero, -1), shaping.expand_dims(f.zero, -2))
    return pointwise.where(zero, math.inf, sums), zero


# A = U S V^H. With P = U^H A' V = H + K, Hermitian and antihermitian: s' = diag(H), and U' = U X + ..., V' = V Y + ...,
#   X = H / (s_j - s_i) + K / (s_j + s_i),   Y = H / (s_j - s_i) - K / (s_j + s_i);
# what of A' V lies outside of U adds (1 - U U^H) A' V / s, likewise for V. Where s_i = s_j the first terms are zero:
# equal ones do not turn into each other. U V^H knows only the second, so its derivative is right there too.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    f = _known(out)
    along, back = product(tangents[0], f.v), product(adjoint(tangents[0]), f.u)
    inner = product(adjoint(f.u), along)
    sums, zero = _sums(f)
    if static["vectors"] and not f.plain:
        bad = pointwise.logical_or(uneven(inner, f.equal, inner), in_the_way(inner, zero, inner))
        inner = checked(inner, bad, "gauge", split_text("svd"))
    apart = over_gaps(hermitian(inner), f.s, f.equal)
    joint = pointwise.divide(antihermitian(inner), sums)
    middle = arranging.diagonal(inner, axis1=-2, axis2=-1)
    s_dot = evenly(pointwise.real(middle) if is_complex(inner) else middle, f.equal)
    u_dot = _turned(f, f.u, f.beyond_u, pointwise.add(apart, joint), along, static["vectors"])
    v_dot = _turned(f, f.v, f.beyond_v, pointwise.subtract(apart, joint), back, static["vectors"])
    return u_dot, pointwise.where(f.zero, 0.0, s_dot), adjoint(v_dot)


def _is_whole(u: Any) -> bool:
    """Whether vectors span all there is, so that nothing lies outside."""
    return bool(shape(u)[-2] == shape(u)[-1])


def _turned(f: _Factors, u: Any, beyond: Any, inner: Any, along: Any, vectors: bool) -> Any:
    """How vectors turn: among each other, and out of the space they span."""
    if _is_whole(u):
        return product(u, inner)
    outside = pointwise.subtract(along, product(u, product(adjoint(u), along)))
    if vectors and not f.plain:
        bad = in_the_way(outside, shaping.expand_dims(f.zero, -2), along)
        outside = checked(outside, bad, "gauge", split_text("svd"))
    outside = pointwise.multiply(outside, shaping.expand_dims(_reciprocal(f.s, f.zero), -2))
    moved = pointwise.add(product(u, inner), outside)
    if beyond is None:
        return moved
    rest = pointwise.negative(product(u, product(adjoint(outside), beyond)))  # they turn only as much as they must
    return arranging.concat([moved, rest], axis=-1)


def _pull(bar: Any, out: Any) -> Any:
    f = _known(out)
    u_bar, s_bar, vh_bar = bar
    if u_bar is None and vh_bar is None:
        shared = pointwise.where(f.zero, 0.0, evenly(s_bar, f.equal))
        return product(pointwise.multiply(f.u, shaping.expand_dims(shared, -2)), adjoint(f.v))
    v_bar = None if vh_bar is None else adjoint(vh_bar)
    whole = product(f.u, _inner(f, u_bar, s_bar, v_bar))
    if u_bar is not None and not _is_whole(f.u):
        whole = pointwise.add(whole, _outside(f.u, f.beyond_u, u_bar, f))
    share = product(whole, adjoint(f.v))
    if v_bar is not None and not _is_whole(f.v):
        share = pointwise.add(share, product(f.u, adjoint(_outside(f.v, f.beyond_v, v_bar, f))))
    return share


def _inner(f: _Factors, u_bar: Any, s_bar: Any, v_bar: Any) -> Any:
    """The cotangent of P, if it does not depend on how the vectors of equal or vanishing values are turned."""
    k = shape(f.s)[-1]
    x = None if u_bar is None else product(adjoint(f.u), u_bar[..., :k])
    y = None if v_bar is None else product(adjoint(f.v), v_bar[..., :k])
    size = _size(u_bar, v_bar)
    sums, zero = _sums(f)
    if not f.plain:
        x, y = _unrelated(f, x, y, zero, size, s_bar is not None)
    both = antihermitian(total(x, y))
    apart = both if y is None else antihermitian(total(x, pointwise.negative(y)))
    if is_complex(both) or not f.plain:
        both = checked(both, in_the_way(both, f.equal, size), "gauge", _TEXT)
        apart = checked(apart, in_the_way(apart, zero, size), "gauge", _TEXT)
    inner = pointwise.add(over_gaps(both, f.s, f.equal), pointwise.divide(apart, sums))
    if s_bar is None:
        return inner
    if f.plain:
        return pointwise.add(inner, on_diagonal(s_bar))
    lost = pointwise.logical_and(f.zero, pointwise.not_equal(s_bar, 0))
    bad = pointwise.logical_or(unequal(s_bar, f.equal), shaping.expand_dims(lost, -1))
    return pointwise.add(inner, on_diagonal(checked(s_bar, bad, "gauge", joined_text("svd"))))


def _unrelated(f: _Factors, x: Any, y: Any, zero: Any, size: Any, joined: bool) -> tuple[Any, Any]:
    """What a loss says of the vectors of vanishing values: nothing that relates the two sides; of equal values, if it
    looks at them as well: the same of all their vectors.
    """
    if x is not None and y is not None:
        related = pointwise.logical_and(in_the_way(x, zero, size), in_the_way(y, zero, size))
        x = checked(x, related, "gauge", _TEXT)
    if joined:
        x, y = (None if z is None else _alike(z, f.equal, size) for z in (x, y))
    return x, y


def _alike(z: Any, equal: Any, size: Any) -> Any:
    """What a loss that looks at the values too may say of the vectors of equal ones: the same of all."""
    return checked(z, uneven(hermitian(z), equal, size), "gauge", joined_text("svd"))


def _size(u_bar: Any, v_bar: Any) -> Any:
    """What rounding in the cotangents is measured by."""
    parts = [reducing.sum(pointwise.abs(b), axis=(-2, -1), keepdims=True) for b in (u_bar, v_bar) if b is not None]
    return parts[0] if len(parts) == 1 else pointwise.add(*parts)


_TEXT = (
    "svd: the loss depends on the basis of equal or vanishing singular values, or on the phase of a pair of vectors; "
    "both are free.\n  Use what does not: singular values, u @ vh where none vanishes, the projector u @ u^H."
)


def _outside(u: Any, beyond: Any, u_bar: Any, f: _Factors) -> Any:
    """The part of a cotangent beside the span of u, over s; zero where s is, if the cotangent has no such part."""
    k = shape(u)[-1]
    inner = u_bar[..., :k]
    outside = pointwise.subtract(inner, product(u, product(adjoint(u), inner)))
    if beyond is not None:
        rest = u_bar[..., k:]
        turn = antihermitian(product(adjoint(beyond), rest))
        rest = checked(rest, in_the_way(turn, True, u_bar), "gauge", _TEXT)
        outside = pointwise.subtract(outside, product(beyond, product(adjoint(rest), u)))
    zero = shaping.expand_dims(f.zero, -2)
    outside = checked(outside, in_the_way(outside, zero, u_bar), "gauge", _TEXT)
    return pointwise.multiply(outside, shaping.expand_dims(_reciprocal(f.s, f.zero), -2))


def _samples(rng: Any) -> Any:
    shapes = (((3, 2), False), ((2, 3), False), ((2, 2, 2), False), ((3, 2), True), ((2, 3), True), ((0, 2), False))
    more = (((2, 3, 0), False), ((1, 1), True), ((0, 2, 2), False))
    return [
        ((rng.normal(size=s) + 2 * np.eye(*s[-2:]),), {"full": full, "vectors": full or len(s) == 2})
        for s, full in (*shapes, *more)
    ]


_svd: Op = general(
    "svd",
    statics={"full": statics.flag, "vectors": statics.flag},
    doc="Singular values, falling, and vectors on both sides.",
    args=("x",),
    value=_value,
    spec=_spec,
    pulls={"x": _pull},
    push=_push,
    batch=stacked,
    samples=_samples,
    family="matrix",
)


@signed
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """(U, S, Vh) with U S Vh = a: singular values, falling, between orthonormal columns and rows. Equal singular values
    share their derivative, one that is zero has none; a loss that depends on the basis of their vectors raises
    `GaugeError`. With `compute_uv=False` only S.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.svd(np.array([[3.0, 0.0], [0.0, 4.0]])).S
    array([4., 3.])
    """
    a = told_by(a, "L", "svd") if hermitian else matrix(a, "svd")
    return SVD(*apply(_svd, a, full=bool(full_matrices), vectors=True)) if compute_uv else svdvals(a)


@signed
def svdvals(a: Any) -> Any:
    """The singular values, falling.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.svdvals(np.array([[3.0, 0.0], [0.0, 4.0]]))
    array([4., 3.])
    """
    a = matrix(a, "svdvals")
    if not is_array(a):
        return apply(_svd, a, full=False, vectors=False)[1]
    value = by_lapack(namespace_for(a).linalg.svd, "svdvals", a, compute_uv=False)  # the vectors are spared
    return narrowed(value, a.dtype)

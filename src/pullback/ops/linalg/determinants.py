"""Determinants and powers of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np

from ...arrays.backends import is_array
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...errors import SingularError
from ..axes import as_integer
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..families import is_complex
from ..forms import Matrix
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_array
from . import common
from .common import adjoint, as_square, call_lapack, matrix_op, narrow_to, product, square_spec
from .linear_systems import inv

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V

#: Up to this many zero singular values are handled exactly; with more, the first three derivatives vanish.
_MAX_LIFTED = 3


def _lift_spec(x: Spec) -> Spec:
    n = square_spec(x, "det").shape[-1]
    return make_spec((*x.shape[:-1], 2 * min(n, _MAX_LIFTED) + n), common.float_dtype(x.dtype), x.device)


def _lift_value(xp: Any, x: Any) -> Any:
    """(W, Z, rest) concatenated such that x + W Z^H + rest is regular; zeros where x already is."""
    n, r = x.shape[-1], min(x.shape[-1], _MAX_LIFTED)
    if not x.size:
        return xp.zeros((*x.shape[:-1], 2 * r + n), common.float_dtype(x.dtype))
    u, s, vh = call_lapack(xp.linalg.svd, "det", x)
    v = xp.conj(xp.swapaxes(vh, -1, -2))
    top = s[..., :1]
    weak = s <= common.eps(s.dtype) ** 0.5 * top
    amount = xp.where(weak, xp.where(top > 0, top, 1) - s, 0)[..., None, :]
    left = u * amount
    rest = xp.matmul(left[..., : n - r], xp.swapaxes(xp.conj(v[..., : n - r]), -1, -2))
    return narrow_to(xp.concatenate([left[..., n - r :], v[..., n - r :], rest], axis=-1).astype(u.dtype), x.dtype)


def _det_samples(rng: Any) -> Any:
    shapes = ((3, 3), (2, 2, 2), (1, 1), (4, 4), (0, 0), (0, 2, 2))
    return [((rng.normal(size=s) + 3 * np.eye(s[-1]),), {}) for s in shapes]


# What to add to a matrix so that it becomes regular.
_lift: Op = matrix_op(
    "lift",
    value=_lift_value,
    form=Matrix("lift"),
    spec=_lift_spec,
    samples=lambda rng: [((np.ones((2, 2)),), {}), ((np.zeros((3, 4, 4)),), {}), ((np.zeros((0, 0)),), {})],
)


# det' = tr(adj(A) A'), adj(A) = det(A) A^-1, which exists for singular matrices too. Take M = A + W Z^H regular, with
# constant W and Z of few columns. Then det(A) = det(M) det(G) with the small G = 1 - Z^H M^-1 W, and by the chain rule
#   adj(A) = det(M) (det(G) M^-1 + M^-1 W adj(G) Z^H M^-1):
# all of it can be differentiated, whatever the rank of A. (`rest` lifts further vanishing values; then all is zero.)
def _adjugate(x: Any, value: Any) -> Any:
    inverse = _well_conditioned_inverse(x) if is_array(x) else None
    if inverse is not None:
        return pointwise.multiply(_expand_to_matrix(value), inverse)
    n, r = shape(x)[-1], min(shape(x)[-1], _MAX_LIFTED)
    packed = apply(_lift, pointwise.stop_gradient(x))
    w, z, rest = packed[..., :r], packed[..., r : 2 * r], packed[..., 2 * r :]
    m = pointwise.add(pointwise.add(x, product(w, adjoint(z))), rest)
    inverse = inv(m)
    left, right = product(inverse, w), product(adjoint(z), inverse)
    small = pointwise.subtract(common.identity_like(x, r), product(right, w))
    size, adjugate = _expand_cofactors(small, r)
    inner = pointwise.add(pointwise.multiply(_expand_to_matrix(size), inverse), product(product(left, adjugate), right))
    dead = reductions.any(pointwise.not_equal(rest, 0), axis=(-2, -1))
    factor = pointwise.where(dead, 0.0, apply(_det, m)) if n > r else apply(_det, m)
    return pointwise.multiply(_expand_to_matrix(factor), inner)


def _expand_to_matrix(x: Any) -> Any:
    """One number per matrix, expanded to multiply it."""
    return reshaping.expand_dims(x, (-2, -1))


def _max_row_sum(xp: Any, x: Any) -> Any:
    """The largest sum of absolute values along a row; zero for matrices without any."""
    return xp.abs(x).sum(axis=-1).max(axis=-1) if x.shape[-1] else xp.zeros(x.shape[:-2], xp.abs(x).dtype)


def _well_conditioned_inverse(x: Any) -> Any:
    """The inverse of a bare array, None if half the digits or more would be lost."""
    xp = namespace_for(x)
    try:
        found = narrow_to(call_lapack(xp.linalg.inv, "det", x), x.dtype)
    except SingularError:
        return None
    reach = _max_row_sum(xp, x) * _max_row_sum(xp, found)
    return found if (reach < common.eps(found.dtype) ** -0.5).all() else None


def _expand_cofactors(g: Any, size: int) -> tuple[Any, Any]:
    """Determinant and adjugate of a matrix of up to three rows, by products alone."""
    entries = [[g[..., i, j] for j in range(size)] for i in range(size)]
    cofactors = [[_cofactor(entries, i, j) for j in range(size)] for i in range(size)]
    if size == 0:
        return reductions.prod(g, axis=(-2, -1)), g
    whole = None
    for entry, factor in zip(entries[0], cofactors[0], strict=True):
        whole = common.add_optional(whole, entry if factor is None else pointwise.multiply(entry, factor))
    if size == 1:
        return whole, pointwise.add(pointwise.multiply(g, 0), 1)
    columns = [arrange.stack([cofactors[i][j] for j in range(size)], axis=-1) for i in range(size)]
    return whole, arrange.stack(columns, axis=-1)


def _cofactor(entries: list[list[Any]], i: int, j: int) -> Any:
    """The cofactor of row i and column j; None is one."""
    rest = [[x for b, x in enumerate(row) if b != j] for a, row in enumerate(entries) if a != i]
    if not rest:
        return None
    minor = rest[0][0]
    if len(rest) == 2:
        minor = pointwise.subtract(
            pointwise.multiply(rest[0][0], rest[1][1]), pointwise.multiply(rest[0][1], rest[1][0])
        )
    return pointwise.negative(minor) if (i + j) % 2 else minor


def _push_det(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    return reductions.sum(
        pointwise.multiply(common.swap_last_axes(_adjugate(primals[0], out)), tangents[0]), axis=(-2, -1)
    )


_det: Op = matrix_op(
    "det",
    value=common.lapack_value("det"),
    form=Matrix("determinant", 0.4),
    spec=lambda x: make_spec(x.shape[:-2], square_spec(x, "det").dtype, x.device),
    pulls={"x": lambda bar, x, out: pointwise.multiply(_expand_to_matrix(bar), adjoint(_adjugate(x, out)))},
    push=_push_det,
    samples=_det_samples,
)


@of_array
@attributed_to_caller
def det(a: Any) -> Any:
    """The determinant of each square matrix. Its derivative, the adjugate, is correct for singular matrices too.

    >>> import numpy as np, pullback as pb
    >>> pb.grad(pb.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return apply(_det, as_square(a, "det"))


class Slogdet(NamedTuple, Generic[common.Array]):
    """The result of `slogdet`."""

    sign: common.Array
    logabsdet: common.Array


def _slogdet_spec(x: Spec) -> tuple[Spec, Spec]:
    dtype = square_spec(x, "slogdet").dtype
    return make_spec(x.shape[:-2], dtype, x.device), make_spec(x.shape[:-2], common.real_dtype(dtype), x.device)


# (log det)' = tr(A^-1 A'): its real part is (log |det|)', its imaginary part the turn of the sign: sign' = i sign turn.
def _push_slogdet(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    slope = reductions.sum(pointwise.multiply(common.swap_last_axes(inv(primals[0])), tangents[0]), axis=(-2, -1))
    if not is_complex(out[0]):
        return pointwise.multiply(out[0], 0), slope
    turn = pointwise.multiply(pointwise.imag(slope), 1j)
    return pointwise.multiply(out[0], turn), pointwise.real(slope)


def _pull_slogdet(bar: Any, x: Any, out: Any) -> Any:
    sign_bar, log_bar = bar
    factor = log_bar
    if sign_bar is not None and is_complex(out[0]):
        turn_bar = pointwise.imag(pointwise.multiply(sign_bar, pointwise.conj(out[0])))
        factor = common.add_optional(log_bar, pointwise.multiply(turn_bar, 1j))
    if factor is None:
        return pointwise.multiply(x, 0)
    return pointwise.multiply(_expand_to_matrix(factor), adjoint(inv(x)))


_slogdet: Op = matrix_op(
    "slogdet",
    value=lambda xp, x: narrow_to(tuple(call_lapack(xp.linalg.slogdet, "slogdet", x)), x.dtype),
    spec=_slogdet_spec,
    form=Matrix("log_determinant", 0.4),
    pulls={"x": _pull_slogdet},
    push=_push_slogdet,
    samples=_det_samples,
)


@overload
def slogdet(a: V) -> Slogdet[V]: ...
@overload
def slogdet(a: Plain) -> Slogdet[NDArray[Any]]: ...
@attributed_to_caller
def slogdet(a: Any) -> Any:
    """The sign (for complex matrices the phase) of the determinant and the logarithm of its absolute value; the
    derivative at a singular matrix raises `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.slogdet(-np.eye(1)).sign
    array(-1.)
    """
    return Slogdet(*apply(_slogdet, as_square(a, "slogdet")))


@of_array
@attributed_to_caller
def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices by repeated squaring; a negative one is that of the inverse.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.matrix_power(np.array([[1, 1], [1, 0]]), 10)
    array([[89, 55],
           [55, 34]])
    """
    a, n = as_square(a, "matrix_power"), as_integer(n, "matrix_power: n")
    if n == 0:
        return pointwise.where(False, a, namespace_for(a).eye(shape(a)[-1], dtype=a.dtype))
    base, out = (a if n > 0 else inv(a)), None
    left = abs(n)
    while left:
        if left % 2:
            out = base if out is None else product(out, base)
        left //= 2
        base = product(base, base) if left else base
    return reshaping.pass_through(out) if out is a else out

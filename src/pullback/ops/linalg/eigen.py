"""Eigenvalues and eigenvectors: of Hermitian matrices, and of general square ones, always complex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np

from ...arrays.backends import is_array
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError
from .. import statics
from ..dispatch import apply
from ..elementwise import pointwise
from ..families import is_complex
from ..forms import Matrix
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from ..signatures import of_array
from . import common, gauge
from .common import adjoint, as_square, call_lapack, product, put_on_diagonal
from .gauge import are_all_distinct, average_over_equal, divide_by_gaps, forbid_second_derivative, raise_where
from .linear_systems import inv

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..signatures import Plain, V


class Eigh(NamedTuple, Generic[common.Array]):
    """The result of `eigh`."""

    eigenvalues: common.Array
    eigenvectors: common.Array


def _eigh_spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    whole = common.square_spec(x, "eigh")
    return make_spec(x.shape[:-1], common.real_dtype(x.dtype), x.device), whole


def _eigh_value(xp: Any, x: Any, vectors: bool) -> Any:
    return common.narrow_to(tuple(call_lapack(xp.linalg.eigh, "eigh", common.bare_hermitian_part(xp, x))), x.dtype)


def _eigh_usable_factors(out: Any) -> tuple[Any, Any, Any]:
    """The results, checked for use in a rule, and which eigenvalues are equal."""
    w, v = out
    equal = gauge.equal_pairs(w)
    if are_all_distinct(equal):
        return w, v, equal
    bad = gauge.equal_distinct_pairs(equal)
    return forbid_second_derivative(w, bad, "eigh"), forbid_second_derivative(v, bad, "eigh"), equal


# A V = V W; with P = V^H A' V: w' = diag(P), and V' = V Z with Z_ij = P_ij / (w_j - w_i). Where eigenvalues are equal
# they share their derivative, and their vectors do not rotate into each other: Z_ij = 0.
def _eigh_push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, equal = _eigh_usable_factors(out)
    inner = product(product(adjoint(v), common.hermitian_part(tangents[0])), v)
    if static["vectors"] and not are_all_distinct(equal):
        inner = raise_where(inner, gauge.separates_equal(inner, equal, inner), gauge.split_error_text("eigh"))
    w_dot = average_over_equal(common.real_diagonal(inner), equal)
    return w_dot, product(v, divide_by_gaps(inner, w, equal))


def _eigh_pull(bar: Any, out: Any) -> Any:
    w, v, equal = _eigh_usable_factors(out)
    w_bar, v_bar = bar
    if v_bar is None:
        shared = average_over_equal(w_bar, equal)
        return product(pointwise.multiply(v, reshaping.expand_dims(shared, -2)), adjoint(v))
    turn = product(adjoint(v), v_bar)
    if w_bar is not None and not are_all_distinct(equal):
        w_bar = raise_where(w_bar, gauge.differs_on_equal(w_bar, equal), gauge.joint_error_text("eigh"))
        turn = raise_where(
            turn, gauge.separates_equal(common.hermitian_part(turn), equal, v_bar), gauge.joint_error_text("eigh")
        )
    turn = common.antihermitian_part(turn)
    if is_complex(turn) or not are_all_distinct(equal):
        turn = raise_where(turn, gauge.depends_on_gauge(turn, equal, v_bar), _EIGH_TEXT)
    inner = divide_by_gaps(turn, w, equal)
    return product(product(v, inner if w_bar is None else put_on_diagonal(w_bar, inner)), adjoint(v))


_EIGH_TEXT = (
    "eigh: the loss depends on the basis of equal eigenvalues, or on the phase of an eigenvector; both are free.\n"
    "  Use what does not: eigenvalues, v * conj(v), the projector v @ v^H of a whole eigenspace."
)


def _eigh_samples(rng: Any) -> Any:
    shapes = (((3, 3), True), ((2, 2, 2), False), ((1, 1), True), ((0, 0), True), ((0, 2, 2), False))
    return [((rng.normal(size=s),), {"vectors": vectors}) for s, vectors in shapes]


_eigh: Op = common.matrix_op(
    "eigh",
    statics={"vectors": statics.flag},
    value=_eigh_value,
    form=Matrix("eigh", 6.0),
    spec=_eigh_spec,
    pulls={"x": _eigh_pull},
    push=_eigh_push,
    samples=_eigh_samples,
)


def symmetrize_from(a: Any, triangle: str | None, what: str) -> Any:
    """The matrix as it is, or the Hermitian one given by one of its triangles."""
    a = as_square(a, what)
    if triangle is None:
        return a
    if triangle not in ("L", "U", "l", "u"):
        raise ArgumentError(f"{what}: UPLO must be 'L' or 'U', got {triangle!r}.")
    part = arrange.tril(a, -1) if triangle in "Ll" else arrange.triu(a, 1)
    return put_on_diagonal(common.real_diagonal(a), pointwise.add(part, adjoint(part)))


@overload
def eigh(a: V, UPLO: str | None = None) -> Eigh[V]: ...
@overload
def eigh(a: Plain, UPLO: str | None = None) -> Eigh[NDArray[Any]]: ...
@attributed_to_caller
def eigh(a: Any, UPLO: str | None = None) -> Any:
    """The eigenvalues, ascending, and eigenvectors (columns) of Hermitian matrices. Of a non-Hermitian matrix the
    Hermitian part is used, or with `UPLO` its lower ("L") or upper ("U") triangle. Equal eigenvalues share
    their derivative; a loss that depends on the basis of their vectors raises `GaugeError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigh(np.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    array([1., 2.])
    """
    return Eigh(*apply(_eigh, symmetrize_from(a, UPLO, "eigh"), vectors=True))


@of_array
@attributed_to_caller
def eigvalsh(a: Any, UPLO: str | None = None) -> Any:
    """The eigenvalues of Hermitian matrices, ascending, as in `eigh`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigvalsh(np.array([[2.0, 0.0], [0.0, 1.0]]))
    array([1., 2.])
    """
    a = symmetrize_from(a, UPLO, "eigvalsh")
    if not is_array(a):
        return apply(_eigh, a, vectors=False)[0]
    xp = namespace_for(a)  # no derivative needed: no vectors
    return common.narrow_to(call_lapack(xp.linalg.eigvalsh, "eigvalsh", common.bare_hermitian_part(xp, a)), a.dtype)


class Eig(NamedTuple, Generic[common.Array]):
    """The result of `eig`."""

    eigenvalues: common.Array
    eigenvectors: common.Array


def _complex_dtype(dtype: Any) -> Any:
    """Single precision stays single."""
    return np.dtype(np.complex64 if common.real_dtype(dtype).itemsize <= 4 else np.complex128)


def _eig_spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    common.square_spec(x, "eig")
    dtype = _complex_dtype(x.dtype)
    return make_spec(x.shape[:-1], dtype, x.device), make_spec(x.shape, dtype, x.device)


def _eig_value(xp: Any, x: Any, vectors: bool) -> Any:
    w, v = call_lapack(xp.linalg.eig, "eig", x)
    return w.astype(_complex_dtype(x.dtype), copy=False), v.astype(_complex_dtype(x.dtype), copy=False)


def _eig_usable_factors(out: Any) -> tuple[Any, Any, Any, Any]:
    """The results, checked for use in a rule, the inverse of the eigenvectors, and which eigenvalues are equal."""
    w, v = out
    equal = gauge.equal_pairs(w)
    bad = gauge.equal_distinct_pairs(equal)
    w, v = forbid_second_derivative(w, bad, "eig"), forbid_second_derivative(v, bad, "eig")
    inverse = inv(v)
    large = pointwise.greater(pointwise.abs(inverse), common.eps(w.dtype) ** -0.5)
    text = "eig: the eigenvectors are linearly dependent (a defective matrix), and have no derivative there."
    return w, v, raise_where(inverse, large, text, "singular"), equal


# A V = V W; with P = V^-1 A' V: w' = diag(P), and V' = M - V Re diag(V^H M) with M = V Z, Z_ij = P_ij / (w_j - w_i):
# vectors keep unit norm, and of the free phases those are taken for which V^-1 V' has a real diagonal.
def _eig_push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, inverse, equal = _eig_usable_factors(out)
    inner = product(product(inverse, tangents[0]), v)
    if static["vectors"]:
        inner = raise_where(inner, gauge.separates_equal(inner, equal, inner), gauge.split_error_text("eig"))
    w_dot = average_over_equal(arrange.diagonal(inner, axis1=-2, axis2=-1), equal)
    moved = product(v, divide_by_gaps(inner, w, equal))
    return w_dot, pointwise.subtract(moved, pointwise.multiply(v, _real_inner_products(v, moved)))


def _real_inner_products(v: Any, x: Any) -> Any:
    """Re <v_k, x_k> for each column k, as a row."""
    return pointwise.real(reductions.sum(pointwise.multiply(pointwise.conj(v), x), axis=-2, keepdims=True))


def _eig_pull(bar: Any, out: Any) -> Any:
    w, v, inverse, equal = _eig_usable_factors(out)
    w_bar, v_bar = bar
    if v_bar is None:
        inner = put_on_diagonal(average_over_equal(w_bar, equal))
    else:
        turn = product(adjoint(v), pointwise.subtract(v_bar, pointwise.multiply(v, _real_inner_products(v, v_bar))))
        text = (
            "eig: the loss depends on the basis of equal eigenvalues, or on the phase of an eigenvector; both are "
            "free.\n  Use what does not: eigenvalues, abs(v), v @ f(w) @ inv(v)."
        )
        turn = raise_where(turn, gauge.depends_on_gauge(turn, equal, v_bar), text)
        inner = divide_by_gaps(turn, pointwise.conj(w), equal)
        if w_bar is not None:
            inner = put_on_diagonal(
                raise_where(w_bar, gauge.equal_distinct_pairs(equal), gauge.joint_error_text("eig")), inner
            )
    return product(product(adjoint(inverse), inner), adjoint(v))


def _eig_samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=s) + np.diag(3.0 * np.arange(s[-1])),), {"vectors": len(s) == 2})
        for s in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2))
    ]


_eig: Op = common.matrix_op(
    "eig",
    statics={"vectors": statics.flag},
    value=_eig_value,
    spec=_eig_spec,
    pulls={"x": _eig_pull},
    push=_eig_push,
    samples=_eig_samples,
)


@overload
def eig(a: V) -> Eig[V]: ...
@overload
def eig(a: Plain) -> Eig[NDArray[Any]]: ...
@attributed_to_caller
def eig(a: Any) -> Any:
    """The eigenvalues and eigenvectors (columns of length one) of square matrices, always complex. A loss that depends
    on their free phases, or on the basis of equal eigenvalues, raises `GaugeError`; a defective matrix raises
    `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    array([0.+1.j, 0.-1.j])
    """
    return Eig(*apply(_eig, as_square(a, "eig"), vectors=True))


@of_array
@attributed_to_caller
def eigvals(a: Any) -> Any:
    """The eigenvalues of square matrices, always complex, in no order.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    array([0.+1.j, 0.-1.j])
    """
    a = as_square(a, "eigvals")
    if not is_array(a):
        return apply(_eig, a, vectors=False)[0]
    found = call_lapack(namespace_for(a).linalg.eigvals, "eigvals", a)  # no derivative needed: no vectors
    return found.astype(_complex_dtype(a.dtype), copy=False)

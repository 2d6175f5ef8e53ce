"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...arrays.backends import is_array
from ...arrays.node import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError
from .. import statics
from ..dispatch import apply
from ..elementwise import pointwise
from ..families import general, is_complex
from ..index.normalize import namespace_for
from ..op import Op
from ..shape import arrange, reshaping
from .common import (
    adjoint,
    antihermitian_part,
    as_square,
    bare_hermitian_part,
    batch_matrices,
    call_lapack,
    hermitian_part,
    lower_triangle,
    narrow_to,
    product,
    put_on_diagonal,
    real_dtype,
    square_spec,
    upper_triangle,
)
from .gauge import (
    are_all_distinct,
    average_over_equal,
    depends_on_gauge,
    differs_on_equal,
    divide_by_gaps,
    equal_distinct_pairs,
    equal_pairs,
    forbid_second_derivative,
    joint_error_text,
    raise_where,
    separates_equal,
    split_error_text,
)


class Eigh(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Any
    eigenvectors: Any


def _spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    whole = square_spec(x, "eigh")
    return make_spec(x.shape[:-1], real_dtype(x.dtype), x.device), whole


def _value(xp: Any, x: Any, vectors: bool) -> Any:
    return narrow_to(tuple(call_lapack(xp.linalg.eigh, "eigh", bare_hermitian_part(xp, x))), x.dtype)


def _usable_factors(out: Any) -> tuple[Any, Any, Any]:
    """The results, checked for use in a rule, and which eigenvalues are equal."""
    w, v = out
    equal = equal_pairs(w)
    if are_all_distinct(equal):
        return w, v, equal
    bad = equal_distinct_pairs(equal)
    return forbid_second_derivative(w, bad, "eigh"), forbid_second_derivative(v, bad, "eigh"), equal


# A V = V W; with P = V^H A' V: w' = diag(P), and V' = V Z with Z_ij = P_ij / (w_j - w_i). Where eigenvalues are equal
# they share their derivative, and their vectors do not rotate into each other: Z_ij = 0.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, equal = _usable_factors(out)
    inner = product(product(adjoint(v), hermitian_part(tangents[0])), v)
    if static["vectors"] and not are_all_distinct(equal):
        inner = raise_where(inner, separates_equal(inner, equal, inner), "gauge", split_error_text("eigh"))
    middle = arrange.diagonal(inner, axis1=-2, axis2=-1)
    w_dot = average_over_equal(pointwise.real(middle) if is_complex(inner) else middle, equal)
    return w_dot, product(v, divide_by_gaps(inner, w, equal))


def _pull(bar: Any, out: Any) -> Any:
    w, v, equal = _usable_factors(out)
    w_bar, v_bar = bar
    if v_bar is None:
        shared = average_over_equal(w_bar, equal)
        return product(pointwise.multiply(v, reshaping.expand_dims(shared, -2)), adjoint(v))
    turn = product(adjoint(v), v_bar)
    if w_bar is not None and not are_all_distinct(equal):
        w_bar = raise_where(w_bar, differs_on_equal(w_bar, equal), "gauge", joint_error_text("eigh"))
        turn = raise_where(turn, separates_equal(hermitian_part(turn), equal, v_bar), "gauge", joint_error_text("eigh"))
    turn = antihermitian_part(turn)
    if is_complex(turn) or not are_all_distinct(equal):
        turn = raise_where(turn, depends_on_gauge(turn, equal, v_bar), "gauge", _TEXT)
    inner = divide_by_gaps(turn, w, equal)
    return product(product(v, inner if w_bar is None else put_on_diagonal(w_bar, inner)), adjoint(v))


_TEXT = (
    "eigh: the loss depends on the basis of equal eigenvalues, or on the phase of an eigenvector; both are free.\n"
    "  Use what does not: eigenvalues, v * conj(v), the projector v @ v^H of a whole eigenspace."
)


def _samples(rng: Any) -> Any:
    shapes = (((3, 3), True), ((2, 2, 2), False), ((1, 1), True), ((0, 0), True), ((0, 2, 2), False))
    return [((rng.normal(size=s),), {"vectors": vectors}) for s, vectors in shapes]


_eigh: Op = general(
    "eigh",
    statics={"vectors": statics.flag},
    doc="Eigenvalues, ascending, and eigenvectors of (x + x^H) / 2.",
    args=("x",),
    value=_value,
    spec=_spec,
    pulls={"x": _pull},
    push=_push,
    batch=batch_matrices,
    samples=_samples,
    family="matrix",
)


def symmetrize_from(a: Any, triangle: str | None, what: str) -> Any:
    """The matrix as it is, or the Hermitian one given by one of its triangles."""
    a = as_square(a, what)
    if triangle is None:
        return a
    if triangle not in ("L", "U", "l", "u"):
        raise ArgumentError(f"{what}: UPLO must be 'L' or 'U', got {triangle!r}.")
    part = lower_triangle(a, -1) if triangle in "Ll" else upper_triangle(a, 1)
    middle = arrange.diagonal(a, axis1=-2, axis2=-1)
    return put_on_diagonal(pointwise.real(middle) if is_complex(a) else middle, pointwise.add(part, adjoint(part)))


@attributed_to_caller
def eigh(a: Any, UPLO: str | None = None) -> Eigh:
    """The eigenvalues, ascending, and eigenvectors (columns) of Hermitian matrices. Of a non-Hermitian matrix the
    Hermitian part is used, or with `UPLO` its lower ("L") or upper ("U") triangle. Equal eigenvalues share
    their derivative; a loss that depends on the basis of their vectors raises `GaugeError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigh(np.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    array([1., 2.])
    """
    return Eigh(*apply(_eigh, symmetrize_from(a, UPLO, "eigh"), vectors=True))


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
    return narrow_to(call_lapack(xp.linalg.eigvalsh, "eigvalsh", bare_hermitian_part(xp, a)), a.dtype)

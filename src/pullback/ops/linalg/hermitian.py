"""Hermitian matrices in, real eigenvalues and orthonormal eigenvectors out."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...arrays.backends import is_array
from ...arrays.node import signed
from ...arrays.spec import Spec, make_spec
from ...errors import ArgumentError
from .. import arranging, shaping, statics
from .. import elementwise as pointwise
from ..dispatch import apply
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
from .matrices import (
    adjoint,
    antihermitian,
    by_lapack,
    hermitian,
    lower,
    narrowed,
    on_diagonal,
    product,
    real_dtype,
    square,
    square_spec,
    stacked,
    symmetric_part,
    upper,
)

__all__ = ["Eigh", "eigh", "eigvalsh", "told_by"]


class Eigh(NamedTuple):
    """What `eigh` answers."""

    eigenvalues: Any
    eigenvectors: Any


def _spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    whole = square_spec(x, "eigh")
    return make_spec(x.shape[:-1], real_dtype(x.dtype), x.device), whole


def _value(xp: Any, x: Any, vectors: bool) -> Any:
    return narrowed(tuple(by_lapack(xp.linalg.eigh, "eigh", symmetric_part(xp, x))), x.dtype)


def _known(out: Any) -> tuple[Any, Any, Any]:
    """The results as a rule may use them, and which eigenvalues are equal."""
    w, v = out
    equal = equal_ones(w)
    if all_apart(equal):
        return w, v, equal
    bad = others(equal)
    return once(w, bad, "eigh"), once(v, bad, "eigh"), equal


# A V = V W; with P = V^H A' V: w' = diag(P), and V' = V Z with Z_ij = P_ij / (w_j - w_i). Where eigenvalues are equal
# they share their derivative, and their vectors do not turn into each other: Z_ij = 0.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, equal = _known(out)
    inner = product(product(adjoint(v), hermitian(tangents[0])), v)
    if static["vectors"] and not all_apart(equal):
        inner = checked(inner, uneven(inner, equal, inner), "gauge", split_text("eigh"))
    middle = arranging.diagonal(inner, axis1=-2, axis2=-1)
    w_dot = evenly(pointwise.real(middle) if is_complex(inner) else middle, equal)
    return w_dot, product(v, over_gaps(inner, w, equal))


def _pull(bar: Any, out: Any) -> Any:
    w, v, equal = _known(out)
    w_bar, v_bar = bar
    if v_bar is None:
        shared = evenly(w_bar, equal)
        return product(pointwise.multiply(v, shaping.expand_dims(shared, -2)), adjoint(v))
    turn = product(adjoint(v), v_bar)
    if w_bar is not None and not all_apart(equal):
        w_bar = checked(w_bar, unequal(w_bar, equal), "gauge", joined_text("eigh"))
        turn = checked(turn, uneven(hermitian(turn), equal, v_bar), "gauge", joined_text("eigh"))
    turn = antihermitian(turn)
    if is_complex(turn) or not all_apart(equal):
        turn = checked(turn, in_the_way(turn, equal, v_bar), "gauge", _TEXT)
    inner = over_gaps(turn, w, equal)
    return product(product(v, inner if w_bar is None else on_diagonal(w_bar, inner)), adjoint(v))


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
    doc="Eigenvalues, rising, and eigenvectors of (x + x^H) / 2.",
    args=("x",),
    value=_value,
    spec=_spec,
    pulls={"x": _pull},
    push=_push,
    batch=stacked,
    samples=_samples,
    family="matrix",
)


def told_by(a: Any, triangle: str | None, what: str) -> Any:
    """The matrix as it is, or the Hermitian one that a triangle of it tells."""
    a = square(a, what)
    if triangle is None:
        return a
    if triangle not in ("L", "U", "l", "u"):
        raise ArgumentError(f"{what}: UPLO must be 'L' or 'U', got {triangle!r}.")
    part = lower(a, -1) if triangle in "Ll" else upper(a, 1)
    middle = arranging.diagonal(a, axis1=-2, axis2=-1)
    return on_diagonal(pointwise.real(middle) if is_complex(a) else middle, pointwise.add(part, adjoint(part)))


@signed
def eigh(a: Any, UPLO: str | None = None) -> Eigh:
    """The eigenvalues, rising, and eigenvectors (columns) of Hermitian matrices. Of a matrix that is not Hermitian the
    Hermitian part is taken, or with `UPLO` what its lower ("L") or upper ("U") triangle tells. Equal eigenvalues share
    their derivative; a loss that depends on the basis of their vectors raises `GaugeError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigh(np.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    array([1., 2.])
    """
    return Eigh(*apply(_eigh, told_by(a, UPLO, "eigh"), vectors=True))


@signed
def eigvalsh(a: Any, UPLO: str | None = None) -> Any:
    """The eigenvalues of Hermitian matrices, rising, as `eigh` has them.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigvalsh(np.array([[2.0, 0.0], [0.0, 1.0]]))
    array([1., 2.])
    """
    a = told_by(a, UPLO, "eigvalsh")
    if not is_array(a):
        return apply(_eigh, a, vectors=False)[0]
    xp = namespace_for(a)  # nothing to differentiate: the vectors are spared
    return narrowed(by_lapack(xp.linalg.eigvalsh, "eigvalsh", symmetric_part(xp, a)), a.dtype)

"""Square matrices in, complex eigenvalues and eigenvectors out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.node import signed
from ...arrays.spec import Spec, make_spec
from .. import arranging, reducing, statics
from .. import elementwise as pointwise
from ..dispatch import apply
from ..families import general
from ..index import namespace_for
from ..op import Op
from .gauge import checked, equal_ones, evenly, in_the_way, joined_text, once, others, over_gaps, split_text, uneven
from .matrices import (
    adjoint,
    by_lapack,
    eps,
    on_diagonal,
    product,
    real_dtype,
    square,
    square_spec,
    stacked,
)
from .solving import inv

__all__ = ["Eig", "eig", "eigvals"]


class Eig(NamedTuple):
    """What `eig` answers."""

    eigenvalues: Any
    eigenvectors: Any


def _complex(dtype: Any) -> Any:
    """Single precision stays single."""
    return np.dtype(np.complex64 if real_dtype(dtype).itemsize <= 4 else np.complex128)


def _spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    square_spec(x, "eig")
    dtype = _complex(x.dtype)
    return make_spec(x.shape[:-1], dtype, x.device), make_spec(x.shape, dtype, x.device)


def _value(xp: Any, x: Any, vectors: bool) -> Any:
    w, v = by_lapack(xp.linalg.eig, "eig", x)
    return w.astype(_complex(x.dtype), copy=False), v.astype(_complex(x.dtype), copy=False)


def _known(out: Any) -> tuple[Any, Any, Any, Any]:
    """The results as a rule may use them, the inverse of the eigenvectors, and which eigenvalues are equal."""
    w, v = out
    equal = equal_ones(w)
    bad = others(equal)
    w, v = once(w, bad, "eig"), once(v, bad, "eig")
    inverse = inv(v)
    large = pointwise.greater(pointwise.abs(inverse), eps(w.dtype) ** -0.5)
    text = "eig: the eigenvectors are linearly dependent (a defective matrix), and have no derivative there."
    return w, v, checked(inverse, large, "singular", text), equal


# A V = V W; with P = V^-1 A' V: w' = diag(P), and V' = M - V Re diag(V^H M) with M = V Z, Z_ij = P_ij / (w_j - w_i):
# vectors keep length one, and of the phases that are free the one is taken in which they do not turn.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, inverse, equal = _known(out)
    inner = product(product(inverse, tangents[0]), v)
    if static["vectors"]:
        inner = checked(inner, uneven(inner, equal, inner), "gauge", split_text("eig"))
    w_dot = evenly(arranging.diagonal(inner, axis1=-2, axis2=-1), equal)
    moved = product(v, over_gaps(inner, w, equal))
    return w_dot, pointwise.subtract(moved, pointwise.multiply(v, _along(v, moved)))


def _along(v: Any, x: Any) -> Any:
    """Re <v_k, x_k> for each column k, as a row."""
    return pointwise.real(reducing.sum(pointwise.multiply(pointwise.conj(v), x), axis=-2, keepdims=True))


def _pull(bar: Any, out: Any) -> Any:
    w, v, inverse, equal = _known(out)
    w_bar, v_bar = bar
    if v_bar is None:
        inner = on_diagonal(evenly(w_bar, equal))
    else:
        turn = product(adjoint(v), pointwise.subtract(v_bar, pointwise.multiply(v, _along(v, v_bar))))
        text = (
            "eig: the loss depends on the basis of equal eigenvalues, or on the phase of an eigenvector; both are "
            "free.\n  Use what does not: eigenvalues, abs(v), v @ f(w) @ inv(v)."
        )
        turn = checked(turn, in_the_way(turn, equal, v_bar), "gauge", text)
        inner = over_gaps(turn, pointwise.conj(w), equal)
        if w_bar is not None:
            inner = on_diagonal(checked(w_bar, others(equal), "gauge", joined_text("eig")), inner)
    return product(product(adjoint(inverse), inner), adjoint(v))


def _samples(rng: Any) -> Any:
    return [
        ((rng.normal(size=s) + np.diag(3.0 * np.arange(s[-1])),), {"vectors": len(s) == 2})
        for s in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2))
    ]


_eig: Op = general(
    "eig",
    statics={"vectors": statics.flag},
    doc="Eigenvalues and eigenvectors of square matrices, always complex.",
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
def eig(a: Any) -> Eig:
    """The eigenvalues and eigenvectors (columns of length one) of square matrices, always complex. A loss that depends
    on their free phases, or on the basis of equal eigenvalues, raises `GaugeError`; a defective matrix raises
    `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    array([0.+1.j, 0.-1.j])
    """
    return Eig(*apply(_eig, square(a, "eig"), vectors=True))


@signed
def eigvals(a: Any) -> Any:
    """The eigenvalues of square matrices, always complex, in no order.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    array([0.+1.j, 0.-1.j])
    """
    a = square(a, "eigvals")
    if not is_array(a):
        return apply(_eig, a, vectors=False)[0]
    found = by_lapack(namespace_for(a).linalg.eigvals, "eigvals", a)  # nothing to differentiate: no vectors
    return found.astype(_complex(a.dtype), copy=False)

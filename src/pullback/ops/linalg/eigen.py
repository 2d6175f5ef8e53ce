"""Eigenvalues and eigenvectors of general square matrices, always complex."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.node import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from .. import statics
from ..dispatch import apply
from ..elementwise import pointwise
from ..families import general
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange
from .common import (
    adjoint,
    as_square,
    batch_matrices,
    call_lapack,
    eps,
    product,
    put_on_diagonal,
    real_dtype,
    square_spec,
)
from .gauge import (
    average_over_equal,
    depends_on_gauge,
    divide_by_gaps,
    equal_distinct_pairs,
    equal_pairs,
    forbid_second_derivative,
    joint_error_text,
    raise_where,
    separates_equal,
    split_error_text,
)
from .linear_systems import inv


class Eig(NamedTuple):
    """The result of `eig`."""

    eigenvalues: Any
    eigenvectors: Any


def _complex_dtype(dtype: Any) -> Any:
    """Single precision stays single."""
    return np.dtype(np.complex64 if real_dtype(dtype).itemsize <= 4 else np.complex128)


def _spec(x: Spec, vectors: bool) -> tuple[Spec, Spec]:
    square_spec(x, "eig")
    dtype = _complex_dtype(x.dtype)
    return make_spec(x.shape[:-1], dtype, x.device), make_spec(x.shape, dtype, x.device)


def _value(xp: Any, x: Any, vectors: bool) -> Any:
    w, v = call_lapack(xp.linalg.eig, "eig", x)
    return w.astype(_complex_dtype(x.dtype), copy=False), v.astype(_complex_dtype(x.dtype), copy=False)


def _usable_factors(out: Any) -> tuple[Any, Any, Any, Any]:
    """The results, checked for use in a rule, the inverse of the eigenvectors, and which eigenvalues are equal."""
    w, v = out
    equal = equal_pairs(w)
    bad = equal_distinct_pairs(equal)
    w, v = forbid_second_derivative(w, bad, "eig"), forbid_second_derivative(v, bad, "eig")
    inverse = inv(v)
    large = pointwise.greater(pointwise.abs(inverse), eps(w.dtype) ** -0.5)
    text = "eig: the eigenvectors are linearly dependent (a defective matrix), and have no derivative there."
    return w, v, raise_where(inverse, large, "singular", text), equal


# A V = V W; with P = V^-1 A' V: w' = diag(P), and V' = M - V Re diag(V^H M) with M = V Z, Z_ij = P_ij / (w_j - w_i):
# vectors keep unit norm, and of the free phases those are taken for which V^-1 V' has a real diagonal.
def _push(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    w, v, inverse, equal = _usable_factors(out)
    inner = product(product(inverse, tangents[0]), v)
    if static["vectors"]:
        inner = raise_where(inner, separates_equal(inner, equal, inner), "gauge", split_error_text("eig"))
    w_dot = average_over_equal(arrange.diagonal(inner, axis1=-2, axis2=-1), equal)
    moved = product(v, divide_by_gaps(inner, w, equal))
    return w_dot, pointwise.subtract(moved, pointwise.multiply(v, _real_inner_products(v, moved)))


def _real_inner_products(v: Any, x: Any) -> Any:
    """Re <v_k, x_k> for each column k, as a row."""
    return pointwise.real(reductions.sum(pointwise.multiply(pointwise.conj(v), x), axis=-2, keepdims=True))


def _pull(bar: Any, out: Any) -> Any:
    w, v, inverse, equal = _usable_factors(out)
    w_bar, v_bar = bar
    if v_bar is None:
        inner = put_on_diagonal(average_over_equal(w_bar, equal))
    else:
        turn = product(adjoint(v), pointwise.subtract(v_bar, pointwise.multiply(v, _real_inner_products(v, v_bar))))
        text = (
            "eig: the loss depends on the basis of equal eigenvalues, or on the phase of an eigenvector; both are "
            "free.\n  Use what does not: eigenvalues, abs(v), v @ f(w) @ inv(v)."
        )
        turn = raise_where(turn, depends_on_gauge(turn, equal, v_bar), "gauge", text)
        inner = divide_by_gaps(turn, pointwise.conj(w), equal)
        if w_bar is not None:
            inner = put_on_diagonal(
                raise_where(w_bar, equal_distinct_pairs(equal), "gauge", joint_error_text("eig")), inner
            )
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
    batch=batch_matrices,
    samples=_samples,
    family="matrix",
)


@attributed_to_caller
def eig(a: Any) -> Eig:
    """The eigenvalues and eigenvectors (columns of length one) of square matrices, always complex. A loss that depends
    on their free phases, or on the basis of equal eigenvalues, raises `GaugeError`; a defective matrix raises
    `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    array([0.+1.j, 0.-1.j])
    """
    return Eig(*apply(_eig, as_square(a, "eig"), vectors=True))


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

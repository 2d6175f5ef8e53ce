"""Cholesky factorization, and products of Householder reflections."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.node import attributed_to_caller
from ...errors import ShapeError
from ..dispatch import apply, as_value, shape
from ..elementwise import pointwise
from ..families import general
from ..index.normalize import namespace_for
from ..op import Op
from ..shape import reshaping
from .common import (
    adjoint,
    as_column,
    as_matrix,
    as_square,
    bare_hermitian_part,
    batch_matrices,
    call_lapack,
    hermitian_part,
    identity_like,
    lower_triangle,
    narrow_to,
    product,
    real_dtype,
    square_spec,
)
from .linear_systems import triangular_solve


def _cholesky_value(xp: Any, x: Any) -> Any:
    return narrow_to(call_lapack(xp.linalg.cholesky, "cholesky", bare_hermitian_part(xp, x)), x.dtype)


def _half_lower(x: Any) -> Any:
    """The lower triangle with half of its diagonal, whose sum with its adjoint is x if that is Hermitian."""
    n = shape(x)[-1]
    xp = namespace_for(x)
    weights = xp.tri(n, n, -1, dtype=real_dtype(x.dtype))
    xp.fill_diagonal(weights, 0.5)
    return pointwise.multiply(x, weights)


# L L^H = A  =>  L^-1 A' L^-H = L^-1 L' + (L^-1 L')^H, a triangle and its adjoint, so L' = L half_lower(L^-1 A' L^-H).
def _push_cholesky(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    left = triangular_solve(out, hermitian_part(tangents[0]), lower=True)
    both = adjoint(triangular_solve(out, adjoint(left), lower=True))
    return product(out, _half_lower(both))


def _pull_cholesky(bar: Any, out: Any) -> Any:
    inner = _half_lower(product(adjoint(out), bar))
    right = adjoint(triangular_solve(adjoint(out), adjoint(inner)))  # inner L^-1
    return hermitian_part(triangular_solve(adjoint(out), right))


def _cholesky_samples(rng: Any) -> Any:
    found: list[Any] = []
    for s in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)):
        x = rng.normal(size=s)
        found.append(((x @ np.swapaxes(x, -1, -2) + np.eye(s[-1]) + 0.1 * rng.normal(size=s),), {}))
    return found


_cholesky: Op = general(
    "cholesky",
    doc="The lower triangle L with L L^H = (x + x^H) / 2.",
    args=("x",),
    value=_cholesky_value,
    spec=lambda x: square_spec(x, "cholesky"),
    pulls={"x": _pull_cholesky},
    push=_push_cholesky,
    batch=batch_matrices,
    samples=_cholesky_samples,
    family="matrix",
)


@attributed_to_caller
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The triangle L with L L^H = a, or with `upper` the U with U^H U = a. Of a non-Hermitian matrix the
    Hermitian part is used, so gradients are Hermitian.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    found = apply(_cholesky, as_square(a, "cholesky"))
    return adjoint(found) if upper else found


@attributed_to_caller
def householder_product(h: Any, tau: Any) -> Any:
    """The first columns of H_1 H_2 ... H_k with H_i = 1 - tau_i v_i v_i^H, where v_i is the i-th column of h below a
    one on the diagonal: the Q of `qr(a, mode="raw")`, with h as NumPy's transposed.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.householder_product(np.array([[0.0], [1.0]]), np.array([1.0]))
    array([[ 0.],
           [-1.]])
    """
    h, tau = as_matrix(h, "householder_product"), as_value(tau)
    (m, n), k = shape(h)[-2:], shape(tau)[-1]
    if m < n or n < k:
        raise ShapeError(f"householder_product: {k} reflections for matrices of shape {(m, n)}; wants m >= n >= k.")
    vectors = pointwise.add(lower_triangle(h, -1), identity_like(h, m)[:, :n])
    q = pointwise.where(False, h, identity_like(h, m)[:, :n])
    for i in reversed(range(k)):
        v = as_column(vectors[..., i])
        scale = reshaping.expand_dims(tau[..., i], (-2, -1))
        q = pointwise.subtract(q, product(pointwise.multiply(v, scale), product(adjoint(v), q)))
    return q

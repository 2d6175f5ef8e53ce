"""Matrices in, a permutation and two triangles out: LU with row exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.node import signed
from ...arrays.spec import Spec, make_spec
from .. import arranging, indexing, reducing, shaping
from .. import elementwise as pointwise
from ..dispatch import apply, shape
from ..families import general
from ..index import namespace_for
from ..op import Op
from .gauge import checked
from .matrices import (
    adjoint,
    by_lapack,
    column,
    eps,
    float_dtype,
    lower,
    matrix,
    narrowed,
    product,
    stacked,
    swapped,
    total,
    upper,
)
from .solving import triangular_solve

__all__ = ["lu"]


def _lu_spec(x: Spec) -> tuple[Spec, ...]:
    *batch, m, n = x.shape
    k, dtype, order = min(m, n), float_dtype(x.dtype), np.dtype(np.int64)
    rows = make_spec((*batch, m), order, x.device)
    return rows, rows, make_spec((*batch, m, k), dtype, x.device), make_spec((*batch, k, n), dtype, x.device)


def _lu_value(xp: Any, x: Any) -> Any:
    """(p, q, L, U) with x = (L U)[p] and x[q] = L U."""
    *batch, m, _ = x.shape
    if not x.size:
        specs = _lu_spec(make_spec(x.shape, x.dtype))
        rows = xp.broadcast_to(xp.arange(m), (*batch, m)).copy()
        return rows, rows.copy(), *(_unit_rows(xp, spec) for spec in specs[2:])
    if xp is np:
        import scipy.linalg

        p, left, right = by_lapack(scipy.linalg.lu, "lu", x, p_indices=True)
    else:
        p, left, right = _one_by_one(xp, x)
    p = p.astype(np.int64)
    return p, xp.argsort(p, axis=-1), *narrowed((left, right), x.dtype)


def _unit_rows(xp: Any, spec: Spec) -> Any:
    return xp.zeros(spec.shape, spec.dtype) + xp.eye(*spec.shape[-2:], dtype=spec.dtype)


def _one_by_one(xp: Any, x: Any) -> Any:
    """CuPy factors one matrix at a time, and answers the permutation as a matrix."""
    from cupyx.scipy.linalg import lu as factor

    parts = [by_lapack(factor, "lu", one) for one in x.reshape(-1, *x.shape[-2:])]
    p, left, right = (xp.stack(part) for part in zip(*parts, strict=True))
    batch = x.shape[:-2]
    return tuple(part.reshape(*batch, *part.shape[1:]) for part in (xp.argmax(p, axis=-1), left, right))


def _rows(x: Any, order: Any) -> Any:
    return indexing.take_along_axis(x, shaping.broadcast_to(column(order), shape(x)), axis=-2)


def _leading(left: Any, right: Any) -> tuple[Any, Any, int]:
    """The square parts of the triangles, of which the upper must be regular."""
    k = shape(left)[-1]
    first, top = left[..., :k, :], right[..., :k]
    size = pointwise.abs(arranging.diagonal(top, axis1=-2, axis2=-1))
    largest = reducing.sum(reducing.sum(pointwise.abs(top), axis=-1), axis=-1, keepdims=True)
    weak = pointwise.less_equal(size, pointwise.multiply(largest, 4 * eps(right.dtype)))
    text = "lu: the leading square block is singular, and the factors have no derivative there."
    return first, checked(top, weak, "singular", text), k


def _unit_solve(left: Any, b: Any) -> Any:
    """left^-1 b for a lower triangle with ones on its diagonal."""
    return triangular_solve(left, b, lower=True, unit_diagonal=True)


def _divided(b: Any, right: Any) -> Any:
    """b right^-1 for an upper triangle."""
    return swapped(triangular_solve(swapped(right), swapped(b), lower=True))


# B = L U, B' = L' U + L U'. With the square blocks, F = L^-1 B' U^-1 = L^-1 L' + U' U^-1 falls apart into a strictly
# lower and an upper triangle; rows below and columns beyond follow from the same equation.
def _push_lu(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    _, q, left, right = out
    moved = _rows(tangents[0], q)
    first, top, k = _leading(left, right)
    f = _divided(_unit_solve(first, moved[..., :k, :k]), top)
    left_dot, right_dot = product(first, lower(f, -1)), product(upper(f), top)
    if shape(left)[-2] > k:
        below = pointwise.subtract(_divided(moved[..., k:, :], top), product(left[..., k:, :], upper(f)))
        left_dot = arranging.concat([left_dot, below], axis=-2)
    if shape(right)[-1] > k:
        beyond = pointwise.subtract(_unit_solve(first, moved[..., k:]), product(lower(f, -1), right[..., k:]))
        right_dot = arranging.concat([right_dot, beyond], axis=-1)
    return None, None, left_dot, right_dot


def _pull_lu(bar: Any, out: Any) -> Any:
    p, _, left, right = out
    left_bar, right_bar = bar[2:]
    first, top, k = _leading(left, right)
    m, n = shape(left)[-2], shape(right)[-1]
    f_bar = below = beyond = None
    if left_bar is not None:
        f_bar = lower(product(adjoint(first), left_bar[..., :k, :]), -1)
        if m > k:
            below = left_bar[..., k:, :]
            f_bar = pointwise.subtract(f_bar, upper(product(adjoint(left[..., k:, :]), below)))
    if right_bar is not None:
        f_bar = total(f_bar, upper(product(right_bar[..., :k], adjoint(top))))
        if n > k:
            beyond = right_bar[..., k:]
            f_bar = pointwise.subtract(f_bar, lower(product(beyond, adjoint(right[..., k:])), -1))
    stacked_rows = _joined(f_bar, below, m - k, -2)  # what U^-H divides
    divided = _divided_by_adjoint(stacked_rows, top)
    columns = _joined(divided[..., :k, :], beyond, n - k, -1)  # what L^-H divides
    solved = triangular_solve(adjoint(first), columns, unit_diagonal=True)
    whole = solved if m == k else arranging.concat([solved, divided[..., k:, :]], axis=-2)
    return _rows(whole, p)


def _divided_by_adjoint(b: Any, right: Any) -> Any:
    """b right^-H for an upper triangle."""
    return adjoint(triangular_solve(right, adjoint(b)))


def _joined(x: Any, more: Any, count: int, axis: int) -> Any:
    """x with more rows or columns, zeros where there are none."""
    if more is not None:
        return arranging.concat([x, more], axis=axis)
    return arranging.pad(x, [(0, count) if i == len(shape(x)) + axis else (0, 0) for i in range(len(shape(x)))])


def _samples(rng: Any) -> Any:
    shapes = ((3, 3), (3, 2), (2, 3), (2, 2, 2), (0, 0), (0, 2, 2))
    return [((rng.normal(size=s) + 3 * np.eye(*s[-2:]),), {}) for s in shapes]


_lu: Op = general(
    "lu",
    doc="Row orders and triangles (p, q, L, U) with x = (L U)[p] and x[q] = L U.",
    args=("x",),
    value=_lu_value,
    spec=_lu_spec,
    pulls={"x": _pull_lu},
    push=_push_lu,
    batch=stacked,
    samples=_samples,
    family="matrix",
)


@signed
def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> Any:
    """(P, L, U) with P L U = a: a permutation, a lower triangle with ones on its diagonal, an upper triangle; as SciPy
    has it. With `permute_l` only (P L, U), with `p_indices` the order p in place of P, so that a = (L U)[p].

    >>> import numpy as np, pullback as pb
    >>> p, l, u = pb.linalg.lu(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> l, u
    (array([[1.  , 0.  ],
           [0.25, 1.  ]]), array([[4., 4.],
           [0., 1.]]))
    """
    a = matrix(a, "lu")
    p, _, left, right = apply(_lu, a)
    if permute_l:
        return _rows(left, p), right
    if p_indices:
        return p, left, right
    unit = namespace_for(a).eye(shape(a)[-2], dtype=float_dtype(a.dtype))
    return indexing.take(unit, p, axis=0), left, right

"""LU factorization with row exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.node import attributed_to_caller
from ...arrays.spec import Spec, make_spec
from ..dispatch import apply, shape
from ..elementwise import pointwise
from ..families import general
from ..index import indexing
from ..index.normalize import namespace_for
from ..op import Op
from ..reduce import reductions
from ..shape import arrange, reshaping
from .common import (
    add_optional,
    adjoint,
    as_column,
    as_matrix,
    batch_matrices,
    call_lapack,
    eps,
    float_dtype,
    lower_triangle,
    narrow_to,
    product,
    upper_triangle,
)
from .gauge import raise_where
from .linear_systems import divide_by_upper, divide_by_upper_adjoint, triangular_solve


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
        return rows, rows.copy(), *(_identity_stack(xp, spec) for spec in specs[2:])
    if xp is np:
        import scipy.linalg

        p, left, right = call_lapack(scipy.linalg.lu, "lu", x, p_indices=True)
    else:
        p, left, right = _factor_each(xp, x)
    p = p.astype(np.int64)
    return p, xp.argsort(p, axis=-1), *narrow_to((left, right), x.dtype)


def _identity_stack(xp: Any, spec: Spec) -> Any:
    return xp.zeros(spec.shape, spec.dtype) + xp.eye(*spec.shape[-2:], dtype=spec.dtype)


def _factor_each(xp: Any, x: Any) -> Any:
    """CuPy factors one matrix at a time, and returns the permutation as a matrix."""
    from cupyx.scipy.linalg import lu as factor

    parts = [call_lapack(factor, "lu", one) for one in x.reshape(-1, *x.shape[-2:])]
    p, left, right = (xp.stack(part) for part in zip(*parts, strict=True))
    batch = x.shape[:-2]
    return tuple(part.reshape(*batch, *part.shape[1:]) for part in (xp.argmax(p, axis=-1), left, right))


def _permute_rows(x: Any, order: Any) -> Any:
    return indexing.take_along_axis(x, reshaping.broadcast_to(as_column(order), shape(x)), axis=-2)


def _leading_blocks(left: Any, right: Any) -> tuple[Any, Any, int]:
    """The square blocks of the triangles, of which the upper must be regular."""
    k = shape(left)[-1]
    first, top = left[..., :k, :], right[..., :k]
    size = pointwise.abs(arrange.diagonal(top, axis1=-2, axis2=-1))
    largest = reductions.sum(reductions.sum(pointwise.abs(top), axis=-1), axis=-1, keepdims=True)
    weak = pointwise.less_equal(size, pointwise.multiply(largest, 4 * eps(right.dtype)))
    text = "lu: the leading square block is singular, and the factors have no derivative there."
    return first, raise_where(top, weak, "singular", text), k


def _solve_unit_lower(left: Any, b: Any) -> Any:
    """left^-1 b for a lower triangle with ones on its diagonal."""
    return triangular_solve(left, b, lower=True, unit_diagonal=True)


# B = L U, B' = L' U + L U'. With the square blocks, F = L^-1 B' U^-1 = L^-1 L' + U' U^-1 splits into a strictly
# lower and an upper triangle; further rows and columns follow from the same equation.
def _push_lu(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    _, q, left, right = out
    moved = _permute_rows(tangents[0], q)
    first, top, k = _leading_blocks(left, right)
    f = divide_by_upper(_solve_unit_lower(first, moved[..., :k, :k]), top)
    left_dot, right_dot = product(first, lower_triangle(f, -1)), product(upper_triangle(f), top)
    if shape(left)[-2] > k:
        below = pointwise.subtract(
            divide_by_upper(moved[..., k:, :], top), product(left[..., k:, :], upper_triangle(f))
        )
        left_dot = arrange.concat([left_dot, below], axis=-2)
    if shape(right)[-1] > k:
        beyond = pointwise.subtract(
            _solve_unit_lower(first, moved[..., k:]), product(lower_triangle(f, -1), right[..., k:])
        )
        right_dot = arrange.concat([right_dot, beyond], axis=-1)
    return None, None, left_dot, right_dot


def _pull_lu(bar: Any, out: Any) -> Any:
    p, _, left, right = out
    left_bar, right_bar = bar[2:]
    first, top, k = _leading_blocks(left, right)
    m, n = shape(left)[-2], shape(right)[-1]
    f_bar = below = beyond = None
    if left_bar is not None:
        f_bar = lower_triangle(product(adjoint(first), left_bar[..., :k, :]), -1)
        if m > k:
            below = left_bar[..., k:, :]
            f_bar = pointwise.subtract(f_bar, upper_triangle(product(adjoint(left[..., k:, :]), below)))
    if right_bar is not None:
        f_bar = add_optional(f_bar, upper_triangle(product(right_bar[..., :k], adjoint(top))))
        if n > k:
            beyond = right_bar[..., k:]
            f_bar = pointwise.subtract(f_bar, lower_triangle(product(beyond, adjoint(right[..., k:])), -1))
    stacked_rows = _append_or_pad(f_bar, below, m - k, -2)  # to be divided by U^H
    divided = divide_by_upper_adjoint(stacked_rows, top)
    columns = _append_or_pad(divided[..., :k, :], beyond, n - k, -1)  # to be divided by L^H
    solved = triangular_solve(adjoint(first), columns, unit_diagonal=True)
    whole = solved if m == k else arrange.concat([solved, divided[..., k:, :]], axis=-2)
    return _permute_rows(whole, p)


def _append_or_pad(x: Any, more: Any, count: int, axis: int) -> Any:
    """x with rows or columns appended, zeros where there are none."""
    if more is not None:
        return arrange.concat([x, more], axis=axis)
    return arrange.pad(x, [(0, count) if i == len(shape(x)) + axis else (0, 0) for i in range(len(shape(x)))])


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
    batch=batch_matrices,
    samples=_samples,
    family="matrix",
)


@attributed_to_caller
def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> Any:
    """(P, L, U) with P L U = a: a permutation, a lower triangle with ones on its diagonal, an upper triangle; as in
    SciPy. With `permute_l` only (P L, U), with `p_indices` the row indices p in place of P, so that a = (L U)[p].

    >>> import numpy as np, pullback as pb
    >>> p, l, u = pb.linalg.lu(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> l, u
    (array([[1.  , 0.  ],
           [0.25, 1.  ]]), array([[4., 4.],
           [0., 1.]]))
    """
    a = as_matrix(a, "lu")
    p, _, left, right = apply(_lu, a)
    if permute_l:
        return _permute_rows(left, p), right
    if p_indices:
        return p, left, right
    unit = namespace_for(a).eye(shape(a)[-2], dtype=float_dtype(a.dtype))
    return indexing.take(unit, p, axis=0), left, right

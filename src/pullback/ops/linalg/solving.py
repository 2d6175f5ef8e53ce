"""Matrices and right-hand sides in, solutions out: systems, triangles, inverses of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.node import signed
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import ArgumentError, ShapeError
from .. import elementwise as pointwise
from .. import reducing, shaping
from ..axes import one_axis, whole
from ..dispatch import apply, as_value, ndim, shape
from ..families import broadcast_shape, common_device, general, result_dtype
from ..op import Op
from . import rank
from .matrices import (
    adjoint,
    by_lapack,
    column,
    computed,
    eps,
    float_dtype,
    hermitian,
    lower,
    matrix,
    narrowed,
    product,
    real_dtype,
    scipy_linalg,
    square,
    square_spec,
    stacked,
    swapped,
    total,
    upper,
)
from .singular import svdvals

__all__ = [
    "inv", "lstsq", "pinv", "solve", "solve_triangular", "tensorinv", "tensorsolve", "triangular_solve",
]  # fmt: skip


def _solved_spec(a: Spec, b: Spec, what: str) -> Spec:
    square_spec(a, what)
    if b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"{what}: a of shape {a.shape} and b of shape {b.shape} differ in the number of rows.")
    batch = broadcast_shape(what, a.shape[:-2], b.shape[:-2])
    dtype = float_dtype(result_dtype((a, b)))
    return make_spec((*batch, *b.shape[-2:]), dtype, common_device(what, (a, b)))


def _solve_value(xp: Any, a: Any, b: Any) -> Any:
    dtype = float_dtype(np.result_type(a.dtype, b.dtype))
    return narrowed(by_lapack(xp.linalg.solve, "solve", a, b), dtype)


# a x = b  =>  a x' = b' - a' x;  read backward, b_bar = a^-H x_bar and a_bar = -b_bar x^H.
def _solve_shares(bar: Any, a: Any, out: Any, position: tuple[int, ...]) -> tuple[Any, Any]:
    b_bar = apply(_solve, adjoint(a), bar)
    return product(pointwise.negative(b_bar), adjoint(out)) if 0 in position else None, b_bar


def _push_solve(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    (a_dot, b_dot), (a, _) = tangents, primals
    moved = None if a_dot is None else pointwise.negative(product(a_dot, out))
    return apply(_solve, a, total(b_dot, moved))


def _systems(rng: Any) -> Any:
    shapes = (((3, 3), (3, 1)), ((2, 2, 2), (2, 3)), ((2, 2), (3, 2, 1)), ((0, 0), (0, 2)), ((0, 2, 2), (2, 1)))
    return [((rng.normal(size=a) + 3 * np.eye(a[-1]), rng.normal(size=b)), {}) for a, b in shapes]


_solve: Op = general(
    "solve",
    doc="The solutions x of a x = b, column by column.",
    args=("a", "b"),
    value=_solve_value,
    spec=lambda a, b: _solved_spec(a, b, "solve"),
    joint=_solve_shares,
    push=_push_solve,
    batch=stacked,
    samples=_systems,
    family="matrix",
)


@signed
def solve(a: Any, b: Any) -> Any:
    """The x with a x = b; b is one vector, or holds columns over its last two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0]))
    array([1. , 0.5])
    """
    a, b = square(a, "solve"), as_value(b)
    if ndim(b) == 1:
        _solved_spec(spec_of(a), spec_of(column(b)), "solve")
        return shaping.squeeze(apply(_solve, a, column(b)), -1)
    return apply(_solve, a, b)


def _triangular_value(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    dtype = float_dtype(np.result_type(a.dtype, b.dtype))
    if a.ndim == b.ndim == 2 and a.size:
        solver, options = scipy_linalg(xp).solve_triangular, {"lower": lower, "unit_diagonal": unit}
        return narrowed(by_lapack(solver, "triangular_solve", a, b, check_finite=False, **options), dtype)
    triangle = (xp.tril if lower else xp.triu)(a, (-1 if lower else 1) if unit else 0)
    whole = triangle + xp.eye(a.shape[-1], dtype=a.dtype) if unit else triangle
    return narrowed(by_lapack(xp.linalg.solve, "triangular_solve", whole, b), dtype)


def _triangular_shares(
    bar: Any, a: Any, out: Any, lower: bool, unit: bool, position: tuple[int, ...]
) -> tuple[Any, Any]:
    b_bar = apply(_triangular, adjoint(a), bar, lower=not lower, unit=unit)
    return _triangle(product(pointwise.negative(b_bar), adjoint(out)), lower, unit) if 0 in position else None, b_bar


def _triangle(x: Any, is_lower: bool, unit: bool) -> Any:
    """The part of a matrix that a triangular solve looks at."""
    return lower(x, -unit) if is_lower else upper(x, int(unit))


def _push_triangular(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    (a_dot, b_dot), (a, _) = tangents, primals
    moved = None
    if a_dot is not None:
        moved = pointwise.negative(product(_triangle(a_dot, static["lower"], static["unit"]), out))
    return apply(_triangular, a, total(b_dot, moved), **static)


def _triangles(rng: Any) -> Any:
    return [
        (args, {"lower": bool(i % 2), "unit": i > 1}) for i, (args, _) in enumerate(_systems(rng)) if args[0].size or i
    ]


_triangular: Op = general(
    "triangular_solve",
    doc="The solutions of a x = b for one triangle of a.",
    args=("a", "b"),
    value=_triangular_value,
    spec=lambda a, b, lower, unit: _solved_spec(a, b, "triangular_solve"),
    joint=_triangular_shares,
    push=_push_triangular,
    batch=stacked,
    samples=_triangles,
    family="matrix",
)


@signed
def triangular_solve(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
    """The x with a x = b, where only one triangle of a is looked at; `trans` 1 or "T" solves with the transpose, 2 or
    "C" with its conjugate, and `unit_diagonal` takes ones for the diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.triangular_solve(np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([2.0, 9.0]), lower=True)
    array([1., 2.])
    """
    a, b = square(a, "triangular_solve"), as_value(b)
    turned = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}.get(trans)
    if turned is None:
        raise ArgumentError(f"triangular_solve: trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
    if turned:
        a, lower = (swapped(a) if turned == 1 else adjoint(a)), not lower
    static = {"lower": bool(lower), "unit": bool(unit_diagonal)}
    if ndim(b) == 1:
        _solved_spec(spec_of(a), spec_of(column(b)), "triangular_solve")
        return shaping.squeeze(apply(_triangular, a, column(b), **static), -1)
    return apply(_triangular, a, b, **static)


solve_triangular = triangular_solve

# x x^-1 = 1  =>  (x^-1)' = -x^-1 x' x^-1.
_inv: Op = general(
    "inv",
    doc="The inverse of square matrices.",
    args=("x",),
    value=computed("inv"),
    spec=lambda x: square_spec(x, "inv"),
    pulls={"x": lambda bar, out: pointwise.negative(product(product(adjoint(out), bar), adjoint(out)))},
    push=lambda tangents, out, primals, static: pointwise.negative(product(product(out, tangents[0]), out)),
    batch=stacked,
    samples=lambda rng: [((a,), {}) for (a, _), _ in _systems(rng)],
    family="matrix",
)


@signed
def inv(a: Any) -> Any:
    """The inverse of each square matrix; a singular one raises `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return apply(_inv, square(a, "inv"))


def _pinv_value(xp: Any, x: Any, rtol: Any) -> Any:
    if not x.size:
        return xp.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), float_dtype(x.dtype))
    u, s, vh = by_lapack(xp.linalg.svd, "pinv", x, full_matrices=False)
    kept = s > (rtol * s[..., :1].max(axis=-1))[..., None]
    inverse = xp.where(kept, 1 / xp.where(kept, s, 1), 0)
    out = xp.matmul(xp.conj(xp.swapaxes(vh, -1, -2)), inverse[..., None] * xp.conj(xp.swapaxes(u, -1, -2)))
    return narrowed(out.astype(u.dtype, copy=False), x.dtype)


def _pinv_spec(x: Spec, rtol: Spec) -> Spec:
    return make_spec((*x.shape[:-2], x.shape[-1], x.shape[-2]), float_dtype(x.dtype), x.device)


# Golub and Pereyra, for matrices y of one rank near x, p = pinv(x):
#   p' = -p y' p + p p^H y'^H (1 - x p) + (1 - p x) y'^H p^H p.
def _push_pinv(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    y, x, p = tangents[0], primals[0], out
    if y is None:
        return None
    yh, ph = adjoint(y), adjoint(p)
    left, right = product(product(p, ph), yh), product(yh, product(ph, p))
    first = pointwise.negative(product(product(p, y), p))
    second = pointwise.subtract(left, product(product(left, x), p))
    third = pointwise.subtract(right, product(p, product(x, right)))
    return pointwise.add(pointwise.add(first, second), third)


def _pull_pinv(bar: Any, x: Any, out: Any) -> Any:
    """Each term of the push, transposed: <bar, b y^H c> = <c bar^H b, y>."""
    p, ph, bh = out, adjoint(out), adjoint(bar)
    first = pointwise.negative(product(product(ph, bar), ph))
    left, right = product(bh, product(p, ph)), product(product(ph, p), bh)
    second = pointwise.subtract(left, product(x, product(p, left)))
    third = pointwise.subtract(right, product(product(right, p), x))
    return pointwise.add(pointwise.add(first, second), third)


def _rectangles(rng: Any) -> Any:
    shapes = ((3, 2), (2, 3), (2, 2, 2), (0, 2), (2, 3, 0))
    return [((rng.normal(size=s) + 3 * np.eye(*s[-2:]), np.asarray(1e-12)), {}) for s in shapes]


_pinv: Op = general(
    "pinv",
    doc="The pseudo-inverse.",
    args=("x", "rtol"),
    value=_pinv_value,
    spec=_pinv_spec,
    pulls={"x": _pull_pinv, "rtol": None},
    push=_push_pinv,
    batch=lambda op, size, args, axes, static: _batch_pinv(op, size, args, axes),
    samples=_rectangles,
    family="matrix",
)


def _batch_pinv(op: Any, size: int, args: Any, axes: Any) -> tuple[Any, int]:
    (x, rtol), (x_axis, rtol_axis) = args, axes
    x = shaping.moveaxis(x, x_axis, 0) if x_axis is not None else shaping.broadcast_to(x, (size, *shape(x)))
    if rtol_axis is not None:
        rtol = shaping.moveaxis(rtol, rtol_axis, 0)
        rtol = shaping.reshape(rtol, (size, *(1,) * (ndim(x) - 2 - ndim(rtol)), *shape(rtol)[1:]))
    return apply(op, x, rtol), 0


@signed
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The pseudo-inverse: singular values up to `rtol` times the largest count as zero. Its derivative is the one
    among matrices of the same rank.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.pinv(np.array([[2.0], [0.0]]))
    array([[0.5, 0. ]])
    """
    a = matrix(a, "pinv")
    if rcond is not None and rtol is not None:
        raise ArgumentError("pinv: rcond and rtol are two names of one thing.\n  Give one of them.")
    return apply(_pinv, _symmetric(a) if hermitian else a, _cutoff(a, rtol if rcond is None else rcond))


def _symmetric(x: Any) -> Any:
    return hermitian(square(x, "pinv"))


def _cutoff(a: Any, rtol: Any) -> Any:
    dtype = real_dtype(spec_of(a).dtype)
    given = max(shape(a)[-2:]) * eps(dtype) if rtol is None else rtol
    return pointwise.stop_gradient(as_value(np.asarray(given, dtype) if isinstance(given, (int, float)) else given))


@signed
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """The x of least norm among those that make |a x - b| least, with the squared residuals of each column (none if a
    has not full column rank), the rank and the singular values of a.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))[0]
    array([2.])
    """
    a, b = matrix(a, "lstsq"), as_value(b)
    one = ndim(b) == 1
    b = column(b) if one else b
    if ndim(b) < 2 or shape(a)[-2] != shape(b)[-2]:
        raise ShapeError(f"lstsq: a of shape {shape(a)} and b of shape {shape(b)} differ in the number of rows.")
    rcond = eps(spec_of(a).dtype) if rcond == -1 else rcond
    x = product(apply(_pinv, a, _cutoff(a, rcond)), b)
    misfit = pointwise.abs(pointwise.subtract(b, product(a, x)))
    residuals = reducing.sum(pointwise.square(misfit), axis=-2)
    found = rank.matrix_rank(a, rtol=rcond)
    rows, columns = shape(a)[-2:]
    if rows <= columns or (ndim(a) == 2 and rank.known(found) is not None and rank.known(found) < columns):
        residuals = residuals[..., :0]
    return (shaping.squeeze(x, -1) if one else x), residuals, found, svdvals(a)


@signed
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of a as a map from its last axes to its first `ind` ones.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.tensorinv(np.eye(4).reshape(2, 2, 4)).shape
    (4, 2, 2)
    """
    a = as_value(a)
    ind = whole(ind, "tensorinv: ind")
    if not ind > 0:
        raise ArgumentError(f"tensorinv: ind must be positive, got {ind}.")
    left, right = shape(a)[:ind], shape(a)[ind:]
    flat = shaping.reshape(a, (math.prod(left), math.prod(right)))
    return shaping.reshape(inv(flat), right + left)


@signed
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with a x = b, where a sums over its last axes, as many as x has; `axes` are moved there first.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.tensorsolve(np.eye(4).reshape(2, 2, 4), np.ones((2, 2)))
    array([1., 1., 1., 1.])
    """
    a, b = as_value(a), as_value(b)
    if axes is not None:
        last = [one_axis(k, ndim(a), "tensorsolve") for k in axes]
        order = [k for k in range(ndim(a)) if k not in last] + last
        a = shaping.permute_dims(a, tuple(order))
    wanted = shape(a)[ndim(b) :]
    if math.prod(wanted) != math.prod(shape(b)) or math.prod(wanted) ** 2 != math.prod(shape(a)):
        raise ShapeError(f"tensorsolve: a of shape {shape(a)} is not a square map onto b of shape {shape(b)}.")
    size = math.prod(shape(b))
    return shaping.reshape(solve(shaping.reshape(a, (size, size)), shaping.reshape(b, (size,))), wanted)

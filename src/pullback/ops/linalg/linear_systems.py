"""Solving linear systems: general and triangular solves, inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import ArgumentError, ShapeError
from .. import statics
from ..axes import as_integer, axes_tuple
from ..dispatch import apply, as_value, ndim, shape
from ..elementwise import pointwise
from ..families import broadcast_shape, common_device, result_dtype
from ..forms import Matrix
from ..op import Op
from ..shape import arrange, reshaping
from ..signatures import of_array, of_two_arrays
from . import common
from .common import adjoint, as_column, product, swap_last_axes


def _solve_spec(a: Spec, b: Spec, what: str) -> Spec:
    common.square_spec(a, what)
    if b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"{what}: a of shape {a.shape} and b of shape {b.shape} differ in the number of rows.")
    batch = broadcast_shape(what, a.shape[:-2], b.shape[:-2])
    dtype = common.float_dtype(result_dtype((a, b)))
    return make_spec((*batch, *b.shape[-2:]), dtype, common_device(what, (a, b)))


def _solve_value(xp: Any, a: Any, b: Any) -> Any:
    dtype = common.float_dtype(np.result_type(a.dtype, b.dtype))
    return common.narrow_to(common.call_lapack(xp.linalg.solve, "solve", *_broadcast_stacks(xp, a, b)), dtype)


def _broadcast_stacks(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Stacks of one shape: CuPy's solver does not broadcast."""
    if xp is np or a.shape[:-2] == b.shape[:-2]:
        return a, b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return xp.broadcast_to(a, (*batch, *a.shape[-2:])).copy(), xp.broadcast_to(b, (*batch, *b.shape[-2:])).copy()


# a x = b  =>  a x' = b' - a' x;  transposed, b_bar = a^-H x_bar and a_bar = -b_bar x^H.
def _pull_solve(bar: Any, a: Any, out: Any, position: tuple[int, ...]) -> tuple[Any, Any]:
    b_bar = apply(_solve, adjoint(a), bar)
    return product(pointwise.negative(b_bar), adjoint(out)) if 0 in position else None, b_bar


def _push_solve(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    (a_dot, b_dot), (a, _) = tangents, primals
    moved = None if a_dot is None else pointwise.negative(product(a_dot, out))
    return apply(_solve, a, common.add_optional(b_dot, moved))


def _solve_samples(rng: Any) -> Any:
    shapes = (((3, 3), (3, 1)), ((2, 2, 2), (2, 3)), ((2, 2), (3, 2, 1)), ((0, 0), (0, 2)), ((0, 2, 2), (2, 1)))
    return [((rng.normal(size=a) + 3 * np.eye(a[-1]), rng.normal(size=b)), {}) for a, b in shapes]


_solve: Op = common.matrix_op(
    "solve",
    value=_solve_value,
    spec=lambda a, b: _solve_spec(a, b, "solve"),
    joint=_pull_solve,
    form=Matrix("solve"),
    push=_push_solve,
    samples=_solve_samples,
)


@of_two_arrays
@attributed_to_caller
def solve(a: Any, b: Any) -> Any:
    """The x with a x = b; b is one vector, or holds columns over its last two axes.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0]))
    array([1. , 0.5])
    """
    a, b = common.as_square(a, "solve"), as_value(b)
    if ndim(b) == 1:
        _solve_spec(spec_of(a), spec_of(as_column(b)), "solve")
        return reshaping.squeeze(apply(_solve, a, as_column(b)), -1)
    return apply(_solve, a, b)


def _triangular_value(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    dtype = common.float_dtype(np.result_type(a.dtype, b.dtype))
    if a.ndim == b.ndim == 2 and a.size:
        solver, options = common.scipy_linalg(xp).solve_triangular, {"lower": lower, "unit_diagonal": unit}
        return common.narrow_to(
            common.call_lapack(solver, "triangular_solve", a, b, check_finite=False, **options), dtype
        )
    triangle = (xp.tril if lower else xp.triu)(a, (-1 if lower else 1) if unit else 0)
    whole = triangle + xp.eye(a.shape[-1], dtype=a.dtype) if unit else triangle
    return common.narrow_to(
        common.call_lapack(xp.linalg.solve, "triangular_solve", *_broadcast_stacks(xp, whole, b)), dtype
    )


def _pull_triangular(bar: Any, a: Any, out: Any, lower: bool, unit: bool, position: tuple[int, ...]) -> tuple[Any, Any]:
    b_bar = apply(_triangular, adjoint(a), bar, lower=not lower, unit=unit)
    return _used_triangle(
        product(pointwise.negative(b_bar), adjoint(out)), lower, unit
    ) if 0 in position else None, b_bar


def _used_triangle(x: Any, is_lower: bool, unit: bool) -> Any:
    """The part of a matrix that a triangular solve reads."""
    return arrange.tril(x, -unit) if is_lower else arrange.triu(x, int(unit))


def _push_triangular(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    (a_dot, b_dot), (a, _) = tangents, primals
    moved = None
    if a_dot is not None:
        moved = pointwise.negative(product(_used_triangle(a_dot, static["lower"], static["unit"]), out))
    return apply(_triangular, a, common.add_optional(b_dot, moved), **static)


def _triangular_samples(rng: Any) -> Any:
    return [
        (args, {"lower": bool(i % 2), "unit": i > 1})
        for i, (args, _) in enumerate(_solve_samples(rng))
        if args[0].size or i
    ]


_triangular: Op = common.matrix_op(
    "triangular_solve",
    statics={"lower": statics.flag, "unit": statics.flag},
    value=_triangular_value,
    spec=lambda a, b, lower, unit: _solve_spec(a, b, "triangular_solve"),
    joint=_pull_triangular,
    form=Matrix("triangular_solve", 0.5, overwrites=True),
    push=_push_triangular,
    samples=_triangular_samples,
)


@of_two_arrays
@attributed_to_caller
def triangular_solve(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
    """The x with a x = b, where only one triangle of a is read; `trans` 1 or "T" solves with the transpose, 2 or
    "C" with its conjugate, and `unit_diagonal` assumes ones on the diagonal.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.triangular_solve(np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([2.0, 9.0]), lower=True)
    array([1., 2.])
    """
    a, b = common.as_square(a, "triangular_solve"), as_value(b)
    transposition = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}.get(trans)
    if transposition is None:
        raise ArgumentError(f"triangular_solve: trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
    if transposition:
        a, lower = (swap_last_axes(a) if transposition == 1 else adjoint(a)), not lower
    static = {"lower": bool(lower), "unit": bool(unit_diagonal)}
    if ndim(b) == 1:
        _solve_spec(spec_of(a), spec_of(as_column(b)), "triangular_solve")
        return reshaping.squeeze(apply(_triangular, a, as_column(b), **static), -1)
    return apply(_triangular, a, b, **static)


solve_triangular = triangular_solve


def divide_by_upper(b: Any, right: Any) -> Any:
    """b right^-1 for an upper triangle."""
    return swap_last_axes(triangular_solve(swap_last_axes(right), swap_last_axes(b), lower=True))


def divide_by_upper_adjoint(b: Any, right: Any) -> Any:
    """b right^-H for an upper triangle."""
    return adjoint(triangular_solve(right, adjoint(b)))


# x x^-1 = 1  =>  (x^-1)' = -x^-1 x' x^-1.
_inv: Op = common.matrix_op(
    "inv",
    value=common.lapack_value("inv"),
    form=Matrix("inverse"),
    spec=lambda x: common.square_spec(x, "inv"),
    pulls={"x": lambda bar, out: pointwise.negative(product(product(adjoint(out), bar), adjoint(out)))},
    push=lambda tangents, out, primals, static: pointwise.negative(product(product(out, tangents[0]), out)),
    samples=lambda rng: [((a,), {}) for (a, _), _ in _solve_samples(rng)],
)


@of_array
@attributed_to_caller
def inv(a: Any) -> Any:
    """The inverse of each square matrix; a singular one raises `SingularError`.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return apply(_inv, common.as_square(a, "inv"))


@of_array
@attributed_to_caller
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of a as a map from its last axes to its first `ind` ones.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.tensorinv(np.eye(4).reshape(2, 2, 4)).shape
    (4, 2, 2)
    """
    a = as_value(a)
    ind = as_integer(ind, "tensorinv: ind")
    if not ind > 0:
        raise ArgumentError(f"tensorinv: ind must be positive, got {ind}.")
    left, right = shape(a)[:ind], shape(a)[ind:]
    flat = reshaping.reshape(a, (math.prod(left), math.prod(right)))
    return reshaping.reshape(inv(flat), right + left)


@of_two_arrays
@attributed_to_caller
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with a x = b, where a sums over its last axes, as many as x has; `axes` are moved there first.

    >>> import numpy as np, pullback as pb
    >>> pb.linalg.tensorsolve(np.eye(4).reshape(2, 2, 4), np.ones((2, 2)))
    array([1., 1., 1., 1.])
    """
    a, b = as_value(a), as_value(b)
    if axes is not None:
        last = axes_tuple(axes, ndim(a), "tensorsolve")
        order = [k for k in range(ndim(a)) if k not in last] + [*last]
        a = reshaping.permute_dims(a, tuple(order))
    wanted = shape(a)[ndim(b) :]
    if math.prod(wanted) != math.prod(shape(b)) or math.prod(wanted) ** 2 != math.prod(shape(a)):
        raise ShapeError(f"tensorsolve: a of shape {shape(a)} is not a square map onto b of shape {shape(b)}.")
    size = math.prod(shape(b))
    return reshaping.reshape(solve(reshaping.reshape(a, (size, size)), reshaping.reshape(b, (size,))), wanted)

"""Routines of linear algebra as loops over rows and columns, for formats that lack them.

Each loop reads and writes the row or column of its step by masks, so that a program has one step for any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec, spec_of
from ..compile.vocabulary import value_dtype
from ..ops.contract.matrix_products import matmul
from ..ops.elementwise import pointwise as p
from ..ops.elementwise.pointwise import where
from ..ops.elementwise.rounding import ceil
from ..ops.elementwise.transcendental import exp2, log2
from ..ops.functions import astype
from ..ops.index.indexing import take_along_axis
from ..ops.linalg.common import hermitian_part
from ..ops.linalg.gauge import raise_where
from ..ops.linalg.linear_systems import solve, triangular_solve
from ..ops.reduce.reductions import any as any_of
from ..ops.reduce.reductions import argmax, prod
from ..ops.reduce.reductions import max as largest
from ..ops.reduce.reductions import sum as total_of
from ..ops.shape.arrange import diagonal, tril, triu
from ..ops.shape.reshaping import broadcast_to, expand_dims
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.scan import scan
from .reflection_expansions import as_column, as_row, expand_qr, read_column, read_row
from .rotation_expansions import expand_eigh, expand_lift, expand_pinv, expand_svd

Static = dict[str, Any]


def expand_matrix(
    routine: str, specs: Sequence[Spec], static: Static, checks: bool = False
) -> Callable[..., Any] | None:  # fmt: skip
    """A routine on stacks of matrices, by the name in the form of an op, as a function of its arguments; `specs` are
    those of the results. None if it is not written here. With `checks` what LAPACK would raise for is an error.
    """
    if routine not in _ROUTINES or (routine in _REAL and any(s.dtype.kind == "c" for s in specs)):
        return None
    function = partial(_call_in_values, _ROUTINES[routine], specs, static)
    return partial(_call_checked, function) if checks and routine in _FAILING else function


def _call_in_values(routine: Callable[..., Any], specs: Sequence[Spec], static: Static, *xs: Any) -> Any:
    """A routine in the dtype that its results have while they are computed, whatever the arguments are of."""
    made = [make_spec(s.shape, value_dtype(s.dtype)) for s in specs]
    dtype = next(s.dtype for s in made if s.inexact)
    found = routine(*(astype(x, dtype) for x in xs), specs=made, static=static)
    if not isinstance(found, tuple):
        return astype(found, specs[0].dtype)
    return tuple(astype(y, s.dtype) for y, s in zip(found, specs, strict=True))


def _call_checked(function: Callable[..., Any], *xs: Any) -> Any:
    """A division by a zero pivot, or the root of a negative one, leaves no finite numbers."""
    found = function(*xs)
    return raise_where(found, p.logical_not(p.isfinite(found)), "The matrix is singular or not finite.", "singular")


def _take_rows(x: Any, order: Any) -> Any:
    shape = (*spec_of(order).shape, spec_of(x).shape[-1])
    return take_along_axis(x, broadcast_to(as_column(order), shape), axis=-2)


def _factor(x: Any) -> tuple[Any, Any, Any]:
    """Both triangles of L U = x[order] in one matrix, the order of the rows, and 1 or -1 for its parity."""
    *stack, m, n = spec_of(x).shape
    rows, columns = np.arange(m), np.arange(n)

    def step(state: Any, k: Any) -> Any:
        x, order, parity = state
        size = where(p.greater_equal(rows, k), p.abs(read_column(x, k)), -1)
        pivot = as_column(argmax(size, axis=-1))
        swapped = where(p.equal(rows, k), pivot, where(p.equal(rows, pivot), k, rows))
        x, order = _take_rows(x, swapped), take_along_axis(order, swapped, axis=-1)
        parity = where(p.equal(pivot[..., 0], k), parity, -parity)
        top, column = read_row(x, k), read_column(x, k)
        by = as_column(read_column(as_row(top), k)[..., 0])
        # under a zero pivot all are zeros
        factor = where(p.logical_and(p.greater(rows, k), p.not_equal(by, 0)), column / where(p.equal(by, 0), 1, by), 0)
        x = x - as_column(factor) * as_row(where(p.greater(columns, k), top, 0))
        below = p.logical_and(as_column(p.greater(rows, k)), p.equal(columns, k))
        return (where(below, as_column(factor), x), order, parity), ()

    order = np.broadcast_to(rows, (*stack, m)).copy()
    start = x, order, np.ones(stack, np.zeros((), spec_of(x).dtype).real.dtype)
    if not min(m, n):
        return start
    found: tuple[Any, Any, Any] = scan(step, start, np.arange(min(m, n)))[0]
    return found


def _expand_lu(x: Any, specs: Sequence[Spec], static: Static) -> tuple[Any, ...]:
    k = specs[2].shape[-1]
    both, order, _ = _factor(x)
    left = tril(both[..., :k], -1) + np.eye(*specs[2].shape[-2:], dtype=specs[2].dtype)
    rows = np.arange(spec_of(x).shape[-2])
    # where each row went
    places = total_of(where(p.equal(as_row(order), rows[:, None]), rows, 0), axis=-1)
    return places, order, left, triu(both[..., :k, :])


def _expand_solve(a: Any, b: Any, specs: Sequence[Spec], static: Static) -> Any:
    stack = specs[0].shape[:-2]
    both, order, _ = _factor(broadcast_to(a, (*stack, *spec_of(a).shape[-2:])))
    right = _take_rows(broadcast_to(b, specs[0].shape), order)
    return triangular_solve(both, triangular_solve(both, right, lower=True, unit_diagonal=True))


def _expand_inverse(a: Any, specs: Sequence[Spec], static: Static) -> Any:
    shape = specs[0].shape
    unit = np.broadcast_to(np.eye(shape[-1], dtype=specs[0].dtype), shape)
    return _expand_solve(a, unit, specs, static)


def _expand_determinant(a: Any, specs: Sequence[Spec], static: Static) -> Any:
    both, _, parity = _factor(a)
    return prod(diagonal(both, axis1=-2, axis2=-1), axis=-1) * parity


def _expand_log_determinant(a: Any, specs: Sequence[Spec], static: Static) -> tuple[Any, Any]:
    both, _, parity = _factor(a)
    factors = diagonal(both, axis1=-2, axis2=-1)
    return prod(p.sign(factors), axis=-1) * parity, total_of(p.log(p.abs(factors)), axis=-1)


def _expand_cholesky(a: Any, specs: Sequence[Spec], static: Static) -> Any:
    """Column by column: what the earlier columns leave of it, over the square root of its first element."""
    a = hermitian_part(a)
    n = specs[0].shape[-1]

    def step(left: Any, k: Any) -> Any:
        column = read_column(a, k) - matmul(left, as_column(p.conj(read_row(left, k))))[..., 0]
        column = column / p.sqrt(read_column(as_row(column), k))
        here = p.logical_and(p.equal(np.arange(n), k), p.greater_equal(np.arange(n)[:, None], k))
        return where(here, as_column(column), left), ()

    return scan(step, np.zeros(specs[0].shape, specs[0].dtype), np.arange(n))[0]


def _expand_triangular_solve(a: Any, b: Any, specs: Sequence[Spec], static: Static) -> Any:
    """Row by row, from the end that has one unknown."""
    shape = specs[0].shape
    n, lower = shape[-2], static["lower"]
    a, b = broadcast_to(a, (*shape[:-2], n, n)), broadcast_to(b, shape)

    def step(x: Any, k: Any) -> Any:
        row = read_row(a, k)
        used = where(p.less(np.arange(n), k) if lower else p.greater(np.arange(n), k), row, 0)
        new = read_row(b, k) - matmul(as_row(used), x)[..., 0, :]
        new = new if static["unit"] else new / read_column(as_row(row), k)
        return where(p.equal(np.arange(n)[:, None], k), as_row(new), x), ()

    order = np.arange(n) if lower else np.arange(n)[::-1].copy()
    return scan(step, np.zeros(shape, specs[0].dtype), order)[0]


def _expand_exponential(x: Any, specs: Sequence[Spec], static: Static) -> Any:
    """The quotient of polynomials of degree 13 (Higham, Functions of Matrices, 10.3) of x / 2^k, squared k times."""
    dtype, n = specs[0].dtype, specs[0].shape[-1]
    if not n:
        return x
    size = largest(total_of(p.abs(x), axis=-2), axis=-1)
    most = 120.0 if spec_of(size).dtype.itemsize == 4 else 1000.0  # so that 2^k is finite
    halvings = p.minimum(p.maximum(ceil(log2(size / _PADE_BOUND)), 0.0), most)
    halvings = where(p.isfinite(size), halvings, 0.0)
    x = x * expand_dims(exp2(-halvings), (-2, -1))
    powers = [np.eye(n, dtype=dtype), matmul(x, x)]
    for _ in range(2):
        powers.append(matmul(powers[-1], powers[1]))
    b = _PADE
    even, odd = (matmul(powers[3], _combine(b[8 + i :: 2], powers[1:])) + _combine(b[i:8:2], powers) for i in (0, 1))
    odd = matmul(x, odd)
    found = solve(even - odd, even + odd)

    def square(state: Any) -> Any:
        k, y = state
        return k + 1, where(expand_dims(p.less(k, halvings), (-2, -1)), matmul(y, y), y)

    return while_loop(
        lambda state: any_of(p.less(state[0], halvings)), square, (np.zeros((), spec_of(size).dtype), found)
    )[1]


def _combine(weights: Sequence[float], powers: Sequence[Any]) -> Any:
    total: Any = 0
    for weight, power in zip(weights, powers, strict=True):
        total = total + weight * power
    return total


#: The coefficients of that polynomial, and the norm up to which the quotient has all digits.
_PADE = [math.factorial(26 - j) / (math.factorial(j) * math.factorial(13 - j)) for j in range(14)]
_PADE_BOUND = 5.371920351148152
#: What is written for real matrices alone.
_REAL = frozenset(("qr", "eigh", "svd", "pinv", "lift"))
#: What has no result for some matrices.
_FAILING = frozenset(("exponential", "solve", "inverse", "cholesky", "triangular_solve"))
_ROUTINES: dict[str, Callable[..., Any]] = {
    "lu": _expand_lu, "solve": _expand_solve, "inverse": _expand_inverse, "determinant": _expand_determinant,
    "log_determinant": _expand_log_determinant, "cholesky": _expand_cholesky,
    "triangular_solve": _expand_triangular_solve, "exponential": _expand_exponential, "qr": expand_qr,
    "eigh": expand_eigh, "svd": expand_svd, "pinv": expand_pinv, "lift": expand_lift,
}  # fmt: skip

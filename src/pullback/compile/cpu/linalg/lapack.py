"""Matrix routines by LAPACK: each emits the calls for one matrix of a stack.

LAPACK's matrices are column by column. Where a routine overwrites its argument there is a copy in that order; where the
transpose of a row-major matrix serves as well, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder.vector_types import IRValue
from ..runtime.lapack import query_workspace
from .matrix_text import MatrixRef, RoutineText
from .reflectors import Reflections

_INT64 = np.dtype(np.int64)
#: The most rows of a matrix that reflections are applied to here: beyond, LAPACK's blocks use the cache better.
MAX_REFLECTED_ROWS = 512


def emit_cholesky(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    n = outs[0].rows
    # a lower triangle row by row is an upper one column by column, and the other half is not touched
    t.symmetrize_lower(args[0], outs[0], zeros=True)
    t.call_lapack("potrf", "U", n, outs[0].pointer, n)


def solve_in_place(t: RoutineText, a: MatrixRef, right: MatrixRef) -> None:
    """Overwrite right sides, column by column, with the solutions."""
    n = a.rows
    factors, pivots = t.take_columns(n, n), t.take_scratch(n, t.integer)
    t.copy(a, factors)
    t.call_lapack("gesv", n, right.columns, factors.pointer, n, pivots, right.pointer, n)


def emit_inverse(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    n = args[0].rows
    found = t.take_columns(n, n)
    t.fill_identity(found)
    solve_in_place(t, args[0], found)
    t.copy(found, outs[0])


def emit_triangular_solve(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    (a, b), (out,) = args, outs
    static = t.static
    if not static["unit"]:
        _fail_at_zeros(t, a)
    t.copy(b, out)
    if not (a.has_rows_in_order or a.transposed.has_rows_in_order):
        copied = t.take_columns(a.rows, a.rows)
        t.copy(a, copied)
        a = copied
    _solve_triangle(t, a, out, bool(static["lower"]), bool(static["unit"]))


def _fail_at_zeros(t: RoutineText, a: MatrixRef) -> None:
    """A zero on the diagonal of a triangle is left to NumPy."""
    with t.loop(a.rows) as i:
        t.fail_if(t.one.equal(t.load(a, i, i), t.number(0.0)).name)


def _solve_triangle(t: RoutineText, a: MatrixRef, x: MatrixRef, is_lower: bool, is_unit: bool) -> None:
    """Overwrite right sides with the solutions. If they are row-major, x^T = b^T a^-T is solved, since rows are columns
    for LAPACK.
    """
    n, count, in_rows = x.rows, x.columns, a.has_rows_in_order
    triangle, unit = ("U" if is_lower == in_rows else "L"), ("U" if is_unit else "N")
    apart = max(n, a.by_row if in_rows else a.by_column)
    if count == 1:
        t.call("trsv", triangle, "T" if in_rows else "N", unit, n, a.pointer, apart, x.pointer, 1)
    elif x.has_rows_in_order:
        turned = "N" if in_rows else "T"
        t.call("trsm", "R", triangle, turned, unit, count, n, 1.0, a.pointer, apart, x.pointer, count)
    else:
        turned = "T" if in_rows else "N"
        t.call("trsm", "L", triangle, turned, unit, n, count, 1.0, a.pointer, apart, x.pointer, n)


def emit_factor(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """P a = L U: the triangles column by column, the order of rows, and its sign."""
    (a,), (factors, order, sign) = args, outs
    n = a.rows
    t.copy(a, factors.transposed)
    pivots = MatrixRef(t.take_scratch(n, t.integer), t.integer, n, 1, 1, 0)
    # a singular matrix has factors too
    t.call("getrf", n, n, factors.pointer, n, pivots.pointer, t.take_scratch(1, t.integer))
    _write_order(t, pivots, order)
    t.store(t.number(1.0), sign, 0)
    with t.loop(n) as i:
        stays = t.one.assign(f"icmp eq i64 {_pivot_row(t, pivots, i)}, {i}")
        before = t.load(sign, 0)
        t.store(t.choose(stays, before, t.one.negative(before)), sign, 0)


def _write_order(t: RoutineText, pivots: MatrixRef, order: MatrixRef) -> None:
    """The order of rows that exchanges of them lead to."""
    with t.loop(order.rows) as i:
        t.store(IRValue(i, _INT64), order, i)
    with t.loop(pivots.rows) as i:
        other = _pivot_row(t, pivots, i)
        here, there = t.load(order, i), t.load(order, other)
        t.store(there, order, i)
        t.store(here, order, other)


def _pivot_row(t: RoutineText, pivots: MatrixRef, i: str) -> str:
    """The row that was exchanged with row i; LAPACK counts from one."""
    found = t.one.cast(t.load(pivots, i), _INT64).name
    return t.one.assign(f"sub nsw i64 {found}, 1")


def emit_solve_by_factors(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    (_, b, factors, order, _), (out,) = args, outs
    _solve_by_factors(t, b, factors, order, out)


def emit_inverse_by_factors(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    (_, factors, order, _), (out,) = args, outs
    n = out.rows
    unit = MatrixRef(t.take_scratch(n * n), t.dtype, n, n, n, 1)
    t.fill_identity(unit)
    _solve_by_factors(t, unit, factors, order, out)


def _solve_by_factors(t: RoutineText, b: MatrixRef, factors: MatrixRef, order: MatrixRef, out: MatrixRef) -> None:
    """a x = b with a[order] = L U; or a^T x = b, whose solution comes in that order."""
    triangles = factors.transposed
    _fail_at_zeros(t, triangles)
    if not t.static["transposed"]:
        with t.loop(out.rows) as i:
            t.copy_row(b, out, t.load(order, i).name, i)
        _solve_triangle(t, triangles, out, is_lower=True, is_unit=True)
        _solve_triangle(t, triangles, out, is_lower=False, is_unit=False)
        return
    found = MatrixRef(t.take_scratch(out.rows * out.columns), t.dtype, out.rows, out.columns, out.columns, 1)
    t.copy(b, found)
    _solve_triangle(t, factors, found, is_lower=True, is_unit=False)
    _solve_triangle(t, factors, found, is_lower=False, is_unit=True)
    with t.loop(out.rows) as i:
        t.copy_row(found, out, i, t.load(order, i).name)


def emit_log_determinant_by_factors(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    sign, total = _log_determinant(t, args[1], args[3])
    t.store(sign, outs[0], 0)
    t.store(total, outs[1], 0)


def emit_determinant_by_factors(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    sign, total = _log_determinant(t, args[1], args[3])
    t.store(t.one.multiply(sign, t.one.exp(total)), outs[0], 0)


def _log_determinant(t: RoutineText, factors: MatrixRef, sign_of_order: MatrixRef) -> tuple[IRValue, IRValue]:
    """The sign, and the logarithm of the magnitude; a singular matrix is left to NumPy."""
    _fail_at_zeros(t, factors)
    sign, total = t.variable(t.load(sign_of_order, 0)), t.variable(t.number(0.0))
    with t.loop(factors.rows) as i:
        x, before = t.load(factors, i, i), sign.value
        sign.set(t.choose(t.one.less(x, t.number(0.0)).name, t.one.negative(before), before))
        total.set(t.one.add(total.value, t.one.log(t.one.abs(x))))
    return sign.value, total.value


def emit_lu(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """(p, q, L, U): the order of rows, its inverse, and the triangles."""
    (a,), (p, q, left, right) = args, outs
    m, n, count = a.rows, a.columns, min(a.rows, a.columns)
    factors, pivots = t.take_columns(m, n), MatrixRef(t.take_scratch(count, t.integer), t.integer, count, 1, 1, 0)
    t.copy(a, factors)
    t.call("getrf", m, n, factors.pointer, m, pivots.pointer, t.take_scratch(1, t.integer))
    _write_order(t, pivots, q)
    with t.loop(m) as i:
        t.store(IRValue(i, _INT64), p, t.load(q, i).name)
    with t.loop(m) as i, t.loop(count) as j:
        below, same = (t.one.assign(f"icmp {relation} i64 {i}, {j}") for relation in ("sgt", "eq"))
        t.store(t.choose(below, t.load(factors, i, j), t.choose(same, t.number(1.0), t.number(0.0))), left, i, j)
    _copy_upper(t, factors, right)


def _copy_upper(t: RoutineText, source: MatrixRef, target: MatrixRef) -> None:
    with t.loop(target.rows) as i, t.loop(target.columns) as j:
        below = t.one.assign(f"icmp sgt i64 {i}, {j}")
        t.store(t.choose(below, t.number(0.0), t.load(source, i, j)), target, i, j)


def emit_qr(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    (a,), (q, r) = args, outs
    m, n, count = a.rows, a.columns, q.columns
    factors, tau = t.take_columns(m, count), t.take_scratch(n)
    t.copy(a, MatrixRef(factors.pointer, t.dtype, m, n, 1, m))
    size = max(
        query_workspace("geqrf", t.dtype, m, n, None, m, None),
        query_workspace("orgqr", t.dtype, m, count, n, None, m, None),
    )
    work = t.take_scratch(size)
    t.call_lapack("geqrf", m, n, factors.pointer, m, tau, work, size)
    _copy_upper(t, factors, r)
    t.call_lapack("orgqr", m, count, n, factors.pointer, m, tau, work, size)
    t.copy(factors, q)


def emit_eigh(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """Vectors are computed only if they are used."""
    (a,), (values, vectors) = args, outs
    n, job = a.rows, "V" if t.static["used"][1] else "N"
    found = t.take_columns(n, n)
    t.symmetrize_lower(a, found)
    if job == "V" and n <= MAX_REFLECTED_ROWS:
        _eigh_by_tridiagonal(t, found, values, vectors)
        return
    size, count = query_workspace("syevd", t.dtype, job, "L", n, None, n, None), 3 + 5 * n
    work, integers = t.take_scratch(size), t.take_scratch(count, t.integer)
    t.call_lapack("syevd", job, "L", n, found.pointer, n, values.pointer, work, size, integers, count)
    if job == "V":
        t.copy(found, vectors)


def _eigh_by_tridiagonal(t: RoutineText, a: MatrixRef, values: MatrixRef, vectors: MatrixRef) -> None:
    """a = Q T Q^T with a tridiagonal T = Z W Z^T; a is overwritten."""
    n, count = a.rows, 3 + 5 * a.rows
    beside, tau, turned = t.take_column(n), t.take_column(n), t.take_columns(n, n)
    size = max(
        query_workspace("sytrd", t.dtype, "L", n, None, n, None, None, None),
        query_workspace("stedc", t.dtype, "I", n, None, None, None, n),
    )
    work, integers = t.take_scratch(size), t.take_scratch(count, t.integer)
    t.call_lapack("sytrd", "L", n, a.pointer, n, values.pointer, beside.pointer, tau.pointer, work, size)
    _fail_at_extremes(t, (values, n), (beside, n - 1))
    t.call_lapack("stedc", "I", n, values.pointer, beside.pointer, turned.pointer, n, work, size, integers, count)
    t.copy(turned, vectors)
    Reflections(a, tau, below=1).apply(t, vectors)


def _fail_at_extremes(t: RoutineText, *parts: tuple[MatrixRef, int]) -> None:
    """Leave to NumPy what LAPACK would scale first: numbers so large or so small that products leave their range. Those
    of a matrix reduced by reflections are as large as its own.
    """
    most = t.variable(t.number(0.0))
    for column, count in parts:
        if count:
            with t.loop(count) as i:
                most.set(t.one.maximum(most.value, t.one.abs(t.load(column, i))))
    reach = float(np.finfo(t.dtype).tiny) ** 0.25
    inside = t.one.logical_and(t.one.greater(most.value, t.number(reach)), t.one.less(most.value, t.number(1 / reach)))
    t.fail_if(t.one.logical_not(t.one.logical_or(inside, t.one.equal(most.value, t.number(0.0)))).name)


def emit_svd(t: RoutineText, args: Sequence[MatrixRef], outs: Sequence[MatrixRef]) -> None:
    """Vectors are computed only if they are used."""
    (a,), (u, _, vh) = args, outs
    m, n = a.rows, a.columns
    copied = t.take_columns(m, n)
    t.copy(a, copied)
    has_vectors = t.static["used"][0] or t.static["used"][2]
    # as LAPACK does for matrices that are nearly square; others it reduces to a triangle first
    if has_vectors and max(m, n) < min(min(m, n) * 11 // 6, MAX_REFLECTED_ROWS):
        _svd_by_bidiagonal(t, copied, outs)
        return
    job = "N" if not has_vectors else "A" if u.columns == m and vh.rows == n else "S"
    left, right = (t.take_columns(*size) if job != "N" else copied for size in ((m, u.columns), (vh.rows, n)))
    size = query_workspace("gesdd", t.dtype, job, m, n, None, m, None, None, m, None, vh.rows)
    work, integers = t.take_scratch(size), t.take_scratch(8 * min(m, n), t.integer)
    t.call_lapack(
        "gesdd", job, m, n, copied.pointer, m, outs[1].pointer, left.pointer, m, right.pointer, vh.rows, work, size,
        integers,
    )  # fmt: skip
    if job != "N":
        t.copy(left, u)
        t.copy(right, vh)


def _svd_by_bidiagonal(t: RoutineText, a: MatrixRef, outs: Sequence[MatrixRef]) -> None:
    """a = Q B P^T with a bidiagonal B = U S V^T, of which U and V are square; a is overwritten."""
    u, s, vh = outs
    m, n, k, is_tall = a.rows, a.columns, min(a.rows, a.columns), a.rows >= a.columns
    beside, left_tau, right_tau = t.take_column(k), t.take_column(k), t.take_column(k)
    size = max(query_workspace("gebrd", t.dtype, m, n, None, m, None, None, None, None), 3 * k * k + 4 * k)
    work, integers = t.take_scratch(size), t.take_scratch(8 * k, t.integer)
    t.call_lapack(
        "gebrd", m, n, a.pointer, m, s.pointer, beside.pointer, left_tau.pointer, right_tau.pointer, work, size
    )
    _fail_at_extremes(t, (s, k), (beside, k - 1))
    left, right = t.take_columns(k, k), t.take_columns(k, k)
    t.call_lapack(
        "bdsdc", "U" if is_tall else "L", "I", k, s.pointer, beside.pointer, left.pointer, k, right.pointer, k,
        work, integers, work, integers,
    )  # fmt: skip
    _extend(t, left, u)
    Reflections(a, left_tau, below=0 if is_tall else 1).apply(t, u)
    v = right.transposed
    if (vh.columns, vh.rows) != (k, k):
        v = MatrixRef(t.take_scratch(n * vh.rows), t.dtype, n, vh.rows, vh.rows, 1)
        _extend(t, right.transposed, v)
    Reflections(a.transposed, right_tau, below=1 if is_tall else 0).apply(t, v)
    t.copy(v, vh.transposed)


def _extend(t: RoutineText, square: MatrixRef, target: MatrixRef) -> None:
    """A square matrix in the corner of a row-major one, which goes on as the identity."""
    k = square.rows
    if (target.rows, target.columns) != (k, k):
        t.fill_zeros(target)
        if target.columns > k:
            with t.loop(min(target.rows, target.columns), k) as i:
                t.store(t.number(1.0), target, i, i)
    t.copy(square, MatrixRef(target.pointer, target.dtype, k, k, target.by_row, target.by_column))

"""Eigenvalues and singular values as loops of rotations (Jacobi's methods), for formats that lack them.

A sweep rotates each pair of columns once, in rounds of pairs that share no column, so that a round is one step for all
of them. Signs of vectors, which are free, are others than LAPACK's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.spec import Spec, make_spec, spec_of, zeros
from ..ops.contract.matrix_products import matmul
from ..ops.elementwise import pointwise as p
from ..ops.elementwise.arithmetic import copysign
from ..ops.elementwise.pointwise import where
from ..ops.functions import astype
from ..ops.index.indexing import take, take_along_axis
from ..ops.reduce.reductions import max as largest
from ..ops.reduce.reductions import sum as total_of
from ..ops.shape.arrange import concat, diagonal, pad
from ..ops.shape.reshaping import broadcast_to, expand_dims
from ..ops.shape.stack_split import swapaxes
from ..transforms.control.branches_and_loops import while_loop
from ..transforms.control.scan import scan
from .reflection_expansions import expand_qr

Static = dict[str, Any]

#: Sweeps after which it ends in any case; as a rule ten do.
_MOST_SWEEPS = 40


def _make_rounds(n: int) -> tuple[Any, Any, Any]:
    """For each round of a tournament of n columns, an even number, the firsts and seconds of its pairs, and where each
    column is among the firsts, then the seconds.
    """
    others, rounds = list(range(1, n)), []
    for _ in range(n - 1):
        seats = [0, *others]
        rounds.append([*seats[: n // 2], *seats[: n // 2 - 1 : -1]])
        others = [others[-1], *others[:-1]]
    order = np.array(rounds, np.int64).reshape(n - 1, n)
    return order[:, : n // 2], order[:, n // 2 :], np.argsort(order, axis=1)


def _find_rotation(first: Any, second: Any, mixed: Any) -> tuple[Any, Any]:
    """Cosine and sine that make [[first, mixed], [mixed, second]] diagonal, of the smaller of two angles."""
    flat = p.equal(mixed, 0)
    tau = (second - first) / where(flat, 1, 2 * mixed)
    tangent = where(flat, 0, copysign(1 / (p.abs(tau) + p.sqrt(1 + tau * tau)), tau))
    cosine = 1 / p.sqrt(1 + tangent * tangent)
    return cosine, cosine * tangent


def _rotate(x: Any, firsts: Any, seconds: Any, back: Any, cosine: Any, sine: Any) -> Any:
    """Pairs of columns rotated."""
    left, right = take(x, firsts, axis=-1), take(x, seconds, axis=-1)
    c, s = expand_dims(cosine, -2), expand_dims(sine, -2)
    return take(concat([c * left - s * right, s * left + c * right], axis=-1), back, axis=-1)


def _pad_columns(x: Any, rows: int, columns: int) -> Any:
    rank = spec_of(x).ndim
    return pad(x, [(0, 0)] * (rank - 2) + [(0, rows), (0, columns)]) if rows or columns else x


def _identity(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.broadcast_to(np.eye(*shape[-2:], dtype=dtype), shape).copy()


def _scale_of(x: Any) -> Any:
    """The greatest absolute value of each matrix, or one, as a matrix of one element."""
    size = largest(p.abs(x), axis=(-2, -1), keepdims=True)
    return where(p.equal(size, 0), 1, size)


def _sweep_until(step: Callable[..., Any], start: tuple[Any, Any], left_of: Callable[[Any], Any], n: int) -> Any:
    """Sweeps over all pairs, until little is left."""
    rounds = _make_rounds(n)

    def goes_on(state: Any) -> Any:
        return p.logical_and(p.less(state[0], _MOST_SWEEPS), p.greater(state[1], 0))

    def sweep(state: Any) -> Any:
        pair = scan(step, state[2:], rounds)[0]
        return state[0] + 1, left_of(pair[0]), *pair

    return while_loop(goes_on, sweep, (np.int64(0), left_of(start[0]), *start))[2:]


def _sort_places(x: Any) -> Any:
    """The places that sort rows, by counting what comes before each element: there may be no sort."""
    places = np.arange(spec_of(x).shape[-1])
    first, second = expand_dims(x, -1), expand_dims(x, -2)
    before = p.logical_or(p.less(first, second), p.logical_and(p.equal(first, second), places[:, None] < places))
    rank = total_of(astype(before, np.int64), axis=-2)
    return total_of(where(p.equal(expand_dims(rank, -2), places[:, None]), places, 0), axis=-1)


def _diagonalize(a: Any, dtype: Any) -> tuple[Any, Any]:
    """Eigenvalues of symmetric matrices, in no order, and their vectors."""
    *stack, n, _ = spec_of(a).shape
    m = n + n % 2
    a = _pad_columns(a, m - n, m - n)
    bound = float(np.finfo(dtype).eps * n) ** 2
    norm = total_of(a * a, axis=(-2, -1))

    def step(pair: Any, row: Any) -> Any:
        a, v = pair
        firsts, seconds, back = row
        on = diagonal(a, axis1=-2, axis2=-1)
        rows = take(a, firsts, axis=-2)
        places = broadcast_to(expand_dims(seconds, -1), (*spec_of(rows).shape[:-1], 1))
        mixed = take_along_axis(rows, places, axis=-1)[..., 0]
        how = firsts, seconds, back, *_find_rotation(take(on, firsts, axis=-1), take(on, seconds, axis=-1), mixed)
        a = swapaxes(_rotate(swapaxes(_rotate(a, *how), -1, -2), *how), -1, -2)
        return (a, _rotate(v, *how)), ()

    def left_of(a: Any) -> Any:
        off = where(np.eye(m, dtype=bool), 0, a)
        return total_of(astype(p.greater(total_of(off * off, axis=(-2, -1)), norm * bound), np.int64))

    a, v = _sweep_until(step, (a, _identity((*stack, m, m), dtype)), left_of, m)
    return diagonal(a, axis1=-2, axis2=-1)[..., :n], v[..., :n, :n]


def expand_eigh(x: Any, specs: Sequence[Spec], static: Static) -> tuple[Any, Any]:
    """By rotations of rows and columns alike, on the symmetric part."""
    dtype = specs[1].dtype
    if not math.prod(spec_of(x).shape):
        return zeros(specs[0]), zeros(specs[1])
    a = (x + swapaxes(x, -1, -2)) * 0.5
    scale = _scale_of(a)
    w, v = _diagonalize(a / scale, dtype)
    order = _sort_places(w)
    w = take_along_axis(w, order, axis=-1) * scale[..., 0]
    return w, take_along_axis(v, broadcast_to(expand_dims(order, -2), specs[1].shape), axis=-1)


def _orthogonalize(x: Any, dtype: Any) -> tuple[Any, Any]:
    """x V with orthogonal columns, and V."""
    *stack, rows, n = spec_of(x).shape
    m = n + n % 2
    x = _pad_columns(x, 0, m - n)
    bound = float(np.finfo(dtype).eps * rows)

    def step(pair: Any, row: Any) -> Any:
        x, v = pair
        firsts, seconds, back = row
        left, right = take(x, firsts, axis=-1), take(x, seconds, axis=-1)
        sums = [total_of(y * z, axis=-2) for y, z in ((left, left), (right, right), (left, right))]
        how = firsts, seconds, back, *_find_rotation(*sums)
        return (_rotate(x, *how), _rotate(v, *how)), ()

    def left_of(x: Any) -> Any:
        gram = matmul(swapaxes(x, -1, -2), x)
        size = p.sqrt(diagonal(gram, axis1=-2, axis2=-1))
        off = where(np.eye(m, dtype=bool), 0, p.abs(gram))
        return total_of(astype(p.greater(off, bound * expand_dims(size, -1) * expand_dims(size, -2)), np.int64))

    x, v = _sweep_until(step, (x, _identity((*stack, m, m), dtype)), left_of, m)
    return x[..., :n], v[..., :n, :n]


def expand_svd(x: Any, specs: Sequence[Spec], static: Static) -> tuple[Any, Any, Any]:
    """By rotations of columns until they are orthogonal; their QR factors have the left vectors, of zero ones too."""
    rows, columns = spec_of(x).shape[-2:]
    if not math.prod(spec_of(x).shape):
        return _identity(specs[0].shape, specs[0].dtype), zeros(specs[1]), _identity(specs[2].shape, specs[2].dtype)
    if rows < columns:
        left, s, right = specs
        u, s_found, vh = expand_svd(swapaxes(x, -1, -2), [_flip(right), s, _flip(left)], static)
        return swapaxes(vh, -1, -2), s_found, swapaxes(u, -1, -2)
    dtype = specs[0].dtype
    scale = _scale_of(x)
    moved, v = _orthogonalize(x / scale, dtype)
    s = p.sqrt(total_of(moved * moved, axis=-2))
    order = _sort_places(-s)
    s = take_along_axis(s, order, axis=-1) * scale[..., 0]
    places = expand_dims(order, -2)
    moved = take_along_axis(moved, broadcast_to(places, spec_of(moved).shape), axis=-1)
    v = take_along_axis(v, broadcast_to(places, spec_of(v).shape), axis=-1)
    q, r = expand_qr(moved, specs[:1], static)
    signs = where(p.less(diagonal(r, axis1=-2, axis2=-1), 0), -1, 1)
    more = spec_of(q).shape[-1] - columns
    signs = astype(pad(signs, [(0, 0)] * (spec_of(signs).ndim - 1) + [(0, more)], constant_values=1), dtype)
    return q * expand_dims(signs, -2), s, swapaxes(v, -1, -2)


def _flip(spec: Spec) -> Spec:
    return make_spec((*spec.shape[:-2], spec.shape[-1], spec.shape[-2]), spec.dtype, spec.device)


def _svd_of(x: Any) -> tuple[Any, Any, Any]:
    *stack, m, n = spec_of(x).shape
    k, dtype = min(m, n), spec_of(x).dtype
    shapes = (*stack, m, k), (*stack, k), (*stack, k, n)
    return expand_svd(x, [make_spec(shape, dtype) for shape in shapes], {"full": False})


def expand_pinv(x: Any, rtol: Any, specs: Sequence[Spec], static: Static) -> Any:
    if not math.prod(spec_of(x).shape):
        return zeros(specs[0])
    u, s, vh = _svd_of(x)
    kept = p.greater(s, expand_dims(rtol * largest(s, axis=-1), -1))
    inverse = where(kept, 1 / where(kept, s, 1), 0)
    return matmul(swapaxes(vh, -1, -2), expand_dims(inverse, -1) * swapaxes(u, -1, -2))


def expand_lift(x: Any, specs: Sequence[Spec], static: Static) -> Any:
    """What `ops.linalg.determinants` adds to a matrix so that it becomes regular."""
    n = spec_of(x).shape[-1]
    if not math.prod(spec_of(x).shape):
        return zeros(specs[0])
    r = (specs[0].shape[-1] - n) // 2
    u, s, vh = _svd_of(x)
    v, top = swapaxes(vh, -1, -2), s[..., :1]
    weak = p.less_equal(s, float(np.finfo(specs[0].dtype).eps ** 0.5) * top)
    amount = where(weak, where(p.greater(top, 0), top, 1) - s, 0)
    left = u * expand_dims(amount, -2)
    rest = matmul(left[..., : n - r], swapaxes(v[..., : n - r], -1, -2))
    return concat([left[..., n - r :], v[..., n - r :], rest], axis=-1)

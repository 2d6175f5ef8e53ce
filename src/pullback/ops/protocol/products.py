"""NumPy's products and polynomials by NumPy's signatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import ArgumentError, ShapeError
from .. import arranging, contracting, products, reducing, shaping
from .. import elementwise as pointwise
from ..dispatch import as_value, ndim, shape
from ..elementwise import add, divide, multiply, subtract
from ..known import bare
from .refusing import library, refuse


def _strong(x: Any) -> Any:
    """A Python number as the array NumPy makes of it here, which does not give way in promotion."""
    x = as_value(x)
    return np.asarray(x) if spec_of(x).weak else x


def dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _strong(a), _strong(b)
    if not ndim(a) or not ndim(b):
        return multiply(a, b)
    if ndim(b) == 1 or ndim(a) <= 2 == ndim(b):
        return contracting.matmul(a, b)
    return contracting.tensordot(a, b, axes=((ndim(a) - 1,), (ndim(b) - 2,)))


def inner(a: Any, b: Any, /) -> Any:
    a, b = _strong(a), _strong(b)
    if not ndim(a) or not ndim(b):
        return multiply(a, b)
    return contracting.tensordot(a, b, axes=((ndim(a) - 1,), (ndim(b) - 1,)))


def vdot(a: Any, b: Any, /) -> Any:
    flat = [shaping.reshape(as_value(x), (-1,)) for x in (a, b)]
    return reducing.sum(multiply(pointwise.conj(flat[0]), flat[1]))


def outer(a: Any, b: Any, out: Any = None) -> Any:
    return contracting.outer(a, b)


def linalg_outer(x1: Any, x2: Any, /) -> Any:
    if ndim(as_value(x1)) != 1 or ndim(as_value(x2)) != 1:
        raise ShapeError("linalg.outer: wants two vectors.")
    return contracting.outer(x1, x2)


def linalg_matmul(x1: Any, x2: Any, /) -> Any:
    return contracting.matmul(x1, x2)


def linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return products.cross(x1, x2, axis=axis)


def linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x1, x2 = (shaping.moveaxis(as_value(x), axis, -1) for x in (x1, x2))
    return reducing.sum(multiply(pointwise.conj(x1), x2), axis=-1)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return contracting.tensordot(a, b, axes=axes)


def linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return contracting.tensordot(x1, x2, axes=axes)


def linalg_multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """The product of many matrices, in the order that costs least."""
    xs = [as_value(x) for x in arrays]
    letters = "abcdefghijklmnopqrstuvwxyz"
    names, at = [], 0
    for x in xs:
        names.append(letters[at : at + 2] if ndim(x) == 2 else letters[at : at + 1])
        at += ndim(x) == 2
    if len(xs) < 2:
        raise ArgumentError("linalg.multi_dot: wants two arrays or more.")
    result = ("" if ndim(xs[0]) == 1 else names[0][0]) + ("" if ndim(xs[-1]) == 1 else names[-1][-1])
    path = np.einsum_path(f"{','.join(names)}->{result}", *(np.empty(shape(x)) for x in xs), optimize="optimal")[0]
    return _by_path(xs, names, result, path[1:])


def _by_path(xs: list[Any], names: list[str], result: str, path: Any) -> Any:
    """Contract the arrays a step names, again and again."""
    for step in path:
        chosen = sorted(step, reverse=True)
        picked = [(xs.pop(i), names.pop(i)) for i in chosen][::-1]
        elsewhere = set(result).union(*names)
        kept = "".join(sorted({c for _, n in picked for c in n if c in elsewhere})) if names else result
        xs.append(contracting.einsum(f"{','.join(n for _, n in picked)}->{kept}", *(x for x, _ in picked)))
        names.append(kept)
    return xs[0]


def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    dtype = kwargs.pop("dtype", None)
    kwargs.pop("casting", None)
    refuse("einsum", **kwargs)
    text, xs = (operands[0], operands[1:]) if isinstance(operands[0], str) else _spelled(operands)
    return contracting.einsum(text, *(x if dtype is None else shaping.astype(x, dtype) for x in xs))


def _spelled(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The form einsum(x, [0, 1], y, [1, 2], [0, 2]) as an equation."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def spell(places: Any) -> str:
        return "".join("..." if p is Ellipsis else letters[p] for p in places)

    xs, lists = operands[0 : len(operands) // 2 * 2 : 2], operands[1::2]
    text = ",".join(map(spell, lists))
    return (f"{text}->{spell(operands[-1])}" if len(operands) % 2 else text), xs


def kron(a: Any, b: Any) -> Any:
    a, b = as_value(a), as_value(b)
    rank = max(ndim(a), ndim(b))
    sizes = [(1,) * (rank - ndim(x)) + shape(x) for x in (a, b)]
    left = shaping.reshape(a, tuple(n for size in sizes[0] for n in (size, 1)))
    right = shaping.reshape(b, tuple(n for size in sizes[1] for n in (1, size)))
    return shaping.reshape(multiply(left, right), tuple(n * m for n, m in zip(*sizes, strict=True)))


def _vector(p: Any) -> Any:
    x = as_value(p)
    return shaping.reshape(x, (1,)) if not ndim(x) else x


def _equal_sizes(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Coefficients with zeros for the powers that only the other has."""
    a1, a2 = _vector(a1), _vector(a2)
    size = max(shape(a1)[0], shape(a2)[0])
    return arranging.pad(a1, (size - shape(a1)[0], 0)), arranging.pad(a2, (size - shape(a2)[0], 0))


def polyadd(a1: Any, a2: Any) -> Any:
    return add(*_equal_sizes(a1, a2))


def polysub(a1: Any, a2: Any) -> Any:
    return subtract(*_equal_sizes(a1, a2))


def polymul(a1: Any, a2: Any) -> Any:
    return products.convolve(_vector(a1), _vector(a2))


def polydiv(u: Any, v: Any) -> Any:
    u, v = _vector(u), _vector(v)
    u, v = (x if spec_of(x).inexact else shaping.astype(x, "float64") for x in (u, v))
    n, m = shape(u)[0], shape(v)[0]
    quotient = []
    for k in range(n - m + 1):
        share = divide(u[k], v[0])
        quotient.append(share)
        taken = arranging.pad(multiply(v, share), (k, n - m - k))
        u = subtract(u, taken)
    numbers = bare(u, "polydiv")
    start = n - m + 1 if n >= m else 0
    while start < n - 1 and np.isclose(numbers[start], 0, rtol=1e-14):
        start += 1
    whole = arranging.stack(quotient) if quotient else shaping.astype([0.0], spec_of(u).dtype)
    return whole, u[min(start, n - 1) :]


def polyder(p: Any, m: int = 1) -> Any:
    x = _vector(p)
    for _ in range(m):
        size = shape(x)[0]
        x = multiply(x[:-1], np.arange(size - 1, 0, -1))
    return x


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    x = _vector(p)
    constants = shaping.broadcast_to(as_value(0.0 if k is None else k), (m,)) if m else ()
    for i in range(m):
        x = arranging.concat([divide(x, np.arange(shape(x)[0], 0, -1)), constants[i : i + 1]])
    return x


def poly(seq_of_zeros: Any) -> Any:
    x = _vector(seq_of_zeros)
    if ndim(x) == 2:
        x = library("linalg.eigvals", "poly")(x)
    out: Any = np.ones(1, spec_of(x).dtype)
    for i in range(shape(x)[0]):
        factor = arranging.concat([np.ones(1, spec_of(x).dtype), pointwise.negative(x[i : i + 1])])
        out = products.convolve(out, factor)
    return out


def roots(p: Any) -> Any:
    """The eigenvalues of the companion matrix, with zeros for trailing zero coefficients."""
    x = _vector(p)
    nonzero = np.flatnonzero(bare(x, "roots"))
    if not nonzero.size:
        return np.array([])
    trailing = shape(x)[0] - int(nonzero[-1]) - 1
    x = x[int(nonzero[0]) : int(nonzero[-1]) + 1]
    size = shape(x)[0]
    if size < 2:
        return np.zeros(trailing)
    first = pointwise.negative(divide(x[1:], x[0]))
    below = np.eye(size - 2, size - 1)
    matrix = arranging.concat([shaping.reshape(first, (1, -1)), below], axis=0)
    found = library("linalg.eigvals", "roots")(matrix)
    return arranging.concat([found, np.zeros(trailing)]) if trailing else found


def polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    refuse("polyfit", full=full or None, cov=cov or None, rcond=rcond)
    x, y = as_value(x), as_value(y)
    matrix = products.vander(x if spec_of(x).inexact else shaping.astype(x, "float64"), deg + 1)
    if w is not None:
        matrix = multiply(matrix, shaping.expand_dims(as_value(w), 1))
        y = multiply(y, w if ndim(y) == 1 else shaping.expand_dims(as_value(w), 1))
    # scaled columns, as NumPy has them, so that high powers do not drown the low ones
    scale = pointwise.sqrt(reducing.sum(pointwise.square(matrix), axis=0))
    solve = library("linalg.lstsq", "polyfit")
    found = solve(divide(matrix, scale), y)[0]
    return divide(found, scale if ndim(y) == 1 else shaping.expand_dims(scale, 1))

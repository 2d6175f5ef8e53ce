"""NumPy's polynomial functions with NumPy's signatures: coefficients from the highest power down."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ..concrete import as_bare_array
from ..contract import polynomials
from ..dispatch import as_value, ndim, shape
from ..elementwise import pointwise
from ..elementwise.pointwise import add, divide, multiply, subtract
from ..reduce import reductions
from ..shape import arrange, reshaping
from .manipulation import eigvals
from .unsupported import package_function, refuse


def _as_vector(p: Any) -> Any:
    x = as_value(p)
    return reshaping.reshape(x, (1,)) if not ndim(x) else x


def _align_sizes(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Coefficients with zeros for the powers that only the other has."""
    a1, a2 = _as_vector(a1), _as_vector(a2)
    size = max(shape(a1)[0], shape(a2)[0])
    return arrange.pad(a1, (size - shape(a1)[0], 0)), arrange.pad(a2, (size - shape(a2)[0], 0))


def polyadd(a1: Any, a2: Any) -> Any:
    return add(*_align_sizes(a1, a2))


def polysub(a1: Any, a2: Any) -> Any:
    return subtract(*_align_sizes(a1, a2))


def polymul(a1: Any, a2: Any) -> Any:
    return polynomials.convolve(_as_vector(a1), _as_vector(a2))


def polydiv(u: Any, v: Any) -> Any:
    u, v = _as_vector(u), _as_vector(v)
    u, v = (x if spec_of(x).inexact else reshaping.astype(x, "float64") for x in (u, v))
    n, m = shape(u)[0], shape(v)[0]
    quotient = []
    for k in range(n - m + 1):
        share = divide(u[k], v[0])
        quotient.append(share)
        taken = arrange.pad(multiply(v, share), (k, n - m - k))
        u = subtract(u, taken)
    numbers = as_bare_array(u, "polydiv")
    start = n - m + 1 if n >= m else 0
    while start < n - 1 and np.isclose(numbers[start], 0, rtol=1e-14):
        start += 1
    whole = arrange.stack(quotient) if quotient else reshaping.astype([0.0], spec_of(u).dtype)
    return whole, u[min(start, n - 1) :]


def polyder(p: Any, m: int = 1) -> Any:
    x = _as_vector(p)
    for _ in range(m):
        size = shape(x)[0]
        x = multiply(x[:-1], np.arange(size - 1, 0, -1))
    return x


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    x = _as_vector(p)
    constants = reshaping.broadcast_to(as_value(0.0 if k is None else k), (m,)) if m else ()
    for i in range(m):
        x = arrange.concat([divide(x, np.arange(shape(x)[0], 0, -1)), constants[i : i + 1]])
    return x


def poly(seq_of_zeros: Any) -> Any:
    x = _as_vector(seq_of_zeros)
    if ndim(x) == 2:
        x = eigvals(x)
    out: Any = np.ones(1, spec_of(x).dtype)
    for i in range(shape(x)[0]):
        factor = arrange.concat([np.ones(1, spec_of(x).dtype), pointwise.negative(x[i : i + 1])])
        out = polynomials.convolve(out, factor)
    return out


def roots(p: Any) -> Any:
    """The eigenvalues of the companion matrix, with zeros for trailing zero coefficients."""
    x = _as_vector(p)
    nonzero = np.flatnonzero(as_bare_array(x, "roots"))
    if not nonzero.size:
        return np.array([])
    trailing = shape(x)[0] - int(nonzero[-1]) - 1
    x = x[int(nonzero[0]) : int(nonzero[-1]) + 1]
    size = shape(x)[0]
    if size < 2:
        return np.zeros(trailing)
    first = pointwise.negative(divide(x[1:], x[0]))
    below = np.eye(size - 2, size - 1, dtype=spec_of(first).dtype)
    matrix = arrange.concat([reshaping.reshape(first, (1, -1)), below], axis=0)
    found = eigvals(matrix)
    return arrange.concat([found, np.zeros(trailing)]) if trailing else found


def polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    refuse("polyfit", full=full or None, cov=cov or None, rcond=rcond)
    x, y = as_value(x), as_value(y)
    matrix = polynomials.vander(x if spec_of(x).inexact else reshaping.astype(x, "float64"), deg + 1)
    if w is not None:
        matrix = multiply(matrix, reshaping.expand_dims(as_value(w), 1))
        y = multiply(y, w if ndim(y) == 1 else reshaping.expand_dims(as_value(w), 1))
    # columns scaled as in NumPy, so that high powers do not swamp the low ones
    scale = pointwise.sqrt(reductions.sum(pointwise.square(matrix), axis=0))
    solve = package_function("linalg.lstsq", "polyfit")
    found = solve(divide(matrix, scale), y)[0]
    return divide(found, scale if ndim(y) == 1 else reshaping.expand_dims(scale, 1))

"""The von Mises distribution of angles around 0: its distribution function, its quantiles, and how these move.

With weight exp(k (cos t - 1)) and Z = 2 pi i0e(k), the tail above an angle y is
    T(y, k) = exp(k (cos y - 1)) / Z * integral of exp(k (cos t - cos y)) over t from y to pi,
in which the integrand falls from 1, so that every digit of T holds however small T is. With A = I1(k) / I0(k)
    dT/dk = exp(k (cos y - 1)) / Z * S(y, k),    S = integral of (cos t - A) exp(k (cos t - cos y)),
so the angle of a fixed tail moves by dy/dk = S: the density cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.backends import special_namespace_of
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ..dispatch import as_value
from ..elementwise import pointwise
from ..elementwise.pointwise import (
    acos,
    cos,
    divide,
    exp,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    negative,
    sin,
    square,
    stop_gradient,
    where,
)
from ..fusion import cast_whole
from ..placement import move
from ..reduce.reductions import sum as total
from ..round_once import rounds_once
from ..shape.reshaping import expand_dims
from ..signatures import of_two_arrays
from .bessel import i0e, i1e
from .definition import special

# Gauss and Legendre's nodes on (0, 1)
_NODES, _WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(56))
_NODES = _NODES + 0.5
#: Where the integrand is exp(-40) it has no digits left to give.
_DEPTH = 40.0
#: Angles at a time, so that the table of integrands stays in the cache.
_ROWS = 2048


def _fall(lib: Any, y: Any, t: Any) -> Any:
    """cos t - cos y, as a product, which keeps its digits where both are near 0."""
    return -2.0 * lib.sin(0.5 * (t + y)) * lib.sin(0.5 * (t - y))


def _integrate_weight(xp: Any, y: Any, k: Any) -> Any:
    """The integral of exp(k (cos t - cos y)) over t from y to pi, for arrays of one axis."""
    end = xp.arccos(xp.maximum(xp.cos(y) - _DEPTH / xp.maximum(k, 1e-300), -1.0))
    t = y[:, None] + (end - y)[:, None] * xp.asarray(_NODES)
    return xp.exp(k[:, None] * _fall(xp, y[:, None], t)) @ xp.asarray(_WEIGHTS) * (end - y)


def _angle_of_tail(xp: Any, q: Any, k: Any) -> Any:
    """The y in (0, pi) whose tail is q <= 1/2, by Newton's method on log T, which is concave, inside a bracket."""
    low, high, width = xp.zeros_like(q), xp.full_like(q, np.pi), 1.0 / xp.sqrt(xp.maximum(k, 0.1))
    normalizer = 2 * np.pi * special_namespace_of(xp).i0e(k)
    y = xp.minimum(-special_namespace_of(xp).ndtri(q) * width, np.pi * (1.0 - 2.0 * q))
    left = xp.arange(q.size)
    for _ in range(60):
        here, bound = y[left], (low[left], high[left])
        integral = _integrate_weight(xp, here, k[left])
        gap = xp.log(integral / normalizer[left] / q[left]) - 2.0 * k[left] * xp.sin(0.5 * here) ** 2
        low[left], high[left] = xp.where(gap > 0, here, bound[0]), xp.where(gap > 0, bound[1], here)
        # d log T / dy = -1 / integral
        step = here + gap * integral
        inside = (step >= low[left]) & (step <= high[left])
        y[left] = xp.where(inside, step, 0.5 * (low[left] + high[left]))
        left = left[xp.abs(y[left] - here) > 1e-14 * here + 1e-15 * width[left]]
        if not left.size:
            break
    return y


def _quantile_value(xp: Any, p: Any, k: Any) -> Any:
    p, k = xp.broadcast_arrays(xp.asarray(p, dtype="float64"), xp.asarray(k, dtype="float64"))
    flat, width = p.reshape(-1), k.reshape(-1)
    good = (flat > 0) & (flat < 1) & (width >= 0) & (width < np.inf)
    tail = xp.where(good, xp.minimum(flat, 1.0 - flat), 0.25)
    with np.errstate(all="ignore"):
        width_or_one = xp.where(good, width, 1.0)
        blocks = [slice(i, i + _ROWS) for i in range(0, flat.size, _ROWS)]
        y = xp.concatenate([_angle_of_tail(xp, tail[b], width_or_one[b]) for b in blocks] or [flat])
    ends = xp.where(flat == 0, -np.pi, xp.where(flat == 1, np.pi, xp.where(width == np.inf, 0.0, np.nan)))
    ends = xp.where((flat >= 0) & (flat <= 1) & (width >= 0), ends, np.nan)
    return xp.where(good, xp.where(flat < 0.5, -y, y), ends).reshape(p.shape)


def _integrate(weight: Any, y: Any, k: Any) -> Any:
    """The integral of weight(t) exp(k (cos t - cos y)) over t from y to pi, in ops. Its end is held constant: it is pi,
    or lies where nothing is left.
    """
    fixed, steep = stop_gradient(y), maximum(stop_gradient(k), 1e-300)
    floor = cos(fixed) - divide(_DEPTH, steep)
    reaches = less_equal(floor, -1.0)  # to pi, where acos has no slope
    end = where(reaches, np.pi, acos(where(reaches, 0.0, floor)))
    length = end - y
    dtype = spec_of(length).dtype
    nodes, weights = (move(x.astype(dtype), spec_of(length).device) for x in (_NODES, _WEIGHTS))
    start, k = expand_dims(y, axis=-1), expand_dims(k, axis=-1)
    t = start + expand_dims(length, axis=-1) * nodes
    return length * total(weight(t) * exp(k * _fall(pointwise, start, t)) * weights, axis=-1)


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def von_mises_cdf(x: Any, k: Any, /) -> Any:
    """The probability of an angle between -pi and x under the von Mises distribution of concentration k around 0.

    >>> import pullback as pb
    >>> round(float(pb.special.von_mises_cdf(0.0, 2.0)), 12)
    0.5
    """
    x, k = as_value(x), as_value(k)
    y = minimum(where(less(x, 0.0), negative(x), x), np.pi)
    k = pointwise.add(k, multiply(y, 0.0))
    weight = exp(-2.0 * k * square(sin(0.5 * y)))
    tail = weight * _integrate(lambda t: 1.0, y, k) / (2 * np.pi * i0e(k))
    return where(less(x, 0.0), tail, 1.0 - tail)


def _slope_in_concentration(out: Any, k: Any) -> Any:
    """dx/dk at a fixed probability: S on the right half of the circle, its mirror image on the left."""
    k = k + 0.0 * out
    mean = expand_dims(divide(i1e(k), i0e(k)), axis=-1)
    y = where(less(out, 0.0), negative(out), out)
    moved = _integrate(lambda t: cos(t) - mean, y, k)
    return where(less(out, 0.0), negative(moved), moved)


def _slope_in_probability(bar: Any, out: Any, k: Any) -> Any:
    """One over the density."""
    return multiply(bar, 2 * np.pi * i0e(k) * exp(2.0 * k * square(sin(0.5 * out))))


@special(
    {"p": _slope_in_probability, "k": lambda out, k: _slope_in_concentration(out, k)},
    [(0.05, 0.95), (0.3, 8.0)],
    value=_quantile_value,
)
def von_mises_quantile(p: Any, k: Any, /) -> Any:
    """The angle x at which von_mises_cdf(x, k) is p.

    >>> import pullback as pb
    >>> round(float(pb.special.von_mises_quantile(0.5, 2.0)), 12)
    0.0
    """

"""Derivatives of the scaled modified Bessel functions, of every order, where the usual recurrences cancel.

exp(-x) I_v(x) and exp(x) K_v(x) fall slowly, so I_{v-1} + I_{v+1} - 2 I_v loses as many digits as x has.
"""

from __future__ import annotations

from math import comb, prod
from typing import Any

import numpy as np

from .definition import cache_by_order, library_function, refuse_partial, special_op


def _asymptotic_series(xp: Any, k: int, v: Any, x: Any) -> Any:
    """The k-th derivative of exp(-x) I_v(x) ~ (2 pi x)^(-1/2) sum of (-1)^m a_m(v) / x^m, term by term."""
    total, a = xp.zeros(x.shape), xp.ones(x.shape)
    for m in range(30):
        falling = prod(-0.5 - m - i for i in range(k))
        total = total + a * falling
        a = a * -(4 * v * v - (2 * m + 1) ** 2) / (8 * (m + 1) * x)
    return total / xp.sqrt(2 * xp.pi * x) / x**k


def _leibniz_sum(xp: Any, k: int, v: Any, x: Any) -> Any:
    """The same by Leibniz: I_v^(j) = 2^-j sum of C(j, i) I_{v-j+2i}."""
    ive = library_function(xp, "ive")
    total = xp.zeros(x.shape)
    for j in range(k + 1):
        inner = sum(comb(j, i) * ive(v - j + 2 * i, x) for i in range(j + 1))
        total = total + comb(k, j) * (-1.0) ** (k - j) * inner / 2**j
    return total


def _ive_derivative_value(xp: Any, k: int, v: Any, x: Any) -> Any:
    """On both sides of zero by the parity of integer orders; at zero the mean of both sides."""
    v, x = xp.broadcast_arrays(v + 0.0, x)
    size = xp.abs(x)
    far = (size > 30) & (size > v * v)
    found = xp.where(
        far, _asymptotic_series(xp, k, v, xp.where(far, size, 40.0)), _leibniz_sum(xp, k, v, xp.where(far, 1.0, size))
    )
    odd = (v + k) % 2 == 1
    return xp.where(x > 0, found, xp.where(x < 0, xp.where(odd, -found, found), xp.where(odd, 0.0 * size, found)))


@cache_by_order
def ive_derivative(k: int) -> Any:
    """The k-th derivative of ive(v, x) in x."""
    return special_op(
        f"ive_derivative_{k}",
        {"v": refuse_partial("ive", "the order v"), "x": lambda v, x: ive_derivative(k + 1)(v, x)},
        range(4),
        (0.5, 5.0),
        value=lambda xp, v, x: _ive_derivative_value(xp, k, v, x),
    )


_NODES = np.linspace(0.0, 1.0, 401)
_ROWS = 256


def _kve_derivative_value(xp: Any, j: int, m: int, v: Any, x: Any) -> Any:
    """(d/dx)^j (d/dv)^m of exp(x) K_v(x) = integral over t > 0 of exp(-x (cosh t - 1)) cosh(v t).

    Each derivative has an integrand of one sign, even in t and falling doubly exponentially, so that the trapezoid
    rule is exact to rounding. It runs from where the integrand starts to where it has fallen by e^-50.
    """
    v, x = (z.reshape(-1, 1) for z in xp.broadcast_arrays(v + 0.0, x))
    size = xp.abs(v)
    with np.errstate(all="ignore"):
        peak = xp.arcsinh(size / x)
        spread = 1 / xp.sqrt(xp.hypot(x, size))
        start = xp.maximum(peak - 16 * spread, 0.0)
        stop = peak + 1
        for _ in range(8):
            stop = xp.arccosh(1 + (50 + j * stop + size * (stop - peak) + x * (xp.cosh(peak) - 1)) / x)
        rows = [
            _trapezoid_rows(xp, j, m, *(z[i : i + _ROWS] for z in (v, x, peak, start, stop)))
            for i in range(0, max(v.size, 1), _ROWS)
        ]
    return xp.concatenate(rows)


def _trapezoid_rows(xp: Any, j: int, m: int, v: Any, x: Any, peak: Any, start: Any, stop: Any) -> Any:
    t = start + (stop - start) * xp.asarray(_NODES)
    size = xp.abs(v)
    drop = 2 * xp.sinh(t / 2) ** 2
    top = size * peak - x * 2 * xp.sinh(peak / 2) ** 2
    grown = xp.exp(size * t - x * drop - top) / 2
    mirrored = xp.exp(-size * t - x * drop - top) / 2
    even = grown + mirrored if m % 2 == 0 else xp.sign(v) * (grown - mirrored)
    terms = (-drop) ** j * t**m * even
    total = terms.sum(axis=1) - (terms[:, 0] + terms[:, -1]) / 2
    return xp.exp(top[:, 0]) * total * ((stop - start)[:, 0] / (_NODES.size - 1))


@cache_by_order
def kve_derivative(j: int, m: int) -> Any:
    """(d/dx)^j (d/dv)^m of kve(v, x)."""

    def value(xp: Any, v: Any, x: Any) -> Any:
        v, x = xp.broadcast_arrays(v, x)
        inside = (x > 0) & (x < xp.inf)
        found = _kve_derivative_value(xp, j, m, v, xp.where(inside, x, 1.0)).reshape(x.shape)
        # At zero the function is infinite and so is its slope, of the same sign as beside it; at infinity it is flat.
        return xp.where(inside, found, xp.where(x == 0, xp.copysign(xp.inf, found), xp.where(x > 0, 0.0, xp.nan)))

    return special_op(
        f"kve_derivative_{j}_{m}",
        {"v": lambda v, x: kve_derivative(j, m + 1)(v, x), "x": lambda v, x: kve_derivative(j + 1, m)(v, x)},
        (-1.5, 3.0),
        (0.5, 4.0),
        value=value,
    )


ive_derivative(1)
for _orders in ((1, 0), (0, 1), (1, 1)):
    kve_derivative(*_orders)

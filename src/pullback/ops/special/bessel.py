"""Bessel functions of all kinds, spherical ones and Airy's: differentiable in the argument, K in its order too.

exp(-x) I_v(x) and exp(x) K_v(x) fall slowly, so I_{v-1} + I_{v+1} - 2 I_v loses as many digits as x has: the scaled
functions have derivatives of their own, of every order.
"""

from __future__ import annotations

from math import comb, prod
from typing import Any

import numpy as np

from ..elementwise.pointwise import add, divide, exp, maximum, multiply, negative, subtract
from ..signatures import Declarations, UnaryOp
from . import definition
from . import gamma_expansions as e
from .definition import library_function, shift_order, special, special_op


def _half_difference(f: Any) -> Any:
    """f_v' = (f_{v-1} - f_{v+1}) / 2, for J and Y."""
    return lambda v, x: multiply(subtract(f()(shift_order(v, -1), x), f()(shift_order(v, 1), x)), 0.5)


def _half_sum(f: Any, sign: float) -> Any:
    """f_v' = +-(f_{v-1} + f_{v+1}) / 2, for I and K."""
    return lambda v, x: multiply(add(f()(shift_order(v, -1), x), f()(shift_order(v, 1), x)), 0.5 * sign)


@special({"x": _half_difference(lambda: jv)}, [range(4), (0.5, 5.0)], plane=True)
def jv(v: Any, x: Any, /) -> Any:
    """The Bessel function of the first kind of real order, jv(v, x).

    >>> import pullback as pb
    >>> pb.special.jv(1, 0.0)
    array(0.)
    """


@special({"x": _half_difference(lambda: yv)}, [range(4), (0.5, 5.0)], plane=True)
def yv(v: Any, x: Any, /) -> Any:
    """The Bessel function of the second kind of real order, yv(v, x).

    >>> import pullback as pb
    >>> pb.special.yv(0, 1.0)
    array(0.08825696)
    """


@special({"x": _half_sum(lambda: iv, 1.0)}, [range(4), (0.5, 5.0)], plane=True)
def iv(v: Any, x: Any, /) -> Any:
    """The modified Bessel function of the first kind of real order, iv(v, x).

    >>> import pullback as pb
    >>> pb.special.iv(0, 0.0)
    array(1.)
    """


@special(
    {"v": lambda v, x: multiply(exp(negative(x)), kve_derivative(0, 1)(v, x)), "x": _half_sum(lambda: kv, -1.0)},
    [(-1.5, 3.0), (0.5, 4.0)],
)
def kv(v: Any, x: Any, /) -> Any:
    """The modified Bessel function of the second kind, kv(v, x), differentiable in its order too.

    >>> import pullback as pb
    >>> pb.special.kv(0.5, 1.0)
    array(0.46106850)
    """


@special({"x": lambda v, x: ive_derivative(1)(v, x)}, [range(4), (0.5, 5.0)])
def ive(v: Any, x: Any, /) -> Any:
    """exp(-|x|) iv(v, x), which does not overflow.

    >>> import pullback as pb
    >>> pb.special.ive(0, 0.0)
    array(1.)
    """


@special(
    {"v": lambda v, x: kve_derivative(0, 1)(v, x), "x": lambda v, x: kve_derivative(1, 0)(v, x)},
    [(-1.5, 3.0), (0.5, 4.0)],
)
def kve(v: Any, x: Any, /) -> Any:
    """exp(x) kv(v, x), which does not underflow.

    >>> import pullback as pb
    >>> pb.special.kve(0.5, 1.0)
    array(1.25331414)
    """


@special({"x": lambda x: negative(j1(x))}, [(-4.0, 4.0)])
def j0(x: Any, /) -> Any:
    """The Bessel function J of order 0.

    >>> import pullback as pb
    >>> pb.special.j0(1.0)
    array(0.76519769)
    """


@special({"x": lambda x: _half_difference(lambda: jv)(1, x)}, [(-4.0, 4.0)])
def j1(x: Any, /) -> Any:
    """The Bessel function J of order 1.

    >>> import pullback as pb
    >>> pb.special.j1(1.0)
    array(0.44005059)
    """


@special({"x": lambda x: negative(y1(x))}, [(0.5, 4.0)])
def y0(x: Any, /) -> Any:
    """The Bessel function Y of order 0.

    >>> import pullback as pb
    >>> pb.special.y0(1.0)
    array(0.08825696)
    """


@special({"x": lambda x: _half_difference(lambda: yv)(1, x)}, [(0.5, 4.0)])
def y1(x: Any, /) -> Any:
    """The Bessel function Y of order 1.

    >>> import pullback as pb
    >>> pb.special.y1(1.0)
    array(-0.78121282)
    """


@special({"x": lambda x: i1(x)}, [(-4.0, 4.0)], anywhere=e.expand_i0)
def i0(x: Any, /) -> Any:
    """The Bessel function I of order 0.

    >>> import pullback as pb
    >>> pb.special.i0(1.0)
    array(1.26606588)
    """


@special({"x": lambda x: _half_sum(lambda: iv, 1.0)(1, x)}, [(-4.0, 4.0)], anywhere=e.expand_i1)
def i1(x: Any, /) -> Any:
    """The Bessel function I of order 1.

    >>> import pullback as pb
    >>> pb.special.i1(1.0)
    array(0.5651591)
    """


@special({"x": lambda x: negative(k1(x))}, [(0.5, 4.0)])
def k0(x: Any, /) -> Any:
    """The Bessel function K of order 0.

    >>> import pullback as pb
    >>> pb.special.k0(1.0)
    array(0.42102444)
    """


@special({"x": lambda x: _half_sum(lambda: kv, -1.0)(1, x)}, [(0.5, 4.0)])
def k1(x: Any, /) -> Any:
    """The Bessel function K of order 1.

    >>> import pullback as pb
    >>> pb.special.k1(1.0)
    array(0.60190723)
    """


@special({"x": lambda x: ive_derivative(1)(0, x)}, [(0.5, 4.0)], anywhere=e.expand_i0e)
def i0e(x: Any, /) -> Any:
    """The Bessel function I of order 0 times exp(-|x|).

    >>> import pullback as pb
    >>> pb.special.i0e(1.0)
    array(0.46575961)
    """


@special({"x": lambda x: ive_derivative(1)(1, x)}, [(0.5, 4.0)], anywhere=e.expand_i1e)
def i1e(x: Any, /) -> Any:
    """The Bessel function I of order 1 times exp(-|x|).

    >>> import pullback as pb
    >>> pb.special.i1e(1.0)
    array(0.20791042)
    """


@special({"x": lambda x: kve_derivative(1, 0)(0, x)}, [(0.5, 4.0)])
def k0e(x: Any, /) -> Any:
    """The Bessel function K of order 0 times exp(x).

    >>> import pullback as pb
    >>> pb.special.k0e(1.0)
    array(1.14446308)
    """


@special({"x": lambda x: kve_derivative(1, 0)(1, x)}, [(0.5, 4.0)])
def k1e(x: Any, /) -> Any:
    """The Bessel function K of order 1 times exp(x).

    >>> import pullback as pb
    >>> pb.special.k1e(1.0)
    array(1.63615349)
    """


jn, yn, kn = jv, yv, kv


def _spherical_function(above: float, below: float) -> Declarations:
    """A decorator: (2n + 1) f_n' = below n f_{n-1} + above (n + 1) f_{n+1}, which is regular at zero."""

    def define(declared: Any) -> Any:
        def partial(bar: Any, n: Any, x: Any) -> Any:
            lower = multiply(multiply(n, below), op(maximum(subtract(n, 1), 0), x))
            upper = multiply(multiply(shift_order(n, 1), above), op(shift_order(n, 1), x))
            return divide(multiply(bar, add(lower, upper)), add(multiply(n, 2), 1))

        op = special({"x": partial}, [range(4), (0.5, 4.0)], plane=True)(declared)
        return op

    return define


@_spherical_function(-1.0, 1.0)
def spherical_jn(n: Any, x: Any, /) -> Any:
    """The spherical Bessel function j of integer order, spherical_jn(n, x).

    >>> import pullback as pb
    >>> pb.special.spherical_jn(0, 1.0)
    array(0.84147098)
    """


@_spherical_function(-1.0, 1.0)
def spherical_yn(n: Any, x: Any, /) -> Any:
    """The spherical Bessel function y of integer order, spherical_yn(n, x).

    >>> import pullback as pb
    >>> pb.special.spherical_yn(0, 1.0)
    array(-0.54030231)
    """


@_spherical_function(1.0, 1.0)
def spherical_in(n: Any, x: Any, /) -> Any:
    """The spherical Bessel function i of integer order, spherical_in(n, x).

    >>> import pullback as pb
    >>> pb.special.spherical_in(0, 1.0)
    array(1.17520119)
    """


@_spherical_function(-1.0, -1.0)
def spherical_kn(n: Any, x: Any, /) -> Any:
    """The spherical Bessel function k of integer order, spherical_kn(n, x).

    >>> import pullback as pb
    >>> pb.special.spherical_kn(0, 1.0)
    array(0.57786367)
    """


def _airy_op(name: str, place: int, partial: Any) -> Any:
    return special_op(
        name, {"x": partial}, [(-3.0, 2.0)], value=lambda xp, x: library_function(xp, "airy")(x)[place], plane=True
    )


airy_ai: UnaryOp = _airy_op("airy_ai", 0, lambda x: airy_ai_prime(x))
airy_ai_prime: UnaryOp = _airy_op("airy_ai_prime", 1, lambda x: multiply(x, airy_ai(x)))
airy_bi: UnaryOp = _airy_op("airy_bi", 2, lambda x: airy_bi_prime(x))
airy_bi_prime: UnaryOp = _airy_op("airy_bi_prime", 3, lambda x: multiply(x, airy_bi(x)))


def airy(x: Any, /) -> tuple[Any, Any, Any, Any]:
    """Airy's functions and their derivatives: Ai, Ai', Bi, Bi'.

    >>> import pullback as pb
    >>> [round(float(f), 4) for f in pb.special.airy(0.0)]
    [0.355, -0.2588, 0.6149, 0.4483]
    """
    return airy_ai(x), airy_ai_prime(x), airy_bi(x), airy_bi_prime(x)


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


@definition.derivative_ops([range(4), (0.5, 5.0)])
def ive_derivative(xp: Any, k: int, v: Any, x: Any) -> Any:
    """The k-th derivative of ive(v, x) in x; below zero by the parity of integer orders, at zero the mean of both."""
    v, x = xp.broadcast_arrays(v + 0.0, x)
    size = xp.abs(x)
    far = (size > 30) & (size > v * v)
    found = xp.where(
        far, _asymptotic_series(xp, k, v, xp.where(far, size, 40.0)), _leibniz_sum(xp, k, v, xp.where(far, 1.0, size))
    )
    odd = (v + k) % 2 == 1
    return xp.where(x > 0, found, xp.where(x < 0, xp.where(odd, -found, found), xp.where(odd, 0.0 * size, found)))


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


@definition.cache_by_order
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
        [(-1.5, 3.0), (0.5, 4.0)],
        value=value,
    )


ive_derivative(1)
for _orders in ((1, 0), (0, 1), (1, 1)):
    kve_derivative(*_orders)

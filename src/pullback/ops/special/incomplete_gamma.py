"""The incomplete gamma function with every derivative, in its parameter too.

With weight w(a, x) = x^a e^-x / gamma(a), the density is w / x, and in y = log x
    P(a, x) = integral of w(a, e^y') over y' < y,     (d/da)^k P = w T_k(a, y),
where T_k is of moderate size wherever P is, even where w underflows. Its own derivatives stay in the family:
    dT_k/dy = B_k - T_k (a - e^y),    dT_k/da = T_{k+1} - T_k L,    L = y - digamma(a),
with B_k w = (d/da)^k w, a polynomial in L and polygammas of a (`densities`).
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from ...arrays.backends import special_namespace_of
from ..elementwise import pointwise
from ..elementwise.pointwise import divide, exp, isinf, less_equal, log, logical_or, multiply, negative, subtract, where
from .definition import cache_by_order, library_function, special, special_op
from .densities import density_derivative, integrate_half_line
from .gamma import digamma, polygamma


def log_weight(xp: Any, a: Any, x: Any) -> Any:
    """log(x^a e^-x / gamma(a)); for large a by Stirling's formula around x = a, where the terms nearly cancel."""
    large = a > 20.0
    big, near = xp.where(large, a, 30.0), xp.where(large & (x > 0), x, 30.0)
    corrections = 1 / (12 * big) - 1 / (360 * big**3) + 1 / (1260 * big**5) - 1 / (1680 * big**7)
    stirling = big * _log_minus_linear(xp, near, big) + xp.log(big / (2 * xp.pi)) / 2 - corrections
    library = special_namespace_of(xp)
    plain = library.xlogy(a, x) - x - library.gammaln(a)
    return xp.where(large, xp.where(x > 0, stirling, -xp.inf), plain)


def _log_minus_linear(xp: Any, x: Any, a: Any) -> Any:
    """log(x / a) - (x - a) / a; near x = a by the series in r = z / (2 + z), z = (x - a) / a.

    log(1 + z) = 2 (r + r^3/3 + ...) and z = 2 r + r z, so the first terms cancel by hand.
    """
    z = (x - a) / a
    small = xp.abs(z) < 0.4
    r = xp.where(small, z / (2 + z), 0.0)
    total = xp.zeros(z.shape)
    for k in range(25, 1, -2):
        total = (total + 2 / k) * r * r
    return xp.where(small, r * (total - xp.where(small, z, 0.0)), xp.log(x / a) - z)


def _density_value(xp: Any, a: Any, x: Any) -> Any:
    """x^(a-1) e^-x / gamma(a), also for a <= 0, as its derivatives in x need; 0 for x < 0."""
    a, x = xp.broadcast_arrays(a, x)
    with np.errstate(all="ignore"):
        inside = xp.where(x > 0, x, 1.0)
        positive = xp.exp(log_weight(xp, xp.where(a > 0, a, 1.0), inside)) / inside
        other = library_function(xp, "rgamma")(a) * xp.exp(library_function(xp, "xlogy")(a - 1, inside) - inside)
        at_zero = library_function(xp, "rgamma")(a) * xp.where(a == 1, 1.0, xp.where(a > 1, 0.0, xp.inf))
        at_zero = xp.where(library_function(xp, "rgamma")(a) == 0, 0.0, at_zero)
        out = xp.where(x > 0, xp.where(a > 0, positive, other), xp.where(x == 0, at_zero, 0.0))
    return xp.where(xp.isnan(a) | xp.isnan(x), xp.nan, xp.where(xp.isinf(x), 0.0, out))


def _density_partial_shape(out: Any, a: Any, x: Any) -> Any:
    """p (log x - digamma(a)); where p is zero its slope is taken to be zero."""
    nothing = pointwise.equal(out, 0)
    rate = subtract(log(where(nothing, 1.0, x)), digamma(where(nothing, 1.0, a)))
    return where(nothing, 0.0, multiply(out, rate))


# d/dx x^(a-1) e^-x / gamma(a) = x^(a-2) e^-x / gamma(a-1) - itself, with no division by x
gamma_density: Any = special_op(
    "gamma_density",
    {"a": _density_partial_shape, "x": lambda out, a, x: subtract(gamma_density(subtract(a, 1), x), out)},
    [(1.2, 4.0), (0.3, 4.0)],
    value=_density_value,
)


def _weight_derivative_ratio(k: int, a: Any, y: Any) -> Any:
    """B_k: (d/da)^k of the weight over the weight."""
    first = subtract(y, digamma(a))
    return density_derivative(lambda i, _: first if i == 1 else negative(polygamma(i - 1, a)), k)


def _moment_value(xp: Any, k: int, a: Any, y: Any) -> Any:
    """T_k by the side of x on which L keeps its sign, so that nothing cancels; below one by the power series.

    With y' = y + d the weight changes by exp(a d - x expm1(d)), which decays on the scale 1 / (|a - x| + sqrt(x)).
    """
    a, y = xp.broadcast_arrays(a, y)
    near = y <= 0
    return xp.where(
        near, _power_series(xp, k, a, xp.where(near, y, 0.0)), _one_sided_moment(xp, k, a, xp.where(near, 0.0, y))
    )


def _one_sided_moment(xp: Any, k: int, a: Any, y: Any) -> Any:
    x = xp.exp(y)
    library = special_namespace_of(xp)
    first = y - library.psi(a)
    direction = xp.where(first < 0, -1.0, 1.0)
    others = [-library.polygamma(xp.asarray(i), a) for i in range(1, k)]

    def integrand(s: Any, a: Any, x: Any, direction: Any, first: Any, *others: Any) -> Any:
        d = direction * s
        moved = density_derivative(lambda i, _: first + d if i == 1 else others[i - 2], k)
        return xp.exp(a * d - x * xp.expm1(d)) * xp.where(xp.isfinite(moved), moved, 0.0)

    scale = 1 / (xp.abs(a - x) + xp.sqrt(x))
    return -direction * integrate_half_line(xp, integrand, scale, a, x, direction, first, *others)


_TERMS = 25


def _power_series(xp: Any, k: int, a: Any, y: Any) -> Any:
    """T_k for x <= 1, from P = (w / a) S, S = 1 + x / (a+1) + x^2 / ((a+1) (a+2)) + ..., expanded in a change of a.

    Since w / a = x^a e^-x / gamma(a + 1), its derivatives are B_i at a + 1, with nothing that grows as a nears zero:
    a T_k = sum of C(k, i) B_i (d/da)^(k-i) S.
    """
    x = xp.exp(y)
    term = [xp.ones(a.shape)] + [xp.zeros(a.shape)] * k  # Taylor coefficients in the change of a
    total = term
    for n in range(1, _TERMS):
        term = _divide_series(term, a + n, x)
        total = [t + c for t, c in zip(total, term, strict=True)]
    out = factorial(k) * total[k]
    for i in range(1, k + 1):  # C(k, i) (k - i)! = k! / i!, with the coefficient of order k - i
        out = out + _weight_derivative_ratio(i, a + 1, y) * total[k - i] * (factorial(k) / factorial(i))
    return out / a


def _divide_series(term: list[Any], b: Any, x: Any) -> list[Any]:
    """Taylor coefficients of term * x / (b + change): b c_m + c_{m-1} = x t_m."""
    out: list[Any] = []
    for m, t in enumerate(term):
        out.append((t * x - (out[m - 1] if m else 0.0)) / b)
    return out


@cache_by_order
def gamma_moment(k: int) -> Any:
    """T_k as a function of (a, y); each order is an op of its own, made on first use."""
    return special_op(
        f"gamma_moment_{k}",
        {
            "a": lambda out, a, y: subtract(gamma_moment(k + 1)(a, y), multiply(out, subtract(y, digamma(a)))),
            "y": lambda out, a, y: subtract(_weight_derivative_ratio(k, a, y), multiply(out, subtract(a, exp(y)))),
        },
        [(0.5, 6.0), (-1.0, 2.0)],
        value=lambda xp, a, y: _moment_value(xp, k, a, y),
    )


gamma_moment(1), gamma_moment(2)


def _in_parameter_value(xp: Any, k: int, a: Any, x: Any) -> Any:
    """(d/da)^k P = w T_k, zero at both ends."""
    a, x = xp.broadcast_arrays(a, x)
    end = (x <= 0) | xp.isinf(x)
    b, inside = xp.where(end, 1.0, a), xp.where(end, 1.0, x)
    with np.errstate(all="ignore"):
        return xp.where(end, 0.0, inside * _density_value(xp, b, inside) * _moment_value(xp, k, b, xp.log(inside)))


def _density_in_parameter(k: int) -> Any:
    """(d/da)^k of the density, which is it times B_k; zero at both ends."""

    def partial(a: Any, x: Any) -> Any:
        end = logical_or(less_equal(x, 0), isinf(x))
        b, inside = where(end, 1.0, a), where(end, 1.0, x)
        return where(end, 0.0, multiply(gamma_density(b, inside), _weight_derivative_ratio(k, b, log(inside))))

    return partial


@cache_by_order
def gammainc_in_parameter(k: int) -> Any:
    """(d/da)^k gammainc(a, x); an op for each order, so that no order is a difference of larger terms."""
    return special_op(
        f"gammainc_in_parameter_{k}",
        {"a": lambda a, x: gammainc_in_parameter(k + 1)(a, x), "x": _density_in_parameter(k)},
        [(0.5, 6.0), (0.3, 7.0)],
        value=lambda xp, a, x: _in_parameter_value(xp, k, a, x),
    )


gammainc_in_parameter(1)


@special(
    {"a": lambda a, x: gammainc_in_parameter(1)(a, x), "x": lambda a, x: gamma_density(a, x)}, [(0.5, 6.0), (0.3, 7.0)]
)
def gammainc(a: Any, x: Any, /) -> Any:
    """The regularised lower incomplete gamma function, differentiable in both arguments.

    >>> import pullback as pb
    >>> pb.special.gammainc(1.0, 2.0)
    array(0.86466472)
    """


@special(
    {"a": lambda a, x: negative(gammainc_in_parameter(1)(a, x)), "x": lambda a, x: negative(gamma_density(a, x))},
    [(0.5, 6.0), (0.3, 7.0)],
)
def gammaincc(a: Any, x: Any, /) -> Any:
    """The regularised upper incomplete gamma function, 1 - gammainc, exact also where it is small.

    >>> import pullback as pb
    >>> pb.special.gammaincc(1.0, 2.0)
    array(0.13533528)
    """


def quantile_slope(out: Any, a: Any) -> Any:
    """How a quantile x(a) at a fixed probability moves: P_a + P_x x' = 0, so x' = -w T_1 / (w / x) = -x T_1."""
    end = logical_or(less_equal(out, 0), isinf(out))
    x, a = where(end, 1.0, out), where(end, 1.0, a)
    return where(end, 0.0, negative(multiply(x, gamma_moment(1)(a, log(x)))))


@special(
    {"a": lambda out, a: quantile_slope(out, a), "p": lambda bar, out, a: divide(bar, gamma_density(a, out))},
    [(0.5, 6.0), (0.1, 0.9)],
)
def gammaincinv(a: Any, p: Any, /) -> Any:
    """The x at which gammainc(a, x) is p.

    >>> import pullback as pb
    >>> pb.special.gammaincinv(1.0, 0.5)
    array(0.69314718)
    """


@special(
    {"a": lambda out, a: quantile_slope(out, a), "p": lambda bar, out, a: negative(divide(bar, gamma_density(a, out)))},
    [(0.5, 6.0), (0.1, 0.9)],
)
def gammainccinv(a: Any, p: Any, /) -> Any:
    """The x at which gammaincc(a, x) is p.

    >>> import pullback as pb
    >>> pb.special.gammainccinv(1.0, 0.5)
    array(0.69314718)
    """

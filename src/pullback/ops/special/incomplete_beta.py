"""The incomplete beta function with every derivative, in its parameters too.

In the logit y of x the weight is w = x^a (1 - x)^b / B(a, b), the density is w / (x (1 - x)), and
    I(a, b, x) = integral of w over y' < y,     (d/da)^j (d/db)^k I = w T_jk(a, b, x).
T_jk is of moderate size everywhere, and its own derivatives stay in the family, with x' = x (1 - x) along y:
    dT_jk/dx = (D_jk - T_jk (a - (a + b) x)) / (x (1 - x)),    dT_jk/da = T_{j+1,k} - T_jk g_a,
where D_jk w = (d/da)^j (d/db)^k w (`densities`) and g = log w.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..elementwise import pointwise
from ..elementwise.pointwise import add, divide, less_equal, log, multiply, negative, subtract, where
from .definition import cache_by_order, special, special_op
from .densities import density_derivative, integrate_half_line
from .gamma import polygamma, polygamma_difference
from .incomplete_gamma import log_weight


def _log_weight_derivatives(a: Any, b: Any, x: Any) -> Any:
    """g(j, k): the derivatives of the log of the weight, of any interpreter."""
    both = add(a, b)

    def g(j: int, k: int) -> Any:
        if j and k:
            return polygamma(j + k - 1, both)
        if j + k == 1:
            # log x - digamma(a) + digamma(a + b), and the same for b with 1 - x
            return (
                add(log(x), polygamma_difference(0, a, b))
                if j
                else add(pointwise.log1p(negative(x)), polygamma_difference(0, b, a))
            )
        return polygamma_difference(j - 1, a, b) if j else polygamma_difference(k - 1, b, a)

    return g


def _weight_value(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """x^a (1 - x)^b / B(a, b) for 0 < x < 1.

    Three gamma weights of which the exponentials cancel: with n = a + b each of a at n x, b at n (1 - x) and n at n
    is of moderate size for large parameters, so no digits are lost in the logarithms.
    """
    n = a + b
    with np.errstate(all="ignore"):
        return xp.exp(log_weight(xp, a, n * x) + log_weight(xp, b, n * (1 - x)) - log_weight(xp, n, n))


def _weight_partial_x(bar: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
    return multiply(bar, divide(multiply(out, subtract(a, multiply(add(a, b), x))), multiply(x, subtract(1, x))))


beta_weight: Any = special_op(
    "beta_weight",
    {
        "a": lambda out, a, b, x: multiply(out, _log_weight_derivatives(a, b, x)(1, 0)),
        "b": lambda out, a, b, x: multiply(out, _log_weight_derivatives(a, b, x)(0, 1)),
        "x": _weight_partial_x,
    },
    [(1.2, 4.0), (1.2, 4.0), (0.2, 0.8)],
    value=_weight_value,
)


def _moment_value(xp: Any, j: int, k: int, a: Any, b: Any, x: Any) -> Any:
    """T_jk by the side of x away from the mean, so that little cancels.

    From x the logit moves by d: with e = expm1(d), x' = x (1 + e) / (1 + x e) and 1 - x' = (1 - x) / (1 + x e). Going
    away from the mean the log of the weight falls with slope a - (a + b) x at first, a (or b) at last.
    """
    a, b, x = xp.broadcast_arrays(a, b, x)
    low = a - (a + b) * x > 0
    direction = xp.where(low, -1.0, 1.0)
    with np.errstate(all="ignore"):
        start = _log_weight_derivatives(a, b, x)
        first = [start(1, 0), start(0, 1)]
        rest = {(m, n): start(m, n) for m in range(j + 1) for n in range(k + 1) if m + n > 1}
        width = xp.abs(a - (a + b) * x) + xp.sqrt((a + b) * x * (1 - x))
        scale = 1 / xp.minimum(width, xp.where(low, a, b))

    def integrand(s: Any, a: Any, b: Any, x: Any, direction: Any, in_a: Any, in_b: Any, *others: Any) -> Any:
        known = dict(zip(rest, others, strict=True))
        d = direction * s
        # log(1 + x e), without overflow for large d
        tilt = xp.where(d < 1, xp.log1p(x * xp.expm1(xp.minimum(d, 1.0))), d + xp.log(x + (1 - x) * xp.exp(-d)))
        known[1, 0], known[0, 1] = in_a + d - tilt, in_b - tilt
        moved = density_derivative(lambda m, n: known[m, n], j, k)
        return xp.exp(a * d - (a + b) * tilt) * xp.where(xp.isfinite(moved), moved, 0.0)

    return -direction * integrate_half_line(xp, integrand, scale, a, b, x, direction, *first, *rest.values())


def _moment_partial_x(j: int, k: int) -> Any:
    def partial(bar: Any, out: Any, a: Any, b: Any, x: Any) -> Any:
        along = subtract(
            density_derivative(_log_weight_derivatives(a, b, x), j, k),
            multiply(out, subtract(a, multiply(add(a, b), x))),
        )
        return divide(multiply(bar, along), multiply(x, subtract(1, x)))

    return partial


@cache_by_order
def beta_moment(j: int, k: int) -> Any:
    """T_jk as a function of (a, b, x); each order is an op of its own, made on first use."""
    return special_op(
        f"beta_moment_{j}_{k}",
        {
            "a": lambda out, a, b, x: subtract(
                beta_moment(j + 1, k)(a, b, x), multiply(out, _log_weight_derivatives(a, b, x)(1, 0))
            ),
            "b": lambda out, a, b, x: subtract(
                beta_moment(j, k + 1)(a, b, x), multiply(out, _log_weight_derivatives(a, b, x)(0, 1))
            ),
            "x": _moment_partial_x(j, k),
        },
        [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
        value=lambda xp, a, b, x: _moment_value(xp, j, k, a, b, x),
    )


for _orders in ((1, 0), (0, 1)):
    beta_moment(*_orders)


def _away_from_ends(a: Any, b: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Whether x is at an end, and arguments at which the formulas are finite there."""
    end = pointwise.logical_or(less_equal(x, 0), pointwise.greater_equal(x, 1))
    return end, where(end, 1.0, a), where(end, 1.0, b), where(end, 0.5, x)


def _in_parameters_value(xp: Any, j: int, k: int, a: Any, b: Any, x: Any) -> Any:
    """(d/da)^j (d/db)^k I = w T_jk, zero at both ends."""
    a, b, x = xp.broadcast_arrays(a, b, x)
    end, unknown = (x <= 0) | (x >= 1), xp.isnan(a) | xp.isnan(b)
    a, b, x = xp.where(end, 1.0, a), xp.where(end, 1.0, b), xp.where(end, 0.5, x)
    found = xp.where(end, 0.0, _weight_value(xp, a, b, x) * _moment_value(xp, j, k, a, b, x))
    return xp.where(unknown, xp.nan, found)


def _density_in_parameters(j: int, k: int) -> Any:
    """(d/da)^j (d/db)^k of the density, which is it times D_jk; zero at both ends."""

    def partial(a: Any, b: Any, x: Any) -> Any:
        end, a, b, x = _away_from_ends(a, b, x)
        density = divide(beta_weight(a, b, x), multiply(x, subtract(1, x)))
        return where(end, 0.0, multiply(density, density_derivative(_log_weight_derivatives(a, b, x), j, k)))

    return partial


@cache_by_order
def betainc_in_parameters(j: int, k: int) -> Any:
    """(d/da)^j (d/db)^k betainc(a, b, x); an op for each order, so that no order is a difference of larger terms."""
    return special_op(
        f"betainc_in_parameters_{j}_{k}",
        {
            "a": lambda a, b, x: betainc_in_parameters(j + 1, k)(a, b, x),
            "b": lambda a, b, x: betainc_in_parameters(j, k + 1)(a, b, x),
            "x": _density_in_parameters(j, k),
        },
        [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
        value=lambda xp, a, b, x: _in_parameters_value(xp, j, k, a, b, x),
    )


for _orders in ((1, 0), (0, 1)):
    betainc_in_parameters(*_orders)


def _pull_density(bar: Any, a: Any, b: Any, x: Any) -> Any:
    """bar times the density; its limit at the ends."""
    end, c, d, y = _away_from_ends(a, b, x)
    inner = divide(beta_weight(c, d, y), multiply(y, subtract(1, y)))
    order = where(less_equal(x, 0), a, b)
    limit = where(pointwise.equal(order, 1), where(less_equal(x, 0), b, a), where(less_equal(order, 1), np.inf, 0.0))
    return multiply(bar, where(end, limit, inner))


@special(
    {
        "a": lambda a, b, x: betainc_in_parameters(1, 0)(a, b, x),
        "b": lambda a, b, x: betainc_in_parameters(0, 1)(a, b, x),
        "x": _pull_density,
    },
    [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
)
def betainc(a: Any, b: Any, x: Any, /) -> Any:
    """The regularised incomplete beta function, differentiable in all three arguments.

    >>> import pullback as pb
    >>> pb.special.betainc(1.0, 1.0, 0.25)
    array(0.25)
    """


@special(
    {
        "a": lambda a, b, x: negative(betainc_in_parameters(1, 0)(a, b, x)),
        "b": lambda a, b, x: negative(betainc_in_parameters(0, 1)(a, b, x)),
        "x": lambda bar, a, b, x: negative(_pull_density(bar, a, b, x)),
    },
    [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
)
def betaincc(a: Any, b: Any, x: Any, /) -> Any:
    """1 - betainc, exact also where it is small.

    >>> import pullback as pb
    >>> pb.special.betaincc(1.0, 1.0, 0.25)
    array(0.75)
    """


def _quantile_partial(j: int, k: int) -> Any:
    """I_a + I_x x' = 0, so x' = -x (1 - x) T."""

    def partial(out: Any, a: Any, b: Any) -> Any:
        end, a, b, x = _away_from_ends(a, b, out)
        return where(end, 0.0, negative(multiply(multiply(x, subtract(1, x)), beta_moment(j, k)(a, b, x))))

    return partial


def _quantile_partial_p(bar: Any, out: Any, a: Any, b: Any) -> Any:
    return divide(multiply(bar, multiply(out, subtract(1, out))), beta_weight(a, b, out))


@special(
    {"a": _quantile_partial(1, 0), "b": _quantile_partial(0, 1), "p": _quantile_partial_p},
    [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
)
def betaincinv(a: Any, b: Any, p: Any, /) -> Any:
    """The x at which betainc(a, b, x) is p.

    >>> import pullback as pb
    >>> pb.special.betaincinv(1.0, 1.0, 0.25)
    array(0.25)
    """


@special(
    {
        "a": _quantile_partial(1, 0),
        "b": _quantile_partial(0, 1),
        "p": lambda bar, out, a, b: negative(_quantile_partial_p(bar, out, a, b)),
    },
    [(0.5, 6.0), (0.5, 6.0), (0.1, 0.9)],
)
def betainccinv(a: Any, b: Any, p: Any, /) -> Any:
    """The x at which betaincc(a, b, x) is p.

    >>> import pullback as pb
    >>> pb.special.betainccinv(1.0, 1.0, 0.25)
    array(0.75)
    """

"""Exponential, sine and cosine integrals, the dilogarithm, Lambert's W and elliptic integrals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...errors import ArgumentError
from ..dispatch import as_value
from ..elementwise.pointwise import add, cos, cosh, divide, exp, greater, multiply, negative, subtract, where
from ..elementwise.rounding import trunc
from ..signatures import UnaryOp, of_array, to_pair
from .bessel import spherical_in, spherical_jn
from .definition import derivative_ops, library_function, special, special_op
from .hypergeometric import hyp2f1


@special({"x": lambda bar, x: divide(multiply(bar, exp(x)), x)}, [(0.3, 3.0)], plane=True)
def expi(x: Any, /) -> Any:
    """The exponential integral Ei, of exp(t) / t from minus infinity to x.

    >>> import pullback as pb
    >>> pb.special.expi(1.0)
    array(1.89511782)
    """


@special({"x": lambda bar, x: negative(divide(multiply(bar, exp(negative(x))), x))}, [(0.3, 3.0)], plane=True)
def exp1(x: Any, /) -> Any:
    """The exponential integral E1, of exp(-t) / t from x to infinity.

    >>> import pullback as pb
    >>> pb.special.exp1(1.0)
    array(0.21938393)
    """


def _expn_slope(out: Any, n: Any, x: Any) -> Any:
    """-E_{n-1}(x); at n = 0, where that is not defined, from (n-1) E_n = exp(-x) - x E_{n-1}."""
    n = trunc(n)  # as SciPy does
    named = greater(n, 0)
    below = divide(add(exp(negative(x)), multiply(out, subtract(1, n))), x)
    return negative(where(named, expn(where(named, subtract(n, 1), 0), x), below))


@special({"x": _expn_slope}, [range(4), (0.3, 3.0)])
def expn(n: Any, x: Any, /) -> Any:
    """The generalised exponential integral E_n(x), of exp(-x t) / t^n from 1 to infinity.

    >>> import pullback as pb
    >>> pb.special.expn(1, 1.0)
    array(0.21938393)
    """


def _component_op(name: str, function: str, place: int, partial: Any) -> Any:
    return special_op(
        name, {"x": partial}, [(0.3, 4.0)], value=lambda xp, x: library_function(xp, function)(x)[place], plane=True
    )


# sin(x) / x and sinh(x) / x are spherical Bessel functions of order 0, whose derivatives are correct at zero.
sine_integral: UnaryOp = _component_op("sine_integral", "sici", 0, lambda x: spherical_jn(0, x))
cosine_integral: UnaryOp = _component_op("cosine_integral", "sici", 1, lambda bar, x: divide(multiply(bar, cos(x)), x))
sinh_integral: UnaryOp = _component_op("sinh_integral", "shichi", 0, lambda x: spherical_in(0, x))
cosh_integral: UnaryOp = _component_op("cosh_integral", "shichi", 1, lambda bar, x: divide(multiply(bar, cosh(x)), x))


@to_pair
def sici(x: Any, /) -> tuple[Any, Any]:
    """The sine and the cosine integral, Si(x) and Ci(x).

    >>> import pullback as pb
    >>> [round(float(f), 4) for f in pb.special.sici(1.0)]
    [0.9461, 0.3374]
    """
    return sine_integral(x), cosine_integral(x)


@to_pair
def shichi(x: Any, /) -> tuple[Any, Any]:
    """The hyperbolic sine and cosine integrals, Shi(x) and Chi(x).

    >>> import pullback as pb
    >>> [round(float(f), 4) for f in pb.special.shichi(1.0)]
    [1.0573, 0.8379]
    """
    return sinh_integral(x), cosh_integral(x)


@derivative_ops([(0.2, 3.0)])
def log_ratio(xp: Any, k: int, x: Any) -> Any:
    """The k-th derivative of f = log(x) / (1 - x): near 1 of -sum of (1 - x)^m / (m + 1), else by
    (1 - x) f^(k) = log^(k)(x) + k f^(k-1).
    """
    z = 1 - x
    near = xp.abs(z) < 0.5
    inside = xp.where(near, z, 0.0)
    series = xp.zeros(x.shape)
    for m in range(60 + k, k - 1, -1):
        series = series * inside + math.perm(m, k) / (m + 1)
    with np.errstate(all="ignore"):
        far_x = xp.where(near, 2.0, x)
        out = xp.log(far_x) / (1 - far_x)
        for n in range(1, k + 1):
            out = (-math.factorial(n - 1) * (-1.0 / far_x) ** n + n * out) / (1 - far_x)
    return xp.where(near, -((-1.0) ** k) * series, out)


@special({"x": lambda x: log_ratio(0)(x)}, [(0.2, 3.0)])
def spence(x: Any, /) -> Any:
    """Spence's function, the integral of log(t) / (1 - t) from 1 to x: the dilogarithm of 1 - x.

    >>> import pullback as pb
    >>> pb.special.spence(1.0)
    array(0.)
    """


log_ratio(0), log_ratio(1)


def _lambertw_branch(name: str, k: int, low: float, high: float) -> Any:
    """A real branch of the inverse of w exp(w): w' = 1 / (exp(w) (1 + w)); NaN where it is not real."""

    def value(xp: Any, x: Any) -> Any:
        w = library_function(xp, "lambertw")(x, k)
        outside = x < -math.exp(-1) if k == 0 else (x < -math.exp(-1)) | (x > 0)
        return xp.where(outside | xp.isnan(x), xp.nan, w.real)

    return special_op(
        name, {"x": lambda bar, out: divide(multiply(bar, exp(negative(out))), add(out, 1))}, [(low, high)], value=value
    )


_BRANCHES = {
    0: _lambertw_branch("lambertw_upper", 0, -0.3, 3.0),
    -1: _lambertw_branch("lambertw_lower", -1, -0.35, -0.05),
}


@of_array
@attributed_to_caller
def lambertw(x: Any, /, k: int = 0) -> Any:
    """The w with w exp(w) = x: the branch k = 0 (w >= -1) or k = -1 (w <= -1, for x below zero), both real.

    >>> import pullback as pb
    >>> pb.special.lambertw(0.0)
    array(0.)
    """
    if k not in _BRANCHES:
        raise ArgumentError(f"lambertw: only the branches 0 and -1 have real values, got k={k}.")
    return _BRANCHES[k](as_value(x))


# D(m) = (K - E) / m is Carlson's RD(0, 1 - m, 1) / 3. In p = 1 - m, with K and D as functions of p:
#   dK/dm = (K - D) / (2 p),   dE/dm = -D / 2,   dD/dm = (K - D - p D) / (2 m p), near m = 0 by 2F1.
def _ellipd_slope(out: Any, p: Any) -> Any:
    m = subtract(1, p)
    near = greater(0.25, multiply(m, m))
    denominator = multiply(multiply(where(near, 0.5, m), where(near, 0.5, p)), 2)
    plain = divide(subtract(ellipkm1(where(near, 0.5, p)), multiply(out, add(where(near, 0.5, p), 1))), denominator)
    series = multiply(hyp2f1(2.5, 1.5, 3.0, where(near, m, 0.0)), 3 * math.pi / 32)
    return negative(where(near, series, plain))


ellipdm1: Any = special_op(
    "ellipdm1", {"p": _ellipd_slope}, [(0.1, 2.0)], value=lambda xp, p: library_function(xp, "elliprd")(0.0, p, 1.0) / 3
)


@special(
    {"p": lambda bar, out, p: negative(divide(multiply(bar, subtract(out, ellipdm1(p))), multiply(p, 2)))}, [(0.1, 2.0)]
)
def ellipkm1(p: Any, /) -> Any:
    """The complete elliptic integral K of m = 1 - p, exact for small p.

    >>> import pullback as pb
    >>> pb.special.ellipkm1(1.0)
    array(1.57079633)
    """


def _ellipk_slope(bar: Any, out: Any, m: Any) -> Any:
    p = subtract(1, m)
    return divide(multiply(bar, subtract(out, ellipdm1(p))), multiply(p, 2))


@special({"m": _ellipk_slope}, [(-1.0, 0.9)])
def ellipk(m: Any, /) -> Any:
    """The complete elliptic integral of the first kind, of the parameter m.

    >>> import pullback as pb
    >>> pb.special.ellipk(0.0)
    array(1.57079633)
    """


@special({"m": lambda m: multiply(ellipdm1(subtract(1, m)), -0.5)}, [(-1.0, 0.9)])
def ellipe(m: Any, /) -> Any:
    """The complete elliptic integral of the second kind, of the parameter m.

    >>> import pullback as pb
    >>> pb.special.ellipe(0.0)
    array(1.57079633)
    """

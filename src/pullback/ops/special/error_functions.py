"""The error function and the normal distribution, with inverses and logarithms, accurate far out in the tails."""

from __future__ import annotations

import math
from typing import Any

from ..elementwise.pointwise import add, cos, divide, erf, exp, less, multiply, negative, sin, square, where
from ..signatures import to_pair
from . import error_expansions as e
from .definition import derivative_ops, library_function, special, special_op
from .densities import integrate_half_line

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _gaussian(x: Any) -> Any:
    """exp(-x^2)."""
    return exp(negative(square(x)))


@special(
    {"x": lambda bar, x: multiply(multiply(bar, _gaussian(x)), -_TWO_OVER_ROOT_PI)},
    [(-2.0, 2.0)],
    plane=True,
    anywhere=e.expand_erfc,
)
def erfc(x: Any, /) -> Any:
    """1 - erf(x), exact also where it is small.

    >>> import pullback as pb
    >>> pb.special.erfc(0.0)
    array(1.)
    """


@derivative_ops([(-1.5, 3.0)])
def erfcx_derivative(xp: Any, k: int, x: Any) -> Any:
    """The k-th derivative of exp(x^2) erfc(x) = 2 / sqrt(pi) * integral over s > 0 of exp(-s^2 - 2 s x).

    For x > 0 each derivative is an integral of one sign; below it f' = 2 x f - 2 / sqrt(pi) loses no digits:
    f^(k+1) = 2 x f^(k) + 2 k f^(k-1).
    """
    right = x > 0.5
    far = xp.where(right, x, 1.0)
    positive = integrate_half_line(xp, lambda s, x: s**k * xp.exp(-s * s - 2 * s * x), 1 / (1 + 2 * far), far)
    near = xp.where(right, 0.0, x)
    before = library_function(xp, "erfcx")(near)
    now = 2 * near * before - _TWO_OVER_ROOT_PI
    for n in range(1, k):
        before, now = now, 2 * near * now + 2 * n * before
    return xp.where(right, (-2.0) ** k * _TWO_OVER_ROOT_PI * positive, now)


@special({"x": lambda x: erfcx_derivative(1)(x)}, [(-1.5, 3.0)], anywhere=e.expand_erfcx)
def erfcx(x: Any, /) -> Any:
    """exp(x^2) erfc(x), which does not underflow.

    >>> import pullback as pb
    >>> pb.special.erfcx(0.0)
    array(1.)
    """


erfcx_derivative(1)


@special({"x": lambda out: multiply(exp(square(out)), 1 / _TWO_OVER_ROOT_PI)}, [(-0.9, 0.9)], anywhere=e.expand_erfinv)
def erfinv(x: Any, /) -> Any:
    """The inverse of erf.

    >>> import pullback as pb
    >>> pb.special.erfinv(0.0)
    array(0.)
    """


@special({"x": lambda out: multiply(exp(square(out)), -1 / _TWO_OVER_ROOT_PI)}, [(0.1, 1.9)], anywhere=e.expand_erfcinv)
def erfcinv(x: Any, /) -> Any:
    """The inverse of erfc.

    >>> import pullback as pb
    >>> pb.special.erfcinv(1.0)
    array(0.)
    """


def _normal_density(x: Any) -> Any:
    return multiply(exp(multiply(square(x), -0.5)), 1 / math.sqrt(2 * math.pi))


@special({"x": lambda bar, x: multiply(bar, _normal_density(x))}, [(-2.0, 2.0)], anywhere=e.expand_ndtr)
def ndtr(x: Any, /) -> Any:
    """The normal distribution function.

    >>> import pullback as pb
    >>> pb.special.ndtr(0.0)
    array(0.5)
    """


@special(
    {"p": lambda out: multiply(exp(multiply(square(out), 0.5)), math.sqrt(2 * math.pi))},
    [(0.1, 0.9)],
    anywhere=e.expand_ndtri,
)
def ndtri(p: Any, /) -> Any:
    """The inverse of ndtr.

    >>> import pullback as pb
    >>> pb.special.ndtri(0.5)
    array(0.)
    """


def _hazard_value(xp: Any, x: Any) -> Any:
    """density(x) / ndtr(x) = sqrt(2 / pi) / erfcx(-x / sqrt(2)): neither overflows nor is 0 / 0."""
    return math.sqrt(2 / math.pi) / library_function(xp, "erfcx")(x * -math.sqrt(0.5))


# h = density / ndtr has h' = -h (x + h). With u = -x / sqrt(2), h = sqrt(2 / pi) / erfcx(u) and
# x + h = -erfcx'(u) / (sqrt(2) erfcx(u)), which keeps its digits where h is nearly -x.
def _hazard_slope(out: Any, x: Any) -> Any:
    left = less(x, 0)
    u = multiply(where(left, x, 0.0), -math.sqrt(0.5))
    excess = multiply(divide(erfcx_derivative(1)(u), erfcx(u)), -math.sqrt(0.5))
    return negative(multiply(out, where(left, excess, add(x, out))))


hazard: Any = special_op(
    "normal_hazard", {"x": _hazard_slope}, [(-3.0, 3.0)], value=_hazard_value, anywhere=e.expand_normal_hazard
)


@special({"x": lambda x: hazard(x)}, [(-3.0, 3.0)], anywhere=e.expand_log_ndtr)
def log_ndtr(x: Any, /) -> Any:
    """log(ndtr(x)), accurate however small ndtr is, and so are its derivatives.

    >>> import pullback as pb
    >>> pb.special.log_ndtr(-1e5)
    array(-5.00000001e+09)
    """


@special({"y": lambda bar, out: divide(bar, hazard(out))}, [(-3.0, -0.1)], anywhere=e.expand_ndtri_exp)
def ndtri_exp(y: Any, /) -> Any:
    """The inverse of log_ndtr.

    >>> import pullback as pb
    >>> pb.special.ndtri_exp(-0.6931471805599453)
    array(0.)
    """


@derivative_ops([(-3.0, 3.0)])
def dawsn_derivative(xp: Any, k: int, x: Any) -> Any:
    """From f' = 1 - 2 x f: f^(k+1) = -2 x f^(k) - 2 k f^(k-1); far out term by term of
    f ~ sum of (2m-1)!! / (2^(m+1) x^(2m+1)), where the recurrence would cancel.
    """
    far = xp.abs(x) > 7
    near = xp.where(far, 0.0, x)
    before = library_function(xp, "dawsn")(near)
    now = 1 - 2 * near * before
    for n in range(1, k):
        before, now = now, -2 * near * now - 2 * n * before
    wide = xp.where(far, x, 10.0)
    total = xp.zeros(x.shape)
    weight = 0.5
    for m in range(36):
        falling = float((-1) ** k * math.prod(range(2 * m + 1, 2 * m + 1 + k)))
        total = total + weight * falling * wide ** -(2.0 * m + 1 + k)
        weight *= (2 * m + 1) / 2
    return xp.where(far, total, now)


@special({"x": lambda x: dawsn_derivative(1)(x)}, [(-3.0, 3.0)])
def dawsn(x: Any, /) -> Any:
    """Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x.

    >>> import pullback as pb
    >>> pb.special.dawsn(0.0)
    array(0.)
    """


dawsn_derivative(1)


def _fresnel_angle(x: Any) -> Any:
    return multiply(square(x), math.pi / 2)


fresnel_s: Any = special_op(
    "fresnel_s",
    {"x": lambda x: sin(_fresnel_angle(x))},
    [(-2.0, 2.0)],
    value=lambda xp, x: library_function(xp, "fresnel")(x)[0],
    plane=True,
)
fresnel_c: Any = special_op(
    "fresnel_c",
    {"x": lambda x: cos(_fresnel_angle(x))},
    [(-2.0, 2.0)],
    value=lambda xp, x: library_function(xp, "fresnel")(x)[1],
    plane=True,
)


@to_pair
def fresnel(x: Any, /) -> tuple[Any, Any]:
    """The integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x.

    >>> import pullback as pb
    >>> pb.special.fresnel(0.0)
    (array(0.), array(0.))
    """
    return fresnel_s(x), fresnel_c(x)


# dT/dh = -density(h) erf(a h / sqrt(2)) / 2,  dT/da = exp(-h^2 (1 + a^2) / 2) / (2 pi (1 + a^2))
def _owens_partial_h(h: Any, a: Any) -> Any:
    return multiply(_normal_density(h), multiply(erf(multiply(multiply(a, h), math.sqrt(0.5))), -0.5))


def _owens_partial_a(bar: Any, h: Any, a: Any) -> Any:
    width = add(square(a), 1)
    return divide(multiply(bar, exp(multiply(multiply(square(h), width), -0.5))), multiply(width, 2 * math.pi))


@special({"h": _owens_partial_h, "a": _owens_partial_a}, [(-2.0, 2.0), (-2.0, 2.0)])
def owens_t(h: Any, a: Any, /) -> Any:
    """Owen's T: the chance of X > h and 0 < Y < a X for independent standard normal X and Y.

    >>> import pullback as pb
    >>> pb.special.owens_t(0.0, 1.0)
    array(0.125)
    """

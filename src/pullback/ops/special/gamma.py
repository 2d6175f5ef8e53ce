"""The gamma function and its relatives: factorials, logarithms, polygamma, beta, zeta."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.backends import special_namespace_of
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError, DtypeError
from ..dispatch import as_value
from ..elementwise import pointwise
from ..elementwise.pointwise import add, cos, less, multiply, negative, sin, subtract, where
from ..fusion import cast_whole
from ..round_once import rounds_once
from ..signatures import of_array, of_two_arrays
from . import gamma_expansions as e
from .definition import library_function, refuse_partial, shift_order, special, special_op


@special({"x": lambda out, x: multiply(out, digamma(x))}, [(0.3, 5.0)], plane=True, anywhere=e.expand_gamma)
def gamma(x: Any, /) -> Any:
    """The gamma function, (x - 1)! for integer x.

    >>> import pullback as pb
    >>> pb.special.gamma(5.0)
    array(24.)
    """


@special({"x": lambda x: digamma(x)}, [(0.3, 5.0)], value="gammaln", anywhere=e.expand_lgamma)
def lgamma(x: Any, /) -> Any:
    """log|gamma(x)|, without overflow.

    >>> import pullback as pb
    >>> pb.special.lgamma(1.0)
    array(0.)
    """


@special({"x": lambda x: digamma(x)}, [(0.3, 5.0)], plane=True, anywhere=e.expand_loggamma)
def loggamma(x: Any, /) -> Any:
    """The logarithm of gamma, analytic off the negative real axis; NaN for negative reals.

    >>> import pullback as pb
    >>> pb.special.loggamma(1.0)
    array(0.)
    """


def _trigamma(x: Any) -> Any:
    if spec_of(x).dtype.kind == "c":
        raise DtypeError("digamma: its derivative is not computed for complex arguments.")
    return polygamma(1, x)


@special({"x": _trigamma}, [(0.3, 5.0)], value="psi", plane=True, anywhere=e.expand_digamma)
def digamma(x: Any, /) -> Any:
    """The derivative of log(gamma(x)).

    >>> import pullback as pb
    >>> pb.special.digamma(1.0)
    array(-0.57721566)
    """


def _polygamma_value(xp: Any, n: Any, x: Any) -> Any:
    """(-1)^(n+1) n! zeta(n + 1, x), and digamma for n = 0."""
    library = special_namespace_of(xp)
    with_sign = xp.where(n % 2 == 1, 1.0, -1.0) * library.gamma(n + 1.0)
    return xp.where(n == 0, library.psi(x), with_sign * library.zeta(n + 1.0, x))


@special(
    {"x": lambda n, x: polygamma(shift_order(n, 1), x)},
    [range(4), (0.3, 5.0)],
    value=_polygamma_value,
    anywhere=e.expand_polygamma,
)
def polygamma(n: Any, x: Any, /) -> Any:
    """The n-th derivative of digamma, polygamma(n, x), for integer n.

    >>> import pullback as pb
    >>> pb.special.polygamma(1, 1.0)
    array(1.64493407)
    """


# Left of 1/2 by the reflection 1/gamma(x) = gamma(1 - x) sin(pi x) / pi, which has no poles there:
#   rgamma' = gamma(1 - x) (cos(pi x) - digamma(1 - x) sin(pi x) / pi)
def _rgamma_slope(out: Any, x: Any) -> Any:
    left = less(x, 0.5) if spec_of(x).dtype.kind != "c" else less(x.real, 0.5)
    mirrored = where(left, subtract(1, x), 1.0)
    angle = multiply(where(left, x, 0.0), math.pi)
    factor = subtract(cos(angle), pointwise.divide(multiply(digamma(mirrored), sin(angle)), math.pi))
    direct = negative(multiply(out, digamma(where(left, 1.0, x))))
    return where(left, multiply(gamma(mirrored), factor), direct)


@special({"x": _rgamma_slope}, [(-2.5, 4.0)], anywhere=e.expand_rgamma)
def rgamma(x: Any, /) -> Any:
    """1 / gamma(x), zero at the poles of gamma; every derivative is correct there too.

    >>> import pullback as pb
    >>> pb.special.rgamma([3.0, 0.0])
    array([0.5, 0. ])
    """


#: B_2k / (2k)! of the expansion of polygamma for large arguments; 9 terms reach 1e-17 beyond 12.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_SHIFT_STEPS = 14


def _polygamma_difference_value(xp: Any, n: Any, a: Any, b: Any) -> Any:
    """polygamma(n, a + b) - polygamma(n, a) with no digits lost, for a, b > 0; elsewhere by the difference itself.

    Both are moved up by `_SHIFT_STEPS` of polygamma(n, x) = polygamma(n, x + 1) - (-1)^n n! / x^(n+1), then expanded:
    polygamma(n, x) ~ -(-1)^n [(n-1)! / x^n + n! / (2 x^(n+1)) + sum_k B_2k (2k+n-1)! / ((2k)! x^(2k+n))],
    and each power differs by (a + b)^-m - a^-m = a^-m expm1(-m log1p(b / a)).
    """
    n, a, b = xp.broadcast_arrays(n, a, b)
    good = (a > 0) & (b > 0)
    low, gap = xp.where(good, a, 1.0), xp.where(good, b, 1.0)
    sign = xp.where(n % 2 == 0, -1.0, 1.0)
    total = xp.zeros(a.shape)
    for j in range(_SHIFT_STEPS):
        total = total + sign * library_function(xp, "gamma")(n + 1.0) * _power_step(xp, n + 1.0, low + j, gap)
    far = low + _SHIFT_STEPS
    order = xp.maximum(n, 1)
    lead = xp.where(
        n == 0,
        xp.log1p(gap / far),
        sign * library_function(xp, "gamma")(order + 0.0) * _power_step(xp, order, far, gap),
    )
    total = total + lead + sign * library_function(xp, "gamma")(n + 1.0) / 2 * _power_step(xp, n + 1.0, far, gap)
    for k, number in enumerate(_BERNOULLI, 1):
        weight = number * library_function(xp, "gamma")(2.0 * k + n) / math.factorial(2 * k)
        total = total + sign * weight * _power_step(xp, 2.0 * k + n, far, gap)
    plain = _polygamma_value(xp, n, a + b) - _polygamma_value(xp, n, a)
    return xp.where(good, total, plain)


def _power_step(xp: Any, power: Any, low: Any, gap: Any) -> Any:
    """(low + gap)^-power - low^-power."""
    return low**-power * xp.expm1(-power * xp.log1p(gap / low))


polygamma_difference: Any = special_op(
    "polygamma_difference",
    {
        "n": refuse_partial("polygamma_difference", "n"),
        "a": lambda n, a, b: polygamma_difference(shift_order(n, 1), a, b),
        "b": lambda n, a, b: polygamma(shift_order(n, 1), add(a, b)),
    },
    [range(3), (0.3, 5.0), (0.3, 5.0)],
    value=_polygamma_difference_value,
    anywhere=e.expand_polygamma_difference,
)


def _digamma_gap(a: Any, b: Any) -> Any:
    """digamma(a) - digamma(a + b), to the last digits also where b is far below a."""
    return negative(polygamma_difference(0, a, b))


@special(
    {
        "a": lambda out, a, b: multiply(out, _digamma_gap(a, b)),
        "b": lambda out, a, b: multiply(out, _digamma_gap(b, a)),
    },
    [(0.3, 4.0), (0.3, 4.0)],
    anywhere=e.expand_beta,
)
def beta(a: Any, b: Any, /) -> Any:
    """gamma(a) gamma(b) / gamma(a + b).

    >>> import pullback as pb
    >>> pb.special.beta(2.0, 3.0)
    array(0.08333333)
    """


@special(
    {"a": lambda a, b: _digamma_gap(a, b), "b": lambda a, b: _digamma_gap(b, a)},
    [(0.3, 4.0), (0.3, 4.0)],
    anywhere=e.expand_betaln,
)
def betaln(a: Any, b: Any, /) -> Any:
    """log|beta(a, b)|, without overflow.

    >>> import pullback as pb
    >>> pb.special.betaln(1.0, 1.0)
    array(0.)
    """


# binom(n, k) = 1 / ((n + 1) beta(n - k + 1, k + 1))
@special(
    {
        "n": lambda out, n, k: multiply(out, polygamma_difference(0, add(subtract(n, k), 1), k)),
        "k": lambda out, n, k: multiply(out, subtract(digamma(add(subtract(n, k), 1)), digamma(add(k, 1)))),
    },
    [(4.0, 7.0), (0.5, 3.0)],
)
def binom(n: Any, k: Any, /) -> Any:
    """The binomial coefficient n over k, for reals.

    >>> import pullback as pb
    >>> pb.special.binom(5.0, 2.0)
    array(10.)
    """


@special(
    {
        "z": lambda out, z, m: multiply(out, polygamma_difference(0, z, m)),
        "m": lambda out, z, m: multiply(out, digamma(add(z, m))),
    },
    [(0.5, 4.0), (0.5, 3.0)],
)
def poch(z: Any, m: Any, /) -> Any:
    """gamma(z + m) / gamma(z), the rising factorial.

    >>> import pullback as pb
    >>> pb.special.poch(2.0, 3.0)
    array(24.)
    """


@special(
    {"q": lambda bar, s, q: negative(multiply(bar, multiply(s, zeta(add(s, 1), q))))},
    [range(2, 5), (0.3, 5.0)],
    anywhere=e.expand_zeta,
)
def zeta(s: Any, q: Any, /) -> Any:
    """The Hurwitz zeta function, the sum of (q + j)^-s; differentiable in q.

    >>> import pullback as pb
    >>> pb.special.zeta(2.0, 1.0)
    array(1.64493407)
    """


gammaln, psi = lgamma, digamma


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def factorial(x: Any, /) -> Any:
    """gamma(x + 1), for reals.

    >>> import pullback as pb
    >>> pb.special.factorial(4.0)
    array(24.)
    """
    return gamma(add(as_value(x), 1))


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def comb(n: Any, k: Any, /) -> Any:
    """In how many ways k can be chosen from n: `binom`, and zero where k is negative or above n.

    >>> import pullback as pb
    >>> pb.special.comb(5.0, 2.0)
    array(10.)
    """
    n, k = as_value(n), as_value(k)
    none = pointwise.logical_or(less(k, 0), pointwise.greater(k, n))
    return where(none, 0.0, binom(where(none, 1.0, n), where(none, 1.0, k)))


@of_array
@cast_whole("high")
@attributed_to_caller
@rounds_once
def multigammaln(a: Any, d: int, /) -> Any:
    """The log of the gamma function of d x d matrices: d(d-1)/4 log(pi) plus lgamma(a - j/2) for j below d.

    >>> import pullback as pb
    >>> pb.special.multigammaln(2.0, 1)
    array(0.)
    """
    if int(d) != d or d < 1:
        raise ArgumentError(f"multigammaln: d must be a positive integer, got {d}.")
    a = as_value(a)
    total = lgamma(a)
    for j in range(1, int(d)):
        total = add(total, lgamma(subtract(a, j / 2)))
    return total if d == 1 else add(total, d * (d - 1) / 4 * math.log(math.pi))

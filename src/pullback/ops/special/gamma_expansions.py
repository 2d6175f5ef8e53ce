"""The gamma function's relatives and Bessel's I, of real numbers, written out in other ops.

Each is accurate to the last digits of the dtype it computes in, also near its zeros.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.spec import spec_of
from ...errors import UnsupportedFunction
from ..elementwise import pointwise as p
from ..elementwise.arithmetic import copysign
from ..elementwise.pointwise import where
from ..elementwise.rounding import rint
from .expansions import expand_polynomial

#: log(gamma(2 + t)) / t for t from -1/2 to 1/2.
_LGAMMA_NEAR_TWO = (
    0.42278433509846713, 0.3224670334241132, -0.06735230105319563, 0.02058080842778338, -0.007385551028935545,
    0.002890510330865901, -0.0011927539009983087, 0.0005096695196526673, -0.00022315497746292723, 9.945761692157133e-05,
    -4.4923727564247656e-05, 2.050601970174762e-05, -9.45628851510172e-06, 4.3828545383846665e-06,
    -1.9743106888421067e-06, 9.242852225162277e-07, -5.811277768921246e-07, 2.7475390051909663e-07,
)  # fmt: skip
#: The positive zero of digamma, as a number of 24 bits and what is left of it.
_DIGAMMA_ZERO = (1.4616321325302124, 1.2438149938918909e-08)
#: digamma(3/2 + t) over the distance from that zero, for t from -1/2 to 1/2.
_DIGAMMA_NEAR_ZERO = (
    0.951055876031833, -0.4236274212814605, 0.2405424842407742, -0.14840492305390884, 0.09498872445494122,
    -0.061922133273064534, 0.04076083381242074, -0.02697579675613825, 0.0179072524394512, -0.011908218001568644,
    0.007926944646403797, -0.005279964873257405, 0.003519006401502276, -0.002345267632540769, 0.0015566317474486838,
    -0.0010376374098418604, 0.0007233266279287554, -0.0004821990530566789, 0.0002272331660987376,
    -0.00015148586836773365, 0.00025968482126430747, -0.00017312261802727394,
)  # fmt: skip
#: The Bernoulli numbers B_2, B_4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
#: From here on the expansions of the gamma functions for large arguments have all digits.
_LARGE = 8


def _sine_of_half_turns(x: Any) -> tuple[Any, Any]:
    """sin(pi x) and cos(pi x) from the distance to the nearest integer, which is exact."""
    nearest = rint(x)
    rest = x - nearest
    sign = 1 - 2 * p.abs(nearest - 2 * rint(nearest * 0.5))
    return sign * p.sin(math.pi * rest), sign * p.cos(math.pi * rest)


def _stirling(x: Any) -> Any:
    """log(gamma(x)) - (x - 1/2) log(x) + x - log(2 pi) / 2 for large x."""
    weights = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1)]
    return expand_polynomial(1 / (x * x), weights) / x


def _lgamma_near_two(x: Any) -> Any:
    t = x - 2
    return t * expand_polynomial(t, _LGAMMA_NEAR_TWO)


def _reduce_to_two(x: Any) -> tuple[Any, Any, Any]:
    """(y, over, under) with gamma(x) = gamma(y) over / under and y from 1.5 to 2.5, for x from 0 to `_LARGE`."""
    under = where(p.less(x, 0.5), p.abs(x) * (x + 1), where(p.less(x, 1.5), x, 1.0))
    over, y = 1 + 0 * x, where(p.less(x, 0.5), x + 2, where(p.less(x, 1.5), x + 1, x))
    for _ in range(_LARGE - 2):
        goes_on = p.greater_equal(y, 2.5)
        y = where(goes_on, y - 1, y)
        over = where(goes_on, over * y, over)
    return y, over, under


def _lgamma_right(x: Any) -> Any:
    """log(gamma(x)) for x > 0. Right of 1/2 and left of 3/2 the logarithm of x is that of 1 + (x - 1)."""
    y, over, under = _reduce_to_two(p.minimum(x, float(_LARGE)))
    middle = p.logical_and(p.greater_equal(x, 0.5), p.less(x, 1.5))
    logarithm = where(middle, -p.log1p(where(middle, x - 1, 0.0)), p.log(over / where(middle, 1.0, under)))
    near = _lgamma_near_two(y) + logarithm
    large = p.maximum(x, float(_LARGE))
    far = (large - 0.5) * (p.log(large) - 1) + (math.log(2 * math.pi) / 2 - 0.5) + _stirling(large)
    return where(p.less(x, _LARGE), near, where(p.isinf(x), math.inf, far))


def expand_lgamma(x: Any) -> Any:
    """On the left by gamma(x) gamma(1 - x) = pi / sin(pi x), in absolute value."""
    left = p.less(x, 0)
    value = _lgamma_right(where(left, 1 - x, x))
    sine, _ = _sine_of_half_turns(where(left, x, 0.5))
    mirrored = math.log(math.pi) - p.log(p.abs(sine)) - value
    return where(p.equal(x, -math.inf), -math.inf, where(left, mirrored, value))


def expand_loggamma(x: Any) -> Any:
    return where(p.less(x, 0), math.nan, expand_lgamma(where(p.less(x, 0), 1.0, x)))


def _gamma_right(x: Any) -> Any:
    """gamma(x) for x > 0; x^(x - 1/2) exp(-x) with the power as a square, which alone would overflow too early."""
    y, over, under = _reduce_to_two(p.minimum(x, float(_LARGE)))
    near = p.exp(_lgamma_near_two(y)) * over / under
    large = p.minimum(p.maximum(x, float(_LARGE)), 40.0 if spec_of(x).dtype == np.float32 else 180.0)
    root = p.power(large, large * 0.5 - 0.25)
    far = root * p.exp(-large) * root * (p.exp(_stirling(large)) * math.sqrt(2 * math.pi))
    return where(p.less(x, _LARGE), near, where(p.isnan(x), x, far))


def expand_gamma(x: Any) -> Any:
    left = p.less(x, 0)
    value = _gamma_right(where(left, 1 - x, x))
    sine, _ = _sine_of_half_turns(where(left, x, 0.5))
    pole = p.logical_and(left, p.equal(x, rint(x)))
    return where(left, where(pole, math.nan, math.pi / (sine * value)), where(p.equal(x, 0), 1 / x, value))


def expand_rgamma(x: Any) -> Any:
    """Left of zero sin(pi x) gamma(1 - x) / pi, which is zero at the poles."""
    left = p.less(x, 0)
    value = _gamma_right(where(left, 1 - x, x))
    sine, _ = _sine_of_half_turns(where(left, x, 0.5))
    return where(left, where(p.equal(sine, 0), 0.0, sine * value / math.pi), where(p.equal(x, 0), x, 1 / value))


def _digamma_right(x: Any) -> Any:
    """For x > 0: moved to the interval from 1 to 2, where the distance to the zero is a factor, or expanded."""
    small = p.minimum(x, float(_LARGE))
    below = p.less(small, 1)
    y, total = where(below, small + 1, small), where(below, -1 / small, 0.0)
    for _ in range(_LARGE - 2):
        goes_on = p.greater(y, 2)
        y = where(goes_on, y - 1, y)
        total = where(goes_on, total + 1 / y, total)
    high, low = _DIGAMMA_ZERO
    near = ((y - high) - low) * expand_polynomial(y - 1.5, _DIGAMMA_NEAR_ZERO) + total
    large = p.maximum(x, float(_LARGE))
    part = 1 / (large * large)
    weights = [b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1)]
    far = p.log(large) - 0.5 / large - part * expand_polynomial(part, weights)
    return where(p.less(x, _LARGE), near, far)


def expand_digamma(x: Any) -> Any:
    """On the left digamma(1 - x) - pi / tan(pi x)."""
    left = p.less(x, 0)
    value = _digamma_right(where(left, 1 - x, x))
    sine, cosine = _sine_of_half_turns(where(left, x, 0.5))
    pole = p.equal(sine, 0)
    mirrored = value - math.pi * cosine / where(pole, 1.0, sine)
    return where(left, where(pole, math.nan, mirrored), where(p.equal(x, 0), -1 / x, value))


def _as_order(name: str, n: Any, least: int) -> int:
    """An order that is known, as an integer."""
    if not isinstance(n, (int, float)) or n != int(n) or n < least:
        raise UnsupportedFunction(f"{name}: it is made of other ops for an order that is a known integer.")
    return int(n)


def _hurwitz_right(s: int, q: Any) -> Any:
    """sum (q + j)^-s for q > 0 by Euler and Maclaurin: ten terms, then an integral with corrections at its end."""
    total = p.power(q, -float(s))
    for j in range(1, 10):
        total = total + p.power(q + j, -float(s))
    end = q + 10
    part = 1 / end / end
    rising = [math.prod(range(s, s + 2 * k - 1)) / math.factorial(2 * k) for k in range(1, 11)]
    weights = [b * r for b, r in zip(_BERNOULLI, rising, strict=True)]
    rest = 1 / (s - 1) + (0.5 + expand_polynomial(part, weights) / end) / end
    return total + p.power(end, 1.0 - s) * rest


def _cotangent_derivative(n: int) -> list[float]:
    """The n-th derivative of cot(t) as a polynomial in cot(t), the lowest power first: c' = -(1 + c^2)."""
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [k * number for k, number in enumerate(found)][1:]
        found = [0.0] * (len(slope) + 2)
        for k, number in enumerate(slope):
            found[k] -= number
            found[k + 2] -= number
    return found


def expand_polygamma(n: Any, x: Any) -> Any:
    """(-1)^(n+1) n! zeta(n + 1, x); on the left by
    polygamma(n, x) = (-1)^n polygamma(n, 1 - x) - pi^(n+1) cot^(n)(pi x).
    """
    n = _as_order("polygamma", n, 0)
    if not n:
        return expand_digamma(x)
    left = p.less_equal(x, 0)
    sign = (-1.0) ** (n + 1) * math.factorial(n)
    value = sign * _hurwitz_right(n + 1, where(left, 1 - x, x))
    sine, cosine = _sine_of_half_turns(where(left, x, 0.5))
    pole = p.logical_and(left, p.equal(x, rint(x)))
    slope = expand_polynomial(cosine / where(pole, 1.0, sine), _cotangent_derivative(n))
    mirrored = (-1.0) ** n * value - math.pi ** (n + 1) * slope
    return where(left, where(pole, math.copysign(math.inf, sign), mirrored), value)


def expand_zeta(s: Any, q: Any) -> Any:
    s = _as_order("zeta", s, 2)
    return expand_polygamma(s - 1, q) * ((-1.0) ** s / math.factorial(s - 1))


def expand_polygamma_difference(n: Any, a: Any, b: Any) -> Any:
    """The formula of `gamma.polygamma_difference`."""
    n = _as_order("polygamma_difference", n, 0)
    good = p.logical_and(p.greater(a, 0), p.greater(b, 0))
    low, gap = where(good, a, 1.0), where(good, b, 1.0)
    sign = (-1.0) ** (n + 1)
    total = 0.0 * (low + gap)
    for j in range(14):
        total = total + sign * math.factorial(n) * _power_step(n + 1.0, low + j, gap)
    far = low + 14
    lead = p.log1p(gap / far) if not n else sign * math.gamma(n) * _power_step(float(n), far, gap)
    total = total + lead + sign * math.factorial(n) / 2 * _power_step(n + 1.0, far, gap)
    for k, number in enumerate(_BERNOULLI[:9], 1):
        weight = number * math.gamma(2.0 * k + n) / math.factorial(2 * k)
        total = total + sign * weight * _power_step(2.0 * k + n, far, gap)
    plain = expand_polygamma(n, where(good, 1.0, a + b)) - expand_polygamma(n, where(good, 1.0, a))
    return where(good, total, plain)


def _power_step(power: float, low: Any, gap: Any) -> Any:
    """(low + gap)^-power - low^-power."""
    return p.power(low, -power) * p.expm1(-power * p.log1p(gap / low))


def expand_betaln(a: Any, b: Any) -> Any:
    """lgamma(a) + lgamma(b) - lgamma(a + b), where for a large argument Stirling's formula is written out, so that what
    is large in all three cancels before it is rounded.
    """
    low, high = p.minimum(a, b), p.maximum(a, b)
    far = p.greater_equal(high, float(_LARGE))
    good = p.logical_and(far, p.greater(low, 0))
    y, x = where(good, high, float(_LARGE)), where(good, low, 1.0)
    both = p.greater_equal(x, float(_LARGE))
    z = where(both, x, float(_LARGE))
    # log(gamma(y) / gamma(x + y)) + x log(x + y)
    shared = x - (y - 0.5) * p.log1p(x / y) + _stirling(y) - _stirling(x + y)
    one = _lgamma_right(where(both, 1.0, x)) - x * p.log(x + y) + shared
    two = shared - x - x * p.log1p(y / x) - 0.5 * p.log(z) + math.log(2 * math.pi) / 2 + _stirling(z)
    plain = expand_lgamma(where(good, 1.0, a)) + expand_lgamma(where(good, 1.0, b))
    return where(good, where(both, two, one), plain - expand_lgamma(where(good, 1.0, a + b)))


def expand_beta(a: Any, b: Any) -> Any:
    """By gamma functions where these do not overflow."""
    low, high = p.minimum(a, b), p.maximum(a, b)
    limit = 30.0 if spec_of(a).dtype == np.float32 else 160.0
    far = p.logical_and(p.greater(low + high, limit), p.greater(low, 0))
    x, y = where(far, 1.0, low), where(far, 1.0, high)
    direct = expand_gamma(x) * (expand_gamma(y) * expand_rgamma(x + y))
    return where(far, p.exp(expand_betaln(where(far, low, 1.0), where(far, high, 200.0))), direct)


def expand_i0e(x: Any) -> Any:
    return _scaled_bessel(p.abs(x), 0)


def expand_i1e(x: Any) -> Any:
    return copysign(_scaled_bessel(p.abs(x), 1), x)


def expand_i0(x: Any) -> Any:
    return _scaled_bessel(p.abs(x), 0, grows=True)


def expand_i1(x: Any) -> Any:
    return copysign(_scaled_bessel(p.abs(x), 1, grows=True), x)


def _scaled_bessel(x: Any, n: int, grows: bool = False) -> Any:
    """exp(-x) I_n(x) for x >= 0 and n of 0 or 1, or I_n(x): up to 20 by its series in (x / 2)^2, beyond by that in
    1 / x. No terms cancel in either.
    """
    near = p.minimum(x, 20.0)
    part = near * 0.05
    series = [100.0**k / (math.factorial(k) * math.factorial(k + n)) for k in range(54)]
    inside = expand_polynomial(part * part, series) * (near * 0.5 if n else 1.0)
    far = p.maximum(x, 20.0)
    terms = [1.0]
    for k in range(1, 30):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k))
    outside = expand_polynomial(1 / far, terms) / p.sqrt(2 * math.pi * far)
    if not grows:
        return where(p.less(x, 20.0), inside * p.exp(-near), outside)
    root = p.exp(far * 0.5)  # exp(x) may overflow where its product does not
    return where(p.less(x, 20.0), inside, root * outside * root)

"""Special functions of real numbers written out in other ops, for programs that run where SciPy is not.

Each is accurate to the last digits of the dtype it computes in, also near its zeros and far out in its tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ...arrays.spec import is_half, is_inexact, spec_of
from ...errors import UnsupportedFunction
from ..elementwise import pointwise as p
from ..elementwise.arithmetic import copysign
from ..elementwise.pointwise import where
from ..elementwise.rounding import rint
from ..families import result_dtype
from ..functions import astype

Expansion = Callable[..., Any]

#: (1 + 2 x) exp(x^2) erfc(x) in powers of (x - 3.75) / (x + 3.75), for x above 1/2; relatively accurate to 28 at least.
_SCALED_ERFC = (
    1.2375126308378275, -0.14024059858554702, 0.00358541548546365, 0.08227673849015109, -0.10880393014170489,
    0.09230432116019614, -0.05869339859061233, 0.028362277421546407, -0.009746579546781904, 0.001755625832213021,
    0.00029371358846115353, -0.00029015397876375513, 5.16494377121285e-05, 2.238391390691056e-05,
    -1.1445138688166957e-05, -9.728691309437028e-07, 1.7536068442721994e-06, -5.819059959627966e-08,
    -2.6129528933270215e-07, 2.4139480086621983e-08, 4.094181769935537e-08, -4.203711044878304e-09,
    -6.321751972236978e-09, 4.1838789131196335e-10, 6.852181666311582e-10,
)  # fmt: skip
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
#: log(2), the first part of so few bits that adding it to a number near its negative is exact.
_LOG_2 = (0.693359375, -0.00021219444005469057)
#: Up to here erf is inverted near zero, beyond by the logarithm of erfc.
_NEAR = 0.53
#: From here on the expansions of the gamma functions for large arguments have all digits.
_LARGE = 8


def in_working_precision(name: str, expand: Expansion) -> Expansion:
    """An expansion that computes halves in single precision and integers in the dtype of the result; a number that is
    known stays one.
    """

    @wraps(expand)
    def expand_real(*args: Any) -> Any:
        dtype = result_dtype([spec_of(x) for x in args])
        if dtype.kind == "c":
            raise UnsupportedFunction(f"{name}: what it is made of is known for real arguments alone.")
        dtype = dtype if is_inexact(dtype) else np.sin.resolve_dtypes((dtype, None))[-1]
        working = np.dtype(np.float32) if is_half(dtype) else dtype
        found = expand(*(x if isinstance(x, (int, float)) else astype(x, working) for x in args))
        return astype(found, dtype)

    return expand_real


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """By Horner's rule, the lowest power first."""
    found = coefficients[-1] + 0 * x
    for number in coefficients[-2::-1]:
        found = found * x + number
    return found


def _gaussian(x: Any) -> Any:
    """exp(-x^2), with x split at a sixteenth so that the square of the first part is exact: rounding all of x^2 would
    cost as many digits as it has before the point.
    """
    x = p.minimum(p.abs(x), 64.0)
    whole = rint(x * 16) / 16
    return p.exp(-(whole * whole)) * p.exp((whole - x) * (whole + x))


def _scaled_erfc(x: Any) -> Any:
    """exp(x^2) erfc(x) for x above 1/2; beyond 28 by the first terms of sum (-1)^k (2k-1)!! / (2 x^2)^k."""
    far = p.greater(x, 28.0)
    near = where(far, 28.0, x)
    inside = _polynomial((near - 3.75) / (near + 3.75), _SCALED_ERFC) / (1 + 2 * near)
    x = where(far, x, 28.0)
    part = 0.5 / x / x
    series = _polynomial(part, (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0))
    return where(far, series / math.sqrt(math.pi) / x, inside)


def expand_erfc(x: Any) -> Any:
    size = p.abs(x)
    far = _gaussian(size) * _scaled_erfc(p.maximum(size, 0.5))
    return where(p.greater(size, 0.5), where(p.less(x, 0), 2 - far, far), 1 - p.erf(x))


def expand_erfcx(x: Any) -> Any:
    """Left of zero 2 exp(x^2) less the value at -x; near it 1 - erf(x) has all digits."""
    size = p.abs(x)
    right = _scaled_erfc(p.maximum(size, 0.5))
    growth = p.exp(x * x)
    far = where(p.less(x, 0), 2 * growth - right, right)
    return where(p.greater(size, 0.5), far, growth * (1 - p.erf(x)))


def expand_ndtr(x: Any) -> Any:
    """Half of erfc(-x / sqrt(2)), where the exponential is that of x itself: -x^2 / 2 keeps the digits of x."""
    far = _upper_tail(p.abs(x))
    return where(p.less(p.abs(x), 0.75), 0.5 + 0.5 * p.erf(x * math.sqrt(0.5)), where(p.less(x, 0), far, 1 - far))


def _upper_tail(x: Any) -> Any:
    """The chance that a normal number is above x, for x above 0.71."""
    return _half_gaussian(x) * _scaled_erfc(p.maximum(x * math.sqrt(0.5), 0.5)) * 0.5


def _half_gaussian(x: Any) -> Any:
    """exp(-x^2 / 2), as `_gaussian`."""
    x = p.minimum(p.abs(x), 64.0)
    whole = rint(x * 16) / 16
    return p.exp(whole * whole * -0.5) * p.exp((whole - x) * (whole + x) * 0.5)


def expand_log_ndtr(x: Any) -> Any:
    left = p.minimum(x, -0.75)
    tail = p.log(_scaled_erfc(left * -math.sqrt(0.5)) * 0.5) - left * left * 0.5
    right = p.maximum(x, -0.75)
    near = p.log(0.5 + 0.5 * p.erf(p.minimum(right, 0.75) * math.sqrt(0.5)))
    far = p.log1p(-_upper_tail(p.maximum(right, 0.75)))
    return where(p.less(x, -0.75), tail, where(p.less(x, 0.75), near, far))


def expand_normal_hazard(x: Any) -> Any:
    """density(x) / ndtr(x)."""
    left = math.sqrt(2 / math.pi) / expand_erfcx(p.minimum(x, 0.0) * -math.sqrt(0.5))
    right = _half_gaussian(x) / math.sqrt(2 * math.pi) / expand_ndtr(p.maximum(x, 0.0))
    return where(p.less(x, 0), left, right)


def _guess_inverse(log_width: Any) -> Any:
    """The x > 0 of which erfc(x) (2 - erfc(x)) has this logarithm, to three digits (Winitzki)."""
    a = 0.147
    half = 2 / (math.pi * a) + log_width * 0.5
    # the root of x^4 + 2 half x^2 + log_width / a = 0, in which nothing cancels for small widths
    root = p.sqrt(half * half - log_width / a)
    large = p.sqrt(p.maximum(root - half, 0.0))
    small = p.sqrt(p.maximum(-log_width / a / (root + p.maximum(half, 0.0)), 0.0))
    return where(p.greater(half, 0), small, large)


def _invert_erf_near(y: Any) -> Any:
    """The x with erf(x) = y, for y up to `_NEAR`, by two steps of Halley's rule."""
    x = copysign(_guess_inverse(p.log1p(-(y * y))), y)
    for _ in range(2):
        step = (p.erf(x) - y) * (math.sqrt(math.pi) / 2) * p.exp(x * x)
        x = x - step / (1 + x * step)
    return x


def _invert_log_erfc(level: Any, guess: Any) -> Any:
    """The x > 1/2 with log(erfc(x)) = level, by Newton's rule: log(erfc) is nearly a parabola, so few steps do."""
    x = guess
    for _ in range(3):
        at = p.maximum(x, 0.5)
        scaled = _scaled_erfc(at)
        # of two squares that nearly cancel the difference is taken first
        miss = p.log(scaled) - (at * at + level)
        x = at + miss * scaled * (math.sqrt(math.pi) / 2)
    return x


def _invert_erfc_far(q: Any) -> Any:
    """The x > 0 with erfc(x) = q, for q up to 1 - `_NEAR`."""
    q_safe = where(p.greater(q, 0), q, 0.25)
    level = p.log(q_safe)
    found = _invert_log_erfc(level, _guess_inverse(level + p.log(2 - q_safe)))
    return where(p.greater(q, 0), found, where(p.equal(q, 0), math.inf, math.nan))


def expand_erfinv(y: Any) -> Any:
    size = p.abs(y)
    near = p.less_equal(size, _NEAR)
    far = copysign(_invert_erfc_far(where(near, 0.25, 1 - size)), y)
    return where(near, _invert_erf_near(where(near, y, 0.0)), far)


def expand_erfcinv(q: Any) -> Any:
    near = p.less_equal(p.abs(q - 1), _NEAR)
    low = p.less(q, 1)
    far = _invert_erfc_far(where(near, 0.25, where(low, q, 2 - q)))
    return where(near, _invert_erf_near(where(near, 1 - q, 0.0)), where(low, far, -far))


def expand_ndtri(q: Any) -> Any:
    near = p.less_equal(p.abs(q - 0.5), _NEAR / 2)
    low = p.less(q, 0.5)
    far = _invert_erfc_far(where(near, 0.25, 2 * where(low, q, 1 - q)))
    inside = _invert_erf_near(where(near, 2 * (q - 0.5), 0.0))
    return where(near, inside, where(low, -far, far)) * math.sqrt(2)


def expand_ndtri_exp(y: Any) -> Any:
    """Far out on the left from the logarithm itself, elsewhere by `ndtri` of what is nearer to zero: exp(y) or
    1 - exp(y).
    """
    left = p.less(y, math.log((1 - _NEAR) / 2))
    low = p.logical_and(left, p.greater(y, -math.inf))
    level = where(low, y, -2.0) + _LOG_2[0] + _LOG_2[1]
    huge = p.less(level, -1e6)
    seen = where(huge, -1.0, level)
    guess = where(huge, p.sqrt(-where(huge, level, -1.0)), _guess_inverse(seen + p.log(2 - p.exp(seen))))
    tail = where(p.equal(y, -math.inf), math.inf, _invert_log_erfc(level, guess)) * -math.sqrt(2)
    right = where(left, -1.0, y)
    up = p.greater(right, math.log((1 + _NEAR) / 2))
    inside = _invert_erf_near(where(up, 0.0, p.expm1(right + _LOG_2[0] + _LOG_2[1]))) * math.sqrt(2)
    above = _invert_erfc_far(where(up, -2 * p.expm1(right), 0.25)) * math.sqrt(2)
    return where(left, tail, where(up, above, inside))


def _sine_of_half_turns(x: Any) -> tuple[Any, Any]:
    """sin(pi x) and cos(pi x) from the distance to the nearest integer, which is exact."""
    nearest = rint(x)
    rest = x - nearest
    sign = 1 - 2 * p.abs(nearest - 2 * rint(nearest * 0.5))
    return sign * p.sin(math.pi * rest), sign * p.cos(math.pi * rest)


def _stirling(x: Any) -> Any:
    """log(gamma(x)) - (x - 1/2) log(x) + x - log(2 pi) / 2 for large x."""
    weights = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1)]
    return _polynomial(1 / (x * x), weights) / x


def _lgamma_near_two(x: Any) -> Any:
    t = x - 2
    return t * _polynomial(t, _LGAMMA_NEAR_TWO)


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
    near = ((y - high) - low) * _polynomial(y - 1.5, _DIGAMMA_NEAR_ZERO) + total
    large = p.maximum(x, float(_LARGE))
    part = 1 / (large * large)
    weights = [b / (2 * k) for k, b in enumerate(_BERNOULLI[:9], 1)]
    far = p.log(large) - 0.5 / large - part * _polynomial(part, weights)
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
    rest = 1 / (s - 1) + (0.5 + _polynomial(part, weights) / end) / end
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
    slope = _polynomial(cosine / where(pole, 1.0, sine), _cotangent_derivative(n))
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
    inside = _polynomial(part * part, series) * (near * 0.5 if n else 1.0)
    far = p.maximum(x, 20.0)
    terms = [1.0]
    for k in range(1, 30):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k))
    outside = _polynomial(1 / far, terms) / p.sqrt(2 * math.pi * far)
    if not grows:
        return where(p.less(x, 20.0), inside * p.exp(-near), outside)
    root = p.exp(far * 0.5)  # exp(x) may overflow where its product does not
    return where(p.less(x, 20.0), inside, root * outside * root)

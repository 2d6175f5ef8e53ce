"""The error function's relatives and the normal distribution, of real numbers, written out in other ops.

Each is accurate to the last digits of the dtype it computes in, also near its zeros and far out in its tails.
"""

from __future__ import annotations

import math
from typing import Any

from ..elementwise import pointwise as p
from ..elementwise.arithmetic import copysign
from ..elementwise.pointwise import where
from ..elementwise.rounding import rint
from .expansions import expand_polynomial

#: (1 + 2 x) exp(x^2) erfc(x) in powers of (x - 3.75) / (x + 3.75), for x above 1/2; relatively accurate to 28 at least.
_SCALED_ERFC = (
    1.2375126308378275, -0.14024059858554702, 0.00358541548546365, 0.08227673849015109, -0.10880393014170489,
    0.09230432116019614, -0.05869339859061233, 0.028362277421546407, -0.009746579546781904, 0.001755625832213021,
    0.00029371358846115353, -0.00029015397876375513, 5.16494377121285e-05, 2.238391390691056e-05,
    -1.1445138688166957e-05, -9.728691309437028e-07, 1.7536068442721994e-06, -5.819059959627966e-08,
    -2.6129528933270215e-07, 2.4139480086621983e-08, 4.094181769935537e-08, -4.203711044878304e-09,
    -6.321751972236978e-09, 4.1838789131196335e-10, 6.852181666311582e-10,
)  # fmt: skip
#: log(2), the first part of so few bits that adding it to a number near its negative is exact.
_LOG_2 = (0.693359375, -0.00021219444005469057)
#: Up to here erf is inverted near zero, beyond by the logarithm of erfc.
_NEAR = 0.53


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
    inside = expand_polynomial((near - 3.75) / (near + 3.75), _SCALED_ERFC) / (1 + 2 * near)
    x = where(far, x, 28.0)
    part = 0.5 / x / x
    series = expand_polynomial(part, (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0))
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

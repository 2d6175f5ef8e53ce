"""sin, cos, tan and their inverses as vector arithmetic. Arguments beyond `MAX_REDUCIBLE` go to the C library."""

from __future__ import annotations

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue
from . import double_double as dd
from .coefficients import ASIN, ATAN, COS, SIN
from .double_double import Pair

#: pi / 2 in three parts.
_HALF_PI = {
    8: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    4: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
}
#: Beyond this the three parts are not enough.
MAX_REDUCIBLE = {8: 2.0**40, 4: 2.0**13}
#: pi / 4 as a short number, so that small multiples are exact, and the rest.
_QUARTER_PI = (0.7853981633974456, 2.6951514290790595e-15)
#: tan(pi / 8), from where on the angle is counted from pi / 4.
_EIGHTH = 0.41421356237309503


def _reduce_to_quadrant(k: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue | None]:
    """x = n pi/2 + r with |r| <= pi/4: n as an integer, r and its low part."""
    size = x.dtype.itemsize
    magic = k.constant(dd.MAGIC[size])
    shifted = k.fma(x, k.constant(2 / np.pi), magic)
    n = k.negative(k.subtract(shifted, magic))
    first, second, third = _HALF_PI[size]
    start = k.fma(n, k.constant(first), x)
    middle = k.fma(n, k.constant(second), start)
    r = k.fma(n, k.constant(third), middle)
    low = None
    if not k.is_widened and size == 8:
        lost = k.fma(n, k.constant(second), k.subtract(start, middle))
        low = k.fma(n, k.constant(third), k.add(lost, k.subtract(middle, r)))
    return dd.to_bits(k, shifted), r, low


def _cosine_parts(k: IRBuilder, z: IRValue) -> Pair:
    """1 - z/2 + z^2 C(z), in two parts."""
    half = k.multiply(z, k.constant(0.5))
    most = k.subtract(k.constant(1), half)
    lost = k.subtract(k.subtract(k.constant(1), most), half)
    return most, k.fma(k.multiply(z, z), dd.polynomial(k, z, COS[dd.precision(k)]), lost)


def _quadrant(k: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue]:
    """n, sin r and cos r for x = n pi/2 + r."""
    n, r, _ = _reduce_to_quadrant(k, x)
    z = k.multiply(r, r)
    sine = k.fma(k.multiply(r, z), dd.polynomial(k, z, SIN[dd.precision(k)]), r)
    return n, sine, dd.collapse_pair(k, _cosine_parts(k, z))


def _is_odd(k: IRBuilder, n: IRValue) -> IRValue:
    return dd.compare_integers(k, "ne", dd.integer_op(k, "and", n, 1), 0)


def _select_by_quadrant(k: IRBuilder, n: IRValue, even: IRValue, odd: IRValue) -> IRValue:
    """`even` or `odd` by the lowest bit of n, with the sign of the next."""
    value = k.select(_is_odd(k, n), odd, even)
    sign = dd.integer_op(k, "shl", dd.integer_op(k, "lshr", n, 1), 8 * n.dtype.itemsize - 1)
    return dd.from_bits(k, dd.integer_op(k, "xor", dd.to_bits(k, value), sign), even.dtype)


def sin(k: IRBuilder, x: IRValue) -> IRValue:
    n, sine, cosine = _quadrant(k, x)
    return k.select(k.equal(x, k.constant(0)), x, _select_by_quadrant(k, n, sine, cosine))


def cos(k: IRBuilder, x: IRValue) -> IRValue:
    n, sine, cosine = _quadrant(k, x)
    return _select_by_quadrant(k, dd.integer_op(k, "add", n, 1), sine, cosine)


def tan(k: IRBuilder, x: IRValue) -> IRValue:
    # sin r / cos r, or -cos r / sin r in odd quadrants, each in two parts
    n, r, low = _reduce_to_quadrant(k, x)
    z = k.multiply(r, r)
    c = _cosine_parts(k, z)
    cosine = dd.fast_two_sum(k, c[0], c[1])
    rest = k.multiply(k.multiply(r, z), dd.polynomial(k, z, SIN[dd.precision(k)]))
    # sin(r + low) = sin r + low cos r, and cos(r + low) = cos r - low sin r
    sine = dd.fast_two_sum(k, r, rest if low is None else k.fma(low, cosine[0], rest))
    if low is not None and cosine[1] is not None:
        cosine = cosine[0], k.fma(k.negative(low), sine[0], cosine[1])
    odd = _is_odd(k, n)
    above = _select_pair(k, odd, cosine, sine)
    below = _select_pair(k, odd, sine, cosine)
    found = dd.collapse_pair(k, dd.divide_pairs(k, above, below))
    found = k.select(odd, k.negative(found), found)
    return k.select(k.equal(x, k.constant(0)), x, found)


def _select_pair(k: IRBuilder, condition: IRValue, x: Pair, y: Pair) -> Pair:
    low = None if x[1] is None or y[1] is None else k.select(condition, x[1], y[1])
    return k.select(condition, x[0], y[0]), low


def atan(k: IRBuilder, x: IRValue) -> IRValue:
    size = k.abs(x)
    finite = dd.clamp(k, size, 0.0, 1e300)  # NaN stays
    found = _angle(k, finite, k.constant(1), k.number(False, np.dtype(bool)))
    near = k.less(size, k.constant(2.0**-13 if k.is_widened else 2.0**-28))
    return dd.copy_sign(k, k.select(near, size, found), x)


def atan2(k: IRBuilder, y: IRValue, x: IRValue) -> IRValue:
    left = dd.compare_integers(k, "slt", dd.to_bits(k, x), 0)
    up, across, infinite = k.abs(y), k.abs(x), k.constant(np.inf)
    # two infinities are as two ones; one infinity as a one beside a zero; two zeros as a zero beside a one
    both = k.logical_and(k.equal(up, infinite), k.equal(across, infinite))
    endless = k.logical_or(k.equal(up, infinite), k.equal(across, infinite))
    one, zero = k.constant(1), k.constant(0)
    nowhere = k.logical_and(k.equal(up, zero), k.equal(across, zero))
    tall = k.select(both, one, k.select(k.equal(up, infinite), one, k.select(endless, zero, up)))
    wide = k.select(both, one, k.select(k.equal(across, infinite), one, k.select(endless, zero, across)))
    wide = k.select(nowhere, one, wide)
    found = dd.copy_sign(k, _angle(k, tall, wide, left), y)
    return k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), found)


def _angle(k: IRBuilder, up: IRValue, across: IRValue, left: IRValue) -> IRValue:
    """The angle of (across, up), neither negative and both finite, mirrored where `left`."""
    steep = k.greater(up, across)
    small, large = k.select(steep, across, up), k.select(steep, up, across)
    if not k.is_widened:
        factor = k.select(k.less(small, k.constant(2.0**-900)), k.constant(2.0**100), k.constant(1))
        factor = k.select(k.less(large, k.constant(1)), factor, k.constant(1))
        factor = k.select(k.greater(large, k.constant(2.0**1000)), k.constant(2.0**-30), factor)
        small, large = k.multiply(small, factor), k.multiply(large, factor)
    # atan(s / l) = pi/4 + atan((s - l) / (s + l))
    far = k.greater(small, k.multiply(large, k.constant(_EIGHTH)))
    above = _select_pair(k, far, dd.two_sum(k, small, k.negative(large)), _exact_pair(k, small))
    below = _select_pair(k, far, dd.two_sum(k, small, large), _exact_pair(k, large))
    t = dd.divide_pairs(k, above, below)
    z = k.multiply(t[0], t[0])
    rest = k.multiply(k.multiply(t[0], z), dd.polynomial(k, z, ATAN[dd.precision(k)]))
    low = dd.add_present(k, rest, t[1])
    assert low is not None
    # count * pi/4 + sign * (t + low): steep angles from pi/2 down, those on the left from pi down
    count, sign = k.select(far, k.constant(1), k.constant(0)), k.constant(1)
    count, sign = (k.select(steep, k.subtract(k.constant(2), count), count), k.select(steep, k.negative(sign), sign))
    count, sign = (k.select(left, k.subtract(k.constant(4), count), count), k.select(left, k.negative(sign), sign))
    base = k.multiply(count, k.constant(_QUARTER_PI[0]))
    total = dd.two_sum(k, base, k.multiply(sign, t[0]))
    last = k.fma(count, k.constant(_QUARTER_PI[1]), k.multiply(sign, low))
    return dd.collapse_pair(k, (total[0], dd.add_present(k, last, total[1])))


def _exact_pair(k: IRBuilder, x: IRValue) -> Pair:
    return x, None if k.is_widened else k.constant(0)


def _asin_rest(k: IRBuilder, x: IRValue, z: IRValue) -> IRValue:
    """asin x - x = x z P(z), for z = x^2 up to 1/4."""
    return k.multiply(k.multiply(x, z), dd.polynomial(k, z, ASIN[dd.precision(k)]))


def _half_angle(k: IRBuilder, size: IRValue) -> tuple[IRValue, IRValue]:
    """s and asin s - s for s = sqrt((1 - |x|) / 2), and its low part with it."""
    z = k.multiply(k.subtract(k.constant(1), size), k.constant(0.5))
    s = dd.sqrt_pair(k, (z, None))
    rest = _asin_rest(k, s[0], z)
    return s[0], rest if s[1] is None else k.add(rest, s[1])


def asin(k: IRBuilder, x: IRValue) -> IRValue:
    # beyond 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2))
    size = k.abs(x)
    near = k.fma(k.constant(1), _asin_rest(k, size, k.multiply(size, size)), size)
    s, rest = _half_angle(k, size)
    far = _from_quarter_turns(k, 2, k.constant(-2), s, rest)
    return dd.copy_sign(k, k.select(k.greater(size, k.constant(0.5)), far, near), x)


def acos(k: IRBuilder, x: IRValue) -> IRValue:
    # pi/2 - asin x; beyond 1/2: 2 asin(sqrt((1 - |x|) / 2)), from pi down where x is negative
    size = k.abs(x)
    near = _from_quarter_turns(k, 2, k.constant(-1), x, _asin_rest(k, x, k.multiply(x, x)))
    s, rest = _half_angle(k, size)
    right = k.multiply(k.constant(2), k.add(s, rest))
    left = _from_quarter_turns(k, 4, k.constant(-2), s, rest)
    far = k.select(k.less(x, k.constant(0)), left, right)
    return k.select(k.greater(size, k.constant(0.5)), far, near)


def _from_quarter_turns(k: IRBuilder, quarters: int, factor: IRValue, x: IRValue, rest: IRValue) -> IRValue:
    """quarters * pi/4 + factor * (x + rest)."""
    base = k.constant(quarters * _QUARTER_PI[0])
    total = dd.two_sum(k, base, k.multiply(factor, x))
    last = k.fma(factor, rest, k.constant(quarters * _QUARTER_PI[1]))
    return dd.collapse_pair(k, (total[0], dd.add_present(k, last, total[1])))

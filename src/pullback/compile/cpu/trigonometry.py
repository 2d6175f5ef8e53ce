"""sin, cos, tan and their inverses as vector arithmetic. Arguments beyond `FAR` are the C library's."""

from __future__ import annotations

import numpy as np

from .coefficients import ASIN, ATAN, COS, SIN
from .lanes import Lane
from .pairs import (
    MAGIC,
    Pair,
    bits,
    compared,
    divided,
    fast_sum,
    from_bits,
    held,
    on_integers,
    plus,
    polynomial,
    precision,
    root,
    two_sum,
    value_of,
    with_sign,
)  # fmt: skip
from .words import Words

__all__ = ["FAR", "acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

#: pi / 2 in three parts.
_HALF_PI = {
    8: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    4: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
}
#: Beyond this the three parts are not enough.
FAR = {8: 2.0**40, 4: 2.0**13}
#: pi / 4 as a short number, so that a few of them are exact, and the rest.
_QUARTER_PI = (0.7853981633974456, 2.6951514290790595e-15)
#: tan(pi / 8), from where on the angle is counted from pi / 4.
_EIGHTH = 0.41421356237309503


def _turned(k: Words, x: Lane) -> tuple[Lane, Lane, Lane | None]:
    """x = n pi/2 + r with |r| <= pi/4: n as an integer, r and its low part."""
    size = x.dtype.itemsize
    magic = k.constant(MAGIC[size])
    shifted = k.fma(x, k.constant(2 / np.pi), magic)
    n = k.negative(k.subtract(shifted, magic))
    first, second, third = _HALF_PI[size]
    start = k.fma(n, k.constant(first), x)
    middle = k.fma(n, k.constant(second), start)
    r = k.fma(n, k.constant(third), middle)
    low = None
    if not k.narrow and size == 8:
        lost = k.fma(n, k.constant(second), k.subtract(start, middle))
        low = k.fma(n, k.constant(third), k.add(lost, k.subtract(middle, r)))
    return bits(k, shifted), r, low


def _cosine_parts(k: Words, z: Lane) -> Pair:
    """1 - z/2 + z^2 C(z), in two parts."""
    half = k.multiply(z, k.constant(0.5))
    most = k.subtract(k.constant(1), half)
    lost = k.subtract(k.subtract(k.constant(1), most), half)
    return most, k.fma(k.multiply(z, z), polynomial(k, z, COS[precision(k)]), lost)


def _quadrant(k: Words, x: Lane) -> tuple[Lane, Lane, Lane]:
    """n, sin r and cos r for x = n pi/2 + r."""
    n, r, _ = _turned(k, x)
    z = k.multiply(r, r)
    sine = k.fma(k.multiply(r, z), polynomial(k, z, SIN[precision(k)]), r)
    return n, sine, value_of(k, _cosine_parts(k, z))


def _is_odd(k: Words, n: Lane) -> Lane:
    return compared(k, "ne", on_integers(k, "and", n, 1), 0)


def _chosen(k: Words, n: Lane, even: Lane, odd: Lane) -> Lane:
    """`even` or `odd` by the lowest bit of n, with the sign of the next."""
    value = k.select(_is_odd(k, n), odd, even)
    sign = on_integers(k, "shl", on_integers(k, "lshr", n, 1), 8 * n.dtype.itemsize - 1)
    return from_bits(k, on_integers(k, "xor", bits(k, value), sign), even.dtype)


def sin(k: Words, x: Lane) -> Lane:
    n, sine, cosine = _quadrant(k, x)
    return k.select(k.equal(x, k.constant(0)), x, _chosen(k, n, sine, cosine))


def cos(k: Words, x: Lane) -> Lane:
    n, sine, cosine = _quadrant(k, x)
    return _chosen(k, on_integers(k, "add", n, 1), sine, cosine)


def tan(k: Words, x: Lane) -> Lane:
    # sin r / cos r, or -cos r / sin r in odd quadrants, each in two parts
    n, r, low = _turned(k, x)
    z = k.multiply(r, r)
    c = _cosine_parts(k, z)
    cosine = fast_sum(k, c[0], c[1])
    rest = k.multiply(k.multiply(r, z), polynomial(k, z, SIN[precision(k)]))
    # sin(r + low) = sin r + low cos r, and cos(r + low) = cos r - low sin r
    sine = fast_sum(k, r, rest if low is None else k.fma(low, cosine[0], rest))
    if low is not None and cosine[1] is not None:
        cosine = cosine[0], k.fma(k.negative(low), sine[0], cosine[1])
    odd = _is_odd(k, n)
    above = _either(k, odd, cosine, sine)
    below = _either(k, odd, sine, cosine)
    found = value_of(k, divided(k, above, below))
    found = k.select(odd, k.negative(found), found)
    return k.select(k.equal(x, k.constant(0)), x, found)


def _either(k: Words, condition: Lane, x: Pair, y: Pair) -> Pair:
    low = None if x[1] is None or y[1] is None else k.select(condition, x[1], y[1])
    return k.select(condition, x[0], y[0]), low


def atan(k: Words, x: Lane) -> Lane:
    size = k.abs(x)
    finite = held(k, size, 0.0, 1e300)  # NaN stays
    found = _angle(k, finite, k.constant(1), k.number(False, np.dtype(bool)))
    near = k.less(size, k.constant(2.0**-13 if k.narrow else 2.0**-28))
    return with_sign(k, k.select(near, size, found), x)


def atan2(k: Words, y: Lane, x: Lane) -> Lane:
    left = compared(k, "slt", bits(k, x), 0)
    up, across, infinite = k.abs(y), k.abs(x), k.constant(np.inf)
    # two infinities are as two ones; one infinity as a one beside a zero; two zeros as a zero beside a one
    both = k.logical_and(k.equal(up, infinite), k.equal(across, infinite))
    endless = k.logical_or(k.equal(up, infinite), k.equal(across, infinite))
    one, zero = k.constant(1), k.constant(0)
    nowhere = k.logical_and(k.equal(up, zero), k.equal(across, zero))
    tall = k.select(both, one, k.select(k.equal(up, infinite), one, k.select(endless, zero, up)))
    wide = k.select(both, one, k.select(k.equal(across, infinite), one, k.select(endless, zero, across)))
    wide = k.select(nowhere, one, wide)
    found = with_sign(k, _angle(k, tall, wide, left), y)
    return k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), found)


def _angle(k: Words, up: Lane, across: Lane, left: Lane) -> Lane:
    """The angle of (across, up), neither negative and both finite, mirrored where `left`."""
    steep = k.greater(up, across)
    small, large = k.select(steep, across, up), k.select(steep, up, across)
    if not k.narrow:
        factor = k.select(k.less(small, k.constant(2.0**-900)), k.constant(2.0**100), k.constant(1))
        factor = k.select(k.less(large, k.constant(1)), factor, k.constant(1))
        factor = k.select(k.greater(large, k.constant(2.0**1000)), k.constant(2.0**-30), factor)
        small, large = k.multiply(small, factor), k.multiply(large, factor)
    # atan(s / l) = pi/4 + atan((s - l) / (s + l))
    far = k.greater(small, k.multiply(large, k.constant(_EIGHTH)))
    above = _either(k, far, two_sum(k, small, k.negative(large)), _whole(k, small))
    below = _either(k, far, two_sum(k, small, large), _whole(k, large))
    t = divided(k, above, below)
    z = k.multiply(t[0], t[0])
    rest = k.multiply(k.multiply(t[0], z), polynomial(k, z, ATAN[precision(k)]))
    low = plus(k, rest, t[1])
    assert low is not None
    # count * pi/4 + sign * (t + low): steep angles from pi/2 down, those on the left from pi down
    count, sign = k.select(far, k.constant(1), k.constant(0)), k.constant(1)
    count, sign = (k.select(steep, k.subtract(k.constant(2), count), count), k.select(steep, k.negative(sign), sign))
    count, sign = (k.select(left, k.subtract(k.constant(4), count), count), k.select(left, k.negative(sign), sign))
    base = k.multiply(count, k.constant(_QUARTER_PI[0]))
    total = two_sum(k, base, k.multiply(sign, t[0]))
    last = k.fma(count, k.constant(_QUARTER_PI[1]), k.multiply(sign, low))
    found = plus(k, total[0], plus(k, last, total[1]))
    assert found is not None
    return found


def _whole(k: Words, x: Lane) -> Pair:
    return x, None if k.narrow else k.constant(0)


def _asin_rest(k: Words, x: Lane, z: Lane) -> Lane:
    """asin x - x = x z P(z), for z = x^2 up to 1/4."""
    return k.multiply(k.multiply(x, z), polynomial(k, z, ASIN[precision(k)]))


def _half_angle(k: Words, size: Lane) -> tuple[Lane, Lane, Lane]:
    """s and asin s - s for s = sqrt((1 - |x|) / 2), and its low part with it."""
    z = k.multiply(k.subtract(k.constant(1), size), k.constant(0.5))
    s = root(k, (z, None))
    rest = _asin_rest(k, s[0], z)
    return z, s[0], rest if s[1] is None else k.add(rest, s[1])


def asin(k: Words, x: Lane) -> Lane:
    # beyond 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2))
    size = k.abs(x)
    near = k.fma(k.constant(1), _asin_rest(k, size, k.multiply(size, size)), size)
    _, s, rest = _half_angle(k, size)
    far = _from(k, 2, k.constant(-2), s, rest)
    return with_sign(k, k.select(k.greater(size, k.constant(0.5)), far, near), x)


def acos(k: Words, x: Lane) -> Lane:
    # pi/2 - asin x; beyond 1/2: 2 asin(sqrt((1 - |x|) / 2)), from pi down where x is negative
    size = k.abs(x)
    near = _from(k, 2, k.constant(-1), x, _asin_rest(k, x, k.multiply(x, x)))
    _, s, rest = _half_angle(k, size)
    right = k.multiply(k.constant(2), k.add(s, rest))
    left = _from(k, 4, k.constant(-2), s, rest)
    far = k.select(k.less(x, k.constant(0)), left, right)
    return k.select(k.greater(size, k.constant(0.5)), far, near)


def _from(k: Words, quarters: int, factor: Lane, x: Lane, rest: Lane) -> Lane:
    """quarters * pi/4 + factor * (x + rest)."""
    base = k.constant(quarters * _QUARTER_PI[0])
    total = two_sum(k, base, k.multiply(factor, x))
    last = k.fma(factor, rest, k.constant(quarters * _QUARTER_PI[1]))
    found = plus(k, total[0], plus(k, last, total[1]))
    assert found is not None
    return found

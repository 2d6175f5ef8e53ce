"""erf, erfc, cbrt, hypot and fmod as vector arithmetic."""

from __future__ import annotations

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue
from . import double_double as dd
from .coefficients import CBRT, ERF, ERF_FAR, ERF_NEAR, ERFC
from .exponentials import exp_parts

#: Where the variable of the polynomial for erfc is zero.
_MIDDLE = 3.75
#: From here on erf rounds to 1 in float32.
_LARGEST_ERF = 3.95


def _small_erf(k: IRBuilder, x: IRValue) -> IRValue:
    """erf x = x + x P(x^2), up to 1/2."""
    return k.fma(x, dd.polynomial(k, k.multiply(x, x), ERF[dd.precision(k)]), x)


def _erfc_of_size(k: IRBuilder, size: IRValue) -> IRValue:
    """(1 + 2 x) e^(x^2) erfc x is a polynomial in t = (x - c) / (x + c), for x from 1/2 to where erfc vanishes."""
    middle = k.constant(_MIDDLE)
    t = k.divide(k.subtract(size, middle), k.add(size, middle))
    table = ERFC[dd.precision(k)]
    head = dd.fast_two_sum(k, k.constant(table[0]), k.multiply(t, dd.polynomial(k, t, table[1:])))
    quotient = dd.divide_pairs(k, head, dd.two_sum(k, k.constant(1), k.add(size, size)))
    high, low = dd.two_product(k, size, size)
    n, m = exp_parts(k, k.negative(high), None if low is None else k.negative(low))
    return dd.scale_by_power(k, dd.collapse_pair(k, dd.multiply_pairs(k, m, quotient)), n)


def erf(k: IRBuilder, x: IRValue) -> IRValue:
    size = k.abs(x)
    if x.dtype.itemsize == 4:
        near = k.fma(size, dd.polynomial(k, k.multiply(size, size), ERF_NEAR[4]), size)
        # beyond 3.95 it rounds to 1; what is left is at most 0.16, so its error counts little
        inside = k.select(k.greater(size, k.constant(_LARGEST_ERF)), k.constant(_LARGEST_ERF), size)
        # written as the slope of erf is, so that where both are wanted LLVM finds one exponential
        left = k.exp(k.negative(k.multiply(x, x)))
        far = k.fma(k.negative(left), dd.polynomial(k, inside, ERF_FAR[4]), k.constant(1))
        return dd.copy_sign(k, k.select(k.greater(size, k.constant(1)), far, near), x)
    far = k.subtract(k.constant(1), _erfc_of_size(k, dd.clamp(k, size, 0.5, 7.0)))
    return dd.copy_sign(k, k.select(k.greater(size, k.constant(0.5)), far, _small_erf(k, size)), x)


def erfc(k: IRBuilder, x: IRValue) -> IRValue:
    size = k.abs(x)
    far = _erfc_of_size(k, dd.clamp(k, size, 0.5, 28.0))
    far = k.select(k.less(x, k.constant(0)), k.subtract(k.constant(2), far), far)
    return k.select(k.greater(size, k.constant(0.5)), far, k.subtract(k.constant(1), _small_erf(k, x)))


def cbrt(k: IRBuilder, x: IRValue) -> IRValue:
    # |x| = 8^q a with a in [1, 8): a polynomial, one step of Halley's rule, one of Newton's on the exact residual
    size = k.abs(x)
    tiny = k.less(size, k.constant(2.0**-1000))
    normal = k.select(tiny, k.multiply(size, k.constant(2.0**54)), size)
    e = dd.integer_op(k, "sub", dd.integer_op(k, "lshr", dd.to_bits(k, normal), dd.MANTISSA[8]), dd.BIAS[8])
    m = dd.from_bits(
        k, dd.integer_op(k, "sub", dd.to_bits(k, normal), dd.integer_op(k, "shl", e, dd.MANTISSA[8])), x.dtype
    )
    exponent = k.cast(e, x.dtype)
    q = k.floor(k.multiply(k.add(exponent, k.constant(0.5)), k.constant(1 / 3)))
    left = k.subtract(exponent, k.multiply(q, k.constant(3)))
    two, one = k.equal(left, k.constant(2)), k.equal(left, k.constant(1))
    a = k.multiply(m, k.select(two, k.constant(4), k.select(one, k.constant(2), k.constant(1))))
    start = k.select(two, k.constant(4 ** (1 / 3)), k.select(one, k.constant(2 ** (1 / 3)), k.constant(1)))
    t = k.multiply(dd.polynomial(k, m, CBRT[dd.precision(k)]), start)
    cube = k.multiply(k.multiply(t, t), t)
    t = k.multiply(t, k.divide(k.add(cube, k.add(a, a)), k.add(k.add(cube, cube), a)))
    high, low = dd.two_product(k, t, t)
    if low is not None:
        rest = k.fma(k.negative(low), t, k.fma(k.negative(high), t, a))
        t = k.add(t, k.divide(rest, k.multiply(k.constant(3), high)))
    power = k.subtract(q, k.select(tiny, k.constant(18), k.constant(0)))
    found = dd.copy_sign(k, k.multiply(t, dd.power_of_two(k, k.cast(power, e.dtype), x.dtype)), x)
    plain = k.logical_and(k.isfinite(x), k.not_equal(x, k.constant(0)))
    return k.select(plain, found, k.add(x, x))


def hypot(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    across, up = k.abs(x), k.abs(y)
    found = k.sqrt(k.fma(across, across, k.multiply(up, up))) if k.is_widened else _scaled_hypot(k, across, up)
    infinite = k.constant(np.inf)
    either = k.logical_or(k.equal(across, infinite), k.equal(up, infinite))
    return k.select(either, infinite, found)


def _scaled_hypot(k: IRBuilder, across: IRValue, up: IRValue) -> IRValue:
    large = k.maximum(across, up)
    down = k.select(k.greater(large, k.constant(2.0**500)), k.constant(2.0**-600), k.constant(1))
    factor = k.select(k.less(large, k.constant(2.0**-450)), k.constant(2.0**600), down)
    back = k.divide(k.constant(1), factor)
    a, b = k.multiply(across, factor), k.multiply(up, factor)
    found = dd.sqrt_pair(k, dd.add_pairs(k, dd.two_product(k, a, a), dd.two_product(k, b, b)))
    return k.multiply(dd.collapse_pair(k, found), back)


def fmod(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    # x - q y is exact for the integer quotient q, or for the neighbour that rounding led to
    across, by = k.abs(x), k.abs(y)
    q = k.trunc(k.divide(across, by))
    rest = k.fma(k.negative(q), by, across)
    rest = k.select(k.less(rest, k.constant(0)), k.add(rest, by), rest)
    rest = k.select(k.greater_equal(rest, by), k.subtract(rest, by), rest)
    rest = k.select(k.isinf(by), across, rest)
    return dd.copy_sign(k, rest, x)

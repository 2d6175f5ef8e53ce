"""log and functions built on it, as vector arithmetic: x = 2^e m, and log m = 2 artanh((m - 1) / (m + 1))."""

from __future__ import annotations

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue
from . import double_double as dd
from .coefficients import LOG
from .double_double import Pair
from .exponentials import LN2, LN2_WHOLE, exp_parts

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
_LOG10E = (0.4342944819032518, 1.098319650216765e-17)
#: log10 2 as a short number and the rest.
_LOG10_2 = (0.30102999566224753, 1.7336659603752853e-12)


def _split_exponent(k: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue]:
    """x = 2^e m with m between sqrt(1/2) and sqrt(2): e as a number and as an integer, and m."""
    size, dtype = x.dtype.itemsize, x.dtype
    tiny = k.less(x, k.constant(float(np.finfo(dtype).tiny)))
    shift = 54 if size == 8 else 25
    normal = k.select(tiny, k.multiply(x, k.constant(2.0**shift)), x)
    half = int(np.asarray(np.sqrt(0.5), dtype).view(dd.integer_dtype(dtype)))
    offset = dd.integer_op(k, "sub", dd.to_bits(k, normal), half)
    e = dd.integer_op(k, "ashr", offset, dd.MANTISSA[size])
    m = dd.from_bits(
        k, dd.integer_op(k, "sub", dd.to_bits(k, normal), dd.integer_op(k, "shl", e, dd.MANTISSA[size])), dtype
    )
    exponent = k.cast(e, dtype)
    return k.subtract(exponent, k.select(tiny, k.constant(shift), k.constant(0))), e, m


def _select_special_cases(k: IRBuilder, x: IRValue, result: IRValue) -> IRValue:
    """The values of a logarithm at zero, infinity, below zero and for NaN."""
    result = k.select(k.equal(x, k.constant(np.inf)), x, result)
    result = k.select(k.equal(x, k.constant(0)), k.constant(-np.inf), result)
    good = k.greater_equal(x, k.constant(0))  # fails for NaN too
    return k.select(good, result, k.select(k.isnan(x), x, k.constant(np.nan)))


def log(k: IRBuilder, x: IRValue) -> IRValue:
    exponent, _, m = _split_exponent(k, x)
    return _select_special_cases(k, x, _log_near_one(k, k.subtract(m, k.constant(1)), exponent))


def _log_near_one(k: IRBuilder, f: IRValue, exponent: IRValue) -> IRValue:
    """exponent log 2 + log(1 + f). With s = f / (2 + f), log(1 + f) = 2 s + s^3 R(s^2), arranged so that f itself,
    which is exact, is the leading term.
    """
    size = f.dtype.itemsize
    s = k.divide(f, k.add(k.constant(2), f))
    z = k.multiply(s, s)
    tail = k.multiply(z, k.fma(z, dd.polynomial(k, z, LOG[size][:-1]), k.constant(_TWO_THIRDS[0])))
    half = k.multiply(k.multiply(k.constant(0.5), f), f)
    high, low = LN2[size]
    inner = k.fma(s, k.add(half, tail), k.multiply(exponent, k.constant(low)))
    return k.fma(exponent, k.constant(high), k.subtract(f, k.subtract(half, inner)))


def log1p(k: IRBuilder, x: IRValue) -> IRValue:
    # log(1 + x) = log(u) + (x - (u - 1)) / u, where u is 1 + x rounded
    u = k.add(k.constant(1), x)
    lost = k.divide(k.subtract(x, k.subtract(u, k.constant(1))), u)
    result = k.add(k.log(u), lost)
    plain = k.logical_and(k.isfinite(x), k.not_equal(u, k.constant(0)))
    result = k.select(plain, result, k.log(u))
    return k.select(k.equal(x, k.constant(0)), x, result)


def log_parts(k: IRBuilder, x: IRValue, low: IRValue | None = None) -> tuple[IRValue, Pair]:
    """log(x + low) = e log 2 + p for a positive x: e, and p in two parts."""
    exponent, e, m = _split_exponent(k, x)
    f: Pair = (k.subtract(m, k.constant(1)), None)
    if low is not None:
        back = dd.integer_op(k, "sub", k.number(0, e.dtype), e)
        back = k.call(f"llvm.smax.{k.suffix(e.dtype)}", e.dtype, back, k.number(-1000, e.dtype))  # low is zero there
        smaller = dd.power_of_two(k, back, x.dtype)
        f = dd.two_sum(k, f[0], k.multiply(low, smaller))
    below = dd.two_sum(k, k.constant(2), f[0])
    s = dd.divide_pairs(k, f, (below[0], dd.add_present(k, below[1], f[1])))
    z = dd.multiply_pairs(k, s, s)
    # 2 s + (2/3) s^3 + s^5 Q(s^2): the last is so small that one part is enough
    last = k.multiply(k.multiply(s[0], k.multiply(z[0], z[0])), dd.polynomial(k, z[0], LOG[dd.precision(k)]))
    cube = dd.multiply_pairs(k, dd.multiply_pairs(k, s, z), dd.constant_pair(k, *_TWO_THIRDS))
    twice: Pair = (k.add(s[0], s[0]), None if s[1] is None else k.add(s[1], s[1]))
    return exponent, dd.add_pairs(k, twice, dd.fast_two_sum(k, cube[0], dd.add_present(k, cube[1], last)))


def log_of_pair(k: IRBuilder, x: IRValue, low: IRValue | None = None, more: IRValue | None = None) -> Pair:
    """log((x + low) 2^more) for a positive x, in two parts."""
    exponent, p = log_parts(k, x, low)
    if more is not None:
        exponent = k.add(exponent, more)
    high, rest = LN2[8]
    if k.is_widened:
        return k.fma(exponent, k.constant(LN2_WHOLE[0]), p[0]), None
    return dd.add_pairs(k, (k.multiply(exponent, k.constant(high)), k.multiply(exponent, k.constant(rest))), p)


def log2(k: IRBuilder, x: IRValue) -> IRValue:
    exponent, p = log_parts(k, x)
    high, low = dd.multiply_pairs(k, p, dd.constant_pair(k, *_LOG2E))
    return _select_special_cases(k, x, dd.collapse_pair(k, dd.add_pairs(k, (exponent, None), (high, low))))


def log10(k: IRBuilder, x: IRValue) -> IRValue:
    exponent, p = log_parts(k, x)
    whole: Pair = (k.multiply(exponent, k.constant(_LOG10_2[0])), k.multiply(exponent, k.constant(_LOG10_2[1])))
    return _select_special_cases(
        k, x, dd.collapse_pair(k, dd.add_pairs(k, whole, dd.multiply_pairs(k, p, dd.constant_pair(k, *_LOG10E))))
    )


def asinh(k: IRBuilder, x: IRValue) -> IRValue:
    # log(|x| + sqrt(x^2 + 1)); beyond 2^30 that is log(2 |x|), and near zero x itself
    size = k.abs(x)
    large = k.greater(size, k.constant(2.0**30))
    held_back = k.select(large, k.constant(1), size)
    squared = dd.two_product(k, held_back, held_back)
    s = dd.sqrt_pair(k, dd.add_pairs(k, (k.constant(1), None), squared))
    total = dd.add_pairs(k, (held_back, None), s)
    low = None if total[1] is None else k.select(large, k.constant(0), total[1])
    more = k.select(large, k.constant(1), k.constant(0))
    found = dd.collapse_pair(k, log_of_pair(k, k.select(large, size, total[0]), low, more))
    near = k.less(size, k.constant(2.0**-13 if k.is_widened else 2.0**-28))
    found = k.select(near, size, found)
    return dd.copy_sign(k, k.select(k.isfinite(x), found, size), x)


def acosh(k: IRBuilder, x: IRValue) -> IRValue:
    # log(x + sqrt(x^2 - 1)); beyond 2^30 that is log(2 x)
    large = k.greater(x, k.constant(2.0**30))
    held_back = k.select(large, k.constant(1), x)
    squared = dd.two_product(k, held_back, held_back)
    s = dd.sqrt_pair(k, dd.add_pairs(k, squared, (k.constant(-1), None)))
    total = dd.add_pairs(k, (held_back, None), s)
    low = None if total[1] is None else k.select(large, k.constant(0), total[1])
    more = k.select(large, k.constant(1), k.constant(0))
    found = dd.collapse_pair(k, log_of_pair(k, k.select(large, x, total[0]), low, more))
    found = k.select(k.equal(x, k.constant(np.inf)), x, found)
    found = k.select(k.equal(x, k.constant(1)), k.constant(0), found)
    return k.select(k.greater_equal(x, k.constant(1)), found, k.select(k.isnan(x), x, k.constant(np.nan)))


def atanh(k: IRBuilder, x: IRValue) -> IRValue:
    # half the log of (1 + x) / (1 - x); near zero x itself
    size, one = k.abs(x), k.constant(1)
    inside = k.select(k.less(size, one), size, k.constant(0.5))
    quotient = dd.divide_pairs(k, dd.two_sum(k, one, inside), dd.two_sum(k, one, k.negative(inside)))
    found = k.multiply(k.constant(0.5), dd.collapse_pair(k, log_of_pair(k, *quotient)))
    near = k.less(size, k.constant(2.0**-13 if k.is_widened else 2.0**-28))
    found = dd.copy_sign(k, k.select(near, size, found), x)
    found = k.select(k.equal(size, one), dd.copy_sign(k, k.constant(np.inf), x), found)
    return k.select(k.less_equal(size, one), found, k.select(k.isnan(x), x, k.constant(np.nan)))


def logaddexp(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    # max + log(1 + e^-|x - y|)
    top = k.maximum(x, y)
    gap = dd.clamp(k, k.negative(k.abs(k.subtract(x, y))), -760.0, 0.0)
    n, m = exp_parts(k, gap)
    small = dd.scale_by_power(k, m[0], n)
    low = None if m[1] is None else dd.scale_by_power(k, m[1], n)
    one = dd.fast_two_sum(k, k.constant(1), small)
    found = log_of_pair(k, one[0], dd.add_present(k, one[1], low))
    if k.is_widened:  # 1 + e would lose an e that is small
        found = (k.select(k.less(small, k.constant(2.0**-26)), small, found[0]), None)
    total = dd.add_pairs(k, (top, None), found)
    result = dd.collapse_pair(k, total)
    equal = k.equal(x, y)  # also two equal infinities
    result = k.select(equal, k.add(x, k.constant(LN2_WHOLE[0])), result)
    return k.select(k.isfinite(top), result, top)


def power(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    # |x|^y = e^(y log |x|), with log |x| in two parts: an error in the exponent is one in the result
    size, one, zero, infinite = k.abs(x), k.constant(1), k.constant(0), k.constant(np.inf)
    exponent = log_of_pair(k, size)
    high, low = dd.two_product(k, y, exponent[0])
    if low is not None and exponent[1] is not None:
        low = k.fma(y, exponent[1], low)
        low = k.select(k.less(k.abs(high), k.constant(760)), low, zero)
    n, m = exp_parts(k, dd.clamp(k, high, -750.0, 720.0), low)
    found = dd.scale_by_power(k, dd.collapse_pair(k, m), n)
    outward = k.logical_not(k.logical_xor(k.greater(size, one), k.greater(y, zero)))
    ends = k.logical_or(k.equal(size, zero), k.logical_or(k.equal(size, infinite), k.equal(k.abs(y), infinite)))
    found = k.select(ends, k.select(outward, infinite, zero), found)
    found = k.select(k.equal(size, one), one, found)
    whole = k.equal(k.rint(y), y)
    half = k.multiply(y, k.constant(0.5))
    odd = k.logical_and(whole, k.not_equal(k.rint(half), half))
    found = k.select(odd, dd.copy_sign(k, found, x), found)
    outside = k.logical_and(k.less(x, zero), k.logical_not(whole))
    outside = k.logical_and(outside, k.isfinite(x))
    found = k.select(outside, k.constant(np.nan), found)
    found = k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), found)
    return k.select(k.logical_or(k.equal(y, zero), k.equal(x, one)), one, found)

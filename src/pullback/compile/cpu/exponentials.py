"""exp and what is made of it, as vector arithmetic: x = n log 2 + r, a polynomial in r, a power of two from bits."""

from __future__ import annotations

from .coefficients import EXP, SINH
from .lanes import BOOL, Lane, type_of
from .pairs import (
    BIAS,
    MAGIC,
    Pair,
    bits,
    compared,
    fast_sum,
    held,
    on_integers,
    plus,
    polynomial,
    precision,
    scaled,
    two_product,
    two_sum,
    two_to,
    value_of,
    with_sign,
)  # fmt: skip
from .tables import TANH, picked
from .words import Words

__all__ = ["LN2", "LN2_WHOLE", "cosh", "exp", "exp2", "exp_of_pair", "exp_parts", "expm1", "sigmoid", "sinh", "tanh"]

_LOG2E = 1.4426950408889634
#: log 2 as a short number and the rest, so that a product with a whole number is exact.
LN2 = {8: (0.6931471806019545, -4.2009150726810846e-11), 4: (0.693145751953125, 1.4286068203094173e-06)}
#: log 2 as the nearest number and the rest.
LN2_WHOLE = (0.6931471805599453, 2.3190468138462996e-17)


def _reduced(k: Words, x: Lane) -> tuple[Lane, Lane, Lane, Lane]:
    """x = n log 2 + r with |r| <= log(2) / 2: n as an integer and as a number, x less the first part of n log 2, r."""
    size = x.dtype.itemsize
    magic = k.constant(MAGIC[size])
    shifted = k.fma(x, k.constant(_LOG2E), magic)
    n = k.subtract(shifted, magic)
    high, low = LN2[size]
    first = k.fma(n, k.constant(-high), x)
    r = k.fma(n, k.constant(-low), first)
    return on_integers(k, "sub", bits(k, shifted), bits(k, magic)), n, first, r


def _small(k: Words, r: Lane) -> Lane:
    """e^r - 1 = r + r^2 q(r)."""
    return k.fma(k.multiply(r, r), polynomial(k, r, EXP[precision(k)]), r)


def exp_of_pair(k: Words, r: Lane, low: Lane | None) -> Pair:
    """e^(r + low) for a small r: 1 + r + (r^2 q(r) + low)."""
    rest = k.multiply(k.multiply(r, r), polynomial(k, r, EXP[precision(k)]))
    one, lost = fast_sum(k, k.constant(1), r)
    return fast_sum(k, one, plus(k, rest, low, lost))


def exp_parts(k: Words, x: Lane, low: Lane | None = None) -> tuple[Lane, Pair]:
    """e^(x + low) = 2^n m: the integer n, and m in two parts. x is small enough for 2^n to be put together."""
    n, whole, first, r = _reduced(k, x)
    if k.narrow:
        return n, exp_of_pair(k, r, low)
    lost = k.fma(whole, k.constant(-LN2[x.dtype.itemsize][1]), k.subtract(first, r))
    if low is None:
        return n, exp_of_pair(k, r, lost)
    return n, exp_of_pair(k, *two_sum(k, r, k.add(lost, low)))  # low is small beside x, not beside r


def exp(k: Words, x: Lane) -> Lane:
    x = held(k, x, -750.0 if x.dtype.itemsize == 8 else -105.0, 720.0 if x.dtype.itemsize == 8 else 90.0)
    n, whole, _, r = _reduced(k, x)
    return scaled(k, k.add(k.constant(1), _small(k, r)), n, whole)


def exp2(k: Words, x: Lane) -> Lane:
    # 2^x = 2^n e^(r log 2), and x = n + r exactly
    x = held(k, x, -1100.0, 1030.0)
    magic = k.constant(MAGIC[8])
    shifted = k.add(x, magic)
    n = on_integers(k, "sub", bits(k, shifted), bits(k, magic))
    r = k.subtract(x, k.subtract(shifted, magic))
    high, low = two_product(k, r, k.constant(LN2_WHOLE[0]))
    low = None if low is None else k.fma(r, k.constant(LN2_WHOLE[1]), low)
    return scaled(k, value_of(k, exp_of_pair(k, high, low)), n)


def expm1(k: Words, x: Lane) -> Lane:
    x = held(k, x, -50.0, 710.0 if x.dtype.itemsize == 8 else 89.0)
    n, _, _, r = _reduced(k, x)
    p = _small(k, r)
    # 2^n (1 + p) - 1 = 2^n p + (2^n - 1); at the very top 2^n itself would overflow, so half of it
    top = compared(k, "sgt", n, BIAS[x.dtype.itemsize])
    extra = k.made(f"zext {type_of(BOOL, k.lanes)} {top.name} to {type_of(n.dtype, k.lanes)}", n.dtype)
    power = two_to(k, on_integers(k, "sub", n, extra), x.dtype)
    small = k.fma(power, p, k.subtract(power, k.constant(1)))
    large = k.multiply(k.fma(power, p, power), k.constant(2))
    result = k.select(top, large, small)
    zero = k.equal(x, k.constant(0))  # keeps the sign of zero
    return k.select(zero, x, result)


def tanh(k: Words, x: Lane) -> Lane:
    return _tanh_picked(k, x) if x.dtype.itemsize == 4 else _tanh_divided(k, x)


def _tanh_picked(k: Words, x: Lane) -> Lane:
    # no division: a polynomial about the middle of one of a few intervals; the bits of |x| + 1 say which; from 9.1 on 1
    size = k.abs(x)
    size = k.select(k.greater(size, k.constant(9.5)), k.constant(9.5), size)
    place = on_integers(k, "lshr", bits(k, k.add(size, k.constant(1))), 21)
    middle, *coefficients = (picked(k, table, place) for table in TANH)
    r = k.subtract(size, middle)
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, r, c)
    return with_sign(k, total, x)


def _tanh_divided(k: Words, x: Lane) -> Lane:
    # with t = expm1(2 |x|), tanh |x| = t / (t + 2); from 22 on it is 1, so 2^n stays small
    size = k.abs(x)
    size = k.select(k.greater(size, k.constant(22)), k.constant(22), size)
    n, _, _, r = _reduced(k, k.add(size, size))
    power = two_to(k, n, x.dtype)
    t = k.fma(power, _small(k, r), k.subtract(power, k.constant(1)))
    return with_sign(k, _share(k, t, k.constant(2), t), x)


def _share(k: Words, x: Lane, large: Lane, small: Lane) -> Lane:
    """x / (large + small), with what the sum's rounding lost and the rest of the division put back."""
    total = k.add(large, small)
    lost = k.subtract(small, k.subtract(total, large))
    inverse = k.divide(k.constant(1), total)
    found = k.multiply(x, inverse)
    rest = k.fma(found, k.negative(lost), k.fma(found, k.negative(total), x))
    return k.fma(inverse, rest, found)


def sigmoid(k: Words, x: Lane) -> Lane:
    # e^-|x| never overflows: 1 / (1 + e^-x), or e^x / (1 + e^x) where x is negative
    small = k.exp(k.negative(k.abs(x)))
    above = k.select(k.less(x, k.constant(0)), small, k.constant(1))
    return _share(k, above, k.constant(1), small)


def _grown(k: Words, x: Lane) -> tuple[Lane, Pair, Lane]:
    """e^|x| = 2^n m, and e^-|x| / 2^n."""
    size = held(k, k.abs(x), 0.0, 712.0)
    n, m = exp_parts(k, size)
    few = on_integers(k, "sub", k.number(0, n.dtype), on_integers(k, "shl", n, 1))
    lowest = k.number(-1000, n.dtype)
    few = k.call(f"llvm.smax.{k.suffix(n.dtype)}", n.dtype, few, lowest)  # so small that it no longer counts
    return n, m, k.divide(two_to(k, few, x.dtype), m[0])


def cosh(k: Words, x: Lane) -> Lane:
    n, m, other = _grown(k, x)
    total, lost = fast_sum(k, m[0], other)
    low = plus(k, m[1], lost)
    return scaled(k, value_of(k, (total, low)), on_integers(k, "sub", n, 1))


def sinh(k: Words, x: Lane) -> Lane:
    n, m, other = _grown(k, x)
    total, lost = fast_sum(k, m[0], k.negative(other))
    large = scaled(k, value_of(k, (total, plus(k, m[1], lost))), on_integers(k, "sub", n, 1))
    z = k.multiply(x, x)
    small = k.fma(k.multiply(x, z), polynomial(k, z, SINH[precision(k)]), x)
    return k.select(k.less(k.abs(x), k.constant(1)), small, with_sign(k, large, x))

"""exp and functions built on it, as vector arithmetic: x = n log 2 + r, a polynomial in r, a power of two from bits."""

from __future__ import annotations

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import BOOL, IRValue, llvm_type
from . import double_double as dd
from .coefficients import EXP, SINH
from .double_double import Pair
from .tables import TANH, pick_from_table

_LOG2E = 1.4426950408889634
#: log 2 as a short number and the rest, so that a product with an integer is exact.
LN2 = {8: (0.6931471806019545, -4.2009150726810846e-11), 4: (0.693145751953125, 1.4286068203094173e-06)}
#: log 2 as the nearest number and the rest.
LN2_WHOLE = (0.6931471805599453, 2.3190468138462996e-17)


def _reduce_argument(k: IRBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue, IRValue]:
    """x = n log 2 + r with |r| <= log(2) / 2: n as an integer and as a number, x less the first part of n log 2, r."""
    size = x.dtype.itemsize
    magic = k.constant(dd.MAGIC[size])
    shifted = k.fma(x, k.constant(_LOG2E), magic)
    n = k.subtract(shifted, magic)
    high, low = LN2[size]
    first = k.fma(n, k.constant(-high), x)
    r = k.fma(n, k.constant(-low), first)
    return dd.integer_op(k, "sub", dd.to_bits(k, shifted), dd.to_bits(k, magic)), n, first, r


def _expm1_reduced(k: IRBuilder, r: IRValue) -> IRValue:
    """e^r - 1 = r + r^2 q(r)."""
    return k.fma(k.multiply(r, r), dd.polynomial(k, r, EXP[dd.precision(k)]), r)


def exp_of_pair(k: IRBuilder, r: IRValue, low: IRValue | None) -> Pair:
    """e^(r + low) for a small r: 1 + r + (r^2 q(r) + low)."""
    rest = k.multiply(k.multiply(r, r), dd.polynomial(k, r, EXP[dd.precision(k)]))
    one, lost = dd.fast_two_sum(k, k.constant(1), r)
    return dd.fast_two_sum(k, one, dd.add_present(k, rest, low, lost))


def exp_parts(k: IRBuilder, x: IRValue, low: IRValue | None = None) -> tuple[IRValue, Pair]:
    """e^(x + low) = 2^n m: the integer n, and m in two parts. x is small enough for 2^n to be built from bits."""
    n, whole, first, r = _reduce_argument(k, x)
    if k.is_widened:
        return n, exp_of_pair(k, r, low)
    lost = k.fma(whole, k.constant(-LN2[x.dtype.itemsize][1]), k.subtract(first, r))
    if low is None:
        return n, exp_of_pair(k, r, lost)
    return n, exp_of_pair(k, *dd.two_sum(k, r, k.add(lost, low)))  # low is small beside x, not beside r


def exp(k: IRBuilder, x: IRValue) -> IRValue:
    x = dd.clamp(k, x, -750.0 if x.dtype.itemsize == 8 else -105.0, 720.0 if x.dtype.itemsize == 8 else 90.0)
    n, whole, _, r = _reduce_argument(k, x)
    return dd.scale_by_power(k, _exp_reduced(k, r), n, whole)


def _exp_reduced(k: IRBuilder, r: IRValue) -> IRValue:
    """e^r = 1 + r (1 + r q(r)): one operation less than by e^r - 1."""
    inner = k.fma(r, dd.polynomial(k, r, EXP[dd.precision(k)]), k.constant(1))
    return k.fma(r, inner, k.constant(1))


def exp2(k: IRBuilder, x: IRValue) -> IRValue:
    # 2^x = 2^n e^(r log 2), and x = n + r exactly
    x = dd.clamp(k, x, -1100.0, 1030.0)
    magic = k.constant(dd.MAGIC[8])
    shifted = k.add(x, magic)
    n = dd.integer_op(k, "sub", dd.to_bits(k, shifted), dd.to_bits(k, magic))
    r = k.subtract(x, k.subtract(shifted, magic))
    high, low = dd.two_product(k, r, k.constant(LN2_WHOLE[0]))
    low = None if low is None else k.fma(r, k.constant(LN2_WHOLE[1]), low)
    return dd.scale_by_power(k, dd.collapse_pair(k, exp_of_pair(k, high, low)), n)


def expm1(k: IRBuilder, x: IRValue) -> IRValue:
    x = dd.clamp(k, x, -50.0, 710.0 if x.dtype.itemsize == 8 else 89.0)
    n, _, _, r = _reduce_argument(k, x)
    p = _expm1_reduced(k, r)
    # 2^n (1 + p) - 1 = 2^n p + (2^n - 1); at the very top 2^n itself would overflow, so half of it
    top = dd.compare_integers(k, "sgt", n, dd.BIAS[x.dtype.itemsize])
    extra = k.assign_value(f"zext {llvm_type(BOOL, k.lanes)} {top.name} to {llvm_type(n.dtype, k.lanes)}", n.dtype)
    power = dd.power_of_two(k, dd.integer_op(k, "sub", n, extra), x.dtype)
    small = k.fma(power, p, k.subtract(power, k.constant(1)))
    large = k.multiply(k.fma(power, p, power), k.constant(2))
    result = k.select(top, large, small)
    zero = k.equal(x, k.constant(0))  # keeps the sign of zero
    return k.select(zero, x, result)


def tanh(k: IRBuilder, x: IRValue) -> IRValue:
    return _tanh_by_table(k, x) if x.dtype.itemsize == 4 else _tanh_by_division(k, x)


def _tanh_by_table(k: IRBuilder, x: IRValue) -> IRValue:
    # no division: a polynomial about the middle of one of a few intervals, chosen by the bits of |x| + 1; from 9.1 on 1
    size = k.abs(x)
    size = k.select(k.greater(size, k.constant(9.5)), k.constant(9.5), size)
    place = dd.integer_op(k, "lshr", dd.to_bits(k, k.add(size, k.constant(1))), 21)
    middle, *coefficients = (pick_from_table(k, table, place) for table in TANH)
    r = k.subtract(size, middle)
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, r, c)
    return dd.copy_sign(k, total, x)


def _tanh_by_division(k: IRBuilder, x: IRValue) -> IRValue:
    # with t = expm1(2 |x|), tanh |x| = t / (t + 2); from 22 on it is 1, so 2^n stays small
    size = k.abs(x)
    size = k.select(k.greater(size, k.constant(22)), k.constant(22), size)
    n, _, _, r = _reduce_argument(k, k.add(size, size))
    power = dd.power_of_two(k, n, x.dtype)
    t = k.fma(power, _expm1_reduced(k, r), k.subtract(power, k.constant(1)))
    return dd.copy_sign(k, _divide_by_sum(k, t, k.constant(2), t), x)


def _divide_by_sum(k: IRBuilder, x: IRValue, large: IRValue, small: IRValue) -> IRValue:
    """x / (large + small), corrected for the rounding of the sum and the remainder of the division."""
    total = k.add(large, small)
    lost = k.subtract(small, k.subtract(total, large))
    inverse = k.divide(k.constant(1), total)
    found = k.multiply(x, inverse)
    rest = k.fma(found, k.negative(lost), k.fma(found, k.negative(total), x))
    return k.fma(inverse, rest, found)


def sigmoid(k: IRBuilder, x: IRValue) -> IRValue:
    # e^-|x| never overflows: 1 / (1 + e^-x), or e^x / (1 + e^x) where x is negative
    small = k.exp(k.negative(k.abs(x)))
    above = k.select(k.less(x, k.constant(0)), small, k.constant(1))
    return _divide_by_sum(k, above, k.constant(1), small)


def _exp_and_inverse(k: IRBuilder, x: IRValue) -> tuple[IRValue, Pair, IRValue]:
    """e^|x| = 2^n m, and e^-|x| / 2^n."""
    size = dd.clamp(k, k.abs(x), 0.0, 712.0)
    n, m = exp_parts(k, size)
    few = dd.integer_op(k, "sub", k.number(0, n.dtype), dd.integer_op(k, "shl", n, 1))
    lowest = k.number(-1000, n.dtype)
    few = k.call(f"llvm.smax.{k.suffix(n.dtype)}", n.dtype, few, lowest)  # negligible below that
    return n, m, k.divide(dd.power_of_two(k, few, x.dtype), m[0])


def cosh(k: IRBuilder, x: IRValue) -> IRValue:
    n, m, other = _exp_and_inverse(k, x)
    total, lost = dd.fast_two_sum(k, m[0], other)
    low = dd.add_present(k, m[1], lost)
    return dd.scale_by_power(k, dd.collapse_pair(k, (total, low)), dd.integer_op(k, "sub", n, 1))


def sinh(k: IRBuilder, x: IRValue) -> IRValue:
    n, m, other = _exp_and_inverse(k, x)
    total, lost = dd.fast_two_sum(k, m[0], k.negative(other))
    large = dd.scale_by_power(
        k, dd.collapse_pair(k, (total, dd.add_present(k, m[1], lost))), dd.integer_op(k, "sub", n, 1)
    )
    z = k.multiply(x, x)
    small = k.fma(k.multiply(x, z), dd.polynomial(k, z, SINH[dd.precision(k)]), x)
    return k.select(k.less(k.abs(x), k.constant(1)), small, dd.copy_sign(k, large, x))

"""Arithmetic in about twice the digits: a number as the sum of a high and a low part.

Functions of float32 are computed in float64, which has digits to spare (`k.is_widened`): there the low parts are None,
and the same formulas cost no more than plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import BOOL, IRValue, llvm_type

Pair = tuple[IRValue, IRValue | None]
#: Adding it leaves a number rounded to an integer in its low bits.
MAGIC = {8: 1.5 * 2**52, 4: 1.5 * 2**23}
MANTISSA = {8: 52, 4: 23}
BIAS = {8: 1023, 4: 127}


def precision(k: IRBuilder) -> int:
    """The size of the dtype whose precision the result must have."""
    return 4 if k.is_widened else k.dtype.itemsize


# Bits


def integer_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def to_bits(k: IRBuilder, x: IRValue) -> IRValue:
    return from_bits(k, x, integer_dtype(x.dtype))


def from_bits(k: IRBuilder, x: IRValue, dtype: np.dtype[Any]) -> IRValue:
    return k.assign_value(f"bitcast {llvm_type(x.dtype, k.lanes)} {x.name} to {llvm_type(dtype, k.lanes)}", dtype)


def integer_op(k: IRBuilder, word: str, x: IRValue, y: IRValue | int) -> IRValue:
    other = k.number(y, x.dtype) if isinstance(y, int) else y
    return k.assign_value(f"{word} {llvm_type(x.dtype, k.lanes)} {x.name}, {other.name}", x.dtype)


def compare_integers(k: IRBuilder, relation: str, x: IRValue, y: IRValue | int) -> IRValue:
    """A comparison of integers."""
    other = k.number(y, x.dtype) if isinstance(y, int) else y
    return k.assign_value(f"icmp {relation} {llvm_type(x.dtype, k.lanes)} {x.name}, {other.name}", BOOL)


def power_of_two(k: IRBuilder, n: IRValue, dtype: np.dtype[Any]) -> IRValue:
    """2^n for an integer n in the range of normal numbers."""
    biased = integer_op(k, "add", n, BIAS[dtype.itemsize])
    return from_bits(k, integer_op(k, "shl", biased, MANTISSA[dtype.itemsize]), dtype)


def scale_by_power(k: IRBuilder, x: IRValue, n: IRValue, whole: IRValue | None = None) -> IRValue:
    """x 2^n in two steps, so that subnormal results are right. AVX-512 has one instruction for it, with the same
    result, which takes n as a float (`whole`).
    """
    if whole is not None and k.lanes * x.dtype.itemsize == k.vector_bytes == 64:
        kind, mask = llvm_type(x.dtype, k.lanes), f"i{k.lanes}"
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if x.dtype.itemsize == 4 else 'pd'}.512"
        k.declared.add(f"declare {kind} @{name}({kind}, {kind}, {kind}, {mask}, i32 immarg)")
        given = f"{kind} {x.name}, {kind} {whole.name}, {kind} zeroinitializer, {mask} -1, i32 4"
        return k.assign_value(f"call {kind} @{name}({given})", x.dtype)
    # both halves of n stay where the exponent is: n itself is never needed
    place, one = MANTISSA[x.dtype.itemsize], BIAS[x.dtype.itemsize] << MANTISSA[x.dtype.itemsize]
    whole_power = integer_op(k, "shl", n, place)
    half = integer_op(k, "and", integer_op(k, "ashr", whole_power, 1), -1 << place)
    rest = integer_op(k, "sub", whole_power, half)
    first, second = (from_bits(k, integer_op(k, "add", part, one), x.dtype) for part in (half, rest))
    return k.multiply(k.multiply(x, first), second)


def copy_sign(k: IRBuilder, x: IRValue, sign: IRValue) -> IRValue:
    return k.call(f"llvm.copysign.{k.suffix(x.dtype)}", x.dtype, x, sign)


def clamp(k: IRBuilder, x: IRValue, low: float, high: float) -> IRValue:
    """x between bounds; NaN stays."""
    x = k.select(k.greater(x, k.constant(high)), k.constant(high), x)
    return k.select(k.less(x, k.constant(low)), k.constant(low), x)


def polynomial(k: IRBuilder, x: IRValue, coefficients: Sequence[float]) -> IRValue:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule; a long one as two in x^2, which shortens the dependency chain."""
    if len(coefficients) > 8:
        squared = k.multiply(x, x)
        return k.fma(polynomial(k, squared, coefficients[1::2]), x, polynomial(k, squared, coefficients[::2]))
    total = k.constant(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, x, k.constant(c))
    return total


# Pairs


def constant_pair(k: IRBuilder, high: float, low: float) -> Pair:
    """A constant in two parts."""
    return k.constant(high), None if k.is_widened else k.constant(low)


def add_present(k: IRBuilder, *parts: IRValue | None) -> IRValue | None:
    """The sum of those parts that are not None."""
    total: IRValue | None = None
    for part in parts:
        total = part if total is None else total if part is None else k.add(total, part)
    return total


def fast_two_sum(k: IRBuilder, x: IRValue, y: IRValue | None) -> Pair:
    """x + y and its rounding error, if |x| >= |y|."""
    if y is None:
        return x, None
    total = k.add(x, y)
    return total, None if k.is_widened else k.subtract(y, k.subtract(total, x))


def two_sum(k: IRBuilder, x: IRValue, y: IRValue) -> Pair:
    """x + y and its rounding error, whichever is larger."""
    total = k.add(x, y)
    if k.is_widened:
        return total, None
    of_y = k.subtract(total, x)
    return total, k.add(k.subtract(x, k.subtract(total, of_y)), k.subtract(y, of_y))


def two_product(k: IRBuilder, x: IRValue, y: IRValue) -> Pair:
    product = k.multiply(x, y)
    return product, None if k.is_widened else k.fma(x, y, k.negative(product))


def add_pairs(k: IRBuilder, x: Pair, y: Pair) -> Pair:
    """x + y."""
    high, low = two_sum(k, x[0], y[0])
    return fast_two_sum(k, high, add_present(k, low, add_present(k, x[1], y[1])))


def multiply_pairs(k: IRBuilder, x: Pair, y: Pair) -> Pair:
    high, low = two_product(k, x[0], y[0])
    if low is not None and y[1] is not None:
        low = k.fma(x[0], y[1], low)
    if low is not None and x[1] is not None:
        low = k.fma(x[1], y[0], low)
    return fast_two_sum(k, high, low)


def divide_pairs(k: IRBuilder, x: Pair, y: Pair) -> Pair:
    """x / y; the remainder of the first quotient is known exactly, so it can be divided too."""
    high = k.divide(x[0], y[0])
    if k.is_widened:
        return high, None
    rest = k.fma(k.negative(high), y[0], x[0])
    if x[1] is not None:
        rest = k.add(rest, x[1])
    if y[1] is not None:
        rest = k.fma(k.negative(high), y[1], rest)
    return fast_two_sum(k, high, k.divide(rest, y[0]))


def sqrt_pair(k: IRBuilder, x: Pair) -> Pair:
    """sqrt(h + l) = s + (h + l - s^2) / 2 s."""
    high = k.sqrt(x[0])
    if k.is_widened:
        return high, None
    rest = k.fma(k.negative(high), high, x[0])
    if x[1] is not None:
        rest = k.add(rest, x[1])
    twice = k.maximum(k.add(high, high), k.constant(1e-300))  # at zero the remainder is zero too
    return fast_two_sum(k, high, k.divide(rest, twice))


def collapse_pair(k: IRBuilder, x: Pair) -> IRValue:
    return x[0] if x[1] is None else k.add(x[0], x[1])

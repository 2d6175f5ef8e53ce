"""Words that take several instructions: division with remainder, signs, nextafter, shifts.

They give NumPy's results where the processor's are undefined: a zero divisor, a shift by too many bits.
"""

from __future__ import annotations

import numpy as np

from .ir_builder import EXPANSIONS, IRBuilder
from .vector_types import BOOL, IRValue, llvm_type

__all__ = ["EXPANSIONS"]


def divide(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The quotient; of integers, truncated towards zero."""
    x, y = k.coerce(x), k.coerce(y)
    if x.dtype.kind != "f":
        return _divide_integers(k, "div", x, y)
    return k.assign_value(f"fdiv {llvm_type(x.dtype, k.lanes)} {x.name}, {y.name}", x.dtype)


def _divide_integers(k: IRBuilder, instruction: str, x: IRValue, y: IRValue) -> IRValue:
    """Quotient ("div") or remainder ("rem") of integers. The processor traps on a zero divisor and on the lowest number
    by -1, so these become divisions by 1: NumPy returns zero for the first, and wraps in the second.
    """
    zero, one = k.constant(0), k.constant(1)
    by_zero = k.equal(y, zero)
    trap = by_zero
    if x.dtype.kind == "i":
        trap = k.logical_or(trap, k.equal(y, k.constant(-1)))
    safe = k.select(trap, one, y)
    sign = "s" if x.dtype.kind == "i" else "u"
    found = k.assign_value(f"{sign}{instruction} {llvm_type(x.dtype, k.lanes)} {x.name}, {safe.name}", x.dtype)
    if x.dtype.kind == "i" and instruction == "div":
        found = k.select(k.equal(y, k.constant(-1)), k.negative(x), found)
    return k.select(by_zero, zero, found)


def fmod(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The remainder of a division towards zero, with the sign of x."""
    x, y = k.coerce(x), k.coerce(y)
    return k.call_math("fmod", x, y) if x.dtype.kind == "f" else _divide_integers(k, "rem", x, y)


def _has_other_sign(k: IRBuilder, rest: IRValue, y: IRValue) -> IRValue:
    """Whether a remainder is not zero and on the other side of it than the divisor."""
    zero = k.constant(0)
    other_side = k.logical_xor(k.less(rest, zero), k.less(y, zero))
    return k.logical_and(k.not_equal(rest, zero), other_side)


def remainder(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The remainder of a division towards minus infinity, with the sign of y."""
    x, y, zero = k.coerce(x), k.coerce(y), k.constant(0)
    rest = k.fmod(x, y)
    if x.dtype.kind == "u":
        return rest
    moved = k.select(_has_other_sign(k, rest, y), k.add(rest, y), rest)
    return k.select(k.equal(rest, zero), k.copysign(zero, y), moved)


def floor_divide(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    x, y, zero = k.coerce(x), k.coerce(y), k.constant(0)
    if x.dtype.kind != "f":
        found = k.divide(x, y)
        if x.dtype.kind == "u":
            return found
        rest = k.subtract(x, k.multiply(found, y))
        down = k.logical_and(_has_other_sign(k, rest, y), k.not_equal(y, zero))
        return k.select(down, k.subtract(found, k.constant(1)), found)
    rest = k.fmod(x, y)
    found = k.divide(k.subtract(x, rest), y)
    whole = k.rint(k.select(_has_other_sign(k, rest, y), k.subtract(found, k.constant(1)), found))
    whole = k.select(k.equal(whole, zero), k.copysign(zero, k.divide(x, y)), whole)
    return k.select(k.equal(y, zero), k.divide(x, y), whole)


def copysign(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    x, y = k.coerce(x), k.coerce(y)
    return k.call(f"llvm.copysign.{k.suffix(x.dtype)}", x.dtype, x, y) if x.dtype.kind == "f" else x


def signbit(k: IRBuilder, x: IRValue) -> IRValue:
    if x.dtype.kind != "f":
        return k.number(False, BOOL) if x.dtype.kind != "i" else _is_negative(k, x)
    whole = np.dtype(f"i{x.dtype.itemsize}")
    kinds = llvm_type(x.dtype, k.lanes), llvm_type(whole, k.lanes)
    return _is_negative(k, k.assign_value(f"bitcast {kinds[0]} {x.name} to {kinds[1]}", whole))


def _is_negative(k: IRBuilder, x: IRValue) -> IRValue:
    return k.assign_value(f"icmp slt {llvm_type(x.dtype, k.lanes)} {x.name}, {k.number(0, x.dtype).name}", BOOL)


def nextafter(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The neighbour of x towards y: the next bits up or down, which are ordered as the numbers are."""
    x, y = k.coerce(x), k.coerce(y)
    dtype, whole = x.dtype, np.dtype(f"i{x.dtype.itemsize}")
    kinds = llvm_type(dtype, k.lanes), llvm_type(whole, k.lanes)
    pattern = k.assign_value(f"bitcast {kinds[0]} {x.name} to {kinds[1]}", whole)
    grows = k.logical_not(k.logical_xor(k.greater(y, x), k.greater(x, k.constant(0))))
    step = k.assign_value(
        f"select {llvm_type(BOOL, k.lanes)} {grows.name}, {kinds[1]} {k.number(1, whole).name}, "
        f"{kinds[1]} {k.number(-1, whole).name}",
        whole,
    )
    moved = k.assign_value(f"add {kinds[1]} {pattern.name}, {step.name}", whole)
    found = k.assign_value(f"bitcast {kinds[1]} {moved.name} to {kinds[0]}", dtype)
    least = k.copysign(k.constant(float(np.finfo(dtype).smallest_subnormal)), y)
    found = k.select(k.equal(x, k.constant(0)), least, found)
    found = k.select(k.equal(x, y), y, found)
    return k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), found)


def fmax(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The larger one; of a number and NaN, the number."""
    x, y = k.coerce(x), k.coerce(y)
    return k.select(k.logical_or(k.greater_equal(x, y), k.isnan(y)), x, y)


def fmin(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    x, y = k.coerce(x), k.coerce(y)
    return k.select(k.logical_or(k.less_equal(x, y), k.isnan(y)), x, y)


def bitwise_left_shift(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    return _shift(k, "shl", x, y)


def bitwise_right_shift(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    return _shift(k, "lshr" if k.dtype.kind == "u" else "ashr", x, y)


def _shift(k: IRBuilder, instruction: str, x: IRValue, y: IRValue) -> IRValue:
    """A shift; by more bits than there are, only the sign of a right shift is left."""
    x, y = k.coerce(x), k.coerce(y)
    kind, width = llvm_type(x.dtype, k.lanes), 8 * x.dtype.itemsize
    inside = k.assign_value(f"icmp ult {kind} {y.name}, {k.constant(width).name}", BOOL)
    by = k.select(inside, y, k.constant(width - 1 if instruction == "ashr" else 0))
    found = k.assign_value(f"{instruction} {kind} {x.name}, {by.name}", x.dtype)
    return found if instruction == "ashr" else k.select(inside, found, k.constant(0))


def rotate_left(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The bits rotated to the left."""
    x, y = k.coerce(x), k.coerce(y)
    return k.call(f"llvm.fshl.{k.suffix(x.dtype)}", x.dtype, x, x, y)


def relu(k: IRBuilder, x: IRValue) -> IRValue:
    return k.maximum(x, k.constant(0))


def sign(k: IRBuilder, x: IRValue) -> IRValue:
    x, zero = k.coerce(x), k.constant(0)
    up = k.select(k.greater(x, zero), k.constant(1), k.multiply(x, zero) if x.dtype.kind == "f" else zero)
    down = k.constant(-1) if x.dtype.kind != "u" else zero
    signed = k.select(k.less(x, zero), down, up)
    return k.select(k.equal(x, zero), zero, signed) if x.dtype.kind == "f" else signed


def heaviside(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    x, y, zero = k.coerce(x), k.coerce(y), k.constant(0)
    away = k.select(k.greater(x, zero), k.constant(1), zero)
    known = k.select(k.equal(x, zero), y, away)
    return k.select(k.isnan(x), x, known)


def power(k: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """x^y; a few constant exponents need no logarithm."""
    x, y = k.coerce(x), k.coerce(y)
    if y.name == k.constant(1).name:
        return x
    if y.name == k.constant(2).name:
        return k.multiply(x, x)
    if y.name == k.constant(3).name:
        return k.multiply(k.multiply(x, x), x)
    if y.name == k.constant(-1).name:
        return k.divide(k.constant(1), x)
    if y.name == k.constant(0.5).name:  # unlike sqrt, 0 for -0 and infinity for minus infinity
        found = k.sqrt(k.add(x, k.constant(0)))
        return k.select(k.equal(x, k.constant(-np.inf)), k.constant(np.inf), found)
    if k.lanes == 1 and x.dtype.itemsize == 8:  # one number, as in a rate: vector arithmetic takes long to compile
        return k.call("pow", x.dtype, x, y)
    return k.call_math("power", x, y)


_EVERY = (
    power, divide, fmod, remainder, floor_divide, copysign, signbit, nextafter, fmax, fmin, bitwise_left_shift,
    bitwise_right_shift, rotate_left, relu, sign, heaviside,
)  # fmt: skip
EXPANSIONS.update({word.__name__: word for word in _EVERY})

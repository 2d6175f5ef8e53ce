"""Words that take several instructions: division with remainder, signs, steps and neighbours, shifts.

NumPy's answers where the processor has none of its own: a zero divisor, a shift by too many bits.
"""

from __future__ import annotations

import numpy as np

from .lanes import BOOL, Lane, type_of
from .words import WRITTEN_OUT, Words

__all__ = ["WRITTEN_OUT"]


def divide(k: Words, x: Lane, y: Lane) -> Lane:
    """The quotient; of integers, cut off towards zero."""
    x, y = k.as_own(x), k.as_own(y)
    if x.dtype.kind != "f":
        return _whole_quotient(k, "div", x, y)
    return k.made(f"fdiv {type_of(x.dtype, k.lanes)} {x.name}, {y.name}", x.dtype)


def _whole_quotient(k: Words, instruction: str, x: Lane, y: Lane) -> Lane:
    """Quotient ("div") or rest ("rem") of integers. The processor traps on a zero divisor and on the lowest number
    by -1, so these are asked for as divisions by 1: NumPy answers zero for the first, and wraps in the second.
    """
    zero, one = k.constant(0), k.constant(1)
    by_zero = k.equal(y, zero)
    trap = by_zero
    if x.dtype.kind == "i":
        trap = k.logical_or(trap, k.equal(y, k.constant(-1)))
    safe = k.select(trap, one, y)
    sign = "s" if x.dtype.kind == "i" else "u"
    found = k.made(f"{sign}{instruction} {type_of(x.dtype, k.lanes)} {x.name}, {safe.name}", x.dtype)
    if x.dtype.kind == "i" and instruction == "div":
        found = k.select(k.equal(y, k.constant(-1)), k.negative(x), found)
    return k.select(by_zero, zero, found)


def fmod(k: Words, x: Lane, y: Lane) -> Lane:
    """The rest of a division towards zero, with the sign of x."""
    x, y = k.as_own(x), k.as_own(y)
    return k.function("fmod", x, y) if x.dtype.kind == "f" else _whole_quotient(k, "rem", x, y)


def remainder(k: Words, x: Lane, y: Lane) -> Lane:
    """The rest of a division towards minus infinity, with the sign of y."""
    x, y, zero = k.as_own(x), k.as_own(y), k.constant(0)
    rest = k.fmod(x, y)
    if x.dtype.kind == "u":
        return rest
    other_side = k.logical_xor(k.less(rest, zero), k.less(y, zero))
    crossed = k.logical_and(k.not_equal(rest, zero), other_side)
    moved = k.select(crossed, k.add(rest, y), rest)
    return k.select(k.equal(rest, zero), k.copysign(zero, y), moved)


def floor_divide(k: Words, x: Lane, y: Lane) -> Lane:
    x, y, zero = k.as_own(x), k.as_own(y), k.constant(0)
    if x.dtype.kind != "f":
        found = k.divide(x, y)
        if x.dtype.kind == "u":
            return found
        rest = k.subtract(x, k.multiply(found, y))
        other_side = k.logical_xor(k.less(rest, zero), k.less(y, zero))
        down = k.logical_and(k.logical_and(k.not_equal(rest, zero), other_side), k.not_equal(y, zero))
        return k.select(down, k.subtract(found, k.constant(1)), found)
    rest = k.fmod(x, y)
    found = k.divide(k.subtract(x, rest), y)
    other_side = k.logical_xor(k.less(rest, zero), k.less(y, zero))
    down = k.logical_and(k.not_equal(rest, zero), other_side)
    whole = k.rint(k.select(down, k.subtract(found, k.constant(1)), found))
    whole = k.select(k.equal(whole, zero), k.copysign(zero, k.divide(x, y)), whole)
    return k.select(k.equal(y, zero), k.divide(x, y), whole)


def copysign(k: Words, x: Lane, y: Lane) -> Lane:
    x, y = k.as_own(x), k.as_own(y)
    return k.call(f"llvm.copysign.{k.suffix(x.dtype)}", x.dtype, x, y) if x.dtype.kind == "f" else x


def signbit(k: Words, x: Lane) -> Lane:
    if x.dtype.kind != "f":
        return k.number(False, BOOL) if x.dtype.kind != "i" else _negative_bit(k, x)
    whole = np.dtype(f"i{x.dtype.itemsize}")
    kinds = type_of(x.dtype, k.lanes), type_of(whole, k.lanes)
    return _negative_bit(k, k.made(f"bitcast {kinds[0]} {x.name} to {kinds[1]}", whole))


def _negative_bit(k: Words, x: Lane) -> Lane:
    return k.made(f"icmp slt {type_of(x.dtype, k.lanes)} {x.name}, {k.number(0, x.dtype).name}", BOOL)


def nextafter(k: Words, x: Lane, y: Lane) -> Lane:
    """The number beside x towards y: the next bits up or down, which are in order as the numbers are."""
    x, y = k.as_own(x), k.as_own(y)
    dtype, whole = x.dtype, np.dtype(f"i{x.dtype.itemsize}")
    kinds = type_of(dtype, k.lanes), type_of(whole, k.lanes)
    pattern = k.made(f"bitcast {kinds[0]} {x.name} to {kinds[1]}", whole)
    grows = k.logical_not(k.logical_xor(k.greater(y, x), k.greater(x, k.constant(0))))
    step = k.made(
        f"select {type_of(BOOL, k.lanes)} {grows.name}, {kinds[1]} {k.number(1, whole).name}, "
        f"{kinds[1]} {k.number(-1, whole).name}",
        whole,
    )
    moved = k.made(f"add {kinds[1]} {pattern.name}, {step.name}", whole)
    found = k.made(f"bitcast {kinds[1]} {moved.name} to {kinds[0]}", dtype)
    least = k.copysign(k.constant(float(np.finfo(dtype).smallest_subnormal)), y)
    found = k.select(k.equal(x, k.constant(0)), least, found)
    found = k.select(k.equal(x, y), y, found)
    return k.select(k.logical_or(k.isnan(x), k.isnan(y)), k.add(x, y), found)


def fmax(k: Words, x: Lane, y: Lane) -> Lane:
    """The larger one; of a number and what is none, the number."""
    x, y = k.as_own(x), k.as_own(y)
    return k.select(k.logical_or(k.greater_equal(x, y), k.isnan(y)), x, y)


def fmin(k: Words, x: Lane, y: Lane) -> Lane:
    x, y = k.as_own(x), k.as_own(y)
    return k.select(k.logical_or(k.less_equal(x, y), k.isnan(y)), x, y)


def bitwise_left_shift(k: Words, x: Lane, y: Lane) -> Lane:
    return _shifted(k, "shl", x, y)


def bitwise_right_shift(k: Words, x: Lane, y: Lane) -> Lane:
    return _shifted(k, "lshr" if k.dtype.kind == "u" else "ashr", x, y)


def _shifted(k: Words, instruction: str, x: Lane, y: Lane) -> Lane:
    """By more bits than there are: nothing is left but, to the right, the sign."""
    x, y = k.as_own(x), k.as_own(y)
    kind, width = type_of(x.dtype, k.lanes), 8 * x.dtype.itemsize
    inside = k.made(f"icmp ult {kind} {y.name}, {k.constant(width).name}", BOOL)
    by = k.select(inside, y, k.constant(width - 1 if instruction == "ashr" else 0))
    found = k.made(f"{instruction} {kind} {x.name}, {by.name}", x.dtype)
    return found if instruction == "ashr" else k.select(inside, found, k.constant(0))


def rotate_left(k: Words, x: Lane, y: Lane) -> Lane:
    """The bits moved up, those that fall off coming in from below."""
    x, y = k.as_own(x), k.as_own(y)
    return k.call(f"llvm.fshl.{k.suffix(x.dtype)}", x.dtype, x, x, y)


def relu(k: Words, x: Lane) -> Lane:
    return k.maximum(x, k.constant(0))


def sign(k: Words, x: Lane) -> Lane:
    x, zero = k.as_own(x), k.constant(0)
    up = k.select(k.greater(x, zero), k.constant(1), k.multiply(x, zero) if x.dtype.kind == "f" else zero)
    down = k.constant(-1) if x.dtype.kind != "u" else zero
    signed = k.select(k.less(x, zero), down, up)
    return k.select(k.equal(x, zero), zero, signed) if x.dtype.kind == "f" else signed


def heaviside(k: Words, x: Lane, y: Lane) -> Lane:
    x, y, zero = k.as_own(x), k.as_own(y), k.constant(0)
    away = k.select(k.greater(x, zero), k.constant(1), zero)
    known = k.select(k.equal(x, zero), y, away)
    return k.select(k.isnan(x), x, known)


def power(k: Words, x: Lane, y: Lane) -> Lane:
    """x^y; a few exponents that are known beforehand need no logarithm."""
    x, y = k.as_own(x), k.as_own(y)
    if y.name == k.constant(1).name:
        return x
    if y.name == k.constant(2).name:
        return k.multiply(x, x)
    if y.name == k.constant(3).name:
        return k.multiply(k.multiply(x, x), x)
    if y.name == k.constant(-1).name:
        return k.divide(k.constant(1), x)
    if y.name == k.constant(0.5).name:  # unlike the root, 0 of -0 and infinity of minus infinity
        found = k.sqrt(k.add(x, k.constant(0)))
        return k.select(k.equal(x, k.constant(-np.inf)), k.constant(np.inf), found)
    return k.function("power", x, y)


_EVERY = (
    power, divide, fmod, remainder, floor_divide, copysign, signbit, nextafter, fmax, fmin, bitwise_left_shift,
    bitwise_right_shift, rotate_left, relu, sign, heaviside,
)  # fmt: skip
WRITTEN_OUT.update({word.__name__: word for word in _EVERY})

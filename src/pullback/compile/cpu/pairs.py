"""Arithmetic in about twice the digits: a number as the sum of a high and a low part.

Functions of float32 are computed in float64, which has digits to spare (`k.narrow`): there the low parts are None, and
the same formulas cost no more than plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import link
from .lanes import BOOL, Lane, type_of
from .words import Words

__all__ = [
    "BIAS", "MAGIC", "MANTISSA", "Pair", "bits", "combined", "compared", "divided", "fast_sum", "from_bits", "held",
    "integer", "known", "multiplied", "on_integers", "plus", "polynomial", "precision", "root", "scaled", "two_product",
    "two_sum", "two_to", "value_of", "with_sign",
]  # fmt: skip

Pair = tuple[Lane, Lane | None]
#: Adding it leaves a number rounded to a whole one in its low bits.
MAGIC = {8: 1.5 * 2**52, 4: 1.5 * 2**23}
MANTISSA = {8: 52, 4: 23}
BIAS = {8: 1023, 4: 127}


def precision(k: Words) -> int:
    """The size of the dtype whose digits the result must have."""
    return 4 if k.narrow else k.dtype.itemsize


# Bits


def integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def bits(k: Words, x: Lane) -> Lane:
    return from_bits(k, x, integer(x.dtype))


def from_bits(k: Words, x: Lane, dtype: np.dtype[Any]) -> Lane:
    return k.made(f"bitcast {type_of(x.dtype, k.lanes)} {x.name} to {type_of(dtype, k.lanes)}", dtype)


def on_integers(k: Words, word: str, x: Lane, y: Lane | int) -> Lane:
    other = k.number(y, x.dtype) if isinstance(y, int) else y
    return k.made(f"{word} {type_of(x.dtype, k.lanes)} {x.name}, {other.name}", x.dtype)


def compared(k: Words, relation: str, x: Lane, y: Lane | int) -> Lane:
    """A comparison of integers."""
    other = k.number(y, x.dtype) if isinstance(y, int) else y
    return k.made(f"icmp {relation} {type_of(x.dtype, k.lanes)} {x.name}, {other.name}", BOOL)


def two_to(k: Words, n: Lane, dtype: np.dtype[Any]) -> Lane:
    """2^n for a whole n in the range of normal numbers."""
    biased = on_integers(k, "add", n, BIAS[dtype.itemsize])
    return from_bits(k, on_integers(k, "shl", biased, MANTISSA[dtype.itemsize]), dtype)


def scaled(k: Words, x: Lane, n: Lane, whole: Lane | None = None) -> Lane:
    """x 2^n in two steps, so that results below the normal numbers come out right. The widest vectors have one
    instruction for it, with the same result, which wants n as a number (`whole`).
    """
    # so many lanes are also asked for beside smaller integers, on machines whose vectors are narrower
    if whole is not None and k.lanes * x.dtype.itemsize == link.vector_bytes() == 64:
        kind, mask = type_of(x.dtype, k.lanes), f"i{k.lanes}"
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if x.dtype.itemsize == 4 else 'pd'}.512"
        k.declared.add(f"declare {kind} @{name}({kind}, {kind}, {kind}, {mask}, i32 immarg)")
        given = f"{kind} {x.name}, {kind} {whole.name}, {kind} zeroinitializer, {mask} -1, i32 4"
        return k.made(f"call {kind} @{name}({given})", x.dtype)
    half = on_integers(k, "ashr", n, 1)
    rest = on_integers(k, "sub", n, half)
    return k.multiply(k.multiply(x, two_to(k, half, x.dtype)), two_to(k, rest, x.dtype))


def with_sign(k: Words, x: Lane, sign: Lane) -> Lane:
    return k.call(f"llvm.copysign.{k.suffix(x.dtype)}", x.dtype, x, sign)


def held(k: Words, x: Lane, low: float, high: float) -> Lane:
    """x between bounds; NaN stays."""
    x = k.select(k.greater(x, k.constant(high)), k.constant(high), x)
    return k.select(k.less(x, k.constant(low)), k.constant(low), x)


def polynomial(k: Words, x: Lane, coefficients: Sequence[float]) -> Lane:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule; a long one as two in x^2, so that none waits long for the other."""
    if len(coefficients) > 8:
        squared = k.multiply(x, x)
        return k.fma(polynomial(k, squared, coefficients[1::2]), x, polynomial(k, squared, coefficients[::2]))
    total = k.constant(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, x, k.constant(c))
    return total


# Pairs


def known(k: Words, high: float, low: float) -> Pair:
    """A constant in two parts."""
    return k.constant(high), None if k.narrow else k.constant(low)


def plus(k: Words, *parts: Lane | None) -> Lane | None:
    """The sum of those parts that are there."""
    total: Lane | None = None
    for part in parts:
        total = part if total is None else total if part is None else k.add(total, part)
    return total


def fast_sum(k: Words, x: Lane, y: Lane | None) -> Pair:
    """x + y and what rounding lost of it, if |x| >= |y|."""
    if y is None:
        return x, None
    total = k.add(x, y)
    return total, None if k.narrow else k.subtract(y, k.subtract(total, x))


def two_sum(k: Words, x: Lane, y: Lane) -> Pair:
    """x + y and what rounding lost of it, whichever is larger."""
    total = k.add(x, y)
    if k.narrow:
        return total, None
    of_y = k.subtract(total, x)
    return total, k.add(k.subtract(x, k.subtract(total, of_y)), k.subtract(y, of_y))


def two_product(k: Words, x: Lane, y: Lane) -> Pair:
    product = k.multiply(x, y)
    return product, None if k.narrow else k.fma(x, y, k.negative(product))


def combined(k: Words, x: Pair, y: Pair) -> Pair:
    """x + y."""
    high, low = two_sum(k, x[0], y[0])
    return fast_sum(k, high, plus(k, low, plus(k, x[1], y[1])))


def multiplied(k: Words, x: Pair, y: Pair) -> Pair:
    high, low = two_product(k, x[0], y[0])
    if low is not None and y[1] is not None:
        low = k.fma(x[0], y[1], low)
    if low is not None and x[1] is not None:
        low = k.fma(x[1], y[0], low)
    return fast_sum(k, high, low)


def divided(k: Words, x: Pair, y: Pair) -> Pair:
    """x / y; the rest of the first quotient is known exactly, so it can be divided too."""
    high = k.divide(x[0], y[0])
    if k.narrow:
        return high, None
    rest = k.fma(k.negative(high), y[0], x[0])
    if x[1] is not None:
        rest = k.add(rest, x[1])
    if y[1] is not None:
        rest = k.fma(k.negative(high), y[1], rest)
    return fast_sum(k, high, k.divide(rest, y[0]))


def root(k: Words, x: Pair) -> Pair:
    """sqrt(h + l) = s + (h + l - s^2) / 2 s."""
    high = k.sqrt(x[0])
    if k.narrow:
        return high, None
    rest = k.fma(k.negative(high), high, x[0])
    if x[1] is not None:
        rest = k.add(rest, x[1])
    twice = k.maximum(k.add(high, high), k.constant(1e-300))  # at zero the rest is zero too
    return fast_sum(k, high, k.divide(rest, twice))


def value_of(k: Words, x: Pair) -> Lane:
    return x[0] if x[1] is None else k.add(x[0], x[1])

"""Numbers in, numbers out: division with remainder, reciprocals, lengths, signs and bits."""

from __future__ import annotations

import math
from typing import Any

from ..arrays.node import signed
from ..arrays.spec import spec_of
from . import elementwise as pointwise
from . import shaping
from .dispatch import as_value
from .elementwise import add, divide, equal, log, multiply, negative, power, sigmoid, where
from .families import elementwise
from .sampling import above, away_from

__all__ = [
    "addcdiv", "addcmul", "bitwise_count", "bitwise_left_shift", "bitwise_right_shift", "copysign", "divmod",
    "float_power", "floor_divide", "fmax", "fmin", "fmod", "gcd", "hypot", "lcm", "logaddexp2", "logical_xor",
    "nextafter", "reciprocal", "remainder", "rsqrt", "xlogy",
]  # fmt: skip


# The quotient q is constant wherever it is differentiable, and x = q y + rest.
floor_divide: Any = elementwise(
    "floor_divide", {"x": None, "y": None}, doc="The largest whole number not above x / y; its derivative is zero.",
    samples=away_from(0, 2),
)  # fmt: skip
remainder: Any = elementwise(
    "remainder", {"x": lambda: 1.0, "y": lambda bar, x, y: negative(multiply(bar, floor_divide(x, y)))},
    doc="x - floor(x / y) y, which has the sign of y.", samples=away_from(0, 2),
)  # fmt: skip


def _whole_quotient(x: Any, y: Any) -> Any:
    """x / y rounded towards zero, exact also where the quotient itself would round up to a whole number."""
    return pointwise.stop_gradient(divide(pointwise.subtract(x, fmod(x, y)), y))


fmod: Any = elementwise(
    "fmod", {"x": lambda: 1.0, "y": lambda bar, x, y: negative(multiply(bar, _whole_quotient(x, y)))},
    doc="x - trunc(x / y) y, which has the sign of x.", samples=away_from(0, 2),
)  # fmt: skip


@signed
def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """`(floor_divide(x, y), remainder(x, y))`.

    >>> import pullback as pb
    >>> pb.divmod(7.0, 2.0)
    (array(3.), array(1.))
    """
    return floor_divide(x, y), remainder(x, y)


reciprocal: Any = elementwise(
    "reciprocal", {"x": lambda bar, out: negative(multiply(multiply(bar, out), out))}, doc="1 / x.",
    kernel=lambda k, x: k.divide(k.constant(1), x), samples=away_from(0),
)  # fmt: skip
rsqrt: Any = elementwise(
    "rsqrt", {"x": lambda bar, out, x: divide(multiply(bar, out), multiply(x, -2))},
    value=lambda xp, x: 1 / xp.sqrt(x), dtype="inexact", doc="1 / sqrt(x).", example=("4.0", "array(0.5)"),
    kernel=lambda k, x: k.divide(k.constant(1), k.sqrt(x)), samples=above(0),
)  # fmt: skip


def _over_length(bar: Any, part: Any, out: Any) -> Any:
    """bar part / out, and zero at the origin, the middle of all directions there."""
    origin = equal(out, 0)
    return where(origin, 0.0, multiply(bar, divide(part, where(origin, 1.0, out))))


hypot: Any = elementwise(
    "hypot", {"x": lambda bar, x, out: _over_length(bar, x, out), "y": lambda bar, y, out: _over_length(bar, y, out)},
    doc="sqrt(x^2 + y^2), without overflow; its derivative at the origin is zero.",
)  # fmt: skip
copysign: Any = elementwise(
    "copysign", {"x": lambda x, y: multiply(pointwise.sign(x), copysign(1.0, y)), "y": None},
    doc="|x| with the sign of y; at x = 0 its derivative is zero.", samples=away_from(0, 2),
)  # fmt: skip
nextafter: Any = elementwise(
    "nextafter", {"x": lambda: 1.0, "y": None}, doc="The number next to x in the direction of y; it moves as x does."
)


def _greater_number(x: Any, y: Any) -> Any:
    """1 where x is greater or y is not a number, a half at ties."""
    return where(pointwise.isnan(y), 1.0, where(pointwise.isnan(x), 0.0, pointwise.wins(x, y)))


def _lesser_number(x: Any, y: Any) -> Any:
    return where(pointwise.isnan(y), 1.0, where(pointwise.isnan(x), 0.0, pointwise.wins(y, x)))


fmax: Any = elementwise(
    "fmax", {"x": lambda x, y: _greater_number(x, y), "y": lambda x, y: _greater_number(y, x)},
    doc="The greater of x and y, NaNs passed over; a tie sends half to each.",
)  # fmt: skip
fmin: Any = elementwise(
    "fmin", {"x": lambda x, y: _lesser_number(x, y), "y": lambda x, y: _lesser_number(y, x)},
    doc="The lesser of x and y, NaNs passed over; a tie sends half to each.",
)  # fmt: skip


# 2^x / (2^x + 2^y) = sigmoid((x - y) log 2)
def _share_of_two(x: Any, y: Any) -> Any:
    return sigmoid(multiply(pointwise.apart(x, y), math.log(2)))


logaddexp2: Any = elementwise(
    "logaddexp2", {"x": lambda x, y: _share_of_two(x, y), "y": lambda x, y: _share_of_two(y, x)},
    doc="log2(2^x + 2^y), without overflow.",
)  # fmt: skip


@signed
def xlogy(x: Any, y: Any, /) -> Any:
    """x log(y), and zero where x is zero and y has no logarithm; the derivatives are zero there too.

    >>> import pullback as pb
    >>> pb.xlogy([0.0, 2.0], [0.0, 1.0])
    array([0., 0.])
    """
    x, y = as_value(x), as_value(y)
    nothing = pointwise.logical_and(equal(x, 0), pointwise.less_equal(y, 0))
    return where(nothing, 0.0, multiply(x, log(where(nothing, 1.0, y))))


@signed
def addcmul(x: Any, y: Any, z: Any, /, *, value: Any = 1) -> Any:
    """x + value * y * z.

    >>> import pullback as pb
    >>> pb.addcmul(1.0, 2.0, 3.0, value=10)
    array(61.)
    """
    product = multiply(y, z)
    return add(x, product if type(value) is int and value == 1 else multiply(product, value))


@signed
def addcdiv(x: Any, y: Any, z: Any, /, *, value: Any = 1) -> Any:
    """x + value * y / z.

    >>> import pullback as pb
    >>> pb.addcdiv(1.0, 6.0, 3.0, value=10)
    array(21.)
    """
    quotient = divide(y, z)
    return add(x, quotient if type(value) is int and value == 1 else multiply(quotient, value))


@signed
def float_power(x: Any, y: Any, /) -> Any:
    """x ** y in double precision.

    >>> import pullback as pb
    >>> pb.float_power(2, -1)
    array(0.5)
    """
    wide = [
        shaping.astype(v, "complex128" if spec_of(v).dtype.kind == "c" else "float64") for v in map(as_value, (x, y))
    ]
    return power(*wide)


bitwise_left_shift: Any = pointwise.bits(
    "bitwise_left_shift", "The bits of x moved y places up.", "x", "y", example=("[1, 2], 3", "array([ 8, 16])"),
    ufunc="left_shift",
)  # fmt: skip
bitwise_right_shift: Any = pointwise.bits(
    "bitwise_right_shift", "The bits of x moved y places down.", "x", "y", example=("[8, 17], 3", "array([1, 2])"),
    ufunc="right_shift",
)  # fmt: skip
bitwise_count: Any = pointwise.bits(
    "bitwise_count", "How many bits |x| has.", "x", example=("[3, 8]", "array([2, 1], dtype=uint8)")
)
gcd: Any = pointwise.bits("gcd", "The greatest common divisor.", "x", "y", example=("[12, 9], 6", "array([6, 3])"))
lcm: Any = pointwise.bits("lcm", "The least common multiple.", "x", "y", example=("[4, 9], 6", "array([12, 18])"))
logical_xor: Any = elementwise(
    "logical_xor", {"x": None, "y": None}, dtype="bool", doc="Either x or y holds, not both."
)

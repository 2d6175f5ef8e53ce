"""Elementwise arithmetic: division with remainder, reciprocals, hypot, signs and bits."""

from __future__ import annotations

import math
from typing import Any

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import spec_of
from ..dispatch import as_value
from ..families import elementwise_op
from ..fusion import cast_whole
from ..op_samples import reals_above, reals_away_from
from ..round_once import rounds_once
from ..shape import reshaping
from ..signatures import of_three_arrays, of_two_arrays
from . import pointwise
from .pointwise import add, divide, equal, log, multiply, negative, power, sigmoid, where


# The quotient q is constant wherever it is differentiable, and x = q y + remainder.
@elementwise_op({"x": None, "y": None}, samples=reals_away_from(0, 2))
def floor_divide(x: Any, y: Any, /) -> Any:
    """The largest integer not above x / y; its derivative is zero."""


@elementwise_op(
    {"x": lambda: 1.0, "y": lambda bar, x, y: negative(multiply(bar, floor_divide(x, y)))},
    samples=reals_away_from(0, 2),
)
def remainder(x: Any, y: Any, /) -> Any:
    """x - floor(x / y) y, which has the sign of y."""


def _truncated_quotient(x: Any, y: Any) -> Any:
    """x / y rounded towards zero, exact also where the quotient itself would round up to an integer."""
    return pointwise.stop_gradient(divide(pointwise.subtract(x, fmod(x, y)), y))


@elementwise_op(
    {"x": lambda: 1.0, "y": lambda bar, x, y: negative(multiply(bar, _truncated_quotient(x, y)))},
    samples=reals_away_from(0, 2),
)
def fmod(x: Any, y: Any, /) -> Any:
    """x - trunc(x / y) y, which has the sign of x."""


@attributed_to_caller
def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """`(floor_divide(x, y), remainder(x, y))`.

    >>> import pullback as pb
    >>> pb.divmod(7.0, 2.0)
    (array(3.), array(1.))
    """
    return floor_divide(x, y), remainder(x, y)


@elementwise_op(
    {"x": lambda bar, out: negative(multiply(multiply(bar, out), out))},
    kernel=lambda k, x: k.divide(k.constant(1), x),
    samples=reals_away_from(0),
    autocast="high",
)
def reciprocal(x: Any, /) -> Any:
    """1 / x."""


@elementwise_op(
    {"x": lambda bar, out, x: divide(multiply(bar, out), multiply(x, -2))},
    value=lambda xp, x: 1 / xp.sqrt(x),
    dtype="inexact",
    kernel=lambda k, x: k.divide(k.constant(1), k.sqrt(x)),
    samples=reals_above(0),
    autocast="high",
)
def rsqrt(x: Any, /) -> Any:
    """1 / sqrt(x).

    >>> import pullback as pb
    >>> pb.rsqrt(4.0)
    array(0.5)
    """


def _divide_by_length(bar: Any, part: Any, out: Any) -> Any:
    """bar part / out, and zero at the origin, the mean over all directions."""
    origin = equal(out, 0)
    return where(origin, 0.0, multiply(bar, divide(part, where(origin, 1.0, out))))


@elementwise_op(
    {"x": lambda bar, x, out: _divide_by_length(bar, x, out), "y": lambda bar, y, out: _divide_by_length(bar, y, out)}
)
def hypot(x: Any, y: Any, /) -> Any:
    """sqrt(x^2 + y^2), without overflow; its derivative at the origin is zero."""


@elementwise_op(
    {"x": lambda x, y: multiply(pointwise.sign(x), copysign(1.0, y)), "y": None}, samples=reals_away_from(0, 2)
)
def copysign(x: Any, y: Any, /) -> Any:
    """|x| with the sign of y; at x = 0 its derivative is zero."""


@elementwise_op({"x": lambda: 1.0, "y": None})
def nextafter(x: Any, y: Any, /) -> Any:
    """The next number after x towards y; its derivative in x is one."""


def _fmax_partial(x: Any, y: Any) -> Any:
    """1 where x is greater or y is not a number, a half at ties."""
    return where(pointwise.isnan(y), 1.0, where(pointwise.isnan(x), 0.0, pointwise.greater_weight(x, y)))


def _fmin_partial(x: Any, y: Any) -> Any:
    return where(pointwise.isnan(y), 1.0, where(pointwise.isnan(x), 0.0, pointwise.greater_weight(y, x)))


@elementwise_op({"x": lambda x, y: _fmax_partial(x, y), "y": lambda x, y: _fmax_partial(y, x)})
def fmax(x: Any, y: Any, /) -> Any:
    """The greater of x and y, NaNs passed over; a tie sends half to each."""


@elementwise_op({"x": lambda x, y: _fmin_partial(x, y), "y": lambda x, y: _fmin_partial(y, x)})
def fmin(x: Any, y: Any, /) -> Any:
    """The lesser of x and y, NaNs passed over; a tie sends half to each."""


# 2^x / (2^x + 2^y) = sigmoid((x - y) log 2)
def _logaddexp2_partial(x: Any, y: Any) -> Any:
    return sigmoid(multiply(pointwise.subtract_or_zero(x, y), math.log(2)))


@elementwise_op(
    {"x": lambda x, y: _logaddexp2_partial(x, y), "y": lambda x, y: _logaddexp2_partial(y, x)}, autocast="high"
)
def logaddexp2(x: Any, y: Any, /) -> Any:
    """log2(2^x + 2^y), without overflow."""


@of_two_arrays
@cast_whole("high")
@attributed_to_caller
@rounds_once
def xlogy(x: Any, y: Any, /) -> Any:
    """x log(y), and zero where x is zero and y has no logarithm; the derivatives are zero there too.

    >>> import pullback as pb
    >>> pb.xlogy([0.0, 2.0], [0.0, 1.0])
    array([0., 0.])
    """
    x, y = as_value(x), as_value(y)
    nothing = pointwise.logical_and(equal(x, 0), pointwise.less_equal(y, 0))
    return where(nothing, 0.0, multiply(x, log(where(nothing, 1.0, y))))


@of_three_arrays
@attributed_to_caller
@rounds_once
def addcmul(x: Any, y: Any, z: Any, /, *, value: Any = 1) -> Any:
    """x + value * y * z.

    >>> import pullback as pb
    >>> pb.addcmul(1.0, 2.0, 3.0, value=10)
    array(61.)
    """
    product = multiply(y, z)
    return add(x, product if type(value) is int and value == 1 else multiply(product, value))


@of_three_arrays
@attributed_to_caller
@rounds_once
def addcdiv(x: Any, y: Any, z: Any, /, *, value: Any = 1) -> Any:
    """x + value * y / z.

    >>> import pullback as pb
    >>> pb.addcdiv(1.0, 6.0, 3.0, value=10)
    array(21.)
    """
    quotient = divide(y, z)
    return add(x, quotient if type(value) is int and value == 1 else multiply(quotient, value))


@of_two_arrays
@attributed_to_caller
def float_power(x: Any, y: Any, /) -> Any:
    """x ** y in double precision.

    >>> import pullback as pb
    >>> pb.float_power(2, -1)
    array(0.5)
    """
    wide = [
        reshaping.astype(v, "complex128" if spec_of(v).dtype.kind == "c" else "float64") for v in map(as_value, (x, y))
    ]
    return power(*wide)


@pointwise.bitwise_op("left_shift")
def bitwise_left_shift(x: Any, y: Any, /) -> Any:
    """The bits of x moved y places up.

    >>> import pullback as pb
    >>> pb.bitwise_left_shift([1, 2], 3)
    array([ 8, 16])
    """


@pointwise.bitwise_op("right_shift")
def bitwise_right_shift(x: Any, y: Any, /) -> Any:
    """The bits of x moved y places down.

    >>> import pullback as pb
    >>> pb.bitwise_right_shift([8, 17], 3)
    array([1, 2])
    """


@pointwise.bitwise_op()
def bitwise_count(x: Any, /) -> Any:
    """How many bits |x| has.

    >>> import pullback as pb
    >>> pb.bitwise_count([3, 8])
    array([2, 1], dtype=uint8)
    """


@pointwise.bitwise_op()
def gcd(x: Any, y: Any, /) -> Any:
    """The greatest common divisor.

    >>> import pullback as pb
    >>> pb.gcd([12, 9], 6)
    array([6, 3])
    """


@pointwise.bitwise_op()
def lcm(x: Any, y: Any, /) -> Any:
    """The least common multiple.

    >>> import pullback as pb
    >>> pb.lcm([4, 9], 6)
    array([12, 18])
    """


@elementwise_op({"x": None, "y": None}, dtype="bool")
def logical_xor(x: Any, y: Any, /) -> Any:
    """Either x or y holds, not both."""

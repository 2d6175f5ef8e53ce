"""Rounding (with derivative zero, by choice), splitting of floats, and tests of special values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import make_spec, spec_of
from ...errors import DtypeError
from .. import batching, statics
from ..dispatch import apply, as_value
from ..dtype_info import finfo
from ..families import elementwise, elementwise_op, general
from ..op_samples import normal_samples
from ..shape import reshaping
from ..signatures import UnaryOp, of_array, of_two_arrays, to_pair
from . import pointwise
from .arithmetic import floor_divide
from .pointwise import abs as size_of
from .pointwise import add, equal, isnan, logical_and, logical_or, multiply, subtract, where


def _rounding_op(name: str, doc: str) -> Any:
    return elementwise(name, {"x": None}, doc=f"{doc}; its derivative is zero.")


floor: UnaryOp = _rounding_op("floor", "The largest integer not above x")
ceil: UnaryOp = _rounding_op("ceil", "The smallest integer not below x")
trunc: UnaryOp = _rounding_op("trunc", "The integer next to x towards zero")
rint: UnaryOp = _rounding_op("rint", "The integer nearest to x, the even one at a tie")
fix = trunc
signbit: UnaryOp = elementwise("signbit", {"x": None}, dtype="bool", doc="Whether x has a minus sign, as -0 has.")


@elementwise_op(
    {"x": None}, kernel=lambda k, x: k.copysign(k.subtract(k.nextafter(k.abs(x), k.constant(math.inf)), k.abs(x)), x)
)
def spacing(x: Any, /) -> Any:
    """The distance from x to the next number away from zero; its derivative is zero."""


@of_array
@attributed_to_caller
def round(x: Any, /, decimals: int = 0) -> Any:
    """x rounded to some decimals, ties to even; its derivative is zero.

    >>> import pullback as pb
    >>> pb.round([0.5, 1.25, 1.75], 1)
    array([0.5, 1.2, 1.8])
    """
    x = as_value(x)
    if not spec_of(x).inexact and decimals >= 0:
        return reshaping.pass_through(x)
    if not decimals:
        return rint(x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return pointwise.divide(rint(multiply(x, scale)), scale)
    return reshaping.astype(multiply(rint(pointwise.divide(x, scale)), scale), spec_of(x).dtype)


@to_pair
@attributed_to_caller
def modf(x: Any, /) -> tuple[Any, Any]:
    """The fractional and the integral part of x, both with the sign of x.

    >>> import pullback as pb
    >>> pb.modf(-2.5)
    (array(-0.5), array(-2.))
    """
    x = as_value(x)
    whole = trunc(x)
    bounded = where(pointwise.isinf(x), multiply(pointwise.sign(pointwise.stop_gradient(x)), 0.0), subtract(x, whole))
    return bounded, whole


@to_pair
@attributed_to_caller
def frexp(x: Any, /) -> tuple[Any, Any]:
    """The fraction f and the integer e with x = f 2^e and |f| in [0.5, 1).

    >>> import pullback as pb
    >>> pb.frexp(12.0)
    (array(0.75), array(4, dtype=int32))
    """
    x = as_value(x)
    exponent = apply(_exponent, x)
    scale = apply(_power_of_two, pointwise.negative(exponent), dtype=spec_of(x).dtype)
    return multiply(x, scale), exponent


# The integer e with |x| 2^-e in [0.5, 1).
_exponent = general(
    "exponent",
    value=lambda xp, x: xp.frexp(x)[1], spec=lambda x: make_spec(x.shape, np.dtype(np.intc), x.device),
    batch=batching.batch_pointwise, samples=normal_samples([(3,), ()]), family="elementwise",
)  # fmt: skip
_power_of_two = general(
    "power_of_two",
    statics={"dtype": statics.floating_dtype},
    value=lambda xp, x, dtype: xp.ldexp(xp.asarray(1, dtype), x),
    spec=lambda x, dtype: make_spec(x.shape, dtype, x.device),
    batch=batching.batch_pointwise, samples=lambda rng: [((rng.integers(-9, 9, 3),), {"dtype": np.dtype("float64")})],
    family="elementwise",
)  # fmt: skip


@of_two_arrays
@attributed_to_caller
def ldexp(x: Any, y: Any, /) -> Any:
    """x 2^y for integers y.

    >>> import pullback as pb
    >>> pb.ldexp(3.0, 2)
    array(12.)
    """
    x, y = as_value(x), as_value(y)
    if spec_of(y).dtype.kind not in "biu":
        raise DtypeError(f"ldexp: y must be integers, got {spec_of(y)}.\n  Use x * pb.exp2(y).")
    dtype = spec_of(x).dtype if spec_of(x).inexact else np.dtype("float64")
    half = floor_divide(y, 2)  # in two steps: 2^y alone may overflow while x 2^y does not
    for part in (half, subtract(y, half)):
        x = multiply(x, apply(_power_of_two, part, dtype=dtype))
    return x


@of_array
def isposinf(x: Any, /) -> Any:
    """Whether x is infinity.

    >>> import pullback as pb
    >>> pb.isposinf([-float("inf"), float("inf")])
    array([False,  True])
    """
    return equal(as_value(x), math.inf)


@of_array
def isneginf(x: Any, /) -> Any:
    """Whether x is minus infinity.

    >>> import pullback as pb
    >>> pb.isneginf([-float("inf"), float("inf")])
    array([ True, False])
    """
    return equal(as_value(x), -math.inf)


@of_array
def isreal(x: Any, /) -> Any:
    """Whether the imaginary part of x is zero.

    >>> import pullback as pb
    >>> pb.isreal([1.0, 1j])
    array([ True, False])
    """
    return equal(pointwise.imag(as_value(x)), 0)


@of_array
def iscomplex(x: Any, /) -> Any:
    """Whether the imaginary part of x is not zero.

    >>> import pullback as pb
    >>> pb.iscomplex([1.0, 1j])
    array([False,  True])
    """
    return pointwise.not_equal(pointwise.imag(as_value(x)), 0)


@of_two_arrays
@attributed_to_caller
def isclose(x: Any, y: Any, /, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Whether |x - y| is at most atol + rtol |y|; infinities are close to themselves alone.

    >>> import pullback as pb
    >>> pb.isclose([1.0, 2.0], [1.0 + 1e-9, 2.1])
    array([ True, False])
    """
    x, y = as_value(x), as_value(y)
    near = pointwise.less_equal(size_of(subtract(x, y)), add(atol, multiply(rtol, size_of(y))))
    close = logical_or(logical_and(near, pointwise.isfinite(y)), equal(x, y))
    return logical_or(close, logical_and(isnan(x), isnan(y))) if equal_nan else close


@of_array
@attributed_to_caller
def nan_to_num(x: Any, /, *, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with NaN and the infinities replaced by finite numbers; replaced elements get no cotangent.

    >>> import numpy as np, pullback as pb
    >>> pb.nan_to_num(np.array([1.0, np.nan]), nan=2.0)
    array([1., 2.])
    """
    x = as_value(x)
    if not spec_of(x).inexact:
        return reshaping.pass_through(x)
    if spec_of(x).dtype.kind == "c":
        parts = [
            nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf) for part in (pointwise.real(x), pointwise.imag(x))
        ]
        return add(parts[0], multiply(parts[1], 1j))
    most = finfo(spec_of(x).dtype).max
    x = where(isnan(x), nan, x)
    x = where(isposinf(x), most if posinf is None else posinf, x)
    return where(isneginf(x), -most if neginf is None else neginf, x)

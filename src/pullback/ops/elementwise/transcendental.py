"""Further elementwise functions: exponentials, logarithms, inverse hyperbolic functions, angles and sinc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import is_inexact, make_spec
from .. import batching, statics
from ..dispatch import apply, as_value
from ..families import elementwise, elementwise_op, general, is_complex
from ..op import Op
from ..op_samples import join_samples, normal_samples, reals_above, reals_away_from, reals_between
from ..signatures import UnaryOp, of_array
from .arithmetic import hypot
from .pointwise import add, atan2, conj, divide, imag, multiply, real, sqrt, square, subtract

exp2: UnaryOp = elementwise(
    "exp2", {"x": lambda out: multiply(out, math.log(2))}, doc="2 to the power x.", autocast="high", has_own_bits=True
)


@elementwise_op(
    {"x": lambda bar, x: divide(multiply(bar, 1 / math.log(2)), x)}, samples=reals_above(0), autocast="high"
)
def log2(x: Any, /) -> Any:
    """Logarithm to base 2."""


@elementwise_op(
    {"x": lambda bar, x: divide(multiply(bar, 1 / math.log(10)), x)}, samples=reals_above(0), autocast="high"
)
def log10(x: Any, /) -> Any:
    """Logarithm to base 10."""


def _sqrt_one_plus_square(x: Any) -> Any:
    """sqrt(x^2 + 1), for reals without overflow."""
    return sqrt(add(square(x), 1)) if is_complex(x) else hypot(x, 1.0)


@elementwise_op({"x": lambda bar, x: divide(bar, _sqrt_one_plus_square(x))}, value="arcsinh")
def asinh(x: Any, /) -> Any:
    """Inverse hyperbolic sine."""


# sqrt(x - 1) sqrt(x + 1), not sqrt(x^2 - 1): no overflow, and the right branch for complex numbers
@elementwise_op(
    {"x": lambda bar, x: divide(divide(bar, sqrt(subtract(x, 1))), sqrt(add(x, 1)))},
    value="arccosh",
    samples=reals_above(1.1),
    autocast="high",
)
def acosh(x: Any, /) -> Any:
    """Inverse hyperbolic cosine.

    >>> import pullback as pb
    >>> pb.acosh(1.0)
    array(0.)
    """


@elementwise_op(
    {"x": lambda bar, x: divide(bar, multiply(subtract(1, x), add(x, 1)))},
    value="arctanh",
    samples=reals_between(-0.9, 0.9),
    autocast="high",
)
def atanh(x: Any, /) -> Any:
    """Inverse hyperbolic tangent.

    >>> import pullback as pb
    >>> pb.atanh(0.0)
    array(0.)
    """


@elementwise_op({"x": lambda bar, out: divide(bar, multiply(square(out), 3))}, samples=reals_away_from(0))
def cbrt(x: Any, /) -> Any:
    """Cube root; cbrt'(0) = inf."""


@elementwise_op({"x": lambda: math.pi / 180}, kernel=lambda k, x: k.multiply(x, k.constant(math.pi / 180)))
def deg2rad(x: Any, /) -> Any:
    """Degrees as radians."""


@elementwise_op({"x": lambda: 180 / math.pi}, kernel=lambda k, x: k.multiply(x, k.constant(180 / math.pi)))
def rad2deg(x: Any, /) -> Any:
    """Radians as degrees."""


def _sinc_value(xp: Any, x: Any, order: int) -> Any:
    """The derivative of some order of s(u) = sin(u) / u at u = pi x, times pi^order.

    Far from zero, u s = sin u differentiated n times gives u s_n + n s_(n-1) = sin(u + n pi / 2), a recurrence that
    is stable while |u| > n. Near zero, s_n = sum over 2k >= n of (-1)^k u^(2k - n) / ((2k - n)! (2k + 1)).
    """
    x = xp.asarray(x)
    wanted = x.dtype if is_inexact(x.dtype) else np.dtype("float64")
    u = x.astype("float32" if wanted.itemsize == 2 else wanted) * math.pi
    near = xp.abs(u) < order + 1
    far = xp.where(near, order + 1, u)
    found = xp.sin(far) / far
    for n in range(1, order + 1):
        found = (xp.sin(far + n * math.pi / 2) - n * found) / far
    found = xp.where(near, _sinc_series(xp, xp.where(near, u, 0), order), found)
    return (found * math.pi**order).astype(wanted, copy=False)


def _sinc_series(xp: Any, u: Any, order: int) -> Any:
    first = (order + 1) // 2
    power = 2 * first - order  # 0 or 1
    term = u if power else xp.ones_like(u)
    total = xp.zeros_like(u)
    for k in range(first, first + 12 + 2 * order):
        total = total + (-1) ** k * term / (2 * k + 1)
        term = term * u * u / ((power + 1) * (power + 2))
        power += 2
    return total


def _sinc_slope(x: Any, order: int, conjugate: bool) -> Any:
    """The next derivative; conjugated for a cotangent, which is multiplied by the conjugate of a complex slope."""
    slope = apply(_sinc, x, order=order + 1)
    return conj(slope) if conjugate and is_complex(slope) else slope


# The derivative of some order of sin(pi x) / (pi x).
_sinc: Op = general(
    "sinc",
    statics={"order": statics.integer(0, 200)},
    value=_sinc_value,
    spec=lambda x, order: make_spec(x.shape, x.dtype if is_inexact(x.dtype) else "float64", x.device),
    pulls={"x": lambda bar, x, order: multiply(bar, _sinc_slope(x, order, True))},
    push=lambda tangents, out, primals, static: multiply(tangents[0], _sinc_slope(primals[0], static["order"], False)),
    batch=batching.batch_pointwise,
    samples=join_samples(
        normal_samples([(3,), (), (2, 3), (0,)], order=[0, 0, 1, 0]),
        lambda rng: [((rng.normal(size=6) * 1e-3,), {"order": 2})],
    ),
    family="elementwise",
)


@of_array
@attributed_to_caller
def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), 1 at zero, with every derivative correct there.

    >>> import numpy as np, pullback as pb
    >>> pb.sinc(np.array([0.0, 0.5]))
    array([1.        , 0.63661977])
    """
    return apply(_sinc, as_value(x), order=0)


@of_array
@attributed_to_caller
def angle(x: Any, /, *, deg: bool = False) -> Any:
    """The angle of a complex number in the complex plane.

    >>> import pullback as pb
    >>> pb.angle(1j, deg=True)
    array(90.)
    """
    x = as_value(x)
    angles = atan2(imag(x), real(x)) if is_complex(x) else atan2(0.0, x)
    return multiply(angles, 180 / math.pi) if deg else angles

"""The core elementwise ops. Each states its partials and where to sample; the family derives the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.backends import is_array, special_namespace_of
from ...arrays.call_site import attributed_to_caller
from ...arrays.spec import is_inexact
from ...errors import DtypeError
from ..dispatch import as_value
from ..eager import function_at_depth, operator_function, public_function
from ..families import elementwise, elementwise_op, is_complex
from ..op import IDENTITY, Algebra, MaskedCotangent
from ..op_samples import integers, reals_above, reals_away_from, reals_between
from ..signatures import BinaryOp, Declarations, UnaryOp, of_array, of_three_arrays

_SCALARS = (bool, int, float)
#: From this many elements on, selection by bits is faster than `np.where`.
_MANY = 1 << 14


def _special_value(xp: Any, name: str, x: Any, plane: bool = False) -> Any:
    """SciPy's function in the dtype NumPy's own functions would return: SciPy widens half precision. `plane`: whether
    it also supports complex arguments.
    """
    x = xp.asarray(x)
    if x.dtype.kind == "c" and not plane:
        raise DtypeError(f"{name}: complex arguments are not supported, got {x.dtype}.")
    wanted = x.dtype if is_inexact(x.dtype) else xp.sin(xp.zeros(0, x.dtype)).dtype
    wide = x if x.dtype.itemsize > 2 else x.astype("float32")
    return getattr(special_namespace_of(xp), name)(wide).astype(wanted, copy=False)


def mask_cotangent(mask: Any, bar: Any) -> MaskedCotangent:
    """The cotangent where the mask holds; elsewhere structurally zero."""
    return MaskedCotangent(where(mask, bar, 0), mask)


# 0 is not neutral: -0.0 + 0 is 0.0
add: BinaryOp = elementwise(
    "add", {"x": lambda: 1.0, "y": lambda: 1.0}, doc="x + y.", algebra=Algebra(weights=(1.0, 1.0))
)
subtract: BinaryOp = elementwise(
    "subtract",
    {"x": lambda: 1.0, "y": lambda: -1.0},
    doc="x - y.",
    algebra=Algebra(weights=(1.0, -1.0), neutral={1: 0}),
)
multiply: BinaryOp = elementwise(
    "multiply",
    {"x": lambda y: y, "y": lambda x: x},
    doc="x * y.",
    algebra=Algebra(neutral={1: 1, 0: 1}, is_product=True),
)


# The quotient rule in terms of the result, so that the divisor is never squared: 1e10 / 1e20 stays in float32.
@elementwise_op(
    {"x": lambda bar, y: divide(bar, y), "y": lambda bar, out, y: negative(divide(multiply(bar, out), y))},
    samples=reals_away_from(0, 2),
    algebra=Algebra(neutral={1: 1}, is_quotient=True),
)
def divide(x: Any, y: Any, /) -> Any:
    """x / y."""


def _as_number(x: Any) -> Any:
    """A bare real 0-d array as a Python number, which saves rules computing both sides of a `where`."""
    return x.item() if is_array(x) and not x.ndim and x.dtype.kind == "f" and x.dtype.itemsize > 2 else x


def _power_partial_base(x: Any, y: Any) -> Any:
    """y x^(y - 1), and exactly zero where y is zero, also at x = 0."""
    y = _as_number(y)
    if type(y) in _SCALARS:
        return 0.0 if y == 0 else multiply(power(x, y - 1), y)
    constant = equal(y, 0)
    return where(constant, 0.0, multiply(y, power(x, where(constant, 1.0, subtract(y, 1)))))


def _power_partial_exponent(out: Any, x: Any) -> Any:
    """x^y log x, and zero at x = 0, where the limit for positive y is zero."""
    x = _as_number(x)
    if type(x) in _SCALARS:
        return multiply(out, 0.0 if x == 0 else math.log(x) if x > 0 else math.nan)
    at_zero = equal(x, 0)
    return where(at_zero, 0.0, multiply(out, log(where(at_zero, 1.0, x))))


@elementwise_op(
    {"x": _power_partial_base, "y": _power_partial_exponent},
    samples=reals_above(0, 2),
    algebra=Algebra(neutral={1: 1}),
    autocast="high",
)
def power(x: Any, y: Any, /) -> Any:
    """x ** y."""


negative: UnaryOp = elementwise("negative", {"x": lambda: -1.0}, doc="-x.")
positive: UnaryOp = elementwise("positive", {"x": lambda: 1.0}, doc="+x, the value itself.", algebra=IDENTITY)
square: UnaryOp = elementwise("square", {"x": lambda x: multiply(x, 2)}, doc="x * x.")


@elementwise_op({"x": lambda bar, out: divide(bar, multiply(out, 2))}, samples=reals_above(0))
def sqrt(x: Any, /) -> Any:
    """Square root; sqrt'(0) = inf."""


exp: UnaryOp = elementwise("exp", {"x": lambda out: out}, doc="e to the power x.", autocast="high")
expm1: UnaryOp = elementwise(
    "expm1", {"x": lambda out: add(out, 1)}, doc="exp(x) - 1, exact near zero.", autocast="high"
)
log: UnaryOp = elementwise(
    "log",
    {"x": lambda bar, x: divide(bar, x)},
    doc="Natural logarithm.",
    samples=reals_above(0),
    autocast="high",
)


@elementwise_op({"x": lambda bar, x: divide(bar, add(x, 1))}, samples=reals_above(-0.9), autocast="high")
def log1p(x: Any, /) -> Any:
    """log(1 + x), exact near zero."""


sin: UnaryOp = elementwise("sin", {"x": lambda x: cos(x)}, doc="Sine.")
cos: UnaryOp = elementwise("cos", {"x": lambda x: negative(sin(x))}, doc="Cosine.")
tan: UnaryOp = elementwise(
    "tan",
    {"x": lambda out: add(square(out), 1)},
    doc="Tangent.",
    samples=reals_between(-1.2, 1.2),
    autocast="high",
)
sinh: UnaryOp = elementwise("sinh", {"x": lambda x: cosh(x)}, doc="Hyperbolic sine.", autocast="high")
cosh: UnaryOp = elementwise("cosh", {"x": lambda x: sinh(x)}, doc="Hyperbolic cosine.", autocast="high")
tanh: UnaryOp = elementwise(
    "tanh", {"x": lambda out: subtract(1, multiply(out, out))}, doc="Hyperbolic tangent.", has_own_bits=True
)


_caller_square, _caller_sqrt = function_at_depth(square.op, 2), function_at_depth(sqrt.op, 2)
_caller_power = operator_function(power.op, 2)


def power_operator(x: Any, y: Any) -> Any:
    """x ** y as the operator computes it: the square and the root by their own ops."""
    if type(y) is int and y == 2:
        return _caller_square(x)
    if type(y) is float and y == 0.5:
        return _caller_sqrt(x)
    return _caller_power(x, y)


def _sqrt_one_minus_square(x: Any) -> Any:
    """sqrt(1 - x^2), written so that it is exact as x nears 1."""
    return sqrt(multiply(subtract(1, x), add(x, 1)))


@elementwise_op(
    {"x": lambda bar, x: divide(bar, _sqrt_one_minus_square(x))},
    value="arcsin",
    samples=reals_between(-0.9, 0.9),
    autocast="high",
)
def asin(x: Any, /) -> Any:
    """Inverse sine."""


@elementwise_op(
    {"x": lambda bar, x: negative(divide(bar, _sqrt_one_minus_square(x)))},
    value="arccos",
    samples=reals_between(-0.9, 0.9),
    autocast="high",
)
def acos(x: Any, /) -> Any:
    """Inverse cosine."""


@elementwise_op({"x": lambda bar, x: divide(bar, add(square(x), 1))}, value="arctan")
def atan(x: Any, /) -> Any:
    """Inverse tangent."""


def _divide_by_squared_radius(bar: Any, part: Any, x: Any, y: Any) -> Any:
    """bar part / (x^2 + y^2), and zero at the origin, where the angle is not differentiable."""
    radius = add(square(x), square(y))
    origin = equal(radius, 0)
    return where(origin, 0.0, divide(multiply(bar, part), where(origin, 1.0, radius)))


@elementwise_op(
    {
        "y": lambda bar, y, x: _divide_by_squared_radius(bar, x, x, y),
        "x": lambda bar, y, x: negative(_divide_by_squared_radius(bar, y, x, y)),
    },
    value="arctan2",
)
def atan2(y: Any, x: Any, /) -> Any:
    """The angle of the point (x, y), given as atan2(y, x); its derivative at the origin is zero."""


@elementwise_op(
    {"x": lambda out: multiply(out, subtract(1, out))},
    value=lambda xp, x: _special_value(xp, "expit", x),
    dtype="inexact",
)
def sigmoid(x: Any, /) -> Any:
    """1 / (1 + exp(-x)), without overflow.

    >>> import pullback as pb
    >>> pb.sigmoid(0.0)
    array(0.5)
    """


@elementwise_op(
    {"x": lambda bar, x: multiply(multiply(bar, exp(negative(square(x)))), 2 / math.sqrt(math.pi))},
    value=lambda xp, x: _special_value(xp, "erf", x, plane=True),
    dtype="inexact",
)
def erf(x: Any, /) -> Any:
    """The error function.

    >>> import pullback as pb
    >>> pb.erf(0.0)
    array(0.)
    """


def _softplus_value(xp: Any, x: Any) -> Any:
    """max(x, 0) + log(1 + exp(-|x|)); NumPy's own logaddexp computes element by element, tens of times slower."""
    x = xp.asarray(x)
    if x.dtype.kind == "c":
        raise DtypeError(f"softplus: complex arguments are not supported, got {x.dtype}.")
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@elementwise_op(
    {"x": lambda x: sigmoid(x)},
    value=_softplus_value,
    dtype="inexact",
    kernel=lambda k, x: k.add(k.maximum(x, k.constant(0)), k.log1p(k.exp(k.negative(k.abs(x))))),
    autocast="high",
)
def softplus(x: Any, /) -> Any:
    """log(1 + exp(x)), without overflow.

    >>> import pullback as pb
    >>> pb.softplus([0.0, 1000.0])
    array([6.93147181e-01, 1.00000000e+03])
    """


#: u = _SLOPE (x + _BEND x^3), so that x (1 + tanh u) / 2 is close to x times the normal distribution function.
_SLOPE, _BEND = math.sqrt(2 / math.pi), 0.044715


def _gelu_value(xp: Any, x: Any) -> Any:
    """x (1 + tanh u) / 2, with one temporary besides the result."""
    x = xp.asarray(x)
    wide = x if is_inexact(x.dtype) else x.astype("float64")
    out = xp.asarray(wide * wide)
    for step, number in ((xp.multiply, _BEND), (xp.add, 1.0), (xp.multiply, wide), (xp.multiply, _SLOPE)):
        step(out, number, out=out)
    xp.tanh(out, out=out)
    for step, number in ((xp.add, 1.0), (xp.multiply, wide), (xp.multiply, 0.5)):
        step(out, number, out=out)
    return out


# With t = tanh u: y' = (1 + t) / 2 + x (1 - t^2) u' / 2 and u' = _SLOPE (1 + 3 _BEND x^2).
def _gelu_slope(x: Any) -> Any:
    squared = square(x)
    t = tanh(multiply(multiply(x, _SLOPE), add(multiply(squared, _BEND), 1)))
    steep = multiply(x, multiply(add(multiply(squared, 3 * _BEND), 1), _SLOPE / 2))
    return add(multiply(add(t, 1), 0.5), multiply(steep, subtract(1, square(t))))


def _gelu_kernel(k: Any, x: Any) -> Any:
    curvature = k.add(k.multiply(k.square(x), k.constant(_BEND)), k.constant(1))
    t = k.tanh(k.multiply(k.multiply(x, curvature), k.constant(_SLOPE)))
    return k.multiply(k.multiply(x, k.constant(0.5)), k.add(t, k.constant(1)))


gelu_by_tanh: UnaryOp = elementwise(
    "gelu_by_tanh",
    {"x": _gelu_slope},
    value=_gelu_value,
    dtype="inexact",
    doc="",
    kernel=_gelu_kernel,
    has_own_bits=True,
)


def subtract_or_zero(x: Any, y: Any) -> Any:
    """x - y, and 0 for two equal infinities."""
    return where(logical_and(isinf(x), equal(x, y)), 0.0, subtract(x, y))


# exp(x) / (exp(x) + exp(y)) = sigmoid(x - y)
@elementwise_op(
    {"x": lambda x, y: sigmoid(subtract_or_zero(x, y)), "y": lambda x, y: sigmoid(subtract_or_zero(y, x))},
    autocast="high",
)
def logaddexp(x: Any, y: Any, /) -> Any:
    """log(exp(x) + exp(y)), without overflow."""


@elementwise_op({"x": None, "y": lambda x: equal(x, 0)}, samples=reals_away_from(0, 2))
def heaviside(x: Any, y: Any, /) -> Any:
    """0 below zero, 1 above, y at zero."""


@elementwise_op({"x": lambda out: _step(out)}, value=lambda xp, x: xp.maximum(x, 0), samples=reals_away_from(0))
def relu(x: Any, /) -> Any:
    """max(x, 0); relu'(0) = 0.

    >>> import pullback as pb
    >>> pb.relu([-1.0, 2.0])
    array([0., 2.])
    """


def _step(out: Any) -> Any:
    """1 above zero, 0 at zero, where nothing is below: its sign, which NumPy computes ten times as fast."""
    return heaviside(out, 0) if is_complex(out) else _sign(out)


def greater_weight(x: Any, y: Any) -> Any:
    """1 where x is greater, 0 where it is less, a half at ties (two equal infinities tie too)."""
    return heaviside(where(equal(x, y), 0.0, subtract(x, y)), 0.5)


@elementwise_op({"x": lambda x, y: greater_weight(x, y), "y": lambda x, y: greater_weight(y, x)})
def maximum(x: Any, y: Any, /) -> Any:
    """The greater of x and y; a tie sends half to each."""


@elementwise_op({"x": lambda x, y: greater_weight(y, x), "y": lambda x, y: greater_weight(x, y)})
def minimum(x: Any, y: Any, /) -> Any:
    """The lesser of x and y; a tie sends half to each."""


def _push_abs(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    (tangent,), (x,) = tangents, primals
    return real(multiply(conj(_direction(x)), tangent)) if is_complex(x) else multiply(_direction(x), tangent)


def _direction(x: Any) -> Any:
    """x / |x|, zero at zero; for reals the sign."""
    if not is_complex(x):
        return _sign(x)
    size = abs(x)
    at_zero = equal(size, 0)
    return where(at_zero, 0.0, divide(x, where(at_zero, 1.0, size)))


@elementwise_op(
    {"x": lambda bar, x: multiply(bar, _direction(x))},
    push=_push_abs,
    conjugate=False,
    dtype="real",
    samples=reals_away_from(0),
)
def abs(x: Any, /) -> Any:
    """|x|; abs'(0) = 0."""


_sign: UnaryOp = elementwise("sign", {"x": None}, doc="", samples=reals_away_from(0))


@of_array
@attributed_to_caller
def sign(x: Any, /) -> Any:
    """-1, 0 or 1 as x is negative, zero or positive, with derivative zero; for complex x the direction x / |x|.

    >>> import pullback as pb
    >>> pb.sign([-2.0, 0.0, 3.0])
    array([-1.,  0.,  1.])
    """
    return _direction(as_value(x))


sign.op = _sign.op


@elementwise_op(
    {"x": lambda bar: conj(bar)}, conjugate=False, push=lambda tangents, out, primals, static: conj(tangents[0])
)
def conj(x: Any, /) -> Any:
    """The complex conjugate."""


@elementwise_op(
    {"x": lambda bar: bar},
    value=lambda xp, x: xp.real(x),
    conjugate=False,
    dtype="real",
    push=lambda tangents, out, primals, static: real(tangents[0]),
)
def real(x: Any, /) -> Any:
    """The real part.

    >>> import pullback as pb
    >>> pb.real(1 + 2j)
    array(1.)
    """


# The gradient of the imaginary part points along i; for a real argument there is none.
@elementwise_op(
    {"x": lambda bar, x_spec: multiply(bar, 1j) if x_spec.dtype.kind == "c" else multiply(bar, 0)},
    value=lambda xp, x: xp.imag(x),
    conjugate=False,
    dtype="real",
    push=lambda tangents, out, primals, static: imag(tangents[0]),
)
def imag(x: Any, /) -> Any:
    """The imaginary part.

    >>> import pullback as pb
    >>> pb.imag(1 + 2j)
    array(2.)
    """


@elementwise_op({"x": None}, value=lambda xp, x: x, algebra=IDENTITY)
def stop_gradient(x: Any, /) -> Any:
    """The value itself, as a constant to every derivative.

    >>> import pullback as pb
    >>> pb.stop_gradient(2.0)
    array(2.)
    """


# What `no_grad` does to the arguments of an op, in a program that is differentiated after it was traced: nothing goes
# back through it, and tangents pass. So its pull is not the transpose of its push, and it is not in `OPS`.
unrecorded: Any = public_function(
    replace(
        stop_gradient.op,
        name="unrecorded",
        push=lambda tangents, out, primals, static: unrecorded(tangents[0]),
        kernel=lambda k, x: k.positive(x),
        stops_tapes=True,
        rules={},
    )
)


def _push_where(tangents: Any, out: Any, primals: Any, static: Any) -> Any:
    _, x_dot, y_dot = tangents
    return where(primals[0], 0 if x_dot is None else x_dot, 0 if y_dot is None else y_dot)


def _where_samples(rng: Any) -> Any:
    shapes = (((3,), (3,), (3,)), ((2, 3), (3,), (2, 1)), ((), (2,), ()), ((0,), (1,), ()))
    return [
        ((rng.random(c) > 0.5 if c else rng.random() > 0.5, rng.normal(size=x), rng.normal(size=y)), {})
        for c, x, y in shapes
    ]


def _where_value(xp: Any, c: Any, x: Any, y: Any) -> Any:
    """`where`; of many float32 by their bits, (x ^ y) & mask ^ y, since NumPy branches at each element and processors
    mispredict a random mask half the time. Wider dtypes move too much memory to gain.
    """
    if xp is not np or type(c) is not np.ndarray or c.size < _MANY or c.dtype.char != "?":
        return xp.where(c if xp is np else xp.asarray(c), x, y)
    kinds = {v.dtype.char for v in (x, y) if type(v) is np.ndarray}
    if kinds != {"f"} or not _fits_mask(x, c) or not _fits_mask(y, c):
        return xp.where(c, x, y)
    mask = -(c.astype("i4"))
    if type(x) is not np.ndarray:
        return (y.view("i4") & ~mask).view("f4")
    if type(y) is not np.ndarray:
        return (x.view("i4") & mask).view("f4")
    return (((x.view("i4") ^ y.view("i4")) & mask) ^ y.view("i4")).view("f4")


def _fits_mask(v: Any, c: Any) -> bool:
    """An array of the mask's shape, or the number zero, whose bits are zero too."""
    return v.shape == c.shape if type(v) is np.ndarray else type(v) in (int, float) and repr(v) in ("0", "0.0")


_select: Any = elementwise(
    "where",
    {
        "condition": None,
        "x": lambda bar, condition: mask_cotangent(condition, bar),
        "y": lambda bar, condition: mask_cotangent(logical_not(condition), bar),
    },
    value=_where_value,
    conjugate=False,
    dtype="branches",
    push=_push_where,
    samples=_where_samples,
    doc="",
    kernel=lambda k, c, x, y: k.select(c, x, y),
)


@of_three_arrays
def where(condition: Any, x: Any, y: Any, /) -> Any:
    """x where the condition holds, else y. The branch not taken gets no cotangent, so no NaN comes out of it.

    >>> import numpy as np, pullback as pb
    >>> x = pb.tensor([0.0, 4.0], requires_grad=True)
    >>> pb.where(x > 0, pb.sqrt(x), 0.0).sum().backward()
    >>> x.grad
    tensor([0.  , 0.25], dtype=float64)
    """
    return _select(condition, x, y)


where.op = _select.op


def _zero_unless_samples(rng: Any) -> Any:
    return [((condition, x), {}) for (condition, x, _), _ in _where_samples(rng)]


# `where(condition, x, 0)` for conditions that choose whole examples. The cotangent is zero off the condition too, but
# an ordinary one: a mask would be carried through every layer below, for numbers that are finite there anyway.
zero_unless: BinaryOp = elementwise(
    "zero_unless",
    {"condition": None, "x": lambda bar, condition: where(condition, bar, 0)},
    value=lambda xp, condition, x: _where_value(xp, condition, x, 0),
    conjugate=False,
    dtype="branches",
    push=lambda tangents, out, primals, static: zero_unless(primals[0], tangents[1]),
    samples=_zero_unless_samples,
    doc="x where the condition holds, else 0.",
    kernel=lambda k, c, x: k.select(c, x, k.constant(0)),
)


def _is_within(x: Any, lower: Any, upper: Any) -> Any:
    return logical_and(greater_equal(x, lower), less_equal(x, upper))


def _is_at_upper(x: Any, lower: Any, upper: Any) -> Any:
    """Above the upper bound, or anywhere if the lower bound exceeds the upper: the upper one wins."""
    return logical_or(greater(x, upper), less(upper, lower))


def _clip_samples(rng: Any) -> Any:
    shapes = (((4,), (4,), (4,)), ((2, 3), (), (3,)), ((), (), ()), ((0,), (), ()))
    return [((rng.normal(size=x), -1 + 0.3 * rng.random(lo), 1 - 0.3 * rng.random(hi)), {}) for x, lo, hi in shapes]


clip_to: Any = elementwise(
    "clip",
    {
        "x": lambda bar, x, lower, upper: mask_cotangent(_is_within(x, lower, upper), bar),
        "lower": lambda bar, x, lower, upper: mask_cotangent(
            logical_and(less(x, lower), less_equal(lower, upper)), bar
        ),
        "upper": lambda bar, x, lower, upper: mask_cotangent(_is_at_upper(x, lower, upper), bar),
    },
    value=lambda xp, x, lower, upper: xp.minimum(xp.maximum(x, lower), upper),
    conjugate=False,
    samples=_clip_samples,
    doc="",
    kernel=lambda k, x, lower, upper: k.minimum(k.maximum(x, lower), upper),
)


def _comparison_op(name: str, doc: str) -> Any:
    return elementwise(name, {"x": None, "y": None}, dtype="bool", doc=doc)


equal: BinaryOp = _comparison_op("equal", "x == y.")
not_equal: BinaryOp = _comparison_op("not_equal", "x != y.")
less: BinaryOp = _comparison_op("less", "x < y.")
less_equal: BinaryOp = _comparison_op("less_equal", "x <= y.")
greater: BinaryOp = _comparison_op("greater", "x > y.")
greater_equal: BinaryOp = _comparison_op("greater_equal", "x >= y.")
logical_and: BinaryOp = _comparison_op("logical_and", "Both x and y hold.")
logical_or: BinaryOp = _comparison_op("logical_or", "x or y holds.")
logical_not: UnaryOp = elementwise("logical_not", {"x": None}, dtype="bool", doc="x does not hold.")
isnan: UnaryOp = elementwise("isnan", {"x": None}, dtype="bool", doc="Whether x is not a number.")
isinf: UnaryOp = elementwise("isinf", {"x": None}, dtype="bool", doc="Whether x is an infinity.")
isfinite: UnaryOp = elementwise("isfinite", {"x": None}, dtype="bool", doc="Whether x is a finite number.")


def bitwise_op(ufunc: str | None = None) -> Declarations:
    """A decorator: an op on the bits of integers, by NumPy's ufunc of its own name or of another."""

    def define(declared: Any) -> Any:
        args = declared.__code__.co_varnames
        how: dict[str, Any] = {"value": ufunc or declared.__name__, "dtype": "bits", "samples": integers(len(args))}
        return elementwise_op(dict.fromkeys(args), **how)(declared)

    return define


@bitwise_op()
def bitwise_and(x: Any, y: Any, /) -> Any:
    """The bits x and y share; for booleans, both hold.

    >>> import pullback as pb
    >>> pb.bitwise_and([1, 2], 3)
    array([1, 2])
    """


@bitwise_op()
def bitwise_or(x: Any, y: Any, /) -> Any:
    """The bits of x and y; for booleans, either holds.

    >>> import pullback as pb
    >>> pb.bitwise_or([1, 2], 3)
    array([3, 3])
    """


@bitwise_op()
def bitwise_xor(x: Any, y: Any, /) -> Any:
    """The bits x and y do not share; for booleans, one holds.

    >>> import pullback as pb
    >>> pb.bitwise_xor([1, 2], 3)
    array([2, 1])
    """


@bitwise_op("bitwise_not")
def bitwise_invert(x: Any, /) -> Any:
    """The bits x does not have; for booleans, x does not hold.

    >>> import pullback as pb
    >>> pb.bitwise_invert([1, 2])
    array([-2, -3])
    """

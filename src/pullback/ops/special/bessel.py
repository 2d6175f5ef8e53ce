"""Bessel functions of all kinds, spherical ones and Airy's: differentiable in the argument, K in its order too."""

from __future__ import annotations

from typing import Any

from ..elementwise.pointwise import add, divide, exp, maximum, multiply, negative, subtract
from .definition import library_function, refuse_partial, shift_order, special, special_op
from .scaled_bessel import ive_derivative, kve_derivative


def _half_difference(f: Any) -> Any:
    """f_v' = (f_{v-1} - f_{v+1}) / 2, for J and Y."""
    return lambda v, x: multiply(subtract(f()(shift_order(v, -1), x), f()(shift_order(v, 1), x)), 0.5)


def _half_sum(f: Any, sign: float) -> Any:
    """f_v' = +-(f_{v-1} + f_{v+1}) / 2, for I and K."""
    return lambda v, x: multiply(add(f()(shift_order(v, -1), x), f()(shift_order(v, 1), x)), 0.5 * sign)


@special({"x": _half_difference(lambda: jv)}, range(4), (0.5, 5.0), plane=True)
def jv(v: Any, x: Any, /) -> Any:
    """The Bessel function of the first kind of real order, jv(v, x).

    >>> import pullback as pb
    >>> pb.special.jv(1, 0.0)
    array(0.)
    """


@special({"x": _half_difference(lambda: yv)}, range(4), (0.5, 5.0), plane=True)
def yv(v: Any, x: Any, /) -> Any:
    """The Bessel function of the second kind of real order, yv(v, x).

    >>> import pullback as pb
    >>> pb.special.yv(0, 1.0)
    array(0.08825696)
    """


@special({"x": _half_sum(lambda: iv, 1.0)}, range(4), (0.5, 5.0), plane=True)
def iv(v: Any, x: Any, /) -> Any:
    """The modified Bessel function of the first kind of real order, iv(v, x).

    >>> import pullback as pb
    >>> pb.special.iv(0, 0.0)
    array(1.)
    """


@special(
    {"v": lambda v, x: multiply(exp(negative(x)), kve_derivative(0, 1)(v, x)), "x": _half_sum(lambda: kv, -1.0)},
    (-1.5, 3.0),
    (0.5, 4.0),
)
def kv(v: Any, x: Any, /) -> Any:
    """The modified Bessel function of the second kind, kv(v, x), differentiable in its order too.

    >>> import pullback as pb
    >>> pb.special.kv(0.5, 1.0)
    array(0.46106850)
    """


@special({"x": lambda v, x: ive_derivative(1)(v, x)}, range(4), (0.5, 5.0))
def ive(v: Any, x: Any, /) -> Any:
    """exp(-|x|) iv(v, x), which does not overflow.

    >>> import pullback as pb
    >>> pb.special.ive(0, 0.0)
    array(1.)
    """


@special(
    {"v": lambda v, x: kve_derivative(0, 1)(v, x), "x": lambda v, x: kve_derivative(1, 0)(v, x)},
    (-1.5, 3.0),
    (0.5, 4.0),
)
def kve(v: Any, x: Any, /) -> Any:
    """exp(x) kv(v, x), which does not underflow.

    >>> import pullback as pb
    >>> pb.special.kve(0.5, 1.0)
    array(1.25331414)
    """


def _fixed_order_op(name: str, kind: str, partial: Any, example: str, low: float) -> Any:
    return special_op(name, {"x": partial}, (low, 4.0), doc=f"The Bessel function {kind}.", example=("1.0", example))


j0: Any = _fixed_order_op("j0", "J of order 0", lambda x: negative(j1(x)), "array(0.76519769)", -4.0)
j1: Any = _fixed_order_op("j1", "J of order 1", lambda x: _half_difference(lambda: jv)(1, x), "array(0.44005059)", -4.0)
y0: Any = _fixed_order_op("y0", "Y of order 0", lambda x: negative(y1(x)), "array(0.08825696)", 0.5)
y1: Any = _fixed_order_op("y1", "Y of order 1", lambda x: _half_difference(lambda: yv)(1, x), "array(-0.78121282)", 0.5)
i0: Any = _fixed_order_op("i0", "I of order 0", lambda x: i1(x), "array(1.26606588)", -4.0)
i1: Any = _fixed_order_op("i1", "I of order 1", lambda x: _half_sum(lambda: iv, 1.0)(1, x), "array(0.5651591)", -4.0)
k0: Any = _fixed_order_op("k0", "K of order 0", lambda x: negative(k1(x)), "array(0.42102444)", 0.5)
k1: Any = _fixed_order_op("k1", "K of order 1", lambda x: _half_sum(lambda: kv, -1.0)(1, x), "array(0.60190723)", 0.5)
i0e: Any = _fixed_order_op(
    "i0e", "I of order 0 times exp(-|x|)", lambda x: ive_derivative(1)(0, x), "array(0.46575961)", 0.5
)
i1e: Any = _fixed_order_op(
    "i1e", "I of order 1 times exp(-|x|)", lambda x: ive_derivative(1)(1, x), "array(0.20791042)", 0.5
)
k0e: Any = _fixed_order_op(
    "k0e", "K of order 0 times exp(x)", lambda x: kve_derivative(1, 0)(0, x), "array(1.14446308)", 0.5
)
k1e: Any = _fixed_order_op(
    "k1e", "K of order 1 times exp(x)", lambda x: kve_derivative(1, 0)(1, x), "array(1.63615349)", 0.5
)
jn, yn, kn = jv, yv, kv


def _spherical_op(name: str, kind: str, above: float, below: float, plane: bool, example: str) -> Any:
    """(2n + 1) f_n' = below n f_{n-1} + above (n + 1) f_{n+1}, which is regular at zero."""

    def partial(bar: Any, n: Any, x: Any) -> Any:
        lower = multiply(multiply(n, below), op(maximum(subtract(n, 1), 0), x))
        upper = multiply(multiply(shift_order(n, 1), above), op(shift_order(n, 1), x))
        return divide(multiply(bar, add(lower, upper)), add(multiply(n, 2), 1))

    op: Any = special_op(
        name,
        {"n": refuse_partial(name, "the order n"), "x": partial},
        range(4),
        (0.5, 4.0),
        plane=plane,
        doc=f"The spherical Bessel function {kind} of integer order, {name}(n, x).",
        example=("0, 1.0", example),
    )
    return op


spherical_jn: Any = _spherical_op("spherical_jn", "j", -1.0, 1.0, True, "array(0.84147098)")
spherical_yn: Any = _spherical_op("spherical_yn", "y", -1.0, 1.0, True, "array(-0.54030231)")
spherical_in: Any = _spherical_op("spherical_in", "i", 1.0, 1.0, True, "array(1.17520119)")
spherical_kn: Any = _spherical_op("spherical_kn", "k", -1.0, -1.0, True, "array(0.57786367)")


def _airy_op(name: str, place: int, partial: Any) -> Any:
    return special_op(
        name, {"x": partial}, (-3.0, 2.0), value=lambda xp, x: library_function(xp, "airy")(x)[place], plane=True
    )


airy_ai: Any = _airy_op("airy_ai", 0, lambda x: airy_ai_prime(x))
airy_ai_prime: Any = _airy_op("airy_ai_prime", 1, lambda x: multiply(x, airy_ai(x)))
airy_bi: Any = _airy_op("airy_bi", 2, lambda x: airy_bi_prime(x))
airy_bi_prime: Any = _airy_op("airy_bi_prime", 3, lambda x: multiply(x, airy_bi(x)))


def airy(x: Any, /) -> tuple[Any, Any, Any, Any]:
    """Airy's functions and their derivatives: Ai, Ai', Bi, Bi'.

    >>> import pullback as pb
    >>> [round(float(f), 4) for f in pb.special.airy(0.0)]
    [0.355, -0.2588, 0.6149, 0.4483]
    """
    return airy_ai(x), airy_ai_prime(x), airy_bi(x), airy_bi_prime(x)

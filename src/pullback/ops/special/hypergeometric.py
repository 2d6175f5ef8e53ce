"""Hypergeometric functions and orthogonal polynomials: differentiable in the argument, to any order."""

from __future__ import annotations

from typing import Any

from ..elementwise.pointwise import add, divide, equal, maximum, multiply, negative, subtract, where
from .definition import special


@special(
    {"z": lambda bar, b, z: divide(multiply(bar, hyp0f1(add(b, 1), z)), b)}, [range(1, 4), (-2.0, 2.0)], plane=True
)
def hyp0f1(b: Any, z: Any, /) -> Any:
    """The confluent hypergeometric limit function 0F1(b; z).

    >>> import pullback as pb
    >>> pb.special.hyp0f1(1.0, 0.0)
    array(1.)
    """


@special(
    {"z": lambda bar, a, b, z: multiply(multiply(bar, hyp1f1(add(a, 1), add(b, 1), z)), divide(a, b))},
    [range(1, 3), range(3, 5), (-2.0, 2.0)],
    plane=True,
)
def hyp1f1(a: Any, b: Any, z: Any, /) -> Any:
    """The confluent hypergeometric function 1F1(a; b; z), differentiable in z.

    >>> import pullback as pb
    >>> pb.special.hyp1f1(1.0, 1.0, 0.0)
    array(1.)
    """


@special(
    {
        "z": lambda bar, a, b, c, z: multiply(
            multiply(bar, hyp2f1(add(a, 1), add(b, 1), add(c, 1), z)), divide(multiply(a, b), c)
        )
    },
    [range(1, 3), range(1, 3), range(3, 5), (-0.7, 0.7)],
    plane=True,
)
def hyp2f1(a: Any, b: Any, c: Any, z: Any, /) -> Any:
    """Gauss's hypergeometric function 2F1(a, b; c; z), differentiable in z.

    >>> import pullback as pb
    >>> pb.special.hyp2f1(1.0, 1.0, 2.0, 0.0)
    array(1.)
    """


def _previous_degree(n: Any, polynomial: Any) -> Any:
    """polynomial(n - 1), for what has the factor n: zero for n = 0. Degrees need be no integers."""
    constant = equal(n, 0)
    return where(constant, 0.0, polynomial(where(constant, 0, subtract(n, 1))))


@special(
    {"x": lambda n, x: multiply(multiply(n, 2), _previous_degree(n, lambda k: eval_hermite(k, x)))},
    [range(5), (-0.9, 0.9)],
)
def eval_hermite(n: Any, x: Any, /) -> Any:
    """The physicists' Hermite polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_hermite(2, 0.5)
    array(-1.)
    """


@special(
    {"x": lambda n, x: multiply(n, _previous_degree(n, lambda k: eval_hermitenorm(k, x)))}, [range(5), (-0.9, 0.9)]
)
def eval_hermitenorm(n: Any, x: Any, /) -> Any:
    """The probabilists' Hermite polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_hermitenorm(2, 0.5)
    array(-0.75)
    """


@special(
    {"x": lambda n, x: negative(_previous_degree(n, lambda k: eval_genlaguerre(k, 1, x)))}, [range(5), (-0.9, 0.9)]
)
def eval_laguerre(n: Any, x: Any, /) -> Any:
    """Laguerre's polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_laguerre(2, 0.5)
    array(0.125)
    """


def _legendre_slope(n: Any, x: Any) -> Any:
    degree = maximum(n, subtract(-1, n))  # both have the same function
    return _previous_degree(degree, lambda k: eval_gegenbauer(k, 1.5, x))


@special({"x": _legendre_slope}, [range(5), (-0.9, 0.9)])
def eval_legendre(n: Any, x: Any, /) -> Any:
    """Legendre's polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_legendre(2, 0.5)
    array(-0.125)
    """


@special({"x": lambda n, x: multiply(n, _previous_degree(n, lambda k: eval_chebyu(k, x)))}, [range(5), (-0.9, 0.9)])
def eval_chebyt(n: Any, x: Any, /) -> Any:
    """Chebyshev's first polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_chebyt(2, 0.5)
    array(-0.5)
    """


@special(
    {"x": lambda n, x: multiply(_previous_degree(n, lambda k: eval_gegenbauer(k, 2, x)), 2)}, [range(5), (-0.9, 0.9)]
)
def eval_chebyu(n: Any, x: Any, /) -> Any:
    """Chebyshev's second polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_chebyu(2, 0.5)
    array(0.)
    """


def _gegenbauer_slope(n: Any, alpha: Any, x: Any) -> Any:
    return multiply(multiply(alpha, 2), _previous_degree(n, lambda k: eval_gegenbauer(k, add(alpha, 1), x)))


@special({"x": _gegenbauer_slope}, [range(5), range(1, 3), (-0.9, 0.9)])
def eval_gegenbauer(n: Any, alpha: Any, x: Any, /) -> Any:
    """Gegenbauer's polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_gegenbauer(2, 1.0, 0.5)
    array(0.)
    """


@special(
    {"x": lambda n, alpha, x: negative(_previous_degree(n, lambda k: eval_genlaguerre(k, add(alpha, 1), x)))},
    [range(5), range(3), (0.1, 3.0)],
)
def eval_genlaguerre(n: Any, alpha: Any, x: Any, /) -> Any:
    """The generalised Laguerre polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_genlaguerre(2, 0.0, 0.5)
    array(0.125)
    """


def _jacobi_slope(n: Any, alpha: Any, beta: Any, x: Any) -> Any:
    factor = multiply(add(add(n, add(alpha, beta)), 1), 0.5)
    return multiply(factor, _previous_degree(n, lambda k: eval_jacobi(k, add(alpha, 1), add(beta, 1), x)))


@special({"x": _jacobi_slope}, [range(5), range(3), range(3), (-0.9, 0.9)])
def eval_jacobi(n: Any, alpha: Any, beta: Any, x: Any, /) -> Any:
    """Jacobi's polynomial of degree n at x.

    >>> import pullback as pb
    >>> pb.special.eval_jacobi(2, 0.0, 0.0, 0.5)
    array(-0.125)
    """

"""Entropies, logistic functions and products with logarithms, correct at the ends of their domains."""

from __future__ import annotations

import math
from typing import Any

from ..elementwise import pointwise
from ..elementwise.pointwise import add, divide, log, multiply, negative, where
from .definition import special

expit = pointwise.sigmoid


def _entr_slope(x: Any) -> Any:
    """-log x - 1; below zero, where entr is minus infinity, NaN."""
    return where(pointwise.less(x, 0), math.nan, negative(add(log(where(pointwise.less(x, 0), 1.0, x)), 1)))


def _expand_entr(x: Any) -> Any:
    inside = pointwise.greater(x, 0)
    # x 0 is zero at zero, and NaN where x is
    outside = where(pointwise.less(x, 0), -math.inf, multiply(x, 0.0))
    return where(inside, negative(multiply(x, log(where(inside, x, 1.0)))), outside)


@special({"x": _entr_slope}, [(0.2, 3.0)], anywhere=_expand_entr)
def entr(x: Any, /) -> Any:
    """-x log(x), zero at zero.

    >>> import pullback as pb
    >>> pb.special.entr([0.0, 1.0])
    array([ 0., -0.])
    """


def _expand_divergence(x: Any, y: Any, rest: Any, edge: Any) -> Any:
    """x log(x / y) + rest inside of the domain, `edge` where x is zero, infinity outside, NaN of NaN."""
    inside = pointwise.logical_and(pointwise.greater(x, 0), pointwise.greater(y, 0))
    at_edge = pointwise.logical_and(pointwise.equal(x, 0), pointwise.greater_equal(y, 0))
    outside = where(pointwise.logical_or(pointwise.isnan(x), pointwise.isnan(y)), math.nan, math.inf)
    ratio = divide(where(inside, x, 1.0), where(inside, y, 1.0))
    return where(inside, add(multiply(x, log(ratio)), rest), where(at_edge, edge, outside))


@special(
    {"x": lambda x, y: add(log(divide(x, y)), 1), "y": lambda bar, x, y: negative(divide(multiply(bar, x), y))},
    [(0.2, 3.0), (0.2, 3.0)],
    anywhere=lambda x, y: _expand_divergence(x, y, 0.0, 0.0),
)
def rel_entr(x: Any, y: Any, /) -> Any:
    """x log(x / y), zero where x is.

    >>> import pullback as pb
    >>> pb.special.rel_entr(1.0, 1.0)
    array(0.)
    """


@special(
    {"x": lambda x, y: log(divide(x, y)), "y": lambda bar, x, y: divide(multiply(bar, pointwise.subtract(y, x)), y)},
    [(0.2, 3.0), (0.2, 3.0)],
    anywhere=lambda x, y: _expand_divergence(x, y, pointwise.subtract(y, x), y),
)
def kl_div(x: Any, y: Any, /) -> Any:
    """x log(x / y) - x + y.

    >>> import pullback as pb
    >>> pb.special.kl_div(1.0, 1.0)
    array(0.)
    """


def _log_or_zero(x: Any, y: Any, of: Any, low: float) -> Any:
    """log y, and zero where x is zero and y at or below the edge: there x log y is defined as zero."""
    held = pointwise.logical_and(pointwise.equal(x, 0), pointwise.less_equal(y, low))
    return where(held, 0.0, of(where(held, 1.0, y)))


def _divide_or_zero(bar: Any, x: Any, y: Any, shift: float) -> Any:
    """bar x / (y + shift), and zero where x is, also at y = -shift."""
    nothing = pointwise.logical_and(pointwise.equal(x, 0), pointwise.less_equal(y, -shift))
    below = where(nothing, 1.0, add(y, shift) if shift else y)
    return where(nothing, 0.0, divide(multiply(bar, x), below))


def _expand_product(x: Any, y: Any, of: Any) -> Any:
    """x of(y), zero where x is, but NaN where y is."""
    nothing = pointwise.logical_and(pointwise.equal(x, 0), pointwise.logical_not(pointwise.isnan(y)))
    return where(nothing, 0.0, multiply(x, of(y)))


@special(
    {"x": lambda x, y: _log_or_zero(x, y, log, 0.0), "y": lambda bar, x, y: _divide_or_zero(bar, x, y, 0.0)},
    [(-2.0, 2.0), (0.3, 3.0)],
    anywhere=lambda x, y: _expand_product(x, y, log),
)
def xlogy(x: Any, y: Any, /) -> Any:
    """x log(y), zero where x is zero.

    >>> import pullback as pb
    >>> pb.special.xlogy(0.0, 0.0)
    array(0.)
    """


@special(
    {
        "x": lambda x, y: _log_or_zero(x, y, pointwise.log1p, -1.0),
        "y": lambda bar, x, y: _divide_or_zero(bar, x, y, 1.0),
    },
    [(-2.0, 2.0), (-0.5, 3.0)],
    anywhere=lambda x, y: _expand_product(x, y, pointwise.log1p),
)
def xlog1py(x: Any, y: Any, /) -> Any:
    """x log(1 + y), zero where x is zero.

    >>> import pullback as pb
    >>> pb.special.xlog1py(0.0, -1.0)
    array(0.)
    """


def _expand_logit(p: Any) -> Any:
    """By log1p near one half, where 2 p - 1 is exact and the ratio is near one."""
    rest = pointwise.subtract(1.0, p)
    near = pointwise.less(pointwise.abs(pointwise.subtract(p, 0.5)), 0.2)
    by_one = pointwise.log1p(divide(pointwise.subtract(multiply(p, 2.0), 1.0), rest))
    return where(near, by_one, pointwise.subtract(log(p), pointwise.log1p(negative(p))))


@special({"p": lambda bar, p: divide(bar, multiply(p, pointwise.subtract(1, p)))}, [(0.1, 0.9)], anywhere=_expand_logit)
def logit(p: Any, /) -> Any:
    """log(p / (1 - p)), the inverse of expit.

    >>> import pullback as pb
    >>> pb.special.logit(0.5)
    array(0.)
    """


def _expand_log_expit(x: Any) -> Any:
    small = pointwise.log1p(pointwise.exp(negative(pointwise.abs(x))))
    return pointwise.subtract(pointwise.minimum(x, 0.0), small)


# The slope expit(-x) as the exponential of its log keeps precision at every order, where 1 - expit(x) would not.
@special({"x": lambda x: pointwise.exp(log_expit(negative(x)))}, [(-3.0, 3.0)], anywhere=_expand_log_expit)
def log_expit(x: Any, /) -> Any:
    """log(expit(x)), without underflow.

    >>> import pullback as pb
    >>> pb.special.log_expit(-1000.0)
    array(-1000.)
    """

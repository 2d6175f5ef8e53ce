"""The log-gamma and log-beta functions of parameters, digamma, and what entropies take of both, in elementary
functions: native in a compiled loop, where SciPy's are steps of the host, and so are their derivatives, which follow
from these formulas themselves.

By Stirling's series, of arguments below 8 after eight steps of gamma(x) = gamma(x + 1) / x:
    log gamma(y) ~ (y - 1/2) log y - y + log(2 pi) / 2 + c(y),    c(y) = sum_k B_2k / (2k (2k - 1) y^(2k - 1)).
"""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise.pointwise import log, log1p, where
from ..ops.fusion import fuse
from .ratios import polynomial

_STEPS = 8
#: B_2k / (2k (2k - 1)), the highest k first: eight terms reach 1e-16 from 8 on.
_CORRECTION = (
    -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12,
)  # fmt: skip
#: The derivative: that of y^-(2k - 1) is -(2k - 1) y^-2k.
_CORRECTION_SLOPE = tuple(-c * (2 * k - 1) for c, k in zip(_CORRECTION, range(8, 0, -1), strict=True))


def _correction(y: Any) -> Any:
    return polynomial(1.0 / (y * y), *_CORRECTION) / y


def _correct_slope(y: Any) -> Any:
    """The slope of log gamma(y), less log y."""
    q = 1.0 / (y * y)
    return polynomial(q, *_CORRECTION_SLOPE) * q - 0.5 / y


def _rise(x: Any) -> Any:
    """x (x + 1) ... (x + 7)."""
    found = x
    for j in range(1, _STEPS):
        found = found * (x + float(j))
    return found


@fuse(autocast="high")
def log_gamma(x: Any) -> Any:
    """log gamma(x) for x > 0."""
    near = x < _STEPS
    y = where(near, x + float(_STEPS), x)
    stirling = (y - 0.5) * log(y) - y + 0.5 * math.log(2 * math.pi) + _correction(y)
    return where(near, stirling - log(_rise(where(near, x, 1.0))), stirling)


@fuse(autocast="high")
def log_beta(a: Any, b: Any) -> Any:
    """log B(a, b) for a, b > 0, with its digits where one of both is large: log gamma(low) - log (gamma(high + low) /
    gamma(high)), whose terms of the size of high log high cancel on paper.
    """
    swapped = a > b
    low, high = where(swapped, b, a), where(swapped, a, b)
    near = high < _STEPS
    y = where(near, high + float(_STEPS), high)
    gap = -(y - 0.5) * log1p(low / y) - low * log(y + low) + low + _correction(y) - _correction(y + low)
    few, small = where(near, high, 1.0), where(near, low, 1.0)
    return log_gamma(low) + where(near, gap + log(_rise(few + small) / _rise(few)), gap)


@fuse(autocast="high")
def digamma(x: Any) -> Any:
    """The derivative of log gamma(x), for x > 0."""
    near = x < _STEPS
    y = where(near, x + float(_STEPS), x)
    return log(y) + _correct_slope(y) - where(near, _sum_inverses(where(near, x, 1.0)), 0.0)


def _sum_inverses(x: Any) -> Any:
    """1 / x + 1 / (x + 1) + ... + 1 / (x + 7)."""
    found = 1.0 / x
    for j in range(1, _STEPS):
        found = found + 1.0 / (x + float(j))
    return found


@fuse(autocast="high")
def entropy_part(x: Any, order: Any) -> Any:
    """log gamma(x) - (x - order) digamma(x) + x, of which entropies are sums: in Stirling's series its terms of the
    size of x and of x log x cancel on paper.
    """
    near = x < _STEPS
    few, y = where(near, x, 1.0), where(near, float(_STEPS), x)
    stirling = (order - 0.5) * log(y) + 0.5 * math.log(2 * math.pi) + _correction(y) + (order - y) * _correct_slope(y)
    return where(near, log_gamma(few) - (few - order) * digamma(few) + few, stirling)

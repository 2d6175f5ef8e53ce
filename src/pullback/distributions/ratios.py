"""Quotients that are 0 / 0 at zero and products that are 0 log 0, with every derivative there.

All are made of elementary functions, so that a compiled density has no step of the host in it: a sampler runs it a
million times. (`special.xlogy` is SciPy's, for the same bits compiled or not.)
"""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import equal, expm1, less_equal, log, log1p, logical_and, where
from ..ops.fusion import fuse


def polynomial(x: Any, *coefficients: float) -> Any:
    """The first coefficient is that of the highest power."""
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = found * x + c
    return found


def split(x: Any, radius: float) -> tuple[Any, Any, Any]:
    """Whether x is near 0, x as a series may have it, x as the closed form may have it."""
    near = magnitude(x) < radius
    return near, where(near, x, 0.0), where(near, 1.0, x)


def expm1_ratio(x: Any) -> Any:
    """(exp(x) - 1) / x."""
    near, few, far = split(x, 0.3)
    series = polynomial(few, *(1 / math.factorial(n) for n in range(13, 0, -1)))
    return where(near, series, expm1(far) / far)


def log1p_ratio(x: Any) -> Any:
    """log(1 + x) / x."""
    near, few, far = split(x, 0.03)
    series = polynomial(few, *((-1.0) ** n / (n + 1) for n in range(11, -1, -1)))
    return where(near, series, log1p(far) / far)


@fuse(autocast="high")
def logit(p: Any) -> Any:
    """log(p / (1 - p)), with its digits near a half, where it is 0."""
    s = 2.0 * p - 1.0
    near = magnitude(s) < 0.5
    few, far = where(near, s, 0.0), where(near, 0.25, p)
    return where(near, log1p(few) - log1p(-few), log(far) - log1p(-far))


def times_log(x: Any, y: Any) -> Any:
    """x log(y), which is 0 where both are, as its slopes are."""
    held = logical_and(equal(x, 0.0), less_equal(y, 0.0))
    return where(held, 0.0, x * log(where(held, 1.0, y)))


def times_log1p(x: Any, y: Any) -> Any:
    """x log(1 + y), which is 0 for x = 0 and y = -1, as its slopes are."""
    held = logical_and(equal(x, 0.0), less_equal(y, -1.0))
    return where(held, 0.0, x * log1p(where(held, 0.0, y)))

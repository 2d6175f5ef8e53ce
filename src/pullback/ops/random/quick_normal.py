"""Normal numbers for inner loops: native wherever they are compiled, in a chain's or a path's loop too.

`random.normal` takes the quantile from SciPy, so that eager and compiled draws have the same bits. Here it is Wichura's
algorithm AS 241 (Applied Statistics 37, 1988) in elementary functions, which compiled code rounds in its own way.
"""

from __future__ import annotations

import functools
from typing import Any

from ..elementwise.pointwise import abs, log, minimum, sqrt, where
from ..fusion import fuse
from .samplers import uniform

Coefficients = tuple[float, ...]
#: A quotient of polynomials each, the lowest power last, to sixteen digits.
_CENTER: tuple[Coefficients, Coefficients] = (
    (
        2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
        13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
    ),
    (
        5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
        5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
    ),
)  # fmt: skip
_SIDE: tuple[Coefficients, Coefficients] = (
    (
        7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
        3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
        0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0,
    ),
)  # fmt: skip
_TAIL: tuple[Coefficients, Coefficients] = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
        0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
        0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0,
    ),
)  # fmt: skip


def quick_normal(size: Any, key: Any, dtype: Any) -> Any:
    """Standard normal numbers."""
    return _normal_quantile(uniform(size=size, key=key, dtype=dtype))


@fuse(autocast="high")
def _normal_quantile(p: Any) -> Any:
    """The quantile of a probability inside (0, 1): a quotient in 0.425^2 - q^2 where q = p - 1/2 is small, else in the
    square root of -log of the smaller tail.
    """
    q = p - 0.5
    center = q * _quotient(0.180625 - q * q, _CENTER)
    r = sqrt(-log(minimum(p, 1.0 - p)))
    outer = where(r > 5.0, _quotient(r - 5.0, _TAIL), _quotient(r - 1.6, _SIDE))
    return where(abs(q) <= 0.425, center, where(q < 0, -outer, outer))


def _quotient(x: Any, polynomials: tuple[Coefficients, Coefficients]) -> Any:
    above, below = (functools.reduce(lambda total, c: total * x + c, c[1:], c[0]) for c in polynomials)
    return above / below

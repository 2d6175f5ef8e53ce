"""Student's distribution."""

from typing import Any

import numpy as np

from pullback import special


def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The log-density."""
    z = (x - loc) / scale
    constant = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    return constant - np.log(scale) - (df + 1) / 2 * np.log1p(z**2 / df)


def pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The probability below x, from the incomplete beta function of df / (df + z^2)."""
    z = (x - loc) / scale
    tail = 0.5 * special.betainc(df / 2, 0.5, df / (df + z**2))
    return np.where(z > 0, 1 - tail, tail)


def logcdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Its logarithm."""
    return np.log(cdf(x, df, loc, scale))

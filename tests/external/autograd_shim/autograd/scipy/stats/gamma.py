"""The gamma distribution of scale 1."""

from typing import Any

import numpy as np

from pullback import special


def logpdf(x: Any, a: Any) -> Any:
    """The log-density."""
    return special.xlogy(a - 1.0, x) - x - special.gammaln(a)


def pdf(x: Any, a: Any) -> Any:
    """The density."""
    return np.exp(logpdf(x, a))


def cdf(x: Any, a: Any) -> Any:
    """The probability below x."""
    return special.gammainc(a, x)

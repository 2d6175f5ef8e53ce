"""The chi-squared distribution: twice a gamma variable of half the degrees of freedom."""

from typing import Any

import numpy as np

from . import gamma


def logpdf(x: Any, df: Any) -> Any:
    """The log-density."""
    return gamma.logpdf(x / 2, df / 2) - np.log(2)


def pdf(x: Any, df: Any) -> Any:
    """The density."""
    return np.exp(logpdf(x, df))


def cdf(x: Any, df: Any) -> Any:
    """The probability below x."""
    return gamma.cdf(x / 2, df / 2)

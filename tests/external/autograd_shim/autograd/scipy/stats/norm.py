"""The normal distribution."""

from typing import Any

import numpy as np

from pullback import special


def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The log-density."""
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The probability below x."""
    return special.ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Its logarithm."""
    return special.log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The probability above x."""
    return special.ndtr((loc - x) / scale)


def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Its logarithm."""
    return special.log_ndtr((loc - x) / scale)

"""The Poisson distribution."""

from typing import Any

import numpy as np

from pullback import special


def logpmf(k: Any, mu: Any) -> Any:
    """The log-probability of k."""
    return special.xlogy(k, mu) - mu - special.gammaln(k + 1)


def pmf(k: Any, mu: Any) -> Any:
    """The probability of k."""
    return np.exp(logpmf(k, mu))


def cdf(k: Any, mu: Any) -> Any:
    """The probability of k or less."""
    return special.gammaincc(np.floor(k) + 1, mu)

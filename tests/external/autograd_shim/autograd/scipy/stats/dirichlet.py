"""The Dirichlet distribution."""

from typing import Any

import numpy as np
import scipy.stats

from pullback import special

rvs = scipy.stats.dirichlet.rvs


def logpdf(x: Any, alpha: Any) -> Any:
    """The log-density."""
    weight = np.sum(special.gammaln(alpha)) - special.gammaln(np.sum(alpha))
    return np.sum(special.xlogy(alpha - 1.0, x)) - weight


def pdf(x: Any, alpha: Any) -> Any:
    """The density."""
    return np.exp(logpdf(x, alpha))

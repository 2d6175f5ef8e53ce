"""The beta distribution."""

from typing import Any

import numpy as np

from pullback import special


def logpdf(x: Any, a: Any, b: Any) -> Any:
    """The log-density."""
    return special.xlogy(a - 1.0, x) + special.xlog1py(b - 1.0, -x) - special.betaln(a, b)


def pdf(x: Any, a: Any, b: Any) -> Any:
    """The density."""
    return np.exp(logpdf(x, a, b))


def cdf(x: Any, a: Any, b: Any) -> Any:
    """The probability below x."""
    return special.betainc(a, b, x)

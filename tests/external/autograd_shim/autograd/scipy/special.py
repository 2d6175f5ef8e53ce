"""pullback's special functions; SciPy's own where there is nothing to differentiate."""

from typing import Any

import numpy as np
import scipy.special

import pullback as pb


def gammasgn(x: Any) -> Any:
    """The sign of the gamma function, whose derivative is zero."""
    return pb.sign(pb.special.gamma(x))


def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: bool = False) -> Any:
    """log(sum(b exp(a))), as SciPy has it."""
    top = pb.stop_gradient(pb.max(a, axis=axis, keepdims=True))
    total = np.log(np.sum(b * np.exp(a - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


def __getattr__(name: str) -> Any:
    return getattr(pb.special, name) if hasattr(pb.special, name) else getattr(scipy.special, name)

"""What tests of direct calls share: one layer, its arguments and its cotangents by hand."""

import numpy as np

import pullback as pb
from pullback.arrays.tensor import Tensor

__all__ = ["B", "W", "X", "close", "gradients_by_hand", "layer", "leaf"]
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(4, 5))
W = _RNG.normal(size=(5, 3))
B = _RNG.normal(size=3)


def close(a, b, tolerance=1e-11):
    found = a.detach().numpy() if isinstance(a, Tensor) else a
    np.testing.assert_allclose(np.asarray(found), b, rtol=tolerance, atol=tolerance)


def leaf(a):
    return pb.tensor(a, requires_grad=True)


def layer(x, w, b):
    return pb.tanh(x @ w + b)


def gradients_by_hand(bar):
    """The cotangents of a layer, in NumPy."""
    h = np.tanh(X @ W + B)
    inner = bar * (1 - h * h)
    return inner @ W.T, X.T @ inner, inner.sum(0)

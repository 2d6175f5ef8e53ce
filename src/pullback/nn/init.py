"""Weight initializers. Without a key the default generator draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..ops import random
from ..ops.axes import as_shape
from ..public_names import explain_missing_names

__all__ = [
    "fans", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform", "normal",
    "orthogonal", "truncated_normal", "uniform", "xavier_normal", "xavier_uniform",
]  # fmt: skip
explain_missing_names(__name__, "nn.init")

#: The gain that makes up for how much an activation shrinks its input.
_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def uniform(shape: Any, low: float = 0.0, high: float = 1.0, *, key: Any = None, dtype: Any = np.float32) -> Any:
    """Uniform between two bounds.

    >>> import pullback as pb
    >>> w = pb.nn.init.uniform((2, 3), -0.1, 0.1, key=pb.random.key(0))
    >>> w.shape, bool(abs(w).max() < 0.1)
    ((2, 3), True)
    """
    return random.uniform(low, high, as_shape(shape, "init.uniform"), key=key, dtype=dtype)


def normal(shape: Any, mean: float = 0.0, std: float = 1.0, *, key: Any = None, dtype: Any = np.float32) -> Any:
    """Normal with a mean and a standard deviation.

    >>> import pullback as pb
    >>> pb.nn.init.normal((2, 3), std=0.02, key=pb.random.key(0)).dtype
    dtype('float32')
    """
    return random.normal(mean, std, as_shape(shape, "init.normal"), key=key, dtype=dtype)


def truncated_normal(
    shape: Any, mean: float = 0.0, std: float = 1.0, bound: float = 2.0, *, key: Any = None, dtype: Any = np.float32
) -> Any:
    """Normal, but never further from the mean than `bound` times `std`.

    >>> import pullback as pb
    >>> bool(abs(pb.nn.init.truncated_normal((100,), std=0.5, key=pb.random.key(0))).max() <= 1.0)
    True
    """
    drawn = random.truncated_normal(-bound, bound, size=as_shape(shape, "init.truncated_normal"), key=key, dtype=dtype)
    return (mean + std * drawn).astype(dtype)


def fans(shape: Any) -> tuple[int, int]:
    """How many inputs and outputs an element of a weight of shape (out, in, ...) has; further axes are a kernel's.

    >>> import pullback as pb
    >>> pb.nn.init.fans((64, 32, 3, 3))
    (288, 576)
    """
    sizes = as_shape(shape, "init")
    if len(sizes) < 2:
        raise ShapeError(f"init: a weight of shape {sizes} has no inputs and outputs; it takes two axes.")
    kernel = math.prod(sizes[2:])
    return sizes[1] * kernel, sizes[0] * kernel


def xavier_uniform(shape: Any, gain: float = 1.0, *, key: Any = None, dtype: Any = np.float32) -> Any:
    """Uniform with the variance 2 gain^2 / (inputs + outputs), which keeps signals and gradients of one size.

    >>> import pullback as pb
    >>> bool(abs(pb.nn.init.xavier_uniform((3, 3), key=pb.random.key(0))).max() <= 1.0)
    True
    """
    bound = gain * math.sqrt(6.0 / max(sum(fans(shape)), 1))
    return uniform(shape, -bound, bound, key=key, dtype=dtype)


def xavier_normal(shape: Any, gain: float = 1.0, *, key: Any = None, dtype: Any = np.float32) -> Any:
    """Normal with the variance 2 gain^2 / (inputs + outputs).

    >>> import pullback as pb
    >>> pb.nn.init.xavier_normal((3, 3), key=pb.random.key(0)).shape
    (3, 3)
    """
    return normal(shape, std=gain * math.sqrt(2.0 / max(sum(fans(shape)), 1)), key=key, dtype=dtype)


def _kaiming_std(shape: Any, mode: str, activation: str, slope: float) -> float:
    """The standard deviation: gain / sqrt(fan)."""
    if mode not in ("in", "out"):
        raise ArgumentError(f"init: mode is 'in' or 'out', got {mode!r}.")
    if activation not in (*_GAINS, "leaky_relu"):
        raise ArgumentError(f"init: {activation!r} has no gain; known are leaky_relu, {', '.join(_GAINS)}.")
    gain = math.sqrt(2.0 / (1.0 + slope**2)) if activation == "leaky_relu" else _GAINS[activation]
    return gain / math.sqrt(max(fans(shape)[mode == "out"], 1))


def kaiming_uniform(
    shape: Any,
    *,
    mode: str = "in",
    activation: str = "relu",
    slope: float = 0.01,
    key: Any = None,
    dtype: Any = np.float32,
) -> Any:
    """Uniform with the variance gain^2 / inputs (or outputs, by `mode`), the gain being that of an activation.

    >>> import pullback as pb
    >>> bool(abs(pb.nn.init.kaiming_uniform((4, 6), key=pb.random.key(0))).max() <= 1.0)
    True
    """
    bound = math.sqrt(3.0) * _kaiming_std(shape, mode, activation, slope)
    return uniform(shape, -bound, bound, key=key, dtype=dtype)


def kaiming_normal(
    shape: Any,
    *,
    mode: str = "in",
    activation: str = "relu",
    slope: float = 0.01,
    key: Any = None,
    dtype: Any = np.float32,
) -> Any:
    """Normal with the variance gain^2 / inputs (or outputs, by `mode`), the gain being that of an activation.

    >>> import pullback as pb
    >>> pb.nn.init.kaiming_normal((4, 6), mode="out", key=pb.random.key(0)).shape
    (4, 6)
    """
    return normal(shape, std=_kaiming_std(shape, mode, activation, slope), key=key, dtype=dtype)


def orthogonal(shape: Any, gain: float = 1.0, *, key: Any = None, dtype: Any = np.float32) -> Any:
    """A matrix with orthonormal rows or columns, whichever are fewer, times `gain`, drawn evenly from all of them; axes
    after the first count as columns.

    >>> import numpy as np, pullback as pb
    >>> w = pb.nn.init.orthogonal((2, 3), key=pb.random.key(0))
    >>> np.allclose(w @ w.T, np.eye(2), atol=1e-6)
    True
    """
    sizes = as_shape(shape, "init.orthogonal")
    if len(sizes) < 2:
        raise ShapeError(f"init.orthogonal: a weight of shape {sizes} has no rows and columns.")
    rows, columns = sizes[0], math.prod(sizes[1:])
    drawn = np.asarray(random.normal(size=(max(rows, columns), min(rows, columns)), key=key, dtype=np.float64))
    q, r = np.linalg.qr(drawn)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # without it the distribution would not be uniform (Haar)
    return (gain * (q if rows >= columns else q.T)).reshape(sizes).astype(dtype)


glorot_uniform, glorot_normal, he_uniform, he_normal = xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal

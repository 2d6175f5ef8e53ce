"""Composites: public functions made of ops. They carry no rule, so nothing here can be differentiated wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.namespace import checked_device
from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import DeviceError
from . import elementwise as pointwise
from . import reducing, shaping
from .dispatch import as_value

__all__ = ["astype", "clip", "gelu", "log_softmax", "mean_squared_error", "silu", "softmax"]


@signed
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x converted to a dtype; the cotangent is converted back, so the graph is never cut. A bare array that has the
    dtype already is copied, unless `copy=False`.

    >>> import numpy as np, pullback as pb
    >>> pb.astype(np.array([1.5, 2.5]), np.float32).dtype
    dtype('float32')
    """
    value = as_value(x)
    if device is not None and checked_device(device, "astype") != spec_of(value).device:
        raise DeviceError(f"astype: x is on {spec_of(value).device}, not on {device!r}.\n  Move it first: x.to_device.")
    found = shaping.astype(value, dtype)
    return found.copy() if copy and found is x and is_array(x) else found


@signed
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x held between bounds, each a number, an array or None; at a bound the gradient passes.

    >>> import numpy as np, pullback as pb
    >>> pb.clip(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """
    x = as_value(x)
    lowest, highest = _range(spec_of(x).dtype)
    return pointwise.clip_to(x, lowest if min is None else min, highest if max is None else max)


def _range(dtype: Any) -> tuple[Any, Any]:
    """Bounds that bind nothing."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -math.inf, math.inf


@signed
def softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """exp(x) over its sum along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    x = as_value(x)
    if spec_of(x).size:
        x = pointwise.subtract(x, pointwise.stop_gradient(reducing.max(x, axis=axis, keepdims=True)))
    weights = pointwise.exp(x)
    return pointwise.divide(weights, reducing.sum(weights, axis=axis, keepdims=True))


@signed
def log_softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """log(softmax(x)), exact also where softmax underflows.

    >>> import numpy as np, pullback as pb
    >>> pb.log_softmax(np.array([0.0, -1000.0]))
    array([    0., -1000.])
    """
    x = as_value(x)
    return pointwise.subtract(x, reducing.logsumexp(x, axis=axis, keepdims=True))


@signed
def silu(x: Any, /) -> Any:
    """x * sigmoid(x).

    >>> import pullback as pb
    >>> pb.silu(0.0)
    array(0.)
    """
    x = as_value(x)
    return pointwise.multiply(x, pointwise.sigmoid(x))


@signed
def gelu(x: Any, /, *, approximate: bool = False) -> Any:
    """x times the normal distribution function of x, or its tanh approximation.

    >>> import pullback as pb
    >>> pb.gelu(0.0)
    array(0.)
    """
    x = as_value(x)
    if approximate:
        return pointwise.gelu_by_tanh(x)
    share = pointwise.erf(pointwise.multiply(x, math.sqrt(0.5)))
    return pointwise.multiply(pointwise.multiply(x, 0.5), pointwise.add(share, 1))


@signed
def mean_squared_error(x: Any, y: Any, /) -> Any:
    """The mean of (x - y)^2 over all elements.

    >>> import numpy as np, pullback as pb
    >>> pb.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(2.)
    """
    return reducing.mean(pointwise.square(pointwise.subtract(x, y)))


@signed
def copied(x: Any) -> Any:
    """The value itself under a name of its own."""
    return pointwise.positive(x) if spec_of(x).dtype.kind != "b" else shaping.reshape(x, spec_of(x).shape)

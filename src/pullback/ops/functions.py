"""Composites: public functions made of ops. They carry no derivative rule of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.call_site import attributed_to_caller
from ..arrays.devices import normalize_device
from ..arrays.dtypes import as_dtype
from ..arrays.spec import spec_of
from ..arrays.value import Value
from . import placement
from .dispatch import as_value
from .elementwise import pointwise
from .fusion import fuse
from .reduce import reductions
from .round_once import rounds_once
from .shape import reshaping
from .signatures import of_array, of_mixed_arrays, of_two_arrays


@of_array
@attributed_to_caller
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x converted to a dtype; the cotangent is converted back, so the graph stays connected. A bare array that has the
    dtype already is copied, unless `copy=False`.

    >>> import numpy as np, pullback as pb
    >>> pb.astype(np.array([1.5, 2.5]), np.float32).dtype
    dtype('float32')
    """
    value = as_value(x)
    if not copy and device is None and isinstance(value, Value) and value.dtype == as_dtype(dtype):
        return value  # itself, which a program may rely on when it writes to the result
    found = reshaping.astype(value, dtype)
    if device is not None:
        found = placement.move(found, normalize_device(device, "astype"))
    return found.copy() if copy and found is x and is_array(x) else found


@of_mixed_arrays
@attributed_to_caller
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x clamped between bounds, each a number, an array or None; at a bound the gradient passes.

    >>> import numpy as np, pullback as pb
    >>> pb.clip(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """
    x = as_value(x)
    lowest, highest = _dtype_range(spec_of(x).dtype)
    return pointwise.clip_to(x, lowest if min is None else min, highest if max is None else max)


def _dtype_range(dtype: Any) -> tuple[Any, Any]:
    """The least and the greatest value of a dtype."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -math.inf, math.inf


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """exp(x) over its sum along an axis.

    >>> import numpy as np, pullback as pb
    >>> pb.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    x = as_value(x)
    if spec_of(x).size:
        x = pointwise.subtract(x, pointwise.stop_gradient(reductions.max(x, axis=axis, keepdims=True)))
    weights = pointwise.exp(x)
    return pointwise.divide(weights, reductions.sum(weights, axis=axis, keepdims=True))


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def log_softmax(x: Any, /, *, axis: Any = -1) -> Any:
    """log(softmax(x)), exact also where softmax underflows.

    >>> import numpy as np, pullback as pb
    >>> pb.log_softmax(np.array([0.0, -1000.0]))
    array([    0., -1000.])
    """
    x = as_value(x)
    return pointwise.subtract(x, reductions.logsumexp(x, axis=axis, keepdims=True))


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def silu(x: Any, /) -> Any:
    """x * sigmoid(x).

    >>> import pullback as pb
    >>> pb.silu(0.0)
    array(0.)
    """
    x = as_value(x)
    return pointwise.multiply(x, pointwise.sigmoid(x))


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
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


@of_two_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def mean_squared_error(x: Any, y: Any, /) -> Any:
    """The mean of (x - y)^2 over all elements.

    >>> import numpy as np, pullback as pb
    >>> pb.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(2.)
    """
    return reductions.mean(pointwise.square(pointwise.subtract(x, y)))


@attributed_to_caller
def copy_value(x: Any) -> Any:
    """The value itself under a new variable."""
    return pointwise.positive(x) if spec_of(x).dtype.kind != "b" else reshaping.reshape(x, spec_of(x).shape)

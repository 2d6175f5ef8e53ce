"""Activations in pieces: rectifiers, clamped and shrunk ones. At a corner the derivative is that of the flat piece.

A branch that would overflow gets a harmless argument where it is not taken. What is little more than a selection is not
fused: the mask of its cotangent keeps infinite slopes of what was not taken out of gradients, and would end with it.
"""

from __future__ import annotations

import math
from typing import Any

from ..arrays.call_site import attributed_to_caller
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops import functions, random
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.arithmetic import hypot
from ..ops.elementwise.pointwise import add, expm1, multiply, relu, square, subtract, where
from ..ops.fusion import fuse
from ..ops.reduce.reductions import as_constant
from ..ops.round_once import rounds_once
from ..ops.shape.reshaping import astype
from ..ops.signatures import of_array, of_mixed_arrays
from .arguments import expand_along_axis, key_on_device_of

#: The fixed point of mean 0 and variance 1 (Klambauer et al., "Self-Normalizing Neural Networks", 2017).
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def _rectify_with(x: Any, below: Any) -> Any:
    """x above zero, `below` of x elsewhere; `below` never sees a value above zero, where it might overflow."""
    x = as_value(x)
    above = x > 0
    return where(above, x, below(where(above, 0, x)))


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def leaky_relu(x: Any, /, negative_slope: Any = 0.01) -> Any:
    """x above zero, `negative_slope * x` below; the slope at 0 is the one below.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.leaky_relu(np.array([-2.0, 3.0]), 0.1)
    array([-0.2,  3. ])
    """
    return _rectify_with(x, lambda low: low * negative_slope)


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def prelu(x: Any, /, weight: Any) -> Any:
    """`leaky_relu` whose slope is learned: one value, or one for each channel (axis 1).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.prelu(np.array([[-2.0, -2.0]]), np.array([0.1, 0.5]))
    array([[-0.2, -1. ]])
    """
    x, weight = as_value(x), as_value(weight)
    if ndim(weight) > 1:
        raise ShapeError(f"prelu: weight is a scalar or a vector, got shape {shape(weight)}.")
    if ndim(weight) and shape(weight) != (1,):
        axis = 1 if ndim(x) > 1 else 0
        if not ndim(x):
            raise ShapeError(f"prelu: a weight of shape {shape(weight)} for a scalar input.")
        weight = expand_along_axis(weight, axis, ndim(x), shape(x)[axis], "prelu: weight")
    elif ndim(weight) and not ndim(x):
        weight = weight[0]
    return where(x > 0, x, weight * x)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def rrelu(x: Any, /, lower: float = 1 / 8, upper: float = 1 / 3, *, training: bool = False, key: Any = None) -> Any:
    """`leaky_relu` with a slope drawn for each element while training, and the mean slope otherwise.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.rrelu(np.array([-2.0, 3.0]), 0.0, 0.5)
    array([-0.5,  3. ])
    """
    if lower > upper:
        raise ArgumentError(f"rrelu: lower must not be above upper, got {lower} and {upper}.")
    x = as_value(x)
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    found = random.uniform(lower, upper, shape(x), key=key_on_device_of(key, x, "uniform"), dtype=_float_dtype(x))
    return where(x > 0, x, found * x)


def _float_dtype(x: Any) -> Any:
    found = spec_of(x)
    return found.dtype if found.inexact else "float64"


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def elu(x: Any, /, alpha: Any = 1.0) -> Any:
    """x above zero, `alpha * (exp(x) - 1)` below; the slope at 0 is `alpha`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.elu(np.array([-1e4, 3.0]))
    array([-1.,  3.])
    """
    return _rectify_with(x, lambda low: expm1(low) * alpha)


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def celu(x: Any, /, alpha: Any = 1.0) -> Any:
    """x above zero, `alpha * (exp(x / alpha) - 1)` below: smooth at 0 for every alpha.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.celu(np.array([-1e4, 3.0]), 2.0)
    array([-2.,  3.])
    """
    if isinstance(alpha, int | float) and alpha <= 0:
        raise ArgumentError(f"celu: alpha must be above zero, got {alpha}.")
    return _rectify_with(x, lambda low: expm1(low / alpha) * alpha)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def selu(x: Any, /) -> Any:
    """A scaled `elu` under which activations keep mean 0 and variance 1 from layer to layer.

    >>> import pullback as pb
    >>> round(float(pb.nn.selu(1.0)), 4)
    1.0507
    """
    return multiply(elu(x, SELU_ALPHA), SELU_SCALE)


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def squareplus(x: Any, /, b: Any = 4.0) -> Any:
    """(x + sqrt(x^2 + b)) / 2: like softplus, without exponentials.

    >>> import pullback as pb
    >>> pb.nn.squareplus(0.0)
    array(1.)
    """
    if isinstance(b, int | float) and b <= 0:
        raise ArgumentError(f"squareplus: b must be above zero, got {b}; with 0 it is relu.")
    x = as_value(x)
    above = x > 0
    # x + r = b / (r - x) for r^2 = x^2 + b: below zero the sum would cancel, the quotient does not.
    root = math.sqrt(b) if isinstance(b, int | float) else as_value(b) ** 0.5
    total = where(above, x, -x) + hypot(x, root)
    return multiply(where(above, total, b / total), 0.5)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def relu_squared(x: Any, /) -> Any:
    """max(x, 0)^2.

    >>> import pullback as pb
    >>> pb.nn.relu_squared(3.0)
    array(9.)
    """
    return square(relu(as_value(x)))


@of_mixed_arrays
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def star_relu(x: Any, /, scale: Any = 0.8944271909999159, bias: Any = -0.4472135954999579) -> Any:
    """scale * max(x, 0)^2 + bias; with the defaults a normal variable keeps mean 0 and variance 1.

    >>> import pullback as pb
    >>> round(float(pb.nn.star_relu(0.0)), 4)
    -0.4472
    """
    return add(relu_squared(x) * scale, bias)


def _clamp_flat(x: Any, low: float, high: float) -> Any:
    """x between two bounds; at a bound and beyond it the derivative is 0."""
    inside = (x > low) & (x < high)
    return where(inside, x, as_constant(functions.clip(x, low, high)))


@of_array
@attributed_to_caller
def relu6(x: Any, /) -> Any:
    """min(max(x, 0), 6); the slope is 0 at both corners.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.relu6(np.array([-1.0, 3.0, 9.0]))
    array([0., 3., 6.])
    """
    return _clamp_flat(as_value(x), 0, 6)


@of_array
@attributed_to_caller
def hardtanh(x: Any, /, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x clamped between two bounds; the slope is 0 at both corners (`pb.clip` passes the gradient there).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardtanh(np.array([-3.0, 0.5, 3.0]))
    array([-1. ,  0.5,  1. ])
    """
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val must be below max_val, got {min_val} and {max_val}.")
    return _clamp_flat(as_value(x), min_val, max_val)


@of_array
@attributed_to_caller
@rounds_once
def hardsigmoid(x: Any, /) -> Any:
    """The straight line (x + 3) / 6 clamped to [0, 1].

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardsigmoid(np.array([-9.0, 0.0, 9.0]))
    array([0. , 0.5, 1. ])
    """
    return multiply(_clamp_flat(as_value(x) + 3.0, 0, 6), 1 / 6)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def hardswish(x: Any, /) -> Any:
    """x * hardsigmoid(x); the slope is 0 at -3 and 1 at 3.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardswish(np.array([-9.0, 0.0, 9.0]))
    array([-0.,  0.,  9.])
    """
    x = as_value(x)
    return multiply(x, hardsigmoid(x))


def _check_lambd(lambd: Any, what: str) -> Any:
    if isinstance(lambd, int | float) and lambd < 0:
        raise ArgumentError(f"{what}: lambd must not be negative, got {lambd}.")
    return lambd


@of_array
@attributed_to_caller
def hardshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x, and 0 where |x| is at most `lambd`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardshrink(np.array([-2.0, 0.5, 0.7]))
    array([-2. ,  0. ,  0.7])
    """
    x = as_value(x)
    return where(abs(x) <= _check_lambd(lambd, "hardshrink"), 0.0, x)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def softshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x moved towards 0 by `lambd`, and 0 where |x| is at most that.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softshrink(np.array([-2.0, 0.5, 0.7]))
    array([-1.5,  0. ,  0.2])
    """
    x, lambd = as_value(x), _check_lambd(lambd, "softshrink")
    return subtract(x, functions.clip(x, -lambd, lambd))


@of_array
@attributed_to_caller
def threshold(x: Any, /, threshold: float, value: float) -> Any:
    """x where it is above the threshold, else a fixed value.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.threshold(np.array([-1.0, 3.0]), 0.0, 20.0)
    array([20.,  3.])
    """
    x = as_value(x)
    return where(x <= threshold, astype(as_value(value), spec_of(x).dtype), x)

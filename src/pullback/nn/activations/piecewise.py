"""Piecewise linear activations. At a corner the derivative is that of the flat piece, as for `relu`."""

from __future__ import annotations

from typing import Any

from ...arrays.node import attributed_to_caller
from ...arrays.spec import spec_of
from ...errors import ArgumentError
from ...ops import functions
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import abs, add, greater, less, less_equal, logical_and, multiply, subtract, where
from ...ops.reduce.reductions import as_constant
from ...ops.shape.reshaping import astype


def _clamp_flat(x: Any, low: float, high: float) -> Any:
    """x between two bounds; at a bound and beyond it the derivative is 0."""
    inside = logical_and(greater(x, low), less(x, high))
    return where(inside, x, as_constant(functions.clip(x, low, high)))


@attributed_to_caller
def relu6(x: Any, /) -> Any:
    """min(max(x, 0), 6); the slope is 0 at both corners.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.relu6(np.array([-1.0, 3.0, 9.0]))
    array([0., 3., 6.])
    """
    return _clamp_flat(as_value(x), 0, 6)


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


@attributed_to_caller
def hardsigmoid(x: Any, /) -> Any:
    """The straight line (x + 3) / 6 clamped to [0, 1].

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardsigmoid(np.array([-9.0, 0.0, 9.0]))
    array([0. , 0.5, 1. ])
    """
    return multiply(_clamp_flat(add(as_value(x), 3.0), 0, 6), 1 / 6)


@attributed_to_caller
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


@attributed_to_caller
def hardshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x, and 0 where |x| is at most `lambd`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardshrink(np.array([-2.0, 0.5, 0.7]))
    array([-2. ,  0. ,  0.7])
    """
    x = as_value(x)
    return where(less_equal(abs(x), _check_lambd(lambd, "hardshrink")), 0.0, x)


@attributed_to_caller
def softshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x moved towards 0 by `lambd`, and 0 where |x| is at most that.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softshrink(np.array([-2.0, 0.5, 0.7]))
    array([-1.5,  0. ,  0.2])
    """
    x, lambd = as_value(x), _check_lambd(lambd, "softshrink")
    return subtract(x, functions.clip(x, -lambd, lambd))


@attributed_to_caller
def threshold(x: Any, /, threshold: float, value: float) -> Any:
    """x where it is above the threshold, else a fixed value.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.threshold(np.array([-1.0, 3.0]), 0.0, 20.0)
    array([20.,  3.])
    """
    x = as_value(x)
    return where(less_equal(x, threshold), astype(as_value(value), spec_of(x).dtype), x)

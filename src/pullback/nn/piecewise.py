"""Values in, values cut or held out: the activations made of straight pieces. On a corner the slope is that of the flat
piece, as for `relu`.
"""

from __future__ import annotations

from typing import Any

from ..arrays.node import signed
from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..ops import functions
from ..ops.dispatch import as_value
from ..ops.elementwise import abs, add, greater, less, less_equal, logical_and, multiply, subtract, where
from ..ops.reducing import held_fixed
from ..ops.shaping import astype

__all__ = ["hardshrink", "hardsigmoid", "hardswish", "hardtanh", "relu6", "softshrink", "threshold"]


def _held(x: Any, low: float, high: float) -> Any:
    """x between two bounds; at a bound and beyond it the value does not move."""
    inside = logical_and(greater(x, low), less(x, high))
    return where(inside, x, held_fixed(functions.clip(x, low, high)))


@signed
def relu6(x: Any, /) -> Any:
    """min(max(x, 0), 6); the slope is 0 at both corners.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.relu6(np.array([-1.0, 3.0, 9.0]))
    array([0., 3., 6.])
    """
    return _held(as_value(x), 0, 6)


@signed
def hardtanh(x: Any, /, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x held between two bounds; the slope is 0 at both corners (`pb.clip` passes the gradient there).

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardtanh(np.array([-3.0, 0.5, 3.0]))
    array([-1. ,  0.5,  1. ])
    """
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val must be below max_val, got {min_val} and {max_val}.")
    return _held(as_value(x), min_val, max_val)


@signed
def hardsigmoid(x: Any, /) -> Any:
    """The straight line (x + 3) / 6 held between 0 and 1.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardsigmoid(np.array([-9.0, 0.0, 9.0]))
    array([0. , 0.5, 1. ])
    """
    return multiply(_held(add(as_value(x), 3.0), 0, 6), 1 / 6)


@signed
def hardswish(x: Any, /) -> Any:
    """x * hardsigmoid(x); the slope is 0 at -3 and 1 at 3.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardswish(np.array([-9.0, 0.0, 9.0]))
    array([-0.,  0.,  9.])
    """
    x = as_value(x)
    return multiply(x, hardsigmoid(x))


def _width(lambd: Any, what: str) -> Any:
    if isinstance(lambd, int | float) and lambd < 0:
        raise ArgumentError(f"{what}: lambd must not be negative, got {lambd}.")
    return lambd


@signed
def hardshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x, and 0 where |x| is at most `lambd`.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.hardshrink(np.array([-2.0, 0.5, 0.7]))
    array([-2. ,  0. ,  0.7])
    """
    x = as_value(x)
    return where(less_equal(abs(x), _width(lambd, "hardshrink")), 0.0, x)


@signed
def softshrink(x: Any, /, lambd: float = 0.5) -> Any:
    """x moved towards 0 by `lambd`, and 0 where |x| is at most that.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softshrink(np.array([-2.0, 0.5, 0.7]))
    array([-1.5,  0. ,  0.2])
    """
    x, lambd = as_value(x), _width(lambd, "softshrink")
    return subtract(x, functions.clip(x, -lambd, lambd))


@signed
def threshold(x: Any, /, threshold: float, value: float) -> Any:
    """x where it is above the threshold, else a fixed value.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.threshold(np.array([-1.0, 3.0]), 0.0, 20.0)
    array([20.,  3.])
    """
    x = as_value(x)
    return where(less_equal(x, threshold), astype(as_value(value), spec_of(x).dtype), x)

"""Activation functions. None overflows for a finite argument, at any order of derivative: a branch that would overflow
gets a harmless argument where it is not taken. At a corner the derivative is that of the flat piece, as for `relu`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.call_site import attributed_to_caller
from ..errors import ArgumentError, ShapeError
from ..ops import functions
from ..ops.axes import normalize_axis
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise.pointwise import divide, multiply, relu, sigmoid, subtract, tanh, where
from ..ops.elementwise.pointwise import softplus as plain_softplus
from ..ops.fusion import fuse
from ..ops.round_once import rounds_once
from ..ops.shape import arrange
from ..ops.signatures import of_array, of_mixed_arrays


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def gelu(x: Any, /, *, approximate: Any = False) -> Any:
    """x times the normal distribution function of x; `approximate=True` (or "tanh") takes its tanh formula.

    >>> import pullback as pb
    >>> pb.nn.gelu(0.0, approximate="tanh")
    array(0.)
    """
    if approximate not in (False, True, "none", "tanh"):
        raise ArgumentError(f"gelu: approximate is False, True, 'none' or 'tanh', got {approximate!r}.")
    return functions.gelu(x, approximate=approximate in (True, "tanh"))


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def quick_gelu(x: Any, /) -> Any:
    """x * sigmoid(1.702 x), a cheap approximation of `gelu`.

    >>> import pullback as pb
    >>> pb.nn.quick_gelu(0.0)
    array(0.)
    """
    x = as_value(x)
    return multiply(x, sigmoid(1.702 * x))


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def swish(x: Any, /) -> Any:
    """x * sigmoid(x), which is also called `silu`.

    >>> import pullback as pb
    >>> pb.nn.swish(0.0)
    array(0.)
    """
    return functions.silu(x)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def mish(x: Any, /) -> Any:
    """x * tanh(softplus(x)).

    >>> import pullback as pb
    >>> round(float(pb.nn.mish(2.0)), 6)
    1.943959
    """
    x = as_value(x)
    return multiply(x, tanh(plain_softplus(x)))


@of_mixed_arrays
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def softplus(x: Any, /, beta: Any = 1.0, threshold: float | None = None) -> Any:
    """log(1 + exp(beta x)) / beta, without overflow; with a `threshold`, x itself where beta x is above it.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softplus(np.array([0.0, 1e4]))
    array([6.93147181e-01, 1.00000000e+04])
    """
    x = as_value(x)
    scaled = x * beta
    smooth = divide(plain_softplus(scaled), beta)
    return smooth if threshold is None else where(scaled > threshold, x, smooth)


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def logsigmoid(x: Any, /) -> Any:
    """log(sigmoid(x)), exact where sigmoid underflows.

    >>> import pullback as pb
    >>> pb.nn.logsigmoid(-1e4)
    array(-10000.)
    """
    return multiply(plain_softplus(-as_value(x)), -1)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def softsign(x: Any, /) -> Any:
    """x / (1 + |x|).

    >>> import pullback as pb
    >>> pb.nn.softsign(-3.0)
    array(-0.75)
    """
    x = as_value(x)
    return divide(x, abs(x) + 1)


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def tanhshrink(x: Any, /) -> Any:
    """x - tanh(x).

    >>> import pullback as pb
    >>> pb.nn.tanhshrink(0.0)
    array(0.)
    """
    x = as_value(x)
    return subtract(x, tanh(x))


@of_array
@fuse(autocast="high")
@attributed_to_caller
@rounds_once
def softmin(x: Any, /, *, axis: Any = -1) -> Any:
    """softmax(-x) along an axis: the smallest weighs most.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softmin(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return functions.softmax(-as_value(x), axis=axis)


def _apply_gate(x: Any, axis: int, gate: Callable[[Any], Any], what: str) -> Any:
    """The first half along an axis times the gate of the second."""
    x = as_value(x)
    place = normalize_axis(axis, ndim(x), what)
    if shape(x)[place] % 2:
        raise ShapeError(f"{what}: axis {axis} of shape {shape(x)} has no two halves.")
    first, second = arrange.split(x, 2, axis=place)
    return multiply(first, gate(second))


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def glu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.glu(np.array([4.0, 0.0]))
    array([2.])
    """
    return _apply_gate(x, axis, sigmoid, "glu")


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def geglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `gelu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.geglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _apply_gate(x, axis, gelu, "geglu")


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def swiglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `silu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.swiglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _apply_gate(x, axis, functions.silu, "swiglu")


@of_array
@fuse(autocast="promote")
@attributed_to_caller
@rounds_once
def reglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `relu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.reglu(np.array([4.0, 2.0]))
    array([8.])
    """
    return _apply_gate(x, axis, relu, "reglu")

"""Smooth activations. None overflows, at any order of derivative."""

from __future__ import annotations

from typing import Any

from ...arrays.node import attributed_to_caller
from ...errors import ArgumentError
from ...ops import functions
from ...ops.dispatch import as_value
from ...ops.elementwise.pointwise import abs, add, divide, greater, multiply, negative, sigmoid, subtract, tanh, where
from ...ops.elementwise.pointwise import softplus as plain_softplus


@attributed_to_caller
def gelu(x: Any, /, *, approximate: Any = False) -> Any:
    """x times the normal distribution function of x; `approximate=True` (or "tanh") takes its tanh formula.

    >>> import pullback as pb
    >>> pb.nn.gelu(0.0, approximate="tanh")
    array(0.)
    """
    if approximate not in (False, True, "none", "tanh"):
        raise ArgumentError(f"gelu: approximate is False, True, 'none' or 'tanh', got {approximate!r}.")
    return functions.gelu(x, approximate=approximate in (True, "tanh"))


@attributed_to_caller
def quick_gelu(x: Any, /) -> Any:
    """x * sigmoid(1.702 x), a cheap approximation of `gelu`.

    >>> import pullback as pb
    >>> pb.nn.quick_gelu(0.0)
    array(0.)
    """
    x = as_value(x)
    return multiply(x, sigmoid(multiply(x, 1.702)))


@attributed_to_caller
def swish(x: Any, /) -> Any:
    """x * sigmoid(x), which is also called `silu`.

    >>> import pullback as pb
    >>> pb.nn.swish(0.0)
    array(0.)
    """
    return functions.silu(x)


@attributed_to_caller
def mish(x: Any, /) -> Any:
    """x * tanh(softplus(x)).

    >>> import pullback as pb
    >>> round(float(pb.nn.mish(2.0)), 6)
    1.943959
    """
    x = as_value(x)
    return multiply(x, tanh(plain_softplus(x)))


@attributed_to_caller
def softplus(x: Any, /, beta: Any = 1.0, threshold: float | None = None) -> Any:
    """log(1 + exp(beta x)) / beta, without overflow; with a `threshold`, x itself where beta x is above it.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softplus(np.array([0.0, 1e4]))
    array([6.93147181e-01, 1.00000000e+04])
    """
    x = as_value(x)
    scaled = multiply(x, beta)
    smooth = divide(plain_softplus(scaled), beta)
    return smooth if threshold is None else where(greater(scaled, threshold), x, smooth)


@attributed_to_caller
def logsigmoid(x: Any, /) -> Any:
    """log(sigmoid(x)), exact where sigmoid underflows.

    >>> import pullback as pb
    >>> pb.nn.logsigmoid(-1e4)
    array(-10000.)
    """
    return negative(plain_softplus(negative(as_value(x))))


@attributed_to_caller
def softsign(x: Any, /) -> Any:
    """x / (1 + |x|).

    >>> import pullback as pb
    >>> pb.nn.softsign(-3.0)
    array(-0.75)
    """
    x = as_value(x)
    return divide(x, add(abs(x), 1))


@attributed_to_caller
def tanhshrink(x: Any, /) -> Any:
    """x - tanh(x).

    >>> import pullback as pb
    >>> pb.nn.tanhshrink(0.0)
    array(0.)
    """
    x = as_value(x)
    return subtract(x, tanh(x))

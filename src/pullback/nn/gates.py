"""Values in, values weighed against each other out: softmax and its kin along an axis, and halves that gate halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.node import signed
from ..errors import ShapeError
from ..ops import arranging, functions
from ..ops.axes import one_axis
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import multiply, negative, relu, sigmoid
from .activations import gelu

__all__ = ["geglu", "glu", "reglu", "softmin", "swiglu"]


@signed
def softmin(x: Any, /, *, axis: Any = -1) -> Any:
    """softmax(-x) along an axis: the smallest weighs most.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softmin(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return functions.softmax(negative(as_value(x)), axis=axis)


def _gated(x: Any, axis: int, gate: Callable[[Any], Any], what: str) -> Any:
    """The first half along an axis times the gate of the second."""
    x = as_value(x)
    place = one_axis(axis, ndim(x), what)
    if shape(x)[place] % 2:
        raise ShapeError(f"{what}: axis {axis} of shape {shape(x)} has no two halves.")
    first, second = arranging.split(x, 2, axis=place)
    return multiply(first, gate(second))


@signed
def glu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.glu(np.array([4.0, 0.0]))
    array([2.])
    """
    return _gated(x, axis, sigmoid, "glu")


@signed
def geglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `gelu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.geglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _gated(x, axis, gelu, "geglu")


@signed
def swiglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `silu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.swiglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _gated(x, axis, functions.silu, "swiglu")


@signed
def reglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `relu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.reglu(np.array([4.0, 2.0]))
    array([8.])
    """
    return _gated(x, axis, relu, "reglu")

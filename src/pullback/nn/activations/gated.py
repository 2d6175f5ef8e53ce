"""Gated activations (GLU and its variants), and softmin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arrays.node import attributed_to_caller
from ...errors import ShapeError
from ...ops import functions
from ...ops.axes import normalize_axis
from ...ops.dispatch import as_value, ndim, shape
from ...ops.elementwise.pointwise import multiply, negative, relu, sigmoid
from ...ops.shape import arrange
from .smooth import gelu


@attributed_to_caller
def softmin(x: Any, /, *, axis: Any = -1) -> Any:
    """softmax(-x) along an axis: the smallest weighs most.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.softmin(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return functions.softmax(negative(as_value(x)), axis=axis)


def _apply_gate(x: Any, axis: int, gate: Callable[[Any], Any], what: str) -> Any:
    """The first half along an axis times the gate of the second."""
    x = as_value(x)
    place = normalize_axis(axis, ndim(x), what)
    if shape(x)[place] % 2:
        raise ShapeError(f"{what}: axis {axis} of shape {shape(x)} has no two halves.")
    first, second = arrange.split(x, 2, axis=place)
    return multiply(first, gate(second))


@attributed_to_caller
def glu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.glu(np.array([4.0, 0.0]))
    array([2.])
    """
    return _apply_gate(x, axis, sigmoid, "glu")


@attributed_to_caller
def geglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `gelu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.geglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _apply_gate(x, axis, gelu, "geglu")


@attributed_to_caller
def swiglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `silu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.swiglu(np.array([4.0, 0.0]))
    array([0.])
    """
    return _apply_gate(x, axis, functions.silu, "swiglu")


@attributed_to_caller
def reglu(x: Any, /, *, axis: int = -1) -> Any:
    """The first half along an axis times `relu` of the second.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.reglu(np.array([4.0, 2.0]))
    array([8.])
    """
    return _apply_gate(x, axis, relu, "reglu")

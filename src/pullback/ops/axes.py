"""Normalizing the axes and shapes that users pass: tuples counted from the front, or a typed error."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from ..arrays.size import Size
from ..errors import ArgumentError, AxisError, ConversionError, DtypeError, ShapeError


def as_integer(number: Any, what: str) -> int:
    """An integer (or an unknown size), or an error that names the argument."""
    if type(number) is Size:
        return cast("int", number)
    try:
        return operator.index(number)
    except ConversionError as error:  # its values are not known, and what to do is in it
        raise ConversionError(f"{what} cannot depend on a value of a transform.\n  {error}") from None
    except TypeError:
        raise DtypeError(f"{what} must be an integer, got {number!r}.") from None


def normalize_axis(axis: Any, rank: int, what: str) -> int:
    """One axis counted from the front."""
    place = as_integer(axis, f"{what}: axis")
    if not -rank <= place < rank:
        raise AxisError(f"{what}: axis {place} does not exist in an array of {rank} axes.")
    return place % rank


def normalize_axes(axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """Several axes counted from the front, in rising order; None is all of them."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = sorted(normalize_axis(a, rank, what) for a in given)
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"{what}: axis {axis} names an axis twice.")
    return tuple(axes)


def axes_tuple(axes: Any, rank: int, what: str) -> tuple[int, ...]:
    """Axes counted from the front, in the order given; a single number is one axis."""
    if not isinstance(axes, Iterable) or getattr(axes, "ndim", 1) == 0:
        axes = (axes,)
    return tuple(normalize_axis(a, rank, what) for a in axes)


def as_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A shape as a tuple of integers; a single number is one axis."""
    if type(shape) is tuple and all(type(n) is int for n in shape):
        return shape
    if not isinstance(shape, Iterable) or getattr(shape, "ndim", 1) == 0:
        shape = (shape,)
    if getattr(shape, "dtype", None) == np.uint32:  # of a draw whose key was passed by position: no size, but a key
        raise DtypeError(
            f"{what}: the shape is an array of uint32, as a random key is.\n"
            "  Pass a key by keyword, key=key; a shape as a tuple of integers."
        )
    return tuple(as_integer(n, f"{what}: shape") for n in shape)


def resolve_shape(shape: tuple[int, ...], size: int, what: str) -> tuple[int, ...]:
    """The shape with its -1, if any, resolved, checked against the number of elements."""
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise ShapeError(f"{what}: shape {shape} may hold one -1 and no other negative number.")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or size % rest:
            raise ShapeError(f"{what}: {size} elements do not fill shape {shape}.")
        return tuple(size // rest if n == -1 else n for n in shape)
    if math.prod(shape) != size:
        raise ShapeError(f"{what}: {size} elements do not fill shape {shape}.")
    return shape

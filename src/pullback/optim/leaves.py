"""Arrays of one parameter in, the small things every rule does to them out: zeros, squares, roots, decay by steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.backends import is_array, namespace_on
from ..arrays.spec import spec_of, zeros
from ..arrays.trees import LEAF
from ..arrays.value import Value
from ..errors import ArgumentError, DtypeError
from ..ops import elementwise as pointwise
from ..ops.dispatch import as_value
from ..ops.known import is_known
from ..ops.reducing import sum as total
from ..ops.shaping import astype

__all__ = [
    "either", "fitted", "float_steps", "norm", "no_steps", "number", "parts", "rate", "real_dtype", "real_only",
    "real_zeros", "root", "squared", "whole_number", "zeros_like",
]  # fmt: skip


def no_steps(leaves: Sequence[Any]) -> Any:
    """A count of steps at zero, on the device of the parameters."""
    device = spec_of(leaves[0]).device if leaves else "cpu"
    return namespace_on(device).zeros((), np.int64)


def float_steps(t: Any) -> Any:
    """A count as float64, so that 1 - beta**t keeps its digits in a float32 program too."""
    return astype(t, np.float64)


def real_dtype(x: Any) -> Any:
    """The dtype of the absolute values of x."""
    dtype = spec_of(x).dtype
    return np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype


def zeros_like(x: Any) -> Any:
    """Zeros of the shape and dtype of a parameter, as a bare array."""
    return zeros(spec_of(x))


def real_zeros(x: Any) -> Any:
    """Zeros for something like |x|."""
    return zeros(spec_of(x), real_dtype(x))


def fitted(scalar: Any, like: Any) -> Any:
    """A number that is to be multiplied with a parameter, in its precision: an array would widen it."""
    if not is_array(scalar) and not isinstance(scalar, (Value, np.generic)):
        return scalar
    return astype(as_value(scalar), real_dtype(like))


def squared(g: Any) -> Any:
    """|g|^2, real."""
    if spec_of(g).dtype.kind == "c":
        return pointwise.real(g * pointwise.conj(g))
    return pointwise.square(g)


def root(v: Any) -> Any:
    """sqrt(v) for v >= 0, with derivative 0 at 0: there v is a square, and what it stands over is 0 too."""
    return pointwise.where(pointwise.greater(v, 0), pointwise.sqrt(v), v)


def norm(g: Any) -> Any:
    """The root of the sum of squares, with derivative 0 at 0."""
    return root(total(squared(g)))


def either(condition: Any, new: Any, old: Any) -> Any:
    """`new` where the condition holds, else `old`; of one spec."""
    return new if new is old else pointwise.where(condition, new, old)


def real_only(x: Any, what: str) -> None:
    """Raise for complex parameters."""
    if spec_of(x).dtype.kind == "c":
        raise DtypeError(f"{what}: parameters are real, got {spec_of(x)}.\n  Learn real and imaginary part.")


def parts(structure: Any, tree: Any, what: str) -> list[Any]:
    """What stands in a tree where another has leaves: arrays, or trees of them."""
    if structure is LEAF:
        return [tree]
    try:
        return list(structure.flatten_up_to(tree))
    except ValueError as error:
        raise ArgumentError(f"{what} differ: {error}") from None


def number(x: Any, what: str, low: float = 0.0, high: float = math.inf, *, open_end: bool = False) -> Any:
    """A setting within bounds. One that carries derivatives, or is hidden by a transform, is taken as it is."""
    value = as_value(x)
    if spec_of(value).shape:
        raise ArgumentError(f"{what}: wants one number, got {spec_of(value)}.")
    if isinstance(value, Value) and not (is_known(value) and value.level == 1):
        return value
    found = float(value.detach() if isinstance(value, Value) else value)  # type: ignore[attr-defined]
    if not (low <= found < high if open_end else low <= found <= high):
        bounds = f"{low:g} <= {what.rpartition(' ')[2]} {'<' if open_end else '<='} {high:g}"
        raise ArgumentError(f"{what} must be a number with {bounds}, got {found!r}.")
    return value


def whole_number(x: Any, what: str, low: int = 1) -> int:
    """A count, as a Python integer."""
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)) or x < low:
        raise ArgumentError(f"{what} must be an integer of at least {low}, got {x!r}.")
    return int(x)


def rate(x: Any, what: str) -> Any:
    """A learning rate: a number that is not negative, or a schedule, a function of the number of steps so far."""
    return x if callable(x) else number(x, what)

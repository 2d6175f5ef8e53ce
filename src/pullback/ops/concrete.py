"""The concrete array of a value, without derivatives: for counts, indices, truth values, printing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.backends import is_array
from ..arrays.spec import Spec
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from . import batching
from .dispatch import apply, as_value
from .families import general
from .op_samples import normal_samples

#: An op without derivative: a transform with concrete values returns them, without the derivative.
_numbers = general(
    "numbers", value=lambda xp, x: x,
    spec=lambda x: Spec(x.shape, x.dtype, x.device), batch=batching.batch_pointwise,
    samples=normal_samples([(3,), ()]),
)  # fmt: skip


def strip_derivatives(x: Any) -> Any:
    """x without its derivative wrappers; still a `Value` where the elements are hidden, as under vmap."""
    found = apply(_numbers, x) if isinstance(x, Value) else x
    while isinstance(found, Tensor):
        found = found.value
    return found


def is_known_zero(x: Any) -> bool:
    """Whether a number is zero; False where it is not known, as in a program that is traced."""
    found = strip_derivatives(x)
    return not isinstance(found, Value) and not found


def as_bare_array(x: Any, what: str) -> Any:
    """The values of x as a bare array. Only for results that lose no derivative."""
    if isinstance(x, (list, tuple)):
        return np.asarray([as_bare_array(part, what) for part in x])
    found = strip_derivatives(as_value(x))
    if isinstance(found, Value):
        raise found.conversion_error(what)
    return found if is_array(found) else np.asarray(found)


def is_concrete(x: Any) -> bool:
    """Whether the values of x are known now: not inside a transform that hides them, such as vmap."""
    return not isinstance(strip_derivatives(x), Value)

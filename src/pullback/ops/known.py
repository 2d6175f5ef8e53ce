"""Value in, its numbers as a bare array out, for results that carry no derivative: counts, places, truths, printing."""

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
from .sampling import one, several

__all__ = ["bare", "is_known", "stripped"]

#: An op without derivative: a transform that knows the numbers answers them, and nothing of the derivative.
_numbers = general(
    "numbers", args=("x",), doc="The numbers of x, without any derivative.", value=lambda xp, x: x,
    spec=lambda x: Spec(x.shape, x.dtype, x.device), batch=batching.pointwise, samples=several(one(3), one()),
)  # fmt: skip


def stripped(x: Any) -> Any:
    """x without what only carries derivatives; still a value where its numbers are hidden, as under vmap."""
    found = apply(_numbers, x) if isinstance(x, Value) else x
    while isinstance(found, Tensor):
        found = found.value
    return found


def bare(x: Any, what: str) -> Any:
    """The numbers of x as an array of its library. Only for results that lose no derivative."""
    if isinstance(x, (list, tuple)):
        return np.asarray([bare(part, what) for part in x])
    found = stripped(as_value(x))
    if isinstance(found, Value):
        raise found.refusal(what)
    return found if is_array(found) else np.asarray(found)


def is_known(x: Any) -> bool:
    """Whether x has numbers now: not inside a transform that hides them, such as vmap."""
    return not isinstance(stripped(x), Value)

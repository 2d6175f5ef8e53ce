"""Lists of tensors, which NumPy's protocol does not look into, as tensors."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.arrays.value import Value


def holds_tensor(x: Any) -> bool:
    """Whether a tensor is in it, at any depth."""
    return isinstance(x, Value) or (isinstance(x, (list, tuple)) and any(map(holds_tensor, x)))


def stacked(x: Any) -> Any:
    """Nested lists with tensors in them as one tensor."""
    if isinstance(x, (list, tuple)) and holds_tensor(x):
        return np.stack([stacked(part) for part in x])
    return x


def taking_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy that takes lists of tensors too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(stacked, args), **kwargs)

    return call

"""How layers draw their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.tensor import Tensor, tensor
from ...ops import random
from ...ops.random.keys import next_key
from .. import init


def split_key(key: Any, count: int) -> Any:
    """So many keys from one, or from the default generator."""
    return random.split(next_key() if key is None else key, count)


def uniform_parameters(bound: float, key: Any, dtype: Any, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Trainable tensors with elements between -bound and bound."""
    keys = split_key(key, len(shapes))
    drawn = (init.uniform(s, -bound, bound, key=k, dtype=dtype) for s, k in zip(shapes, keys, strict=True))
    return [tensor(array, requires_grad=True) for array in drawn]


def filled_parameter(size: Any, number: float, dtype: Any) -> Tensor:
    """A trainable array of one number."""
    return tensor(np.full(size, number, dtype), requires_grad=True)

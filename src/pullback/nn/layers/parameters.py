"""How layers make their parameters: trainable tensors, and keys to draw them with."""

from __future__ import annotations

from typing import Any

from ...arrays.tensor import Tensor, tensor
from ...ops import random
from ...ops.random.keys import next_key


def make_parameter(array: Any) -> Tensor:
    return tensor(array, requires_grad=True)


def split_key(key: Any, count: int) -> Any:
    """So many keys from one, or from the default generator."""
    return random.split(next_key() if key is None else key, count)

"""Python's containers are trees in pullback, so they are Python's own here."""

import builtins
from typing import Any

import numpy as np

from pullback.arrays.value import Value

_isinstance, dict, list, tuple = builtins.isinstance, builtins.dict, builtins.list, builtins.tuple

__all__ = ["dict", "isinstance", "list", "tuple", "type"]


def isinstance(x: Any, kinds: Any) -> bool:
    """Python's, where a tensor counts as an array."""
    if _isinstance(x, Value):
        wanted = kinds if _isinstance(kinds, tuple) else (kinds,)
        return np.ndarray in wanted or (not x.shape and float in wanted)
    return _isinstance(x, kinds)


def type(x: Any) -> Any:
    """Python's, where a tensor is an array."""
    return np.ndarray if _isinstance(x, Value) else x.__class__

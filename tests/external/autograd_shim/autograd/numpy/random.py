"""NumPy's `random`."""

from typing import Any

import numpy.random as _m


def __getattr__(name: str) -> Any:
    return getattr(_m, name)

"""NumPy's `fft`."""

from typing import Any

import numpy.fft as _m


def __getattr__(name: str) -> Any:
    return getattr(_m, name)

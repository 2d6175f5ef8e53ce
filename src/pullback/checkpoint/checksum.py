"""Value in, a number out that tells it from others: for comparing a recomputation with the first run."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ..arrays.backends import device_of, is_array
from ..arrays.value import Value

__all__ = ["checksum"]


def checksum(value: Any) -> int:
    """Of all arrays a value is made of: a dual has two."""
    if is_array(value):
        array = np.ascontiguousarray(value if device_of(value) == "cpu" else value.get())
        return zlib.crc32(array.data)
    if not isinstance(value, Value):
        return zlib.crc32(repr(value).encode())
    parts = [getattr(value, name, None) for name in ("value", "primal", "along")] + getattr(value, "known", [])
    found = 0
    for part in parts:
        if part is not None:
            found = zlib.crc32(checksum(part).to_bytes(4, "little"), found)
    return found

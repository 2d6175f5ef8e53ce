"""The dtypes by name, as the array API wants them; bfloat16 comes from `ml_dtypes`, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..errors import DtypeError

#: What tensors can hold.
NAMES = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
))  # fmt: skip
bool_ = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")


def bfloat16() -> Any:
    """The dtype of `ml_dtypes`, imported on first use."""
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def as_dtype(given: Any) -> Any:
    """A NumPy dtype from anything that names one."""
    if isinstance(given, str) and given == "bfloat16":
        return bfloat16()
    try:
        return np.dtype(given)
    except TypeError:
        raise DtypeError(f"{given!r} is not a dtype.\n  Dtypes are {', '.join(sorted(NAMES))}.") from None

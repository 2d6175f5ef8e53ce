"""The dtypes by name, as the array API wants them; bfloat16 and float8 come from `ml_dtypes`, imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DtypeError

#: The dtypes of `ml_dtypes`: one to compute with, and two that only store.
NARROW_NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
#: The largest numbers of eight bits.
FLOAT8_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
#: What tensors can hold.
NAMES = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", *NARROW_NAMES,
))  # fmt: skip
#: Other names of dtypes, and one that means another thing to NumPy: a float of 16 bytes.
ALIASES = {"bf16": "bfloat16", "fp16": "float16"}
_MISLEADING = "f16"
bool_ = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")


def narrow_dtype(name: str) -> Any:
    """A dtype of `ml_dtypes`, imported on first use."""
    return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


if TYPE_CHECKING:
    bfloat16: Any
    float8_e4m3fn: Any
    float8_e5m2: Any
else:

    def __getattr__(name: str) -> Any:
        if name in NARROW_NAMES:
            return narrow_dtype(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def as_dtype(given: Any) -> Any:
    """A NumPy dtype from anything that names one."""
    if isinstance(given, str):
        given = ALIASES.get(given, given)
        if given in NARROW_NAMES:
            return narrow_dtype(given)
        if given == _MISLEADING:
            raise DtypeError('"f16" has 16 bytes in NumPy.\n  Two bytes are "float16" or "f2".')
    try:
        return np.dtype(given)
    except TypeError:
        raise DtypeError(f"{given!r} is not a dtype.\n  Dtypes are {', '.join(sorted(NAMES))}.") from None

"""What the array API asks of a namespace besides functions: its dtypes, its devices, its capabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError
from . import dtypes
from .devices import normalize_device
from .imported import imported_module

#: The versions of the array API standard that a caller may request; this package follows the last one.
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


class NamespaceInfo:
    """The namespace's inspection functions, by their array API names."""

    def capabilities(self) -> dict[str, Any]:
        """The optional features supported."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device on which arrays are made by default."""
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays made of Python numbers."""
        normalize_device(device, "default_dtypes")
        return {
            "real floating": dtypes.float64, "complex floating": dtypes.complex128, "integral": dtypes.int64,
            "indexing": np.dtype(np.intp),
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of a kind, of several kinds, or all of them, by name."""
        normalize_device(device, "dtypes")
        asked = ("bool", "numeric") if kind is None else kind if isinstance(kind, (tuple, list)) else (kind,)
        unknown = [k for k in asked if k not in _KINDS]
        if unknown:
            raise ArgumentError(f"dtypes: there is no kind {unknown[0]!r}.\n  Kinds are {', '.join(_KINDS)}.")
        return {name: np.dtype(name) for k in asked for name in _KINDS[k]}

    def devices(self) -> tuple[str, ...]:
        """The devices that can be used now: GPUs once CuPy is imported."""
        cupy = imported_module("cupy")
        count = cupy.cuda.runtime.getDeviceCount() if cupy is not None and cupy.is_available() else 0
        return ("cpu", *(f"cuda:{i}" for i in range(count)))


def namespace_info() -> NamespaceInfo:
    """The inspection functions of the array API standard.

    >>> import pullback as pb
    >>> pb.__array_namespace_info__().default_device()
    'cpu'
    """
    return NamespaceInfo()

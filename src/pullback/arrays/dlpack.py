"""DLPack for dtypes that NumPy refuses there, bfloat16 and float8: exchanged as integers of their size, with the
protocol's own code for the dtype in the capsule.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .dtypes import as_dtype

#: The protocol's codes: of unsigned integers, and of the dtypes by name.
_UNSIGNED = 1
_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
_NAMES = {code: name for name, code in _CODES.items()}


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("dtype", _DataType),
    ]  # fmt: skip


class _VersionedTensor(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


_is_valid, _get_pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_get_pointer.argtypes, _get_pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


def _dtype_in(capsule: Any) -> _DataType | None:
    """The dtype field of an unused capsule, which may be written to; None if it is no such capsule."""
    found: _DataType | None = None
    if _is_valid(capsule, b"dltensor_versioned"):
        at = _get_pointer(capsule, b"dltensor_versioned")
        found = ctypes.cast(at, ctypes.POINTER(_VersionedTensor)).contents.tensor.dtype
    elif _is_valid(capsule, b"dltensor"):
        found = ctypes.cast(_get_pointer(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents.dtype
    return found


def export_capsule(array: Any, **options: Any) -> Any:
    """What `array.__dlpack__(**options)` returns, also for dtypes that NumPy does not export."""
    code = _CODES.get(array.dtype.name)
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"uint{8 * array.dtype.itemsize}").__dlpack__(**options)
    field = _dtype_in(capsule)
    if field is None:
        raise BufferError(f"DLPack: the array library made no capsule of {array.dtype}.")
    field.code = code
    return capsule


class _AsIntegers:
    """A source whose narrow floats are offered as unsigned integers; `dtype` says what they are."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.dtype: Any = None

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.source.__dlpack__(**options)
        except TypeError:  # a source of an older version of the protocol
            capsule = self.source.__dlpack__()
        field = _dtype_in(capsule)
        if field is not None and field.code in _NAMES:
            self.dtype = as_dtype(_NAMES[field.code])
            field.code = _UNSIGNED
        return capsule


def import_array(xp: Any, source: Any) -> Any:
    """`xp.from_dlpack(source)`, also for dtypes that NumPy and CuPy do not import."""
    offered = _AsIntegers(source)
    array = xp.from_dlpack(offered)
    return array if offered.dtype is None else array.view(offered.dtype)


def is_exporter(x: Any) -> bool:
    """Whether this is an array of another library that speaks the protocol, in the memory of the host."""
    return not isinstance(x, np.ndarray) and hasattr(type(x), "__dlpack__") and x.__dlpack_device__()[0] == 1

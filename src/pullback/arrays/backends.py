"""Array libraries: which one an array belongs to. The one place that tells NumPy and CuPy apart."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..errors import ConversionError, DeviceError, DtypeError, GraphError
from .size import Size

_SCALARS = (bool, int, float, complex, np.generic)


#: What is called when the host has waited for a device: errors that its work met are raised then.
after_synchronization: list[Callable[[], None]] = []


def _is_cupy(x: Any) -> bool:
    cupy = sys.modules.get("cupy")  # no CuPy array exists before CuPy is imported
    return cupy is not None and isinstance(x, cupy.ndarray)


def is_device_array(x: Any) -> bool:
    """Whether x is an array of CuPy's own class."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and type(x) is cupy.ndarray


def array_class_of_gpus() -> type | None:
    """The class of arrays on GPUs, if there can be any yet."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None else cupy.ndarray  # type: ignore[no-any-return]


def is_array(x: Any) -> bool:
    """Whether x is a NumPy or CuPy array."""
    return isinstance(x, np.ndarray) or _is_cupy(x)


def device_of(x: Any) -> str:
    """Where an array lives: "cpu", or "cuda:0" and the like."""
    return f"cuda:{x.device.id}" if _is_cupy(x) else "cpu"


def to_host(x: Any) -> Any:
    """An array as a NumPy array: one on a GPU is copied, any other shared."""
    if not _is_cupy(x):
        return np.asarray(x)
    found = x.get()
    for check in after_synchronization:
        check()
    return found


def namespace_of(arrays: Sequence[Any]) -> Any:
    """The namespace (NumPy or CuPy) that computes on these arrays; mixing the two is an error, not a copy."""
    on_gpu = on_cpu = False
    for x in arrays:
        if _is_cupy(x):
            on_gpu = True
        elif type(x) is np.ndarray:
            on_cpu = True
    if not on_gpu:
        return np
    if on_cpu:
        raise DeviceError(
            "a NumPy array and a CuPy array were passed to one op.\n"
            "  Move one of them: cupy.asarray(a) or cupy.asnumpy(a)."
        )
    return sys.modules["cupy"]


def namespace_on(device: str) -> Any:
    """The namespace (NumPy or CuPy) that makes arrays on a device."""
    return np if device == "cpu" else importlib.import_module("cupy")


def device_count(what: str) -> int:
    """How many GPUs CuPy can use."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        raise DeviceError(
            f"{what} needs CuPy, which is not installed.\n"
            '  Install it: pip install "pullback[cuda12]" (or cuda13), by the version of CUDA; see `pullback doctor`.'
        ) from None
    return int(cupy.cuda.runtime.getDeviceCount()) if cupy.is_available() else 0


def device_context(device: str) -> Any:
    """A context in which CuPy makes its arrays on this device and not on the first GPU."""
    return nullcontext() if device == "cpu" else namespace_on(device).cuda.Device(int(device[5:]))


def move_array(array: Any, device: str) -> Any:
    """An array or a number as an array on a device."""
    if device == "cpu":
        return to_host(array)
    with device_context(device):
        return namespace_on(device).asarray(array)


def special_namespace_of(xp: Any) -> Any:
    """The namespace of special functions that goes with NumPy or CuPy."""
    return importlib.import_module("scipy.special" if xp is np else "cupyx.scipy.special")


def as_array(x: Any) -> Any:
    """A bare array or scalar as it is; lists and the like as a NumPy array."""
    if type(x) is np.ndarray or isinstance(x, _SCALARS) or _is_cupy(x):
        return x
    if type(x) is Size:
        return x.unknowns.recorder.value_of(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError("masked arrays have no derivative here.\n  Use pb.where with the mask, or x.filled(value).")
    try:
        array = np.asarray(x)
    except (ConversionError, GraphError):
        raise
    except Exception as error:
        if "inhomogeneous" in str(error):
            raise DtypeError(
                f"cannot make an array of a {type(x).__name__} whose parts have different lengths.\n"
                "  Pad them to one length, or pass a list of arrays where a tree is taken."
            ) from None
        raise DtypeError(f"cannot make an array of a {type(x).__name__}: {str(error).rstrip('.')}.") from None
    if array.dtype == object:
        raise DtypeError(f"expected an array of numbers, got a {type(x).__name__}.\n  {_advise_on_class(x)}")
    return array


def _advise_on_class(x: Any) -> str:
    if isinstance(x, (list, tuple)):
        return "Pass numbers, an array or a tensor; join tensors with pb.stack or pb.concat."
    if x is None:
        return "Pass numbers, an array or a tensor; is a `return` missing in the function that made it?"
    if isinstance(x, np.random.Generator):
        return "Keys are made by pb.random.key(seed)."
    if isinstance(x, (str, bytes, np.ndarray)) or callable(x):
        return "Pass numbers, an array or a tensor."
    return (
        "Pass numbers, an array or a tensor; a class of your own that holds arrays is made a tree by pb.register_tree."
    )

"""Array libraries: which one an array belongs to. The one place that tells NumPy and CuPy apart."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from ..errors import ConversionError, DeviceError, DtypeError, GraphError
from .buffers import Buffer
from .dlpack import import_array, is_exporter
from .imported import imported_module
from .size import Size

_PROCESS = os.getpid()
_SCALARS = (bool, int, float, complex, np.generic)


#: What is called when the host has waited for a device: errors that its work met are raised then.
after_synchronization: list[Callable[[], None]] = []
#: What gives memory of devices back that is held for use again, and not in use.
idle_memory: list[Callable[[], None]] = []


class _Passes:
    """How many backward passes are over, where arrays of a GPU may have taken part."""

    count = 0


passes = _Passes()


def _is_cupy(x: Any) -> bool:
    cupy = imported_module("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def is_device_array(x: Any) -> bool:
    """Whether x is an array of CuPy's own class."""
    cupy = imported_module("cupy")
    return cupy is not None and type(x) is cupy.ndarray


def array_class_of_gpus() -> type | None:
    """The class of arrays on GPUs, if there can be any yet."""
    cupy = imported_module("cupy")
    return None if cupy is None else cupy.ndarray


def is_array(x: Any) -> bool:
    """Whether x is a NumPy or CuPy array."""
    return isinstance(x, np.ndarray) or _is_cupy(x)


def is_array_type(kind: type) -> bool:
    """Whether this is the class of NumPy's or CuPy's arrays."""
    cupy = None if kind is np.ndarray else array_class_of_gpus()
    return kind is np.ndarray or (cupy is not None and issubclass(kind, cupy))


def device_of(x: Any) -> str:
    """Where an array lives: "cpu", or "cuda:0" and the like."""
    return f"cuda:{x.device.id}" if _is_cupy(x) else "cpu"


def to_host(x: Any) -> Any:
    """An array as a NumPy array: one on a GPU is copied, any other shared."""
    if not _is_cupy(x):
        return np.asarray(x)
    found = x.get()
    raise_device_errors()
    return found


def raise_device_errors() -> None:
    """Raise what programs on a device met, after one has waited for them."""
    for check in after_synchronization:
        check()


def release_idle_memory() -> None:
    """Give memory of devices that nothing uses back to CuPy's pool."""
    for release in idle_memory:
        release()


def namespace_of(arrays: Sequence[Any]) -> Any:
    """The namespace (NumPy or CuPy) that computes on these arrays: CuPy where one of them is on a GPU."""
    for x in arrays:
        if type(x) is not np.ndarray and _is_cupy(x):
            return sys.modules["cupy"]
    return np


def find_gpu(arrays: Sequence[Any]) -> tuple[int | None, bool]:
    """The number of the one GPU that all arrays lie on, None where they lie on several devices; and whether arrays of
    NumPy are among them that count as numbers, since they have no axes.
    """
    kind, device, has_numbers = sys.modules["cupy"].ndarray, None, False
    for x in arrays:
        if isinstance(x, kind):
            here = x.data.device_id
            if device is not None and here != device:
                return None, False
            device = here
        elif isinstance(x, (np.ndarray, np.generic)):
            if x.ndim:
                return None, False
            has_numbers = True
    return device, has_numbers


def as_gpu_operands(arrays: Sequence[Any], by_value: bool) -> list[Any]:
    """Arrays for CuPy, which does not take NumPy's: those without axes as scalars where an op takes these by value (its
    kernels have them among their parameters), else as arrays of its own.
    """
    return [_as_gpu_operand(x, by_value) if isinstance(x, (np.ndarray, np.generic)) else x for x in arrays]


def _as_gpu_operand(x: Any, by_value: bool) -> Any:
    return x[()] if by_value and x.dtype.kind != "V" else sys.modules["cupy"].asarray(x)


class _NamespaceOnDevice:
    """CuPy, whose functions run on a device that is not the current one."""

    def __init__(self, cupy: Any, device: int) -> None:
        self._cupy, self._device = cupy, device

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        return found if isinstance(found, type) or not callable(found) else self._place(found)

    def _place(self, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            with self._cupy.cuda.Device(self._device):
                return function(*args, **options)

        return call


def namespace_on(device: str) -> Any:
    """The namespace (NumPy or CuPy) that makes arrays on a device."""
    if device == "cpu":
        return np
    cupy = importlib.import_module("cupy")
    number = int(device[5:])
    return cupy if number == current_gpu() else _NamespaceOnDevice(cupy, number)


def current_gpu() -> int:
    """The number of the GPU on which CuPy makes its arrays."""
    try:
        return int(sys.modules["cupy"].cuda.runtime.getDevice())
    except Exception as error:
        if os.getpid() == _PROCESS:
            raise
        raise DeviceError(
            f"CUDA does not work in this process, which was forked from one that uses it: {error}.\n"
            '  Start processes that use a GPU by "spawn": multiprocessing.get_context("spawn").'
        ) from error


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
    """A context in which CuPy makes its arrays on this device and not on the current one."""
    return nullcontext() if device == "cpu" else importlib.import_module("cupy").cuda.Device(int(device[5:]))


class StreamPlace(NamedTuple):
    """A GPU and a stream of CuPy, which are current in one thread."""

    device: int
    stream: Any

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Make them current in the thread that runs this, so that its work stays in order with that of the other."""
        with sys.modules["cupy"].cuda.Device(self.device), self.stream:
            yield


def current_place() -> StreamPlace:
    """Where work of this thread runs."""
    return StreamPlace(current_gpu(), sys.modules["cupy"].cuda.get_current_stream())


def move_array(array: Any, device: str) -> Any:
    """An array or a number as an array on a device: itself if it is there."""
    if device == "cpu":
        return to_host(array)
    if _is_cupy(array) and array.device.id == int(device[5:]):
        return array
    with device_context(device):
        return sys.modules["cupy"].asarray(array)


def copy_array(array: Any, order: Any = "K") -> Any:
    """A copy on the array's own device; CuPy by itself copies to the current one."""
    if type(array) is np.ndarray or not _is_cupy(array):
        return array.copy(order)
    with array.device:
        return array.copy(order)


def special_namespace_of(xp: Any) -> Any:
    """The namespace of special functions that goes with NumPy or CuPy."""
    return importlib.import_module("scipy.special" if xp is np else "cupyx.scipy.special")


def as_array(x: Any) -> Any:
    """A bare array or scalar as it is; lists and the like as a NumPy array."""
    if type(x) is np.ndarray or isinstance(x, _SCALARS) or _is_cupy(x):
        return x
    if isinstance(x, Buffer):
        return x.unwrap()
    if type(x) is Size:
        return x.unknowns.recorder.value_of(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError("masked arrays of NumPy have no derivative.\n  Use pb.masked.array(x), or x.filled(value).")
    if isinstance(x, np.matrix):  # an operator of ours would multiply by elements
        raise DtypeError(
            "np.matrix: its * and ** are products of matrices, unlike those of arrays.\n"
            "  Use np.asarray(m), and @ for the product."
        )
    try:
        array = np.asarray(x)
    except (ConversionError, GraphError):
        raise
    except Exception as error:
        if hasattr(type(x), "__dlpack__"):  # of a dtype that NumPy does not know, or without numbers to be read
            return _import_exported(x)
        if "inhomogeneous" in str(error):
            raise DtypeError(
                f"cannot make an array of a {type(x).__name__} whose parts have different lengths.\n"
                "  Pad them to one length, or pass a list of arrays where a tree is taken."
            ) from None
        raise DtypeError(f"cannot make an array of a {type(x).__name__}: {str(error).rstrip('.')}.") from None
    if array.dtype == object and hasattr(type(x), "__dlpack__"):
        return _import_exported(x)
    if array.dtype == object:
        raise DtypeError(f"expected an array of numbers, got a {type(x).__name__}.\n  {_advise_on_class(x)}")
    return array


def _import_exported(x: Any) -> Any:
    """An array of another library, in the memory of the host; one that carries its derivatives exports no array."""
    kind, library = type(x).__name__, type(x).__module__.partition(".")[0].removesuffix("lib")
    try:
        if is_exporter(x):
            return import_array(np, x)
        why = "it lies on another device"
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
    advice = "Pass its numbers, as an array."
    if library in ("torch", "jax"):
        advice = f"A function of ours becomes one of its arrays, with gradients, by pb.interop.{library}.wrap(f)."
    raise ConversionError(f"a {kind} of {library} is no array to read: {why}.\n  {advice}")


def _advise_on_class(x: Any) -> str:
    if isinstance(x, (list, tuple)):
        return "Pass numbers, an array or a tensor; join tensors with pb.stack or pb.concat."
    if x is None:
        return "Pass numbers, an array or a tensor; is a `return` missing in the function that made it?"
    if hasattr(x, "tocsr"):
        return "Of a sparse matrix pb.sparse.from_scipy(A) makes a value for transforms, A.toarray() a dense array."
    if isinstance(x, np.random.Generator):
        return "Keys are made by pb.random.key(seed)."
    if isinstance(x, (str, bytes, np.ndarray)) or callable(x):
        return "Pass numbers, an array or a tensor."
    return (
        "Pass numbers, an array or a tensor; a class of your own that holds arrays is made a tree by pb.register_tree."
    )

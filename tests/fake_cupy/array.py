"""The stand-in's arrays and devices."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from .streams import settle

DEVICES = 2
#: Methods of NumPy's arrays that CuPy's have too, with the same meaning.
_METHODS = """
    all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum diagonal
    dot fill flatten max mean min nonzero partition prod ptp put ravel repeat reshape round searchsorted sort
    squeeze std sum swapaxes take tobytes trace transpose var view
"""
_OPERATORS = """
    add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod
    radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift rdivmod
    iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift
    eq ne lt le gt ge neg pos abs invert
"""


class CUDARuntimeError(RuntimeError): ...


class _Current(threading.local):
    device = 0


_current = _Current()


class Device:
    """A device; as a context, the current one."""

    def __init__(self, device: Any = None) -> None:
        self.id = _current.device if device is None else int(device)
        self._before: list[int] = []

    def __enter__(self) -> Device:
        if not 0 <= self.id < DEVICES:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self._before.append(_current.device)
        _current.device = self.id
        return self

    def __exit__(self, *error: Any) -> None:
        _current.device = self._before.pop()

    def use(self) -> Device:
        _current.device = self.id
        return self

    def synchronize(self) -> None: ...

    @property
    def mem_info(self) -> tuple[int, int]:
        return 1 << 30, 2 << 30

    @property
    def compute_capability(self) -> str:
        return "90"

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id


class FakeCapsule:
    """What a library of GPU arrays exports by DLPack."""

    def __init__(self, memory: Any, device: int) -> None:
        self.memory, self.device = memory, device


class _Flags:
    """CuPy's flags: no `writeable`, no `aligned`."""

    def __init__(self, own: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = own.c_contiguous, own.f_contiguous, own.owndata
        self.forc, self.fnc = own.forc, own.fnc


class _MemoryPointer:
    """Where an array begins."""

    def __init__(self, mem: Any, device: Device) -> None:
        self.mem, self.device, self.device_id = mem, device, device.id

    @property
    def ptr(self) -> int:
        found = int(self.mem.__array_interface__["data"][0])
        _pointed[found] = self.mem
        return found


_pointed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def memory_at(pointer: int) -> Any:
    """The memory of the array whose pointer was taken last, of those that begin there."""
    return _pointed[pointer]


class ndarray:
    """An array that pretends to lie on a GPU."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        self._memory = np.zeros(shape, dtype, order)
        self.device, self.base = Device(), None

    @property
    def flags(self) -> _Flags:
        return _Flags(self._memory.flags)

    @property
    def _c_contiguous(self) -> bool:
        return bool(self._memory.flags.c_contiguous)

    @property
    def _f_contiguous(self) -> bool:
        return bool(self._memory.flags.f_contiguous)

    @property
    def data(self) -> _MemoryPointer:
        return _MemoryPointer(self._memory, self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._memory.__array_interface__, "version": 3, "stream": 1}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id

    def __dlpack__(self, **options: Any) -> FakeCapsule:
        return FakeCapsule(self._memory, self.device.id)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        settle()
        if out is None:
            return self._memory.copy()
        out[...] = self._memory
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError("only NumPy arrays of the same shape and dtype can be set to CuPy's")
        settle()
        self._memory[...] = arr

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from . import cupy

        return getattr(getattr(cupy, ufunc.__name__), method)(*inputs, **options)

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Any:
        from . import cupy

        if any(kind not in (ndarray, np.ndarray) for kind in kinds):
            return NotImplemented
        return getattr(cupy, function.__name__)(*args, **options)

    def __getitem__(self, index: Any) -> Any:
        return wrap(self._memory[unwrap(index)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        settle()
        self._memory[unwrap(index)] = unwrap(value)

    def __bool__(self) -> bool:
        settle()
        return bool(self._memory)

    def __int__(self) -> int:
        settle()
        return int(self._memory)

    def __float__(self) -> float:
        settle()
        return float(self._memory)

    def __complex__(self) -> complex:
        settle()
        return complex(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(self._memory)

    def item(self, *args: Any) -> Any:
        settle()
        return self._memory.item(*args)

    def tolist(self) -> Any:
        settle()
        return self._memory.tolist()

    def __reduce__(self) -> Any:
        from . import cupy

        return cupy.asarray, (self.get(),)


def _property(name: str) -> Any:
    return property(lambda self: wrap(getattr(self._memory, name), self))


def _method(name: str) -> Any:
    def call(self: ndarray, *args: Any, **options: Any) -> Any:
        here = unwrap(self)
        found = getattr(here, name)(*map(unwrap, args), **{k: unwrap(v) for k, v in options.items()})
        return self if found is here else wrap(found, self)

    return call


for _name in ("dtype", "shape", "ndim", "size", "strides", "nbytes", "itemsize", "T", "mT", "real", "imag"):
    setattr(ndarray, _name, _property(_name))
for _name in _METHODS.split():
    setattr(ndarray, _name, _method(_name))


def _operator(name: str) -> Any:
    call = _method(name)

    def operate(self: ndarray, *others: Any) -> Any:
        known = (ndarray, np.ndarray, np.generic, bool, int, float, complex)
        return call(self, *others) if all(isinstance(x, known) for x in others) else NotImplemented

    return operate


for _name in _OPERATORS.split():
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def wrap(x: Any, source: Any = None) -> Any:
    """NumPy's results as arrays on the current device; what is no array stays."""
    if isinstance(x, (tuple, list)) and any(isinstance(part, (np.ndarray, np.generic)) for part in x):
        parts = [wrap(part) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    out = ndarray.__new__(ndarray)
    out._memory = x if isinstance(x, np.ndarray) else np.asarray(x)
    out.device = Device() if source is None else source.device
    out.base = None if out._memory.base is None else source
    return out


def unwrap(x: Any) -> Any:
    """The memory of an array on the current device; memory of the host is refused."""
    if isinstance(x, ndarray):
        if x.device.id != _current.device:
            raise ValueError(
                "Array device must be same as the current device: "
                f"array device = {x.device.id} while current = {_current.device}"
            )
        settle()
        return x._memory
    if isinstance(x, np.ndarray) and not np.isscalar(x):
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, (tuple, list)):
        return type(x)(unwrap(part) for part in x) if not hasattr(x, "_fields") else x
    return x

"""Arrays of other libraries as tensors: shared or copied, by DLPack too; and tensors as NumPy arrays."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, DeviceError, PullbackError
from .backends import device_of, is_array, to_host
from .call_site import attributed_to_caller
from .devices import normalize_device
from .dlpack import import_array
from .dtypes import as_dtype
from .protect import as_shared_view
from .spec import spec_of
from .tensor import Tensor, tensor, wrap
from .value import Value

#: The number of the CPU among DLPack's kinds of devices.
_DLPACK_CPU = 1


def asarray(data: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of the data: a tensor is returned as it is, anything else is copied unless `copy=False`. With
    `copy=True` a tensor is copied too, derivatives and all.

    With `copy=False` the tensor shares the array's memory, and the array is read-only as long as a graph needs
    its values, so that a write that would corrupt a gradient raises on that line. Memory of a GPU cannot be locked, so
    there `copy=False` is refused. `device` is where the tensor lies, "cpu" or "cuda:0"; by default where the data does.

    >>> import numpy as np, pullback as pb
    >>> a = np.ones(2)
    >>> x = pb.asarray(a, copy=False).requires_grad_()
    >>> y = (x * x).sum()
    >>> a.flags.writeable
    False
    >>> y.backward(); a.flags.writeable
    True
    """
    if type(data) is not np.ndarray and _is_foreign_gpu_array(data):
        return asarray(from_dlpack(data, copy=copy), dtype=dtype, device=device)
    here = data.device if isinstance(data, Value) else device_of(data)
    wanted = here if device is None else normalize_device(device, "asarray")
    if wanted != here:
        if isinstance(data, Tensor):
            return data.to_device(wanted) if dtype is None else data.astype(dtype).to_device(wanted)
        return tensor(data, dtype=dtype, device=wanted)
    if isinstance(data, Tensor) and not copy:
        return data if dtype is None or data.dtype == dtype else data.astype(dtype)
    if isinstance(data, Tensor) and data.node is not None:
        return data.copy() if dtype is None or data.dtype == as_dtype(dtype) else data.astype(dtype)
    if copy is not False:
        return tensor(data, dtype=dtype)
    if not is_array(data) or (dtype is not None and data.dtype != dtype):
        raise ArgumentError(f"asarray: copy=False needs an array of the wanted dtype, got {type(data).__name__}.")
    if here != "cpu":
        raise ArgumentError(
            "asarray: copy=False shares memory with the tensor, and memory of a GPU cannot be locked: a later write to "
            "the array would change gradients unseen.\n  Leave copy out, which copies on the GPU."
        )
    shared = wrap(as_shared_view(data), spec_of(data))
    shared.mark("shared")
    return shared


def _is_foreign_gpu_array(data: Any) -> bool:
    """Whether this is an array of another library on a GPU, which NumPy cannot read."""
    if isinstance(data, (Value, np.ndarray, np.generic, bool, int, float, complex, list, tuple)) or is_array(data):
        return False
    return hasattr(type(data), "__dlpack_device__") and data.__dlpack_device__()[0] != _DLPACK_CPU


@attributed_to_caller
def from_dlpack(source: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from any library that supports DLPack. Copies unless `copy=False`.

    >>> import numpy as np, pullback as pb
    >>> pb.from_dlpack(np.arange(3.0))
    tensor([0., 1., 2.], dtype=float64)
    """
    if isinstance(source, Tensor):
        return asarray(source, device=device, copy=copy)
    if not hasattr(source, "__dlpack_device__"):
        raise ArgumentTypeError(f"from_dlpack: a {type(source).__name__} has no __dlpack__.\n  Use pb.asarray.")
    try:
        on_cpu = source.__dlpack_device__()[0] == _DLPACK_CPU
        array = import_array(np if on_cpu else importlib.import_module("cupy"), source)
    except PullbackError:
        raise
    except ImportError:
        raise DeviceError("from_dlpack: this array is on another device, and CuPy is not installed.") from None
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ArgumentError(f"from_dlpack: a {type(source).__name__} exports no array: {error}.") from error
    return asarray(array, device=device, copy=copy)


def to_numpy(x: Any, what: str) -> Any:
    """The numbers of a tensor, an array or a scalar as a NumPy array, from any device."""
    while type(x) is Tensor:
        x = x.value
    if isinstance(x, Value):
        raise ArgumentError(f"{what}: the arguments are values of a transform; call it outside.")
    return to_host(x)

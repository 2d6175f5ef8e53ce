"""GPUs as the process sees them: how many there are, what memory they have left, when they are done.

Work runs on CuPy's current stream, in the order of the calls; a number that leaves the GPU (`x.item()`, `x.numpy()`)
waits for it. Each thread has a current device and a current stream of its own; work that one thread hands to another on
another stream waits for it there (`event.synchronize()`, `stream.wait_event(event)` of CuPy). CUDA does not survive a
fork: processes that use a GPU are started by "spawn".
"""

from __future__ import annotations

import sys
from typing import Any

from ..public_names import explain_missing_names
from .backends import current_gpu, device_context, raise_device_errors, release_idle_memory
from .backends import device_count as _count_devices
from .devices import normalize_device

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "synchronize",
]
explain_missing_names(__name__, "cuda")


def is_available() -> bool:
    """Whether CuPy is installed and finds a GPU.

    >>> import pullback as pb
    >>> pb.cuda.is_available() == (pb.cuda.device_count() > 0)
    True
    """
    return device_count() > 0


def device_count() -> int:
    """The number of GPUs; 0 where CuPy is not installed.

    >>> import pullback as pb
    >>> pb.cuda.device_count() >= 0
    True
    """
    try:
        return _count_devices("cuda.device_count")
    except Exception:  # not installed, no driver, no permission: in each case nothing to compute on
        return 0


def current_device() -> int:
    """The number of the GPU that "cuda" means in this thread.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     assert pb.cuda.current_device() == pb.device("cuda").index
    """
    normalize_device("cuda", "cuda.current_device")
    return current_gpu()


def set_device(device: Any) -> None:
    """Make a GPU the one that "cuda" means in this thread, by its number or name.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     pb.cuda.set_device(0)
    """
    device_context(_name_of(device, "cuda.set_device")).use()


def synchronize(device: Any = None) -> None:
    """Wait until a GPU, by default the current one, has done all work of all streams. What it met on the way, such as
    an index out of range, is raised.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     pb.cuda.synchronize()
    """
    with _on(device, "cuda.synchronize"):
        sys.modules["cupy"].cuda.runtime.deviceSynchronize()
    raise_device_errors()


def memory_allocated(device: Any = None) -> int:
    """The bytes of CuPy's pool that arrays use on a GPU.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     assert pb.cuda.memory_allocated() <= pb.cuda.memory_reserved()
    """
    release_idle_memory()
    with _on(device, "cuda.memory_allocated"):
        return int(sys.modules["cupy"].get_default_memory_pool().used_bytes())


def memory_reserved(device: Any = None) -> int:
    """The bytes that CuPy's pool holds on a GPU, used or not.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     assert pb.cuda.memory_reserved() >= 0
    """
    with _on(device, "cuda.memory_reserved"):
        return int(sys.modules["cupy"].get_default_memory_pool().total_bytes())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The bytes of a GPU that no process uses, and all it has.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     free, total = pb.cuda.mem_get_info()
    """
    with _on(device, "cuda.mem_get_info"):
        free, total = sys.modules["cupy"].cuda.runtime.memGetInfo()
        return int(free), int(total)


def empty_cache(device: Any = None) -> None:
    """Return the unused memory of CuPy's pool to the GPU.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     pb.cuda.empty_cache()
    """
    release_idle_memory()
    with _on(device, "cuda.empty_cache"):
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


def get_device_name(device: Any = None) -> str:
    """What a GPU is called by its maker.

    >>> import pullback as pb
    >>> if pb.cuda.is_available():
    ...     assert pb.cuda.get_device_name(0)
    """
    with _on(device, "cuda.get_device_name"):
        name: bytes = sys.modules["cupy"].cuda.runtime.getDeviceProperties(current_gpu())["name"]
        return name.decode()


def _on(device: Any, what: str) -> Any:
    """A context in which a GPU is the current one, by its number or name."""
    return device_context(_name_of(device, what))


def _name_of(device: Any, what: str) -> str:
    return normalize_device(f"cuda:{device}" if isinstance(device, int) else device or "cuda", what)

"""Devices as people write them: "cpu", "cuda", "cuda:1"."""

from __future__ import annotations

from typing import Any

from ..errors import DeviceError
from .backends import current_gpu, device_count
from .imported import imported_module


class Device(str):
    """A device by its name, which it is equal to: "cpu", or "cuda:0" and the like. "cuda" is the current GPU.

    >>> import pullback as pb
    >>> pb.device("cpu"), pb.device("cpu").type, pb.ones(2).device == pb.device("cpu")
    ('cpu', 'cpu', True)
    """

    __slots__ = ()

    def __new__(cls, name: Any = "cpu") -> Device:
        return str.__new__(cls, normalize_device(name, "device"))

    @property
    def type(self) -> str:
        """ "cpu" or "cuda"."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The number of a GPU; None for the CPU."""
        number = self.partition(":")[2]
        return int(number) if number else None


def normalize_device(device: Any, what: str) -> str:
    """The name of a device, if there is one; None is the CPU."""
    if device is None or (isinstance(device, str) and device == "cpu"):
        return "cpu"
    kind, _, number = _name_of(device).partition(":")
    if kind == "cpu" and number in ("", "0"):
        return "cpu"
    if kind not in ("cuda", "gpu") or (number and not number.isdecimal()):
        raise DeviceError(f"{what}: there is no device {device!r}.\n  Devices are 'cpu', 'cuda:0' and the like.")
    count = device_count(f"{what}: device {device!r}")
    wanted = int(number) if number else current_gpu() if count else 0
    if wanted >= count:
        there = ", ".join(["'cpu'", *(f"'cuda:{i}'" for i in range(count))])
        raise DeviceError(f"{what}: there is no device {device!r}.\n  This machine has {there}.")
    return f"cuda:{wanted}"


def is_device(x: Any) -> bool:
    """Whether x names a device, rather than a dtype or anything else: a string, or a device of any library."""
    return isinstance(x, str) or _name_of(x).startswith(("cpu", "cuda"))


def _name_of(device: Any) -> str:
    """The name of a device; those of other libraries have a type and an index, or a number as CuPy's."""
    if isinstance(device, str):
        return device
    cupy = imported_module("cupy")
    if cupy is not None and isinstance(device, cupy.cuda.Device):
        return f"cuda:{device.id}"
    kind, index = getattr(device, "type", None), getattr(device, "index", None)
    return kind if isinstance(kind, str) and index is None else f"{kind}:{index}"

"""Where a checkpoint's policy stores values: in memory, on the host, in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from typing import Any

from ...arrays.argument_checks import short_repr
from ...arrays.backends import device_of, is_array, namespace_on
from ...errors import ArgumentError, ArgumentTypeError
from .disk import Disk

#: Loads a stored value, any number of times.
Loader = Callable[[], Any]


def store_in_memory(value: Any) -> Loader:
    """The value itself."""
    return lambda: value


def store_on_host(value: Any) -> Loader:
    """Arrays of a GPU in the memory of the host; host arrays stay as they are."""
    if not is_array(value) or device_of(value) == "cpu":
        return store_in_memory(value)
    device, copy = value.device, value.get()
    library = namespace_on(device_of(value))

    def load() -> Any:
        with device:
            return library.asarray(copy)

    return load


class StoreOnDisk:
    """Arrays in files of a folder, which have no names: nothing is left behind, also if the process is killed."""

    __slots__ = ("_disk", "_folder")

    def __init__(self, folder: str | PathLike[str]) -> None:
        if not isinstance(folder, (str, PathLike)):
            raise ArgumentTypeError(f"offload_named: to is 'host' or the path of a folder, got {short_repr(folder)}.")
        self._folder = os.fspath(folder)
        if not os.path.isdir(self._folder):
            raise ArgumentError(f"offload_named: {self._folder!r} is no folder.\n  Make it first, or pass to='host'.")
        self._disk = Disk(self._folder)

    def __call__(self, value: Any) -> Loader:
        return self._disk.store(value) if is_array(value) else store_in_memory(value)

    def __reduce__(self) -> Any:
        return StoreOnDisk, (self._folder,)  # where it is loaded, it opens files of its own

"""Where saved values are stored: in memory, on the host, in a file."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from ...arrays.argument_checks import short_repr
from ...arrays.backends import device_of, is_array, namespace_on
from ...errors import ArgumentError, ArgumentTypeError

Loader = Callable[[], Any]


class Storage(ABC):
    """Where saved values go."""

    __slots__ = ()

    @abstractmethod
    def put(self, value: Any) -> Loader:
        """Store a value; returns a function that loads it, any number of times."""


class InMemory(Storage):
    """The value itself."""

    __slots__ = ()

    def put(self, value: Any) -> Loader:
        return lambda: value


class OnHost(Storage):
    """Arrays of a GPU in the memory of the host; host arrays stay as they are."""

    __slots__ = ()

    def put(self, value: Any) -> Loader:
        if not is_array(value) or device_of(value) == "cpu":
            return lambda: value
        device, copy = value.device, value.get()
        library = namespace_on(device_of(value))

        def load() -> Any:
            with device:
                return library.asarray(copy)

        return load


class OnDisk(Storage):
    """Arrays in files of a folder, mapped back into memory when they are needed.

    A file loses its name as soon as it is mapped, so that nothing is left behind whatever happens, also if the process
    is killed; the mapping keeps its contents. Where a mapped file cannot be removed, it goes with the mapping.
    """

    __slots__ = ("_folder",)

    def __init__(self, folder: str | PathLike[str]) -> None:
        if not isinstance(folder, (str, PathLike)):
            raise ArgumentTypeError(f"offload_named: to is 'host' or the path of a folder, got {short_repr(folder)}.")
        self._folder = os.fspath(folder)
        if not os.path.isdir(self._folder):
            raise ArgumentError(f"offload_named: {self._folder!r} is no folder.\n  Make it first, or pass to='host'.")

    def put(self, value: Any) -> Loader:
        if not is_array(value) or value.nbytes == 0:
            return lambda: value
        device = device_of(value)
        mapped = _MappedArray(value if device == "cpu" else value.get(), self._folder)
        if device == "cpu":
            return lambda: np.asarray(mapped.array)
        return lambda: namespace_on(device).asarray(mapped.array)


class _MappedArray:
    """An array in a file without a name."""

    __slots__ = ("_path", "array")

    def __init__(self, array: Any, folder: str) -> None:
        handle, path = tempfile.mkstemp(prefix="pullback-", suffix=".kept", dir=folder)
        self._path: str | None = path
        try:
            with os.fdopen(handle, "w+b") as file:
                np.ascontiguousarray(array).tofile(file)
                file.flush()
                self.array = np.memmap(file, dtype=array.dtype, mode="r", shape=array.shape)
        finally:
            self._remove()

    def _remove(self) -> None:
        try:
            if self._path is not None:
                os.unlink(self._path)
            self._path = None
        except OSError:
            """Mapped files cannot be removed on every system; then the file is removed with the mapping."""

    def __del__(self) -> None:
        if self._path is not None:
            del self.array
            self._remove()

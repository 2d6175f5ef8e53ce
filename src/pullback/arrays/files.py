"""Opening files from untrusted paths: regular files only, and never blocking."""

from __future__ import annotations

import os
import stat
from typing import Any, BinaryIO

from ..errors import ArgumentError, StorageError


def name_of_path(path: Any, what: str) -> str:
    """A path (text, bytes or an object that is one) as text."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ArgumentError(f"{what}: a path must be text, bytes or a Path, got a {type(path).__name__}.") from None


def open_regular_file(path: Any, what: str) -> BinaryIO:
    """A file opened for reading. A pipe, a device or a directory is refused: opening a pipe would wait for a writer."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(f"{what}: not a regular file but a pipe, device or directory.")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise

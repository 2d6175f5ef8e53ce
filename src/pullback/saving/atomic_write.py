"""Atomic file writes: a file is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..arrays.files import name_of_path
from ..errors import StorageError

#: How the name of an unfinished file ends.
TEMPORARY = ".unfinished"
_CHUNK_BYTES = 1 << 24


def write_atomically(path: Any, pieces: Iterable[Any]) -> None:
    """Write a temporary file in the same directory, fsync it, and rename it to the target.

    A reader of the path, at any moment and after any kill, finds the last complete file. Its bytes are on the disk
    before its name is (fsync of the file), and the name is before this returns (fsync of the directory).
    """
    target = Path(os.path.realpath(name_of_path(path, "save")))  # a link stays one, and what it points to is replaced
    mode = _mode_of(target)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(6)}{TEMPORARY}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise StorageError(f"save: cannot write in {target.parent}: {error.strerror}.") from error
    try:
        try:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            for piece in pieces:
                _write_all(descriptor, memoryview(piece).cast("B"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"save: cannot write {target}: {error.strerror}.") from error
        raise
    sync_directory(target.parent)


def _mode_of(target: Path) -> int | None:
    """The permissions of a file that will be replaced, None if there is none; what is no file is not replaced."""
    try:
        found = target.stat().st_mode
    except OSError:
        return None
    if not stat.S_ISREG(found):
        raise StorageError(f"save: {target} is no regular file but a pipe, device or directory.")
    return stat.S_IMODE(found)


def _write_all(descriptor: int, piece: memoryview) -> None:
    """All of a piece: one call may write less than it was given."""
    at = 0
    while at < len(piece):
        at += os.write(descriptor, piece[at : at + _CHUNK_BYTES])


def sync_directory(directory: Path) -> None:
    """Sync the directory entry, which is cached separately. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Atomic file writes: a file is there whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..arrays.files import name_of_path
from ..errors import StorageError

#: How the name of an unfinished file ends.
TEMPORARY = ".unfinished"
_CHUNK_BYTES = 1 << 24


def write_atomically(path: Any, pieces: Iterable[Any], what: str = "save") -> None:
    """Write a temporary file in the same directory, fsync it, and rename it to the target.

    A reader of the path, at any moment and after any kill, finds the last complete file. Its bytes are on the disk
    before its name is (fsync of the file), and the name is before this returns (fsync of the directory).
    """
    target = Path(os.path.realpath(name_of_path(path, what)))  # a link stays one, and what it points to is replaced
    mode = _mode_of(target, what)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(6)}{TEMPORARY}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise StorageError(f"{what}: cannot write in {target.parent}: {error.strerror}.") from error
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
            raise StorageError(f"{what}: cannot write {target}: {error.strerror}.") from error
        raise
    sync_directory(target.parent)


def _mode_of(target: Path, what: str) -> int | None:
    """The permissions of a file that will be replaced, None if there is none; what is no file is not replaced."""
    try:
        found = target.stat().st_mode
    except OSError:
        return None
    if not stat.S_ISREG(found):
        raise StorageError(f"{what}: {target} is no regular file but a pipe, device or directory.")
    return stat.S_IMODE(found)


def _write_all(descriptor: int, piece: memoryview) -> None:
    """All of a piece: one call may write less than it was given."""
    at = 0
    while at < len(piece):
        at += os.write(descriptor, piece[at : at + _CHUNK_BYTES])


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files as far as that is possible: what is left over takes room, and does no harm."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def remove_replaced(folder: Path, data: str, keep: Collection[str | None], main: str = "(?!)") -> None:
    """Remove the files of earlier writes, whose names match the pattern `data` and are not to `keep`, and what killed
    writes left of such files and of those that match `main`.
    """
    old = re.compile(rf"{data}|\.(?:{data}|{main})\.[0-9a-f]+{re.escape(TEMPORARY)}")
    remove_files(path for path in folder.iterdir() if path.name not in keep and old.fullmatch(path.name))


def sync_directory(directory: Path) -> None:
    """Sync the directory entry, which is cached separately. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

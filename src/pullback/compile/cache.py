"""A key in, machine code out, if this or another process made it before: files in a private directory.

A file holds a mark, the key it answers, a checksum and the code. What does not fit together (cut short, damaged,
another's) counts as not there and is written again. Files are written beside their place and moved into it, so that
a reader finds all of a file or none; nothing is locked. Machine code is run, so only what this user wrote is read.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays.files import open_regular

__all__ = ["Cleared", "Kept", "cleared", "directory", "fetched", "keep", "kept", "refusal"]

#: All files together take at most so many bytes; above it, those that were not used for longest go.
LARGEST = 256 << 20
#: How many files a process writes between two looks at the total.
_BETWEEN = 32
#: A file that was being written this many seconds ago belongs to a process that is gone.
_ABANDONED = 3600.0
_MARK = b"pullback machine code, form 1\n"
_SUFFIX = ".code"
_OFF = frozenset(("", "0", "off", "no", "false"))
_written = 0


class Kept(NamedTuple):
    """One file: where it lies, its bytes, and when it was last used (seconds since the epoch)."""

    path: Path
    nbytes: int
    used: float


class Cleared(NamedTuple):
    """What was thrown away."""

    files: int
    nbytes: int


def directory() -> Path | None:
    """Where the files lie: `PULLBACK_CACHE_DIR`, or under the user's cache directory; None if it is turned off."""
    asked = os.environ.get("PULLBACK_CACHE_DIR")
    if asked is not None:
        return None if asked.strip().lower() in _OFF else Path(asked).expanduser() / "code"
    try:
        return _of_user() / "pullback" / "code"
    except RuntimeError:  # nobody's home
        return None


def _of_user() -> Path:
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):
        return Path(asked)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def refusal(place: Path) -> str | None:
    """Why a directory that is there is not used; None if it may be."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    return _not_private(found)


def _not_private(found: os.stat_result) -> str | None:
    if sys.platform == "win32":  # its directories of users are private, and have no such bits
        return None
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may write to it" if found.st_mode & 0o022 else None


def key_of(*parts: str) -> str:
    """A name for all that the code depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def fetched(key: str) -> bytes | None:
    """The code under a key, None if there is none that can be trusted."""
    place = directory()
    if place is None or refusal(place):
        return None
    path = place / (key + _SUFFIX)
    try:
        with open_regular(path, "cache") as file:
            found = os.fstat(file.fileno())
            if _not_private(found) or found.st_size > LARGEST:
                return None
            data = file.read(LARGEST)
    except OSError:
        return None
    code = _unwrapped(key, data)
    if code is not None:
        with suppress(OSError):
            os.utime(path)  # what is used stays longest
    return code


def _wrapped(key: str, code: bytes) -> bytes:
    return _MARK + bytes.fromhex(key) + hashlib.sha256(bytes.fromhex(key) + code).digest() + code


def _unwrapped(key: str, data: bytes) -> bytes | None:
    start = len(_MARK)
    wanted, checksum, code = data[start : start + 32], data[start + 32 : start + 64], data[start + 64 :]
    right = data.startswith(_MARK) and wanted == bytes.fromhex(key)
    return code if right and checksum == hashlib.sha256(wanted + code).digest() else None


def keep(key: str, code: bytes) -> None:
    """Write code under its key. Where nothing can be written, nothing is, and the program runs all the same."""
    global _written
    place = directory()
    if place is None:
        return
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if refusal(place):
            return
        _replace(place / (key + _SUFFIX), _wrapped(key, code))
    except OSError:
        return
    if _written % _BETWEEN == 0:
        _shrink(place)
    _written += 1


def _replace(path: Path, data: bytes) -> None:
    """Write a file at once: readers see the old one or the new one, never half of it. Should the machine fail before
    the disk has it, the checksum tells; waiting for the disk would take as long as compiling.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def kept() -> list[Kept]:
    """The files there are, those used last first."""
    place = directory()
    return [] if place is None else sorted(_files(place, _SUFFIX), key=lambda f: f.used, reverse=True)


def _files(place: Path, suffix: str) -> Iterator[Kept]:
    """Files that end so; one that another process takes away meanwhile is not there."""
    with suppress(OSError), os.scandir(place) as found:
        for file in found:
            if file.name.endswith(suffix):
                with suppress(OSError):
                    facts = file.stat(follow_symlinks=False)
                    yield Kept(Path(file.path), facts.st_size, facts.st_mtime)


def cleared() -> Cleared:
    """Throw all files away. Processes that run their code have it in memory, and keep it."""
    place = directory()
    if place is None:
        return Cleared(0, 0)
    _thrown_away(list(_files(place, ".part")))
    return _thrown_away(list(_files(place, _SUFFIX)))


def _thrown_away(files: Any) -> Cleared:
    count = nbytes = 0
    for file in files:
        with suppress(OSError):
            file.path.unlink()
            count, nbytes = count + 1, nbytes + file.nbytes
    return Cleared(count, nbytes)


def _shrink(place: Path) -> None:
    """Keep the total below the largest, with room to spare so that this is rare; remove what was never finished."""
    files = sorted(_files(place, _SUFFIX), key=lambda f: f.used)
    total = sum(f.nbytes for f in files)
    if total > LARGEST:
        for file in files:
            if total <= LARGEST * 3 // 4:
                break
            total -= _thrown_away([file]).nbytes
    now = time.time()
    _thrown_away([f for f in _files(place, ".part") if now - f.used > _ABANDONED])

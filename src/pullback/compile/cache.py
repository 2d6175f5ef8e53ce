"""The disk cache of machine code: files in a private directory, shared by a user's processes.

A file has a magic number, its key, a checksum, a label (the function it was compiled for) and the code. One that is
inconsistent (truncated, damaged, another's) counts as missing and is rewritten. Files are written under a temporary
name and renamed, so that a reader finds all of a file or none; nothing is locked. Machine code is executed, so only
what this user wrote is read.
"""

from __future__ import annotations

import contextvars
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays.files import open_regular_file

#: The most bytes of all files together; above it, the least recently used are evicted.
MAX_BYTES = 256 << 20
#: One write in so many checks the total: to look at thousands of files takes longer than to compile a small program.
_WRITES_BETWEEN_CHECKS = 256
#: A file that was being written this many seconds ago belongs to a process that is gone.
_ABANDONED_AFTER = 3600.0
_MARK = b"pullback machine code, form 2\n"
#: Where the label starts: after the mark, the key and the checksum; and the most bytes it has.
_LABEL_START, _MAX_LABEL = len(_MARK) + 64, 255
#: What is being compiled, as people know it.
LABEL: contextvars.ContextVar[str] = contextvars.ContextVar("label", default="")
_SUFFIX = ".code"
_OFF = frozenset(("", "0", "off", "no", "false"))


class CachedFile(NamedTuple):
    """One file: its path, its bytes, and when it was last used (seconds since the epoch)."""

    path: Path
    nbytes: int
    used: float

    def label(self) -> str:
        """The function that the code was compiled for, as the file says; empty if it does not."""
        with suppress(OSError, ValueError), open_regular_file(self.path, "cache") as file:
            head = file.read(_LABEL_START + 1 + _MAX_LABEL)
            if head.startswith(_MARK) and len(head) > _LABEL_START:
                return head[_LABEL_START + 1 :][: head[_LABEL_START]].decode()
        return ""


class ClearReport(NamedTuple):
    """What was deleted."""

    files: int
    nbytes: int


def directory() -> Path | None:
    """The directory of the files: `PULLBACK_CACHE_DIR`, or under the user's cache directory; None if turned off."""
    setting = os.environ.get("PULLBACK_CACHE_DIR")
    if setting is not None:
        return None if setting.strip().lower() in _OFF else Path(setting).expanduser() / "code"
    try:
        return _user_cache_directory() / "pullback" / "code"
    except RuntimeError:  # there is no home directory
        return None


def _user_cache_directory() -> Path:
    setting = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(setting):
        return Path(setting)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def why_refused(place: Path) -> str | None:
    """Why an existing directory is not used; None if it may be."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    return _why_not_private(found)


def _why_not_private(found: os.stat_result) -> str | None:
    if sys.platform == "win32":  # its directories of users are private, and have no such bits
        return None
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may write to it" if found.st_mode & 0o022 else None


def key_of(*parts: str) -> str:
    """A name for all that the code depends on."""
    digest = hashlib.sha256()
    for part in parts:
        # lengths are part of the key, so that parts cannot run into each other
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def fetch(key: str) -> bytes | None:
    """The code under a key, None if there is none that can be trusted."""
    place = directory()
    if place is None or why_refused(place):
        return None
    path = place / (key + _SUFFIX)
    try:
        with open_regular_file(path, "cache") as file:
            found = os.fstat(file.fileno())
            if _why_not_private(found) or found.st_size > MAX_BYTES:
                return None
            data = file.read(found.st_size)  # a larger bound would be allocated whole
    except OSError:
        return None
    code = _unwrap(key, data)
    if code is not None:
        with suppress(OSError):
            os.utime(path)  # eviction is by least recent use
    return code


def _wrap(key: str, label: str, code: bytes) -> bytes:
    text = label.encode()[:_MAX_LABEL].decode(errors="ignore").encode()  # no half a character
    body = bytes([len(text)]) + text + code
    return _MARK + bytes.fromhex(key) + hashlib.sha256(bytes.fromhex(key) + body).digest() + body


def _unwrap(key: str, data: bytes) -> bytes | None:
    start = len(_MARK)
    wanted, checksum, body = data[start : start + 32], data[start + 32 : _LABEL_START], data[_LABEL_START:]
    right = data.startswith(_MARK) and wanted == bytes.fromhex(key)
    return body[1 + body[0] :] if right and checksum == hashlib.sha256(wanted + body).digest() else None


def store(key: str, code: bytes) -> None:
    """Write code under its key. If that fails, the program runs without the cache."""
    place = directory()
    if place is None:
        return
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why_refused(place):
            return
        _replace(place / (key + _SUFFIX), _wrap(key, LABEL.get(), code))
    except OSError:
        return
    # keys are evenly distributed, so many short processes check as often as one long one
    if int(key[:8], 16) % _WRITES_BETWEEN_CHECKS == 0:
        _evict(place)


def _replace(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old one or the new one. There is no fsync, which would take as long as
    compiling: after a crash the checksum detects a partial file.
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


def list_files() -> list[CachedFile]:
    """All files, most recently used first."""
    place = directory()
    return [] if place is None else sorted(_scan_files(place, _SUFFIX), key=lambda f: f.used, reverse=True)


def _scan_files(place: Path, suffix: str) -> Iterator[CachedFile]:
    """Files with a suffix; one that another process deletes meanwhile is skipped."""
    with suppress(OSError), os.scandir(place) as found:
        for file in found:
            if file.name.endswith(suffix):
                with suppress(OSError):
                    facts = file.stat(follow_symlinks=False)
                    yield CachedFile(Path(file.path), facts.st_size, facts.st_mtime)


def clear() -> ClearReport:
    """Delete all files. Processes that run their code have it in memory, and keep it."""
    place = directory()
    if place is None:
        return ClearReport(0, 0)
    _delete(list(_scan_files(place, ".part")))
    return _delete(list(_scan_files(place, _SUFFIX)))


def _delete(files: Any) -> ClearReport:
    count = nbytes = 0
    for file in files:
        with suppress(OSError):
            file.path.unlink()
            count, nbytes = count + 1, nbytes + file.nbytes
    return ClearReport(count, nbytes)


def _evict(place: Path) -> None:
    """Evict files down to well below the limit, so that this is rare; remove unfinished temporary files."""
    files = sorted(_scan_files(place, _SUFFIX), key=lambda f: f.used)
    total = sum(f.nbytes for f in files)
    if total > MAX_BYTES:
        for file in files:
            if total <= MAX_BYTES * 3 // 4:
                break
            total -= _delete([file]).nbytes
    now = time.time()
    _delete([f for f in _scan_files(place, ".part") if now - f.used > _ABANDONED_AFTER])

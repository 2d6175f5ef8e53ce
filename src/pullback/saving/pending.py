"""Saves in the background: one at a time, whose error is raised by `wait`, or by the next save."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import final

from ..errors import StorageError


@final
class PendingSave:
    """A save that goes on in another thread; returned by `save_async`."""

    def __init__(self, path: str, write: Callable[[], None]) -> None:
        #: Where the file will be.
        self.path = path
        self._error: BaseException | None = None
        self._write: Callable[[], None] | None = write
        self._finished = threading.Event()

    def __repr__(self) -> str:
        return f"<PendingSave {self.path!r}, {'finished' if self.is_finished() else 'running'}>"

    def is_finished(self) -> bool:
        """Whether the save has come to an end, by success or by an error, which `wait` raises.

        >>> import os, tempfile, pullback as pb
        >>> pending = pb.save_async(os.path.join(tempfile.mkdtemp(), "a.safetensors"), {"step": 1})
        >>> pending.wait()
        >>> pending.is_finished()
        True
        """
        return self._finished.is_set()

    def wait(self) -> None:
        """Wait until the file is on the disk; an error of the save is raised here, once.

        >>> import os, tempfile, pullback as pb
        >>> path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
        >>> pb.save_async(path, {"step": 1}).wait()
        >>> pb.load(path)
        {'step': 1}
        """
        self._finished.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        assert self._write is not None
        try:
            self._write()
        except BaseException as error:
            self._error = error  # which `wait` raises
        finally:
            self._write = None  # with it go the references to what was saved
            self._finished.set()


class _Running:
    """The save that was started last."""

    lock = threading.Lock()
    last: PendingSave | None = None


def start_save(path: str, write: Callable[[], None]) -> PendingSave:
    """Run a save in a thread of its own, after the one before has ended; an error of that one is raised here, unless
    `wait` did. Python waits for the thread before it exits.
    """
    with _Running.lock:
        finish_pending()
        started = PendingSave(path, write)
        thread = threading.Thread(target=started._run, name=f"pullback save of {os.path.basename(path)}")
        thread.start()  # which may fail: what never ran is not waited for
        _Running.last = started
    return started


def finish_pending() -> None:
    """Wait for the save that goes on, if there is one."""
    if _Running.last is not None:
        _Running.last.wait()


def _report_at_exit() -> None:
    """Print an error that no `wait` has raised."""
    last = _Running.last
    if last is not None and last._error is not None:
        print(f"pullback: the save of {last.path} failed: {last._error}", file=sys.stderr)


def _forget_after_fork() -> None:
    """A process that was forked has no thread that would go on, and does not know how its parent's ends."""
    if (last := _Running.last) is not None and not last.is_finished():
        last._error = StorageError(f"save: {last.path} is saved by the process that this one was forked from.")
        last._finished = threading.Event()  # the other one's lock may be held by the thread that is not here
        last._finished.set()
    _Running.lock, _Running.last = threading.Lock(), None


atexit.register(_report_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)

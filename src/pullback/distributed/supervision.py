"""Sees to it that a job ends: ranks that failed ask for it, and what a launcher leaves behind is killed.

Launchers are told to let the other ranks live when one is lost, so that these can raise. Where one of them never ends,
since it is stopped, in a loop, or did not even start, a launcher would wait for it for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

#: The variable that names a folder of the launcher's, in which ranks ask for the end of the job.
FOLDER = "PULLBACK_JOB_FOLDER"
_REQUEST, _ARRIVAL, _DEPARTURE = "end-", "start-", "left-"
#: Variables in which launchers tell a process which rank it is.
_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
#: Seconds between looks, that a launcher has to end a job, and that ranks have to end after it.
_LOOK_SECONDS, _GRACE, _LEFTOVER_SECONDS = 0.1, 2.0, 0.5


def ask_for_end(seconds: float, environment: Mapping[str, str] = os.environ) -> None:
    """Have the launcher end the job after some seconds, if it was started by `pullback run` on this machine."""
    if folder := environment.get(FOLDER):
        with suppress(OSError):
            draft = Path(folder, f".{os.getpid()}")
            draft.write_text(repr(time.time() + seconds))
            draft.replace(Path(folder, f"{_REQUEST}{os.getpid()}"))


def note_arrival(environment: Mapping[str, str] = os.environ) -> None:
    """This rank has come to `init`: MPI cannot say who is missing before all have come."""
    _touch(_ARRIVAL, environment)


def leave_start(timeout: float, environment: Mapping[str, str] = os.environ) -> None:
    """End after `init` has failed, when the others that came to it have given up too: a launcher may end them once one
    process is gone. Those that did not come are then ended.
    """
    _touch(_DEPARTURE, environment)
    folder = Path(environment.get(FOLDER, os.devnull))
    deadline = time.monotonic() + timeout
    while len([*folder.glob(f"{_DEPARTURE}*")]) < len([*folder.glob(f"{_ARRIVAL}*")]) and time.monotonic() < deadline:
        time.sleep(0.02)
    ask_for_end(_GRACE, environment)


def _touch(kind: str, environment: Mapping[str, str]) -> None:
    number = next((environment[name] for name in _NUMBERS if environment.get(name, "").isdecimal()), None)
    if (folder := environment.get(FOLDER)) and number is not None:
        with suppress(OSError):
            Path(folder, f"{kind}{number}").touch()


def find_missing(ranks: int, environment: Mapping[str, str] = os.environ) -> list[int]:
    """The ranks that have not come to `init`, as far as that is known."""
    folder = environment.get(FOLDER, "")
    come = [r for r in range(ranks) if folder and Path(folder, f"{_ARRIVAL}{r}").exists()]
    return [r for r in range(ranks) if come and r not in come]


def wait_for_end(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Wait until a launcher ends, or ranks ask for the end of its job. Returns its exit status, which is never 0 where
    ranks asked.
    """
    while (status := _poll(process)) is None:
        if (end := _find_end(folder)) is not None and time.time() > end:
            end_launcher(process)
            return process.returncode or 1
    return status or int(_find_end(folder) is not None)


def _poll(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _find_end(folder: Path) -> float | None:
    """When the job is to end, if ranks asked for that: the last of them knows best."""
    return max((float(path.read_text()) for path in folder.glob(f"{_REQUEST}*")), default=None)


def end_launcher(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """Send a launcher a signal, which it passes on to the ranks; then stronger ones."""
    for strength in (number, signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(strength)
            process.wait(_GRACE)
            return


def end_leftovers(folder: Path) -> None:
    """Kill what is left of a job: launchers end ranks that they believe to be well, and forget others."""
    for _ in range(3):  # one may just have started another
        left = _await_end(folder)  # most are about to end
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def _await_end(folder: Path) -> list[int]:
    """The processes of a job that are left after a while."""
    deadline = time.monotonic() + _LEFTOVER_SECONDS
    while (left := _find_processes(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _find_processes(folder: Path) -> list[int]:
    """The processes that have the folder in their environment: all that a launcher started, and their children."""
    wanted, found = f"{FOLDER}={folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found

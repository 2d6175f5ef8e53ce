"""Runs a program that may hang, and what it starts, for some seconds and not longer."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import NamedTuple


class Outcome(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    text: str


def run_command(command: Sequence[str], seconds: float) -> Outcome:
    """Run a program; `subprocess.TimeoutExpired` if it is not over in time. What it prints goes to a file: a pipe would
    be waited for as long as anything it started has it open.
    """
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill_all(process)
            raise
        file.seek(0)
        return Outcome(status, file.read().decode(errors="replace"))


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()

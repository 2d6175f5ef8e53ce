"""Jobs of ranks that are processes, started by `pullback run` with one MPI or the other. No job outlives its limit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pullback.distributed.launch import LAUNCHER, find_launcher
from pullback.errors import WorldError

ROOT = Path(__file__).resolve().parent.parent
RANKS = ROOT / "tests" / "ranks"
#: The folder of an MPICH that lies apart, since its launcher has the name of Open MPI's: where `run.py test` puts it.
MPICH = Path(os.environ.get("PULLBACK_TEST_MPICH") or Path(sys.prefix) / "mpich")
#: Seconds that a job may take, and that its launcher has to end it.
LIMIT, _GRACE = 240.0, 5.0


class Engine(NamedTuple):
    """An MPI, and whether ranks share memory or send messages, as those of several machines do."""

    mpi: str = "openmpi"
    shares_memory: bool = True

    def __str__(self) -> str:
        return f"{self.mpi}, {'shared memory' if self.shares_memory else 'messages'}"


class Job(NamedTuple):
    """How a job ended, and what its ranks printed."""

    status: int
    out: str
    errors: str

    def __str__(self) -> str:
        return f"exit status {self.status}\n{self.out[-6000:]}\n{self.errors[-6000:]}"


def why_missing(mpi: str) -> str:
    """What is not installed of an MPI; "" if nothing is."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    if mpi == "mpich":
        return "" if (MPICH / "bin" / "mpiexec").exists() else f"there is no MPICH in {MPICH}"
    try:
        found = find_launcher()
    except WorldError as error:
        return str(error).replace("\n", " ")
    return "" if found.kind == mpi else f"{found.path} is of {found.kind}"


def run_job(
    ranks: int, arguments: Sequence[Any], engine: Engine | None = None, limit: float = LIMIT, **variables: str
) -> Job:
    """Run a script and its arguments, or "-m" and a module, on ranks; the test is skipped where the MPI is missing."""
    engine = engine or Engine()
    if missing := why_missing(engine.mpi):
        pytest.skip(missing)
    environment = {
        **os.environ,
        **_variables_of(engine),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        **variables,
    }
    for name in ("OPENBLAS_NUM_THREADS", "PULLBACK_RANKS"):  # a rank's threads are the launcher's choice
        environment.pop(name, None)
    command = [sys.executable, "-m", "pullback.cli", "run", "-n", str(ranks), *map(str, arguments)]
    return run_bounded(command, environment, limit)


def _variables_of(engine: Engine) -> dict[str, str]:
    found = {"PULLBACK_SHARED_MEMORY": str(int(engine.shares_memory))}
    if engine.mpi == "mpich":
        library = min((MPICH / "lib").glob("libmpi.so.*"))
        found |= {LAUNCHER: str(MPICH / "bin" / "mpiexec"), "MPI4PY_LIBMPI": str(library)}
    return found


def run_bounded(command: Sequence[str], environment: dict[str, str], limit: float) -> Job:
    """Run a command; past the limit, end it and all that it started, and fail with what it printed."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _kill_session(process.pid)
        out, errors = process.communicate(timeout=_GRACE)
        job = Job(-1, out.decode(errors="replace"), errors.decode(errors="replace"))
        pytest.fail(f"{' '.join(command)}\nwas not over within {limit:g} s: {job}")
    finally:
        _kill_session(process.pid)
    return Job(process.returncode, out.decode(errors="replace"), errors.decode(errors="replace"))


def _kill_session(leader: int) -> None:
    """Kill the processes of a session: launchers give ranks process groups of their own."""
    for process in _session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _session(leader: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it may end while it is looked at
            if name.isdecimal() and os.getsid(int(name)) == leader:
                yield int(name)

"""`pullback run`: starts the ranks of a script by the launcher of the MPI that is installed, with the right options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import WorldError
from .bounded_command import run_command
from .job import Outcome, run_job
from .job_reports import LEAST, SIGNAL
from .supervision import FOLDER

#: How many threads the libraries of a rank start, by the variables in which they are told.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PULLBACK_NUM_THREADS")
#: The variable that names a launcher to use instead of the one that is found.
LAUNCHER = "PULLBACK_MPIEXEC"
#: Seconds that a launcher has to say what it is.
_VERSION_SECONDS = 30.0
#: "0": ranks of one machine exchange messages too, instead of sharing memory.
SHARED_MEMORY = "PULLBACK_SHARED_MEMORY"
#: What MPICH's launcher starts instead of a rank, and the rank within it: whatever it is told, it kills all others when
#: a process that it started dies by a signal. That stays so before `init`, in which the others wait for all.
_SHIELD = f"""trap "" USR1
"$@"
status=$?
if [ $status -gt 128 ] && [ -e "${FOLDER}/rank-$PMI_RANK" ]; then
    echo $status > "${FOLDER}/{SIGNAL}-$PMI_RANK"
    exit 0
fi
exit $status"""


class Launcher(NamedTuple):
    """A program that starts ranks, and whose it is: "openmpi" or "mpich" (also Intel's, which has its options)."""

    path: str
    kind: str


def find_launcher() -> Launcher:
    """The launcher beside this Python, whose MPI mpi4py loads, else the one on the path."""
    beside = [str(Path(folder) / "mpiexec") for folder in (Path(sys.executable).parent, Path(sys.prefix) / "bin")]
    named = [os.environ[LAUNCHER]] if LAUNCHER in os.environ else []
    for path in (*named, *beside, shutil.which("mpiexec"), shutil.which("mpirun")):
        if path and os.access(path, os.X_OK):
            return Launcher(path, _kind_of(path))
    raise WorldError("pullback run: no launcher of an MPI is installed.\n  Get one: pip install 'pullback[mpi]'.")


def _kind_of(path: str) -> str:
    try:
        told = run_command([path, "--version"], _VERSION_SECONDS).text.lower()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorldError(f"pullback run: {path} does not say what it is: {error}.") from error
    return "mpich" if "hydra" in told or "intel" in told else "openmpi"


def count_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def shares_memory() -> bool:
    """Whether ranks of one machine share memory, and do not send each other messages."""
    return os.environ.get(SHARED_MEMORY, "1") != "0"


def launch_command(
    launcher: Launcher, ranks: int, program: Sequence[str], hosts: str = "", cores: int = 0
) -> list[str]:
    """The command that starts a program on some ranks. Those of one machine are bound to cores of their own if there
    are enough, else they take turns.
    """
    each = (cores or count_cores()) // ranks
    if launcher.kind == "mpich":
        binding = ["-bind-to", f"core:{each}" if each > 1 else "core"] if each and not hosts else []
        where = ["-hosts", hosts] if hosts else []
        shielded = ["sh", "-c", _SHIELD, "rank", *program]
        return [launcher.path, "-disable-auto-cleanup", *where, "-n", str(ranks), *binding, *shielded]
    if hosts:
        placing = ["--host", hosts]
    elif each:
        placing = ["--map-by", f"slot:PE={each}", "--bind-to", "core"] if each > 1 else ["--bind-to", "core"]
    else:
        placing = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
    # survivors of a lost rank raise instead of being killed; where they meet by messages, MPI must go on too
    recovery = ["--with-ft", "ulfm"] if hosts or not shares_memory() else ["--enable-recovery"]
    passed = [word for name in (*_THREADS, FOLDER, LEAST, "PULLBACK_RANKS") for word in ("-x", name)] if hosts else []
    return [launcher.path, "-n", str(ranks), *recovery, *placing, *passed, *program]


def launch_environment(ranks: int, environment: Mapping[str, str], cores: int = 0) -> dict[str, str]:
    """The environment of the ranks: threads that do not compete, and what Open MPI asks of root."""
    threads = str(max(1, (cores or count_cores()) // ranks))
    found = dict.fromkeys(_THREADS, threads) | dict(environment) | {"PULLBACK_RANKS": str(ranks)}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found


def launch_once(
    ranks: int, arguments: Sequence[str], *, hosts: str = "", environment: Mapping[str, str] = os.environ
) -> Outcome:
    """Run a script and its arguments (or "-m", a module and its arguments) on ranks, and say how that ended."""
    command = launch_command(find_launcher(), ranks, [sys.executable, "-u", *arguments], hosts)
    # machines that see the script by its path see a folder beside it too
    return run_job(command, launch_environment(ranks, environment), near=os.getcwd() if hosts else None)


def launch(ranks: int, arguments: Sequence[str], *, hosts: str = "") -> int:
    """Run a script on ranks; the exit status of the job."""
    return launch_once(ranks, arguments, hosts=hosts).status

"""Which MPI is there? The launcher that starts ranks and the library that mpi4py loads, each asked by a process of its
own: MPI is initialized nowhere, and what does not answer is not waited for.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from ..errors import WorldError
from .bounded_command import run_command
from .launch import LAUNCHER, Launcher, find_launcher

#: Seconds that the library has to say which it is.
SECONDS = 30.0
_QUESTION = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
_INSTALL = "pip install 'pullback[mpi]', or mpi4py alone where an MPI is installed"


def describe_mpi() -> str:
    """The library, mpi4py and the launcher that work together; raises where one is missing, or belongs to another."""
    try:
        package = version("mpi4py")
    except PackageNotFoundError:
        if (launcher := _launcher_or_none()) is None:
            raise
        raise WorldError(f"{launcher.path} is there, and mpi4py is not.\n  Get it: pip install mpi4py.") from None
    library = _ask_library(package)
    launcher = find_launcher()
    if launcher.kind != _kind_of(library):
        raise WorldError(
            f"{launcher.path} is not the launcher of what mpi4py loads: {library}.\n"
            f"  Name the right one in {LAUNCHER}, or the library in MPI4PY_LIBMPI."
        )
    return f"{library}, mpi4py {package}, {launcher.path}"


def _launcher_or_none() -> Launcher | None:
    try:
        return find_launcher()
    except WorldError:
        return None


def _ask_library(package: str) -> str:
    """The name and the version of the library that mpi4py loads."""
    try:
        status, text = run_command([sys.executable, "-c", _QUESTION], SECONDS)
    except subprocess.TimeoutExpired:
        raise WorldError(f"the MPI that mpi4py {package} loads does not answer within {SECONDS:g} s.") from None
    lines = [line.strip(" \0") for line in text.splitlines() if line.strip(" \0")] or [f"it ended with status {status}"]
    if status:
        raise WorldError(f"mpi4py {package} loads no MPI: {lines[-1]}\n  Get one: {_INSTALL}.")
    return " ".join(lines[0].replace(":", " ").split(",")[0].split())


def _kind_of(library: str) -> str:
    """As launchers are told apart: Intel's MPI has MPICH's options."""
    return "openmpi" if library.startswith("Open MPI") else "mpich"

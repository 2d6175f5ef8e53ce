"""What `pullback doctor` says of MPI: found, missing, broken, hanging; and it initializes none."""

import importlib.metadata
import io
import os
import subprocess
import sys
import time

import pytest
from mpi_jobs import MPICH, why_missing
from rich.console import Console

from pullback import cli
from pullback.distributed import launch, mpi_check
from pullback.distributed.bounded_command import run_command

posix = pytest.mark.skipif(os.name != "posix", reason="scripts of a shell")


def diagnose():
    """The line on MPI, its words one behind the other."""
    console = Console(file=io.StringIO(), width=300)
    assert cli.main(["doctor"], console) == 0
    lines = console.file.getvalue().splitlines()
    start = next(i for i, line in enumerate(lines) if "MPI " in line)
    return " ".join(" ".join(line.split("│")[2] for line in lines[start:] if "│" in line).split())


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """Makes a launcher of a shell script."""

    def make(text):
        path = tmp_path / "mpiexec"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv(launch.LAUNCHER, str(path))
        return str(path)

    return make


def needs(mpi):
    return pytest.mark.skipif(bool(why_missing(mpi)), reason=why_missing(mpi) or "there")


@needs("openmpi")
def test_library_package_and_launcher_are_named():
    loaded = "mpi4py.MPI" in sys.modules  # by another test
    found = diagnose()
    version = importlib.metadata.version("mpi4py")
    assert found.startswith("Open MPI v")
    assert f"mpi4py {version}, {launch.find_launcher().path}" in found
    assert ("mpi4py.MPI" in sys.modules) == loaded  # nothing is loaded here, let alone initialized


@needs("mpich")
def test_another_mpi_is_found_by_variables(monkeypatch):
    monkeypatch.setenv(launch.LAUNCHER, str(MPICH / "bin" / "mpiexec"))
    assert "is not the launcher of what mpi4py loads: Open MPI" in diagnose()
    monkeypatch.setenv("MPI4PY_LIBMPI", str(min((MPICH / "lib").glob("libmpi.so.*"))))
    assert diagnose().startswith("MPICH Version")


@needs("openmpi")
def test_a_library_that_is_not_there(monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    found = diagnose()
    assert "loads no MPI: " in found
    assert "pip install 'pullback[mpi]'" in found


def test_nothing_is_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(mpi_check, "version", missing)
    monkeypatch.setattr(launch.os, "access", lambda path, mode: False)
    assert diagnose() == "not installed (extra mpi)"


@posix
def test_a_launcher_without_mpi4py(monkeypatch, launcher):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(mpi_check, "version", missing)
    path = launcher("echo HYDRA build details")
    assert f"{path} is there, and mpi4py is not. Get it: pip install mpi4py." in diagnose()


@posix
@needs("openmpi")
def test_what_hangs_is_not_waited_for(monkeypatch, launcher):
    """Even where something it started holds on to its output."""
    monkeypatch.setattr(launch, "_VERSION_SECONDS", 0.3)
    path = launcher("sleep 60 & sleep 60")
    start = time.monotonic()
    assert f"{path} does not say what it is" in diagnose()
    monkeypatch.setattr(mpi_check, "SECONDS", 0.3)
    monkeypatch.setattr(mpi_check, "_QUESTION", "import time; time.sleep(60)")
    assert "does not answer within 0.3 s" in diagnose()
    assert time.monotonic() - start < 40.0


@posix
def test_a_command_that_is_not_over_in_time_is_killed_with_what_it_started(tmp_path):
    script = f"(sleep 2; echo late > {tmp_path}/late) & echo early; wait"
    assert run_command(["sh", "-c", "echo told; exit 3"], 30.0) == (3, "told\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(["sh", "-c", script], 0.2)
    time.sleep(2.2)
    assert not (tmp_path / "late").exists()

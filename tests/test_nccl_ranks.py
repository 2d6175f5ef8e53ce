"""Processes with GPUs (`ranks/nccl_check.py`): on a real one where there is one, else on stand-ins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.distributed.launch import find_launcher
from pullback.errors import WorldError

pytest.importorskip("mpi4py")
try:
    find_launcher()
except WorldError as error:
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).resolve().parent.parent
#: Ranks of one machine share memory, or send each other messages as those of several do.
ENGINES = {"shared memory": "1", "messages": "0"}
#: Seconds that a job may take.
LIMIT = 150


def run_job(ranks, engine, *arguments, timeout):
    """The exit status of a job, and what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "PULLBACK_SHARED_MEMORY": ENGINES[engine],
        "NCCL_CHECK_TIMEOUT": str(timeout),
    }
    script = str(ROOT / "tests" / "ranks" / "nccl_check.py")
    command = [sys.executable, "-m", "pullback.cli", "run", "-n", str(ranks), script, *arguments]
    job = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT)
    return job.returncode, (job.stdout + job.stderr).decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_derivatives_and_bits(engine):
    status, text = run_job(3 if engine == "messages" else 2, engine, "derivatives", "bits", timeout=30)
    assert status == 0, text
    assert "rank 0: bits: ok" in text


FAULTS = [
    ("mismatch", "shared memory"), ("kill", "shared memory"), *(
        pytest.param(fault, engine, marks=pytest.mark.sweep)  # most of their time is the deadline
        for fault, engine in [
            *((fault, "shared memory") for fault in ("late", "raise", "stop", "kill in a collective")),
            ("host array", "messages"), ("kill in a collective", "messages"),
        ]
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "engine"), FAULTS)
def test_faults_are_errors_in_time(fault, engine):
    _, text = run_job(2, engine, fault, timeout=8)
    assert f"rank 0: {fault}: " in text, text
    assert ": ok" not in text

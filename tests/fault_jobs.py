"""Jobs of ranks of which one fails (`ranks/fault_check.py`): started, bounded, and judged by what every rank noted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Ranks of one machine share memory, or send each other messages as those of several do.
ENGINES = {"shared memory": "1", "messages": "0"}
MODES = ("eager", "compiled")
#: Each process of a job has this variable, so that none is overlooked.
_MARK = "PULLBACK_FAULT_JOB"
#: Seconds that a launcher and Python need to start and to end, on a machine that is busy.
_START_SECONDS = 60.0
#: A line of the script, as errors show it.
_LINE = r"fault_check\.py:\d+: \S"


class Fault(NamedTuple):
    """What the ranks other than the culprit must raise, and what the error must name. The culprit itself raises one of
    `culprit`, or nothing is known of it.
    """

    error: str
    names: tuple[str, ...] = ()
    culprit: str = ""
    modes: tuple[str, ...] = MODES
    #: Whether launchers may end the job before the others know.
    may_be_ended: bool = False


_COLLECTIVE = r"collective \d+"
_CALLED = (r"ranks? (0|0, 2, 3): .*" + _LINE, r"rank 1: .*" + _LINE, _COLLECTIVE)
_DIED = Fault("RankLostError", (r"rank 1 of \d died", _COLLECTIVE, _LINE))
_AT_START = ("init: rank 1 of ", r"within [\d.]+ s")
FAULTS = {
    "raise": Fault("RankLostError", (r"rank 1 of \d raised KeyError: 'mine'", _LINE, _COLLECTIVE), "KeyError"),
    "kill": _DIED,
    "stop": Fault("CollectiveTimeoutError", ("rank 1 ", _COLLECTIVE, _LINE, "stopped")),
    "late": Fault("CollectiveTimeoutError", ("rank 1 ", _COLLECTIVE, r"is at .*" + _LINE), "CollectiveTimeoutError"),
    "loop": Fault("CollectiveTimeoutError", ("rank 1 ", _COLLECTIVE, r"is at .*" + _LINE)),
    "return": Fault("RankLostError", ("rank 1 ", "ended", _COLLECTIVE, _LINE), "None"),
    "exit": Fault("RankLostError", ("rank 1 ", "ended", _COLLECTIVE, _LINE), "SystemExit"),
    "shape": Fault("MismatchError", (*_CALLED, r"float64\[3\]", r"float64\[2, 3\]"), "MismatchError"),
    "dtype": Fault("MismatchError", (*_CALLED, "float32"), "MismatchError"),
    "order": Fault("MismatchError", (*_CALLED, "all_gather"), "MismatchError"),
    "op": Fault("MismatchError", (*_CALLED, "broadcast"), "MismatchError"),
    "recompile": Fault("MismatchError", _CALLED, "MismatchError"),
    "world size": Fault("RankLostError", ("rank 1 ", r"traced for \d ranks", _LINE), "WorldError"),
    "full disk": Fault("StorageError", (r"rank 1 of \d", "File too large"), "StorageError"),
    "nan": Fault("NonFiniteError", ("rank 1", r"\bw|\['w'\]", _LINE), "NonFiniteError"),
    "drift": Fault("ReplicaDriftError", ("rank 1", r"\['w'\]", _LINE), "ReplicaDriftError"),
    "unused": Fault("None", (), "None"),
    "uneven": Fault("None", (), "None"),
    "no init": Fault("CollectiveTimeoutError", _AT_START, "SystemExit"),
    "stuck at start": Fault("CollectiveTimeoutError", _AT_START),
    "stop at start": Fault("CollectiveTimeoutError", _AT_START),
    "kill at start": Fault("CollectiveTimeoutError", _AT_START, may_be_ended=True),
    "raise at start": Fault("CollectiveTimeoutError", _AT_START, "KeyError", may_be_ended=True),
    "launcher": Fault("WorldError", ("init", "another MPI"), "WorldError", ("eager",)),
    "two errors": Fault("RankLostError", (r"rank \d of \d raised (KeyError|ValueError): '?mine", _LINE), "KeyError"),
    "kill inside": _DIED,
    "kill beside": _DIED,
    "raise beside": Fault("RankLostError", (r"rank 1 of \d raised KeyError", _LINE, _COLLECTIVE), "KeyError"),
    "late beside": Fault("CollectiveTimeoutError", ("rank 1 ", _COLLECTIVE, _LINE), "CollectiveTimeoutError"),
    "stop beside": Fault("CollectiveTimeoutError", ("rank 1 ", _COLLECTIVE, _LINE)),
}  # fmt: skip


class Job(NamedTuple):
    """A fault on some ranks, in a mode, by an engine; what else its environment has, such as the launcher to take."""

    fault: str
    mode: str = "eager"
    ranks: int = 2
    engine: str = "shared memory"
    environment: Mapping[str, str] = {}
    deadline: float = 2.0


class Outcome(NamedTuple):
    """How a job went: what is wrong with it, the longest that a rank waited for its error, how long the job took."""

    problems: list[str]
    seconds: float
    job_seconds: float
    text: str


def find_mpis() -> dict[str, dict[str, str]]:
    """What to set for each MPI that is installed: the one beside Python, and MPICH in a folder of its own."""
    found: dict[str, dict[str, str]] = {"Open MPI": {}}
    mpich = Path(os.environ.get("PULLBACK_TEST_MPICH", Path(sys.prefix) / "mpich"))
    launcher, library = mpich / "bin" / "mpiexec", mpich / "lib" / "libmpi.so.12"
    if launcher.exists() and library.exists():
        found["MPICH"] = {"PULLBACK_MPIEXEC": str(launcher), "MPI4PY_LIBMPI": str(library)}
    return found


def mix_mpis(mpi: str) -> dict[str, str]:
    """The launcher of one MPI, and the library of the other."""
    mpich = find_mpis()["MPICH"]
    taken = "MPI4PY_LIBMPI" if mpi == "Open MPI" else "PULLBACK_MPIEXEC"
    return {taken: mpich[taken]}


def run_job(job: Job) -> Outcome:
    with tempfile.TemporaryDirectory() as notes:
        mark = uuid.uuid4().hex
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PULLBACK_SHARED_MEMORY": ENGINES[job.engine],
            **job.environment,
            _MARK: mark,
        }
        script = [str(ROOT / "tests" / "ranks" / "fault_check.py"), job.fault, job.mode, str(job.deadline), notes]
        command = [sys.executable, "-m", "pullback.cli", "run", "-n", str(job.ranks), *script]
        start = time.monotonic()
        with open(os.path.join(notes, "output"), "w+b") as output:  # a pipe would stay open as long as any process
            process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            problems = _await_end(process, mark, 3 * job.deadline + _START_SECONDS)
            seconds = time.monotonic() - start
            output.seek(0)
            text = output.read().decode(errors="replace")
        found = {r: _read_note(Path(notes) / f"{r}.json") for r in range(job.ranks)}
        ended = [r for r, note in found.items() if note is not None]
        problems += [f"rank {r} lost its output" for r in ended if (Path(notes) / f"{r}.log").read_text() != "kept"]
    return Outcome(problems + _judge(job, process.returncode, found), _longest_wait(found), seconds, text)


def list_jobs(mpi: str, ranks: int, engine: str, deadline: float) -> list[Job]:
    """All faults in all modes."""
    found = find_mpis()
    return [
        Job(fault, mode, ranks, engine, mix_mpis(mpi) if fault == "launcher" else found[mpi], deadline)
        for fault, wanted in FAULTS.items()
        for mode in wanted.modes
        if fault != "launcher" or len(found) > 1
    ]


def _await_end(process: subprocess.Popen[bytes], mark: str, limit: float) -> list[str]:
    """Wait until the launcher ends, and see that nothing of its job is left; what is left is killed."""
    problems = []
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        problems.append(f"the launcher did not end within {limit:g} s")
        process.kill()
        process.wait()
    deadline = time.monotonic() + 1.0
    while (left := _marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left and not problems:
        problems.append(f"{len(left)} processes are left: {left}")
    for number in left:
        os.kill(number, 9)
    return problems


def _marked_processes(mark: str) -> dict[int, str]:
    """The processes whose environment has a mark, and what each is."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
        except OSError:  # it has ended, or is someone else's
            pass
    return found


def _read_note(path: Path) -> dict[str, object] | None:
    return json.loads(path.read_text()) if path.exists() else None


def _longest_wait(notes: Mapping[int, dict[str, object] | None]) -> float:
    return max((float(str(n["seconds"])) for r, n in notes.items() if n is not None and r != 1), default=0.0)


def _judge(job: Job, status: int, notes: Mapping[int, dict[str, object] | None]) -> list[str]:
    fault = FAULTS[job.fault]
    problems = []
    if (status == 0) != (fault.error == "None"):
        problems.append(f"the job ended with status {status}")
    for rank, note in notes.items():
        wanted = fault.culprit if rank == 1 else fault.error
        if job.fault == "two errors" and rank > 1:
            wanted = "ValueError"
        if not wanted:
            continue
        if note is None:
            problems += [] if fault.may_be_ended and rank != 1 else [f"rank {rank} noted nothing"]
            continue
        if str(note["error"]) != wanted:
            problems.append(f"rank {rank} raised {note['error']}: {note['text']}")
        elif rank != 1 and wanted == fault.error:
            text = str(note["text"])
            problems += [f"rank {rank} does not say {w}: {text}" for w in fault.names if not re.search(w, text)]
            if float(str(note["seconds"])) > job.deadline + 1.0:
                problems.append(f"rank {rank} waited for {note['seconds']} s")
        if not note["as_before"]:
            problems.append(f"rank {rank} has other numbers than before")
    return problems

"""From a fresh checkout to a running demo or a passed test suite, with nothing but Python 3.11+ and a package index.

python3 run.py demo    makes .venv, installs the package with its compiler, runs the demo
python3 run.py test    makes .venv, installs the package and its tools, runs every check CI runs
"""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

#: The second MPI of the tests, apart from the first, whose launcher has the same name (tests/mpi_jobs.py).
MPICH = "mpich>=5,<6; sys_platform == 'linux'"

#: The PyTorch that the bridges are tested with: without a version, each run would test another one.
TORCH = "torch==2.13.0"

# command: (what to install, the steps by name)
COMMANDS = {
    "demo": (".[jit]", {"demo": ["-m", "pullback.cli", "demo"]}),
    "test": (
        ".[dev,jit]",
        {
            "format": ["-m", "ruff", "format", "--check", "."],
            "lint": ["-m", "ruff", "check", "."],
            "types": ["-m", "mypy"],
            "size": ["tests/code_size.py"],
            "docs": ["-m", "sphinx", "-W", "-E", "-q", "-b", "html", "docs", "build/docs"],
            "tests": ["-m", "pytest", "-n", "auto", "--dist", "worksteal"],
        },
    ),
}


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        sys.exit(__doc__)
    if sys.version_info < (3, 11):  # noqa: UP036 - the one place that any Python may reach
        sys.exit(f"run.py: pullback needs Python 3.11 or newer, this is {sys.version.split()[0]}.")
    requirement, steps = COMMANDS[arguments[0]]
    requirements = [requirement]
    if arguments[0] == "test" and os.environ.get("PULLBACK_TEST_PEERS") == "required":
        requirements = [requirement.replace("]", ",bridges]"), TORCH]
    install(arguments[0], requirements)
    for name, step in steps.items():
        run(name, [PYTHON, *step])


def install(command: str, requirements: list[str]) -> None:
    """Makes .venv and installs into it, unless that was done before for this very pyproject.toml and Python."""
    stamp = VENV / f"installed-for-{command}"
    named = f"{requirements} {MPICH} {sys.version}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + named.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    run("environment", [sys.executable, "-m", "venv", str(VENV)])
    pip = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run("install", [*pip, "-e", *requirements])
    if command == "test":
        run("install MPICH", [*pip, "--no-deps", "--ignore-installed", "--prefix", str(VENV / "mpich"), MPICH])
    stamp.write_text(wanted)


def run(step: str, command: list[str]) -> None:
    print(f"== {step}: python {' '.join(command[1:])}", flush=True)
    start = time.perf_counter()
    status = subprocess.run(command, cwd=ROOT).returncode
    if status:
        sys.exit(f"run.py: the step '{step}' failed (exit status {status}); the lines above say why.")
    print(f"   {step}: done in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

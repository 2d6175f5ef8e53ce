"""Mutants of the compiler against the judges: `python tests/mutants/plant.py [--most N] [--seed S] [module…]`.

Each mutant lives in a forked child, which runs the battery until a check fails. A child that dies or hangs is caught.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PULLBACK_CACHE_DIR"] = os.environ.get("MUTANTS_CACHE") or tempfile.mkdtemp(prefix="pullback-mutants-")
os.environ["PULLBACK_VERIFY"] = "1"
os.environ.setdefault("PULLBACK_NUM_THREADS", "2")

import battery
from explained import EXPLAINED
from mutations import Mutant, every_mutant, plant

from pullback.compile.cpu import link

__all__ = ["judge", "sweep"]

#: Seconds that a child may take: three times what the whole battery takes on a busy machine.
LIMIT = 600


def run_battery() -> tuple[str, str] | None:
    """The first judge that notices something, and what; None if all is well."""
    link.EFFORT = ((), 0)
    for name, checks in battery.JUDGES.items():
        try:
            for check in checks():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    check()
        except BaseException as error:
            return name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    return None


def judge(mutant: Mutant | None) -> str:
    """What became of a mutant: the judge that caught it, "crash", "hang", or "" if it survived."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        with contextlib.suppress(BaseException):
            found = _of_child(mutant)
            os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    return _waited(child, read)


def _of_child(mutant: Mutant | None) -> str:
    try:
        if mutant is not None:
            plant(mutant)
    except ValueError as error:
        return f"not planted\t{error}"
    caught = run_battery()
    return "survived" if caught is None else "\t".join(caught)


def _waited(child: int, read: int) -> str:
    end = time.monotonic() + LIMIT
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            return "hang"
        time.sleep(0.02)
    found = os.read(read, 4096).decode()
    os.close(read)
    return found or f"crash\tstatus {status}"


def sweep(mutants: list[Mutant], shown: bool = True) -> dict[str, list[Mutant]]:
    """Mutants by what became of them."""
    found: dict[str, list[Mutant]] = collections.defaultdict(list)
    for number, mutant in enumerate(mutants):
        start = time.monotonic()
        result = judge(mutant).split("\t")
        found[result[0]].append(mutant)
        if shown:
            print(f"{number + 1}/{len(mutants)} {time.monotonic() - start:4.1f} s  {result[0]:12} {mutant}  "
                  f"{result[1] if len(result) > 1 else ''}", flush=True)  # fmt: skip
    return found


def is_explained(mutant: Mutant) -> bool:
    return any(mutant.key.startswith(place) for place in EXPLAINED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--most", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="K/N: every N-th mutant, from the K-th on")
    asked = parser.parse_args()
    first, every = map(int, asked.part.split("/"))
    mutants = [m for m in every_mutant(asked.most, asked.seed) if not asked.modules or m.module in asked.modules]
    well = judge(None)
    if well != "survived":
        sys.exit(f"the package itself does not pass the battery: {well}")
    found = sweep(mutants[first::every])
    missed = [m for m in found.get("survived", []) if not is_explained(m)]
    counts = ", ".join(f"{name} {len(group)}" for name, group in found.items())
    print(f"{sum(map(len, found.values()))} planted: {counts}; {len(missed)} survived without an explanation")
    print(*missed, sep="\n")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

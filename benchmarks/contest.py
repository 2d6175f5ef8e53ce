"""Contestants in, one table out: the same work timed side by side, on one core and with one thread.

Noise only ever adds time, so the best of many repeats is what is compared; and contestants take turns in short bursts,
so that a slow spell of the machine is shared by all. In one process they also share the heap, and loading one library
changes how the allocator serves the others; `alone` measures each in a process of its own, as its users have it.
"""

import argparse
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import numpy as np

OURS = "pullback"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Limit:
    """Our time may be at most `ratio` times that of the contestant `peer`."""

    peer: str
    ratio: float


def start(doc: str, cores: int = 1) -> argparse.Namespace:
    """Reads the command line and makes the process single-threaded on `cores` cores; call it first."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run: rough numbers")
    parser.add_argument("--only", nargs=2, metavar=("NAME", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    pin(cores)
    return options


def pin(cores: int) -> None:
    """Restarts the script with the thread counts set: libraries read them once, when they are loaded."""
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.environ.update(dict.fromkeys(THREADS, "1"))
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def machine() -> str:
    """One line: the interpreter, the packages that take part, the processor."""
    packages = [f"{name} {found}" for name in (OURS, "numpy", "torch", "jax", "autograd") if (found := installed(name))]
    return f"Python {platform.python_version()}, {', '.join(packages)}; {processor()}"


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def gather(makers: dict[str, Callable], *data) -> dict[str, Callable]:
    """Each contestant's step on the same data; a peer that is not installed is left out, and that is said."""
    steps = {}
    for name, maker in makers.items():
        try:
            steps[name] = maker(*data)
        except ModuleNotFoundError as missing:
            print(f"  {name}: left out, {missing.name} is not installed")
    return steps


def check_agreement(steps: dict[str, Callable], tolerance: float) -> None:
    """Every step returns the same arrays (by their norm), or the times would compare different work."""
    expected = [bare(value) for value in steps[OURS]()]
    for name, step in steps.items():
        for mine, theirs in zip(expected, step(), strict=True):
            if not np.linalg.norm(bare(theirs) - mine) <= tolerance * np.linalg.norm(mine):
                raise AssertionError(f"{name} and {OURS} disagree: {bare(theirs)} and {mine}")


def bare(value) -> np.ndarray:
    """A NumPy array from any contestant's array."""
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def race(steps: dict[str, Callable], seconds: float) -> dict[str, float]:
    """The best time of each step in seconds: rounds of short bursts, each contestant in turn."""
    best = dict.fromkeys(steps, math.inf)
    until = perf_counter() + seconds
    while perf_counter() < until or math.inf in best.values():
        for name, step in steps.items():
            best[name] = min(best[name], burst(step))
    return best


def alone(names: list[str], case: str, rounds: int) -> dict[str, float]:
    """The best time of each contestant in fresh processes of its own; the script answers `--only NAME CASE`."""
    best = dict.fromkeys(names, math.inf)
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, sys.argv[0], "--only", name, case]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            best[name] = min(best[name], float(done.stdout))
    return best


def burst(step: Callable, seconds: float = 0.02) -> float:
    """The best of a few calls in a row; the first, uncounted, warms the caches again after the others' turns."""
    step()
    best = math.inf
    until = perf_counter() + seconds
    while perf_counter() < until or best == math.inf:
        begin = perf_counter()
        step()
        best = min(best, perf_counter() - begin)
    return best


def report(title: str, times: dict[str, float], limits: tuple[Limit, ...] = (), reference: str | None = None) -> None:
    """Prints one table: each contestant's time, what it is of the reference's, and where our limits stand."""
    of = "" if reference is None else f"of {reference}"
    wanted = {limit.peer: limit.ratio for limit in limits}
    print(f"\n{title}\n  {'':18s}{'time':>12s}{of:>20s}{'pullback / it':>16s}  limit")
    for name, time in sorted(times.items(), key=lambda pair: pair[1]):
        share = "" if reference is None else f"{time / times[reference]:.2f}"
        ratio = times[OURS] / time
        ours = "" if name == OURS else f"{ratio:.3f}"
        print(f"  {name:18s}{readable(time):>12s}{share:>20s}{ours:>16s}  {verdict(ratio, wanted.get(name))}".rstrip())


def verdict(ratio: float, limit: float | None) -> str:
    """The limit, and whether it is met."""
    return "" if limit is None else f"{limit:.3f} {'met' if ratio <= limit else 'missed'}"


def readable(seconds: float) -> str:
    """A time with the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"

"""Mutants of the compiler against the judges: `python tests/mutants/mutants.py [--most N] [--seed S] [module…]`.

Each mutant lives in a forked child, which runs the checks that reach the changed line until one fails. A child that
dies or hangs is caught. What each check reaches is recorded first, by the package without a mistake.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib
import itertools
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import battery
from explained import EXPLAINED, OPEN
from mistakes import MODULES, Mutant, every_mutant, plant

from pullback.compile.cpu.runtime import link

__all__ = ["Survey", "in_child", "judge", "survey", "sweep"]

#: Seconds that a child may take beyond ten times what its checks take without a mistake.
PATIENCE = 20

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """One check: its judge, what it is, the lines it reached, the seconds it took."""

    judge: str
    check: Callable[[], None]
    lines: frozenset[Place]
    seconds: float


@dataclass(frozen=True, slots=True)
class Survey:
    reaches: list[Reach]

    def of(self, mutant: Mutant) -> list[Reach]:
        """The checks that come to the mutant's line, or into its function where a line is not told apart."""
        file = _file(mutant.module)
        at_line = [r for r in self.reaches if (file, mutant.line) in r.lines]
        return at_line or [r for r in self.reaches if any((file, n) in r.lines for n in mutant.body)]


@functools.cache
def _file(module: str) -> str:
    return importlib.import_module(f"pullback.{module}").__file__ or ""


def survey(judges: Iterable[str] = battery.JUDGES, every: int = 1) -> Survey:
    """Run checks on the package as it is, in a child, and note which lines of the compiler each comes to. Of a judge
    with many checks it is all, or one in `every`.
    """
    checks: list[tuple[str, Callable[[], None]]] = [
        (name, check)
        for name in judges
        for check in itertools.islice(battery.JUDGES[name](), 0, None, 1 if name in battery.SHORT else every)
    ]
    link.EFFORT = ((), 0)
    link._initialized_llvm()  # what every child would start
    found = _recorded(lambda: [_reached(check) for _, check in checks])
    return Survey([Reach(name, check, *rest) for (name, check), rest in zip(checks, found, strict=True)])


def _recorded(work: Callable[[], Any]) -> Any:
    """What a child says that must end well."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said"
        result = in_child(lambda: path.write_bytes(pickle.dumps(work())) and "well")
        if result[0] != "well":
            sys.exit(f"the package itself does not pass: {' '.join(result)}")
        return pickle.loads(path.read_bytes())


def _reached(check: Callable[[], None]) -> tuple[frozenset[Place], float]:
    lines: set[Place] = set()
    start = time.monotonic()
    with _tracing(lines):
        _quietly(check)
    return frozenset(lines), time.monotonic() - start


@contextlib.contextmanager
def _tracing(lines: set[Place]) -> Iterator[None]:
    files = {_file(module) for module in MODULES}

    def enter(frame: Any, event: str, arg: Any) -> Any:
        if (file := frame.f_code.co_filename) not in files:
            return None

        def step(frame: Any, event: str, arg: Any) -> Any:
            lines.add((file, frame.f_lineno))
            return step

        return step

    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def _quietly(check: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()


def run_checks(reaches: list[Reach]) -> str:
    """The first judge that notices something, which check it was, and what it said; "survived" if all is well."""
    for number, reach in enumerate(reaches):
        try:
            _quietly(reach.check)
        except BaseException as error:
            said = str(error).strip().splitlines()
            return f"{reach.judge}\t{number}\t{type(error).__name__}: {said[0] if said else ''}"[:200]
    return "survived"


def judge(mutant: Mutant, reaches: list[Reach]) -> list[str]:
    """What became of a mutant: the judge that caught it, "crash", "hang", "survived", or "not reached"."""
    if not reaches:
        return ["not reached"]

    def live() -> str:
        try:
            plant(mutant)
        except ValueError as error:
            return f"not planted\t0\t{error}"
        return run_checks(reaches)

    return in_child(live, PATIENCE + 10 * sum(r.seconds for r in reaches))


def in_child(work: Callable[[], str], limit: float = 1200) -> list[str]:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            found = work()
        except BaseException as error:
            found = f"failed\t0\t{type(error).__name__}: {error}"[:400]
        with contextlib.suppress(BaseException):
            os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    return _waited(child, read, limit)


def _waited(child: int, read: int, limit: float) -> list[str]:
    end, pause = time.monotonic() + limit, 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            return ["hang"]
        time.sleep(pause := min(0.02, pause * 2))
    found = os.read(read, 4096).decode()
    os.close(read)
    return found.split("\t") if found else ["crash", "0", f"status {status}"]


def sweep(mutants: list[Mutant], known: Survey, most: int = 10**6, shown: bool = True) -> dict[str, list[Mutant]]:
    """Mutants by what became of them, each after at most so many checks; those that caught most so far come first."""
    found: dict[str, list[Mutant]] = collections.defaultdict(list)
    caught: collections.Counter[int] = collections.Counter()
    for number, mutant in enumerate(mutants):
        start = time.monotonic()
        reaches = _chosen(known.of(mutant), caught, most)
        result = judge(mutant, reaches)
        if result[0] in battery.JUDGES:
            caught[id(reaches[int(result[1])])] += 1
        found[result[0]].append(mutant)
        if shown:
            print(f"{number + 1}/{len(mutants)} {time.monotonic() - start:4.1f} s  {result[0]:12} "
                  f"{mutant} [{len(reaches)}]  {result[-1] if len(result) > 2 else ''}", flush=True)  # fmt: skip
    return found


def _chosen(reaches: list[Reach], caught: collections.Counter[int], most: int) -> list[Reach]:
    """The best catchers, then some of every judge in turn."""
    best = sorted((r for r in reaches if caught[id(r)]), key=lambda r: -caught[id(r)] / (0.1 + r.seconds))[: most // 2]
    by_judge: dict[str, list[Reach]] = collections.defaultdict(list)
    for r in sorted(reaches, key=lambda r: r.seconds):
        if not any(r is b for b in best):
            by_judge[r.judge].append(r)
    rest: list[Reach] = []
    while len(best) + len(rest) < most and any(by_judge.values()):
        rest += [group.pop(0) for group in by_judge.values() if group]
    return (best + rest)[:most]


def is_explained(mutant: Mutant) -> bool:
    return any(mutant.key.startswith(place) for place in EXPLAINED)


def prepare() -> None:
    """Steps are verified, loops are cut for two threads, and code is kept apart from that of others."""
    os.environ["PULLBACK_CACHE_DIR"] = os.environ.get("MUTANTS_CACHE") or tempfile.mkdtemp(prefix="pullback-mutants-")
    os.environ["PULLBACK_VERIFY"] = "1"
    os.environ.setdefault("PULLBACK_NUM_THREADS", "2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--most", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checks", type=int, default=10**6, help="how many checks a mutant goes through at most")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th mutant, from the K-th on")
    parser.add_argument("--every", type=int, default=1, help="of judges with many checks only one in so many")
    parser.add_argument("--only", default=None, help="a file of the keys of mutants to plant")
    parser.add_argument("--stale", action="store_true", help="list explanations of what is no mutant, and end")
    parser.add_argument("--judges", nargs="*", default=list(battery.JUDGES))
    asked = parser.parse_args()
    if asked.stale:
        keys = [m.key for m in every_mutant()]
        stale = [place for place in (*EXPLAINED, *OPEN) if not any(key.startswith(place) for key in keys)]
        print(*stale, sep="\n")
        sys.exit(bool(stale))
    prepare()
    first, step = map(int, asked.part.split("/"))
    mutants = [m for m in every_mutant(asked.most, asked.seed) if not asked.modules or m.module in asked.modules]
    if asked.only is not None:
        named = Path(asked.only).read_text().splitlines()
        mutants = [m for m in mutants if m.key in named]
    found = sweep(mutants[first::step], survey(asked.judges, asked.every), asked.checks)
    alive = [m for kind in ("survived", "not reached") for m in found.get(kind, []) if not is_explained(m)]
    missed = [m for m in alive if m.key not in OPEN]
    counts = ", ".join(f"{name} {len(group)}" for name, group in found.items())
    total = sum(map(len, found.values()))
    print(f"{total} planted: {counts}; {len(alive)} survived without an explanation, {len(missed)} of them new")
    print(*missed, sep="\n")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

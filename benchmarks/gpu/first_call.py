"""The first call of each row, from the Python function to results: nothing on disk, then with cubins on disk; JAX with
its cache turned off.

Each row and contestant has a process of its own that loads its library, compiles something small and moves the data
first, so that a row's time is what one more function costs. Processes get ready together and are timed one by one.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tanh_chain
from arena import MAKERS, Workload, choose, last_lines, machine
from run_all import ROWS

COLD, WARM, JAX = "pullback, nothing on disk", "pullback, cubins on disk", "JAX"
COLUMNS = {JAX: "JAX", COLD: "pullback jit", WARM: "pullback jit"}
#: Rows that get ready together: a GPU has memory for three processes of each.
ROWS_AT_ONCE = 6


def run_worker(maker: str, work: Workload, device: str) -> None:
    """Say that all is ready, wait for a line, and say how many seconds the first call took, or why it failed."""
    try:
        warm_up = replace(tanh_chain.ROWS[0], data=lambda _: ([np.ones(3, "f4")] * 3,))
        MAKERS[maker](warm_up, warm_up.data(True), device).run()
        made = MAKERS[maker](work, work.data(device == "cpu"), device)  # nothing is compiled before the call
        if maker != "JAX":
            made.wait()
        print("ready", flush=True)
        sys.stdin.readline()
        begin = perf_counter()
        made.run()
        found: Any = perf_counter() - begin
    except Exception as error:
        found = last_lines(error)
    print(json.dumps(found), flush=True)


class Worker:
    """A process that has said nothing yet, and the file of its errors."""

    def __init__(self, column: str, work: Workload, options: argparse.Namespace, place: Path, errors: Any) -> None:
        environment = {**os.environ, "PULLBACK_CACHE_DIR": str(place), "JAX_ENABLE_COMPILATION_CACHE": "false"}
        command = [
            sys.executable,
            __file__,
            "--worker",
            COLUMNS[column],
            "--rows",
            work.name,
            "--device",
            options.device,
        ]
        pipe, self.errors = subprocess.PIPE, errors
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)
        self.limit = threading.Timer(options.limit, self.process.kill)
        self.limit.start()
        self.said = ""

    def read(self) -> str:
        """The next line; what went wrong where there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line:
            return line
        self.errors.seek(0)
        return json.dumps(f"ended or took too long: {self.errors.read()[-400:]}")

    def wait(self) -> None:
        """Until it is ready, or has failed."""
        self.said = self.read()

    def measure(self) -> float | str:
        assert self.process.stdin is not None
        if self.said != "ready":
            return json.loads(self.said)
        with contextlib.suppress(BrokenPipeError):  # it is gone, which its next line tells
            print(file=self.process.stdin, flush=True)
        return json.loads(self.read())

    def close(self) -> None:
        self.limit.cancel()
        self.process.kill()
        self.process.communicate()


def measure_rows(rows: list[Workload], options: argparse.Namespace, place: Path) -> Iterator[dict[str, float | str]]:
    """By row, the seconds of each contestant, or why there are none."""
    with contextlib.ExitStack() as stack:
        ready = []
        for number, work in enumerate(rows):
            workers = {}
            for column in COLUMNS:
                errors = stack.enter_context(tempfile.TemporaryFile("w+"))
                workers[column] = worker = Worker(column, work, options, place / str(number), errors)
                stack.callback(worker.close)
            ready.append(workers)
        for worker in (w for workers in ready for w in workers.values()):
            worker.wait()
        for workers in ready:
            yield {column: worker.measure() for column, worker in workers.items()}


def shown(value: float | str) -> str:
    return f"{value * 1e3:,.0f} ms" if isinstance(value, float) else "failed"


def judged(ours: float | str, theirs: float | str) -> str:
    if not isinstance(ours, float) or not isinstance(theirs, float):
        return ""
    return f"{ours / theirs:.2f} {'met' if ours <= theirs else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rows", default="", help="only rows whose name begins with one of these, by commas")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one process, its turn included")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = choose(ROWS, options.rows)
    if options.worker:
        run_worker(options.worker, next(w for w in rows if w.name == options.rows), options.device)
        return
    print(machine(options.device))
    print(f"| first call | {COLD} | {WARM} | {JAX} | nothing on disk / JAX |\n|---|---|---|---|---|", flush=True)
    failures = []
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        with tempfile.TemporaryDirectory() as place:
            for work, found in zip(some, measure_rows(some, options, Path(place)), strict=True):
                cold, warm, jax = (found[column] for column in (COLD, WARM, JAX))
                verdict = judged(cold, jax)
                print(f"| {work.title} | {shown(cold)} | {shown(warm)} | {shown(jax)} | {verdict} |", flush=True)
                failures += [f"  {work.name}: {column}: {v}" for column, v in found.items() if isinstance(v, str)]
    print(*failures, sep="\n")


if __name__ == "__main__":
    main()

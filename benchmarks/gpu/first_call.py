"""The first call of each row, from the Python function to results: nothing on disk, then with cubins on disk; JAX with
its cache turned off.

Each contestant has a process of its own that loads its library and compiles something small first, so that a row's
time is what one more function costs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from time import perf_counter

import numpy as np
import tanh_chain
from arena import MAKERS, Workload, choose, free_memory, last_lines, machine
from run_all import ROWS

COLD, WARM, JAX = "pullback, nothing on disk", "pullback, cubins on disk", "JAX"


def first_calls(maker: str, rows: list[Workload], small: bool, device: str) -> dict[str, float | str]:
    """Seconds by row, or why there are none."""
    warm_up = replace(tanh_chain.ROWS[0], data=lambda _: ([np.ones(3, "f4")] * 3,))
    MAKERS[maker](warm_up, warm_up.data(True), device).run()
    found: dict[str, float | str] = {}
    for work in rows:
        try:
            data = work.data(small)
            made = MAKERS[maker](work, data, device)  # moves the data; nothing is compiled before the call
            made.wait() if maker != "JAX" else None
            begin = perf_counter()
            made.run()
            found[work.name] = perf_counter() - begin
        except Exception as error:
            found[work.name] = last_lines(error)
        made = None
        free_memory(device)
    return found


def in_process(column: str, options: argparse.Namespace, place: str) -> dict[str, float | str]:
    maker = "JAX" if column == JAX else "pullback jit"
    environment = {**os.environ, "PULLBACK_CACHE_DIR": place, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, __file__, "--only", maker, "--device", options.device, "--rows", options.rows]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=options.limit)
    if done.returncode:
        return {"": done.stderr[-600:]}
    return json.loads(done.stdout.splitlines()[-1])


def shown(value: float | str | None) -> str:
    return f"{value * 1e3:,.0f} ms" if isinstance(value, float) else "failed"


def judged(ours: float | str | None, theirs: float | str | None) -> str:
    if not isinstance(ours, float) or not isinstance(theirs, float):
        return ""
    return f"{ours / theirs:.2f} {'met' if ours <= theirs else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rows", default="", help="only rows whose name begins with one of these, by commas")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one contestant's process")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = choose(ROWS, options.rows)
    if options.only:
        print(json.dumps(first_calls(options.only, rows, options.device == "cpu", options.device)))
        return
    print(machine(options.device))
    with tempfile.TemporaryDirectory() as place:
        found = {}
        for column in (JAX, COLD, WARM):
            try:
                found[column] = in_process(column, options, place)
            except subprocess.TimeoutExpired:
                found[column] = {"": "took too long"}
    print(f"| first call | {COLD} | {WARM} | {JAX} | nothing on disk / JAX |\n|---|---|---|---|---|")
    for work in rows:
        cold, warm, jax = (found[column].get(work.name) for column in (COLD, WARM, JAX))
        print(f"| {work.title} | {shown(cold)} | {shown(warm)} | {shown(jax)} | {judged(cold, jax)} |")
    for column, values in found.items():
        for name, value in values.items():
            if isinstance(value, str):
                print(f"  {column}: {name}: {value}")


if __name__ == "__main__":
    main()

"""Compiled work on one thread and on two: the larger workloads of `compiled.py`, beside `jax.jit` and PyTorch eager.

Each library with each number of threads is a process of its own, bound to as many cores, since libraries settle their
threads when they are loaded; processes take turns. `--realtime` asks the system to let nothing else run while a
workload is timed (a fraction of a second each), for machines that others use too.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from time import perf_counter

import compiled
import numpy as np
from contest import OURS, THREADS, machine, readable

COUNTS = (1, 2)
SIZES = {"784-256-128-10, batch 64": 64, "1024-1024-1024-10, batch 256": 256}


def workloads(name):
    """What is timed, by title: the functions that make the steps are those of `compiled.py`."""
    step, gradient = compiled.STEPS[name], compiled.GRADIENTS[name]
    for title, batch in SIZES.items():
        sizes = tuple(int(n) for n in title.split(",")[0].split("-"))
        yield f"a training step of {title}", step(*compiled.network(sizes, batch))
    for n in (10_000, 100_000, 1_000_000):
        data = [0.3 * compiled.normal(n), 0.5 * compiled.normal(n), 0.5 * compiled.normal(n)]
        yield f"tanh(h * w + x) 100 times with gradient, {n} elements", gradient(compiled.make_chain, data, 1)
    data = [compiled.normal(256, 1000), np.arange(256), compiled.RNG.integers(0, 1000, 256)]
    yield "softmax cross-entropy 256x1000 with gradient", gradient(compiled.entropy, data, 1)
    data = [compiled.normal(512, 768), compiled.normal(768), compiled.normal(768), compiled.normal(512, 768)]
    yield "layer norm 512x768 with gradients", gradient(compiled.normed, data, 3)


def measured(name, threads, seconds, realtime):
    """The best time of each workload in this process."""
    steps = dict(workloads(name))
    if name == "PyTorch":
        import torch

        torch.set_num_threads(threads)
    if name == OURS:
        import pullback as pb

        assert pb.get_num_threads() == threads
    found = {}
    for title, step in steps.items():
        step()
        with_priority(realtime)
        found[title] = best(step, seconds)
        with_priority(False)
    return found


def best(step, seconds):
    """The best call of so many seconds, and at least three."""
    found, count, until = math.inf, 0, perf_counter() + seconds
    while perf_counter() < until or count < 3:
        begin = perf_counter()
        step()
        found, count = min(found, perf_counter() - begin), count + 1
    return found


def with_priority(above_all):
    """Every thread of this process before those of others, or as usual."""
    policy, level = (os.SCHED_FIFO, 10) if above_all else (os.SCHED_OTHER, 0)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(level))


def apart(name, threads, options):
    """The same in a process of its own, bound to so many cores."""
    command = [sys.executable, sys.argv[0], "--only", name, str(threads)]
    command += ["--quick"] * options.quick + ["--realtime"] * options.realtime
    environment = os.environ | dict.fromkeys((*THREADS, "PULLBACK_NUM_THREADS"), str(threads))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"  {name}: left out, {done.stderr.strip().splitlines()[-1:]}")
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run: rough numbers")
    parser.add_argument("--realtime", action="store_true", help="let nothing else run while a workload is timed")
    parser.add_argument("--only", nargs=2, metavar=("NAME", "THREADS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        name, threads = options.only[0], int(options.only[1])
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
        print(json.dumps(measured(name, threads, 0.1 if options.quick else 0.3, options.realtime)))
        return
    print(machine())
    times = {(name, n): {} for name in compiled.STEPS for n in COUNTS}
    for _ in range(1 if options.quick else 3):
        for (name, n), so_far in times.items():
            for title, time in apart(name, n, options).items():
                so_far[title] = min(time, so_far.get(title, math.inf))
    heads = [f"{name}, {n}" for name, n in times]
    print("\n| workload, threads | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for title in times[OURS, 1]:
        row = [readable(found[title]) if title in found else "" for found in times.values()]
        print(f"| {title} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

"""A million chained scalar ops (sine and product, half a million times), forward, backward, freed: time and memory.

Each contestant runs in a fresh process of its own. The limit: faster and smaller than PyTorch.
"""

import argparse
import json
import math
import subprocess
import sys
from time import perf_counter

from contest import OURS, machine, pin

OPS = 1_000_000
START = 0.5
FACTOR = 1.0000001  # near one, so that the derivative of the whole chain stays a number


def ours(pairs):
    import pullback as pb

    h0 = h = pb.tensor(START, requires_grad=True)
    begin = perf_counter()
    for _ in range(pairs):
        h = pb.sin(h) * FACTOR
    yield perf_counter() - begin
    begin = perf_counter()
    h.backward()
    yield perf_counter() - begin
    begin = perf_counter()
    del h
    yield perf_counter() - begin
    yield h0.grad.item()


def pytorch(pairs):
    import torch

    h0 = h = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    begin = perf_counter()
    for _ in range(pairs):
        h = torch.sin(h) * FACTOR
    yield perf_counter() - begin
    begin = perf_counter()
    h.backward()
    yield perf_counter() - begin
    begin = perf_counter()
    del h
    yield perf_counter() - begin
    yield h0.grad.item()


CONTESTANTS = {OURS: ours, "PyTorch": pytorch}


def expected(pairs):
    """The same derivative in plain floats."""
    h, derivative = START, 1.0
    for _ in range(pairs):
        derivative *= FACTOR * math.cos(h)
        h = math.sin(h) * FACTOR
    return derivative


def peak_memory():
    """The most memory this process has held, in MB; unlike `getrusage`, not inherited from the parent."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def measure(name, ops):
    """One contestant, in this process: a JSON line."""
    pin(1)
    work = CONTESTANTS[name]
    list(work(10))
    before = peak_memory()
    forward, backward, freeing, gradient = work(ops // 2)
    wanted = expected(ops // 2)
    if not math.isclose(gradient, wanted, rel_tol=1e-6):
        raise AssertionError(f"{name}: the derivative is {gradient}, expected {wanted}")
    print(json.dumps([forward, backward, freeing, peak_memory(), peak_memory() - before]))


def best_of(name, ops, repeats):
    """The best time and its memory over fresh processes, or None where the package is missing."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--contestant", name, "--ops", str(ops)]
        done = subprocess.run(command, capture_output=True, text=True)
        if "ModuleNotFoundError" in done.stderr:
            return None
        if done.returncode:
            raise RuntimeError(done.stderr)
        runs.append(json.loads(done.stdout))
    return min(runs, key=lambda run: sum(run[:3]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the ops, one process each")
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--ops", type=int, default=OPS)
    options = parser.parse_args()
    if options.contestant:
        return measure(options.contestant, options.ops)
    ops, repeats = (options.ops // 10, 1) if options.quick else (options.ops, 3)
    print(f"{machine()}\n\n{ops:,} chained scalar ops")
    print(f"  {'':12s}  forward s  backward s  freed s  total s  peak MB  growth MB")
    results = {name: best_of(name, ops, repeats) for name in CONTESTANTS}
    for name, result in results.items():
        if result is None:
            print(f"  {name}: left out, it is not installed")
            continue
        forward, backward, freeing, peak, growth = result
        total = forward + backward + freeing
        print(f"  {name:12s}{forward:11.2f}{backward:12.2f}{freeing:9.2f}{total:9.2f}{peak:9.0f}{growth:11.0f}")
    if results["PyTorch"]:
        time = sum(results[OURS][:3]) / sum(results["PyTorch"][:3])
        memory = results[OURS][3] / results["PyTorch"][3]
        print(f"  pullback / PyTorch: time {time:.2f}, peak memory {memory:.2f} (limit 1.00 each)")
    return None


if __name__ == "__main__":
    main()

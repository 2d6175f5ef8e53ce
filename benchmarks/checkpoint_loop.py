"""The gradient through 1,024 steps on a state of 1.6 MB: resident memory above the start, and time, in processes of
their own.

    python benchmarks/checkpoint_loop.py [--quick]

Each way computes the same gradient with respect to the start and to one parameter; the high-water mark of the resident
set (VmHWM) is read before and after. Plain keeps every step; with snapshots, steps are repeated; the number of steps is
compared with the least that is possible. JAX scans with a checkpoint around the step, and around segments of 32 steps.
"""

import os
import subprocess
import sys
from time import perf_counter

import numpy as np
from contest import machine, start

STEPS, SIZE = 1024, 200_000


def state() -> tuple[np.ndarray, float]:
    return np.random.default_rng(0).normal(size=SIZE), 0.01


def ours(**how):
    import pullback as pb
    from pullback.checkpoint.loops.revolve import fewest_advances

    x, a = state()
    taken = 0

    def step(i, x, a):
        nonlocal taken
        taken += 1
        return x + a * pb.sin(x)

    def plain(x, a):
        for i in range(STEPS):
            x = step(i, x, a)
        return pb.sum(x * x)

    def looped(x, a):
        return pb.sum(pb.checkpoint_loop(step, x, STEPS, a, **how) ** 2)

    def run():
        nonlocal taken
        taken = 0
        found = pb.grad(looped if how else plain, (0, 1))(x, np.asarray(a))
        count = how.get("snapshots") or how.get("ram", 0) + how.get("disk", 0)
        best = fewest_advances(STEPS, count) + 1 + STEPS if how else STEPS
        return found, taken, best

    return run


def jaxed(segments: bool):
    import jax

    jax.config.update("jax_enable_x64", True)
    x, a = state()

    def step(x, a):
        return x + a * jax.numpy.sin(x)

    def steps(x, a, count):
        return jax.lax.scan(lambda x, _: (jax.checkpoint(step)(x, a), None), x, None, length=count)[0]

    def whole(x, a):
        if not segments:
            return (steps(x, a, STEPS) ** 2).sum()
        segment = jax.checkpoint(lambda x, a: steps(x, a, 32))
        return (jax.lax.scan(lambda x, _: (segment(x, a), None), x, None, length=STEPS // 32)[0] ** 2).sum()

    gradient = jax.jit(jax.grad(whole, (0, 1)))
    return lambda: (jax.block_until_ready(gradient(x, a)), 0, 0)


WAYS = {
    "plain": lambda: ours(),
    "snapshots=10": lambda: ours(snapshots=10),
    "snapshots=44": lambda: ours(snapshots=44),
    "ram=3, disk=7": lambda: ours(ram=3, disk=7),
    "ram=3, disk=100": lambda: ours(ram=3, disk=100),
    "jax": lambda: jaxed(False),
    "jax, segments": lambda: jaxed(True),
}


def high_water() -> float:
    """The most that was ever resident, in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def measured(name: str, repeats: int) -> str:
    run = WAYS[name]()
    before = high_water()
    (x_bar, a_bar), taken, best = run()
    peak = high_water() - before
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        run()
        times.append(perf_counter() - begin)
    check = float(np.linalg.norm(np.asarray(x_bar))), float(np.asarray(a_bar))
    return f"{peak} {min(times)} {taken} {best} {check[0]!r} {check[1]!r}"


def main() -> None:
    options = start(__doc__)
    if options.only:
        print(measured(options.only[0], int(options.only[1])))
        return
    print(machine())
    print(f"\n  {'':18s}{'MiB resident':>14s}{'seconds':>10s}{'steps':>8s}{'least':>8s}")
    expected = None
    for name in WAYS:
        command = [sys.executable, sys.argv[0], "--only", name, "1" if options.quick else "3"]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        if done.returncode:
            print(f"  {name:18s}{done.stderr.strip().splitlines()[-1]}")
            continue
        peak, seconds, taken, best, *check = map(float, done.stdout.split())
        expected = expected or check
        if not np.allclose(check, expected, rtol=1e-9):
            raise AssertionError(f"{name} and plain disagree: {check} and {expected}")
        print(f"  {name:18s}{peak:14.1f}{seconds:10.2f}{taken:8.0f}{best:8.0f}")


if __name__ == "__main__":
    main()

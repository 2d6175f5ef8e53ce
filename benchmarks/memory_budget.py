"""A residual network that keeps 900 MiB, trained inside 300 MiB; each budget in a process of its own.

Printed for each: live bytes by `tracemalloc` (every NumPy allocation, temporaries too) and resident bytes over what the
process had before, both at their peaks; the time of a step; and whether the parameters have the same bits as
without a budget. The limits: 300 MiB live and resident, the same bits.
"""

import hashlib
import subprocess
import sys
import tracemalloc
from time import perf_counter

import numpy as np
from contest import machine, start

import pullback as pb

BLOCKS, BATCH, WIDTH, STEPS = 28, 32768, 128, 3
BUDGETS = ("none", "600 MiB", "300 MiB", "200 MiB", "150 MiB")
MIB = 1 << 20


def network():
    rng = np.random.default_rng(0)
    scale = 1 / np.sqrt(WIDTH)
    weights = [
        tuple(
            pb.tensor((rng.standard_normal((WIDTH, WIDTH)) * scale).astype("f4"), requires_grad=True) for _ in range(2)
        )
        for _ in range(BLOCKS)
    ]
    return weights, pb.tensor(rng.standard_normal((BATCH, WIDTH)).astype("f4"))


def loss_of(weights, x):
    h = x
    for up, down in weights:
        h = h + pb.tanh(h @ up) @ down
    return pb.mean(h * h)


def train(weights, x):
    """The best time of a step."""
    times = []
    for _ in range(STEPS):
        begin = perf_counter()
        loss_of(weights, x).backward()
        with pb.no_grad():
            for pair in weights:
                for w in pair:
                    w -= 0.1 * w.grad
                    w.grad = None
        times.append(perf_counter() - begin)
    return min(times)


def measured(budget, live):
    """One process: (peak in bytes, seconds a step, digest of the parameters, what the budget says)."""
    tiny = pb.tensor(np.ones((64, WIDTH), "f4"), requires_grad=True)
    pb.mean(pb.tanh(tiny @ tiny.T) @ tiny).backward()  # libraries take what they need for themselves
    if live:
        tracemalloc.start()
    before = pb.memory.resident()
    weights, x = network()
    if budget == "none":
        seconds, said = train(weights, x), ""
    else:
        with pb.memory_budget(budget) as kept:
            seconds = train(weights, x)
        said = str(kept.report())
    digest = hashlib.sha256(b"".join(w.detach().numpy().tobytes() for pair in weights for w in pair)).hexdigest()
    peak = tracemalloc.get_traced_memory()[1] if live else pb.memory.peak_resident() - before
    return peak, seconds, digest, said


def in_a_process(budget, kind):
    command = [sys.executable, sys.argv[0], "--only", budget, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, seconds, digest, said = done.stdout.strip().split("|")
    return int(peak), float(seconds), digest, said


def main():
    options = start(__doc__)
    if options.only:
        budget, kind = options.only
        print(*measured(budget, kind == "live"), sep="|")
        return
    print(machine())
    print(f"{'budget':>10}{'live MiB':>12}{'resident MiB':>14}{'s a step':>10}{'slowdown':>10}  same bits")
    plain = None
    notes = []
    for budget in BUDGETS[:3] if options.quick else BUDGETS:
        live, _, _, _ = in_a_process(budget, "live")
        resident, seconds, digest, said = in_a_process(budget, "resident")
        plain = plain or (seconds, digest)
        row = f"{budget:>10}{live / MIB:12.0f}{resident / MIB:14.0f}{seconds:10.2f}{seconds / plain[0]:10.2f}"
        print(row + ("  yes" if digest == plain[1] else "  NO"))
        notes.append(said)
    print("\n".join(note for note in notes if note))


if __name__ == "__main__":
    main()

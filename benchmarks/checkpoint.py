"""Checkpoints: time and memory of a gradient with and without, beside PyTorch's; each measurement in its own process.

A chain of 50 layers tanh(h W + b), float32, batch 4,096 and width 256, in 5 segments; 1,024 steps of a state of 1.6 MB
in 32 segments. The limits for the chain: at least 60% less peak memory, at no more than 1.35 of the time. For the
steps: at most 110 MiB over what the process had before. Times are of the processor, which a busy machine spoils less.
"""

import resource
import subprocess
import sys
from time import process_time

import numpy as np
from contest import machine, start

LAYERS, BATCH, WIDTH = 50, 4096, 256
STEPS, STATE = 1024, 200_000
MiB = 2**20


def chain_data():
    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype("float32") for _ in range(LAYERS)]
    return rng.normal(size=(BATCH, WIDTH)).astype("float32"), weights


def our_chain(segments):
    import pullback as pb

    x, weights = chain_data()
    ws = [pb.tensor(w, requires_grad=True) for w in weights]
    bs = [pb.tensor(np.zeros(WIDTH, "float32"), requires_grad=True) for _ in weights]
    layers = [lambda h, w=w, b=b: pb.tanh(h @ w + b) for w, b in zip(ws, bs, strict=True)]

    def step():
        h = pb.tensor(x)
        if segments:
            h = pb.checkpoint_sequential(layers, h, segments=segments)
        else:
            for layer in layers:
                h = layer(h)
        for p in (*ws, *bs):
            p.grad = None
        pb.sum(h * h).backward()

    return step


def torch_chain(segments):
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    x, weights = chain_data()
    ws = [torch.tensor(w, requires_grad=True) for w in weights]
    bs = [torch.zeros(WIDTH, requires_grad=True) for _ in weights]
    layers = [lambda h, w=w, b=b: torch.tanh(h @ w + b) for w, b in zip(ws, bs, strict=True)]

    def step():
        h = torch.tensor(x)
        if segments:
            h = checkpoint_sequential(layers, segments, h, use_reentrant=False)
        else:
            for layer in layers:
                h = layer(h)
        for p in (*ws, *bs):
            p.grad = None
        (h * h).sum().backward()

    return step


def our_steps(segments):
    import pullback as pb

    x = pb.tensor(np.linspace(0, 1, STATE), requires_grad=True)

    def step():
        h = x
        if segments:
            h = pb.checkpoint_sequential([pb.tanh] * STEPS, h, segments=segments)
        else:
            for _ in range(STEPS):
                h = pb.tanh(h)
        x.grad = None
        pb.sum(h).backward()

    return step


def torch_steps(segments):
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    x = torch.linspace(0, 1, STATE, dtype=torch.float64, requires_grad=True)

    def step():
        h = x
        if segments:
            h = checkpoint_sequential([torch.tanh] * STEPS, segments, h, use_reentrant=False)
        else:
            for _ in range(STEPS):
                h = torch.tanh(h)
        x.grad = None
        h.sum().backward()

    return step


WORK = {
    ("chain", "pullback"): our_chain,
    ("chain", "PyTorch"): torch_chain,
    ("steps", "pullback"): our_steps,
    ("steps", "PyTorch"): torch_steps,
}


def warm_ours():
    import pullback as pb

    x = pb.tensor(np.ones((2, 2)), requires_grad=True)
    pb.sum(pb.checkpoint_sequential([lambda h: pb.tanh(h @ x)] * 4, x)).backward()


def warm_torch():
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    x = torch.ones((2, 2), requires_grad=True)
    checkpoint_sequential([lambda h: torch.tanh(h @ x)] * 4, 2, x, use_reentrant=False).sum().backward()


WARM = {"pullback": warm_ours, "PyTorch": warm_torch}
SEGMENTS = {"chain": 5, "steps": 32}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def measure(case, name, segments, repeats):
    """In this process: best time of a step, and by how much the resident set grew at most during the first one."""
    WARM[name]()  # what is loaded at first use is no memory of the step
    step = WORK[case, name](segments)
    before = resident()
    step()
    grown = peak() - before
    best = min(_timed(step) for _ in range(repeats))
    print(best, grown, _live(step) if name == "pullback" else 0)


def _timed(step):
    begin = process_time()
    step()
    return process_time() - begin


def _live(step):
    """The most bytes of arrays alive at once, which NumPy reports to tracemalloc."""
    import tracemalloc

    tracemalloc.start()
    step()
    return tracemalloc.get_traced_memory()[1]


def in_process(case, name, segments, repeats):
    command = [sys.executable, sys.argv[0], "--only", f"{case}:{name}:{segments}", str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(x) for x in done.stdout.split()]


def agree():
    """Second order through a checkpoint, to 1e-12 of plain."""
    import pullback as pb

    def f(h):
        for _ in range(6):
            h = pb.tanh(pb.sin(h) * 1.5)
        return pb.sum(h)

    x = np.linspace(-1, 1, 50)
    sides = [pb.hvp(g, (x,), (x,)) for g in (f, pb.checkpoint(f))]
    return float(np.abs(sides[0] - sides[1]).max() / np.abs(sides[0]).max())


def main():
    options = start(__doc__)
    if options.only:
        case, name, segments = options.only[0].split(":")
        measure(case, name, int(segments), int(options.only[1]))
        return
    print(machine())
    rounds = 1 if options.quick else 4
    for case in ("chain", "steps"):
        print(f"\n{case}: time, growth of the resident set, most bytes alive")
        for name in ("pullback", "PyTorch"):
            runs = {s: [in_process(case, name, s, 3) for _ in range(rounds)] for s in (0, SEGMENTS[case])}
            (plain, *_), (mine, *_) = ([min(column) for column in zip(*rows, strict=True)] for rows in runs.values())
            for label, segments in (("plain", 0), ("checkpoint", SEGMENTS[case])):
                time, grown, live = (min(column) for column in zip(*runs[segments], strict=True))
                shown = f"{live / MiB:8.0f} MiB" if live else ""
                print(f"  {name:10s}{label:12s}{time * 1e3:9.1f} ms{grown / MiB:9.1f} MiB{shown}")
            print(f"  {name:10s}{'ratio':12s}{mine / plain:9.2f}")
    print(f"\nsecond order, largest relative difference from plain: {agree():.1e}")


if __name__ == "__main__":
    main()

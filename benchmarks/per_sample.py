"""One gradient for each of 1,000 samples: `vmap(grad(f))` against a Python loop over `grad(f)`; float64.

The function is the squared error of a network with 5 inputs and 7 hidden units. The limit: 50 times
faster than the loop.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

SAMPLES = 1000
LIMITS = (Limit("a loop of grad", 1 / 50),)


def error(xp):
    def squared(p, x, y):
        hidden = xp.tanh(xp.matmul(x, p["w"]) + p["b"])
        rest = xp.matmul(hidden, p["v"]) - y
        return rest * rest

    return squared


def ours(p, x, y):
    each = pb.vmap(pb.grad(error(pb)), (None, 0, 0))
    return lambda: list(each(p, x, y).values())


def loop(p, x, y):
    one = pb.grad(error(pb))

    def step():
        found = [one(p, *pair) for pair in zip(x, y, strict=True)]
        return [np.stack([g[name] for g in found]) for name in p]

    return step


def pytorch(p, x, y):
    import torch

    each = torch.func.vmap(torch.func.grad(error(torch)), (None, 0, 0))
    p, x, y = {k: torch.tensor(v) for k, v in p.items()}, torch.tensor(x), torch.tensor(y)
    return lambda: list(each(p, x, y).values())


MAKERS = {OURS: ours, "a loop of grad": loop, "PyTorch": pytorch}


def main():
    options = start(__doc__)
    print(machine())
    rng = np.random.default_rng(0)
    p = {"b": rng.normal(size=7), "v": rng.normal(size=7), "w": rng.normal(size=(5, 7))}
    steps = gather(MAKERS, p, rng.normal(size=(SAMPLES, 5)), rng.normal(size=SAMPLES))
    check_agreement(steps, tolerance=1e-9)
    report(f"gradients of {SAMPLES} samples", race(steps, seconds=3 if options.quick else 15), LIMITS)


if __name__ == "__main__":
    main()

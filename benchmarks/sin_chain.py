"""`sin(h)*1.01` fifty times, sum, gradient by h; float64, 1 element (as a vector and 0-d) and 100.

The limits: under half of PyTorch's time and under a third of HIPS autograd's.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

STEPS = 50
SHAPES = {"1 element, shape (1,)": (1,), "1 element, 0-d": (), "100 elements": (100,)}
LIMITS = Limit("PyTorch", 1 / 2), Limit("HIPS autograd", 1 / 3)


def ours(array):
    h0 = pb.tensor(array, requires_grad=True)

    def step():
        h = h0
        for _ in range(STEPS):
            h = pb.sin(h) * 1.01
        return pb.gradients(pb.sum(h), (h0,))

    return step


def by_hand(h0):
    def step():
        kept, h = [], h0
        for _ in range(STEPS):
            kept.append(h)
            h = np.sin(h) * 1.01
        np.sum(h)
        g = np.ones_like(h0)
        for h in reversed(kept):
            g = g * 1.01 * np.cos(h)
        return [g]

    return step


def pytorch(array):
    import torch

    h0 = torch.tensor(array, requires_grad=True)

    def step():
        h = h0
        for _ in range(STEPS):
            h = torch.sin(h) * 1.01
        return torch.autograd.grad(h.sum(), (h0,))

    return step


def hips_autograd(array):
    import autograd
    import autograd.numpy as anp

    def chain(h):
        for _ in range(STEPS):
            h = anp.sin(h) * 1.01
        return anp.sum(h)

    gradient = autograd.grad(chain)
    return lambda: [gradient(array)]


MAKERS = {OURS: ours, "NumPy by hand": by_hand, "PyTorch": pytorch, "HIPS autograd": hips_autograd}


def main():
    options = start(__doc__)
    print(machine())
    for label, shape in SHAPES.items():
        steps = gather(MAKERS, np.asarray(np.random.default_rng(0).normal(size=shape)))
        check_agreement(steps, tolerance=1e-9)
        times = race(steps, seconds=1 if options.quick else 8)
        report(f"sin chain, {label}, float64", times, LIMITS, reference="NumPy by hand")


if __name__ == "__main__":
    main()

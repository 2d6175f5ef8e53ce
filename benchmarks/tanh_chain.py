"""`h = tanh(h*w + x)` a hundred times, sum, gradients by h, w and x; 8, 1,000 and 100,000 float32 elements.

The limits: 2.5, 1.8 and 1.3 times faster than PyTorch eager; 2.2, 1.4 and 1.05 times the time of the same derivative
written by hand in NumPy. Each size is measured twice: all in one process, and each contestant in a process of its own.
"""

import numpy as np
from contest import OURS, Limit, alone, check_agreement, gather, machine, race, report, start

import pullback as pb

STEPS = 100
HAND = "NumPy by hand"
LIMITS = {
    8: (Limit("PyTorch", 1 / 2.5), Limit(HAND, 2.2)),
    1_000: (Limit("PyTorch", 1 / 1.8), Limit(HAND, 1.4)),
    100_000: (Limit("PyTorch", 1 / 1.3), Limit(HAND, 1.05)),
}


def ours(*arrays):
    h0, w, x = leaves = [pb.tensor(array, requires_grad=True) for array in arrays]

    def step():
        h0.grad = w.grad = x.grad = None
        h = h0
        for _ in range(STEPS):
            h = pb.tanh(h * w + x)
        pb.sum(h).backward()
        return [leaf.grad for leaf in leaves]

    return step


def by_hand(h0, w, x):
    """The derivative anyone would write: keep each h, walk back."""

    def step():
        kept = [h0]
        for _ in range(STEPS):
            kept.append(np.tanh(kept[-1] * w + x))
        kept[-1].sum()
        g, gw, gx = np.ones_like(h0), np.zeros_like(w), np.zeros_like(x)
        for k in range(STEPS, 0, -1):
            h = kept[k]
            g = g * (1 - h * h)
            gx += g
            gw += g * kept[k - 1]
            g = g * w
        return [g, gw, gx]

    return step


def pytorch(*arrays):
    import torch

    h0, w, x = leaves = [torch.tensor(array, requires_grad=True) for array in arrays]

    def step():
        h0.grad = w.grad = x.grad = None
        h = h0
        for _ in range(STEPS):
            h = torch.tanh(h * w + x)
        h.sum().backward()
        return [leaf.grad for leaf in leaves]

    return step


def hips_autograd(*arrays):
    import autograd
    import autograd.numpy as anp

    def chain(h, w, x):
        for _ in range(STEPS):
            h = anp.tanh(h * w + x)
        return anp.sum(h)

    gradient = autograd.grad(chain, (0, 1, 2))
    return lambda: gradient(*arrays)


def jax_eager(*arrays):
    import jax

    def chain(h, w, x):
        for _ in range(STEPS):
            h = jax.numpy.tanh(h * w + x)
        return jax.numpy.sum(h)

    gradient = jax.grad(chain, (0, 1, 2))
    arrays = [jax.numpy.asarray(array) for array in arrays]
    return lambda: jax.block_until_ready(gradient(*arrays))


MAKERS = {OURS: ours, HAND: by_hand, "PyTorch": pytorch, "HIPS autograd": hips_autograd, "JAX eager": jax_eager}


def arrays_of(size):
    rng = np.random.default_rng(0)
    return [rng.normal(size=size).astype(np.float32) for _ in range(3)]


def main():
    options = start(__doc__)
    if options.only:
        name, size = options.only
        print(race({name: MAKERS[name](*arrays_of(int(size)))}, seconds=1)[name])
        return
    print(machine())
    for size, limits in LIMITS.items():
        title = f"tanh chain, {size:,} elements, float32"
        steps = gather(MAKERS, *arrays_of(size))
        check_agreement(steps, tolerance=1e-3)
        times = race(steps, seconds=2 if options.quick else 15)
        report(f"{title}, in one process", times, limits, reference=HAND)
        times = alone(list(steps), str(size), rounds=1 if options.quick else 4)
        report(f"{title}, each in its own process", times, limits, reference=HAND)


if __name__ == "__main__":
    main()

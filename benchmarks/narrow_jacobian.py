"""The Jacobian of an encoder and decoder that meets in 5 numbers, from 1,000 to 1,000, float64; and a batch in chunks.

One mode needs a thousand directions all the way; the product of both sides needs five on each. Peers have no such
mode: theirs are forward and reverse.
"""

from itertools import pairwise

import numpy as np
from contest import OURS, burst, check_agreement, gather, machine, race, report, start

import pullback as pb

RNG = np.random.default_rng(0)
SIZES = (1000, 64, 5, 64, 1000)
WEIGHTS = [RNG.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(SIZES)]


def coder(xp, weights):
    """The same text for each contestant; `xp` is its library."""

    def f(x):
        for w in weights:
            x = xp.tanh(w @ x)
        return x

    return f


def ours(make, point):
    found = make(coder(pb, WEIGHTS))
    return lambda: [found(point)]


def jax(make, point):
    import jax

    jax.config.update("jax_enable_x64", True)
    found = jax.jit(getattr(jax, make)(coder(jax.numpy, [jax.numpy.asarray(w) for w in WEIGHTS])))
    x = jax.numpy.asarray(point)
    return lambda: [found(x).block_until_ready()]


def pytorch(make, point):
    import torch

    found = getattr(torch.func, make)(coder(torch, [torch.tensor(w) for w in WEIGHTS]))
    x = torch.tensor(point)
    return lambda: [found(x)]


MAKERS = {
    OURS: lambda point: ours(pb.jacobian, point),
    f"{OURS}, forward": lambda point: ours(pb.jacfwd, point),
    f"{OURS}, reverse": lambda point: ours(pb.jacrev, point),
    f"{OURS}, jit": lambda point: ours(lambda f: pb.jit(pb.jacobian(f)), point),
    f"{OURS}, jit, forward": lambda point: ours(lambda f: pb.jit(pb.jacfwd(f)), point),
    f"{OURS}, jit, reverse": lambda point: ours(lambda f: pb.jit(pb.jacrev(f)), point),
    "JAX with jit, jacfwd": lambda point: jax("jacfwd", point),
    "JAX with jit, jacrev": lambda point: jax("jacrev", point),
    "PyTorch, jacfwd": lambda point: pytorch("jacfwd", point),
    "PyTorch, jacrev": lambda point: pytorch("jacrev", point),
}


def chunks() -> str:
    """Peak bytes of a batch of 512 outer products, all at once and 32 at a time."""
    x = RNG.normal(size=(512, 300))
    lines = []
    for size in (None, 32):
        with pb.memory.profile() as seen:
            pb.vmap(lambda v: pb.sum(pb.tanh(v[:, None] * v[None, :])), chunk_size=size)(x)
        lines.append(f"vmap of 512 outer products, chunk_size={size}: peak {seen.peak / 2**20:.1f} MiB")
    return "\n".join(lines)


def main():
    options = start(__doc__)
    point = RNG.normal(size=SIZES[0])
    if options.only:
        print(min(burst(MAKERS[options.only[0]](point)) for _ in range(20)))
        return
    print(machine())
    steps = gather(MAKERS, point)
    check_agreement(steps, tolerance=1e-9)
    report("Jacobian of 1,000 -> 64 -> 5 -> 64 -> 1,000", race(steps, seconds=2 if options.quick else 15), ())
    pb.jacobian(coder(pb, WEIGHTS), explain=True)(point)
    print(chunks())


if __name__ == "__main__":
    main()

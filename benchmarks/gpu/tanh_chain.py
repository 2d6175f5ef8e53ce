"""`h = tanh(h*w + x)` a hundred times, sum, gradients by h, w and x; 8, 1,000 and 1e6 float32 elements."""

from functools import partial

import numpy as np
from arena import Workload, main

import pullback as pb

STEPS = 100


def data(small, size):
    rng = np.random.default_rng(0)
    return ([rng.random(min(size, 1000) if small else size).astype("f4") for _ in range(3)],)


def chain(xp, parameters):
    h, w, x = parameters
    for _ in range(STEPS):
        h = xp.tanh(h * w + x)
    return xp.sum(h)


def in_torch():
    import torch

    return partial(chain, torch)


def in_jax():
    import jax.numpy

    return partial(chain, jax.numpy)


def row(size, must_reach, eager_ratio=None):
    title = f"tanh chain with gradient, {size:,} elements"
    make = partial(data, size=size)
    return Workload(
        f"chain {size}", title, make, partial(chain, pb), in_torch, in_jax, must_reach, eager_ratio, tolerance=1e-3
    )


ROWS = (row(8, 13, 1 / 1.4), row(1_000, 13), row(1_000_000, 125))

if __name__ == "__main__":
    main(__doc__, ROWS)

"""A training step of perceptrons with gelu and a squared error: 784-256-128-10, batch 64, float32; and three layers of
4096, batch 4096, bfloat16.
"""

import math
from functools import partial
from itertools import pairwise

import ml_dtypes
import numpy as np
from arena import Workload, main

import pullback as pb


def data(small, sizes, batch, dtype):
    rng = np.random.default_rng(0)
    if small and max(sizes) > 1000:
        sizes, batch = [size // 64 for size in sizes], batch // 64
    weights = [rng.standard_normal(pair) / math.sqrt(pair[0]) for pair in pairwise(sizes)]
    biases = [np.zeros(size) for size in sizes[1:]]
    x, y = rng.standard_normal((batch, sizes[0])), rng.standard_normal((batch, sizes[-1]))
    return [a.astype(dtype) for a in (*weights, *biases)], x.astype(dtype), y.astype(dtype)


def perceptron(gelu, mean, parameters, x, y):
    layers = len(parameters) // 2
    h = x
    for i, (w, b) in enumerate(zip(parameters[:layers], parameters[layers:], strict=True)):
        h = h @ w + b
        if i < layers - 1:
            h = gelu(h)
    return mean((h - y) ** 2)


def in_torch():
    import torch

    return partial(perceptron, torch.nn.functional.gelu, torch.mean)


def in_jax():
    import jax

    return partial(perceptron, partial(jax.nn.gelu, approximate=False), jax.numpy.mean)


OURS = partial(perceptron, pb.gelu, pb.mean)
ROWS = (
    Workload(
        "mlp",
        "MLP 784-256-128-10, batch 64, float32 step",
        partial(data, sizes=(784, 256, 128, 10), batch=64, dtype=np.float32),
        OURS,
        in_torch,
        in_jax,
        must_reach=30,
        eager_ratio=1.0,
        rate=1e-3,
    ),
    Workload(
        "bf16 mlp",
        "MLP 4096 x3, batch 4096, bfloat16 step",
        partial(data, sizes=(4096,) * 4, batch=4096, dtype=ml_dtypes.bfloat16),
        OURS,
        in_torch,
        in_jax,
        must_reach=1600,
        rate=1e-3,
        tolerance=5e-2,
        watches_median=True,
    ),
)

if __name__ == "__main__":
    main(__doc__, ROWS)

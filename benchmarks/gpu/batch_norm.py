"""A residual block with batch norm in training, 32 x 64 x 56 x 56: loss and gradients by its weights and its input."""

from functools import partial

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    batch, channels, size = (2, 8, 8) if small else (32, 64, 56)
    x = rng.standard_normal((batch, channels, size, size), dtype="f4")
    filters = [rng.standard_normal((channels, channels, 3, 3), dtype="f4") / np.float32(24) for _ in range(2)]
    ones, zeros = np.ones(channels, "f4"), np.zeros(channels, "f4")
    return ([x, *filters, ones, zeros, ones, zeros],)


def block(conv, norm, relu, mean, parameters):
    x, w1, w2, scale1, shift1, scale2, shift2 = parameters
    h = relu(norm(conv(x, w1), scale1, shift1))
    h = relu(norm(conv(h, w2), scale2, shift2) + x)
    return mean(h * h)


def norm_ours(h, scale, shift):
    return pb.nn.batch_norm(h, None, None, scale, shift, training=True)[0]


def in_torch():
    import torch
    from torch.nn import functional

    def norm(h, scale, shift):
        return functional.batch_norm(h, None, None, scale, shift, training=True)

    return partial(block, partial(functional.conv2d, padding=1), norm, torch.relu, torch.mean)


def in_jax():
    import jax
    import jax.numpy as jnp

    def norm(h, scale, shift):
        mean, var = h.mean((0, 2, 3), keepdims=True), h.var((0, 2, 3), keepdims=True)
        return (h - mean) * jax.lax.rsqrt(var + 1e-5) * scale[:, None, None] + shift[:, None, None]

    def conv(h, w):
        return jax.lax.conv(h, w, (1, 1), "SAME")

    return partial(block, conv, norm, jax.nn.relu, jnp.mean)


OURS = partial(block, partial(pb.nn.conv2d, padding=1), norm_ours, pb.relu, pb.mean)
ROWS = (Workload("batch norm", "batch norm ResNet block 32x64x56x56", data, OURS, in_torch, in_jax, tolerance=3e-2),)

if __name__ == "__main__":
    main(__doc__, ROWS)

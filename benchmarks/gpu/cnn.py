"""A training step of a small convolutional network, batch 32: the workload of `../cnn.py`."""

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    shapes = ((32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (64 * 7 * 7, 10), (10,))
    scales = (0.3, 0.0, 0.06, 0.0, 0.02, 0.0)
    params = [(scale * rng.normal(size=shape)).astype("f4") for shape, scale in zip(shapes, scales, strict=True)]
    return params, rng.normal(size=(32, 1, 28, 28)).astype("f4"), rng.integers(0, 10, 32)


def ours(params, x, labels):
    w1, b1, w2, b2, w3, b3 = params
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(x, w1, b1, padding=1)), 2)
    h = pb.nn.max_pool2d(pb.relu(pb.nn.conv2d(h, w2, b2, padding=1)), 2)
    return pb.nn.cross_entropy(pb.reshape(h, (len(x), -1)) @ w3 + b3, labels)


def in_torch():
    import torch
    from torch.nn import functional

    def loss(params, x, labels):
        w1, b1, w2, b2, w3, b3 = params
        h = functional.max_pool2d(torch.relu(functional.conv2d(x, w1, b1, padding=1)), 2)
        h = functional.max_pool2d(torch.relu(functional.conv2d(h, w2, b2, padding=1)), 2)
        return functional.cross_entropy(h.reshape(len(x), -1) @ w3 + b3, labels)

    return loss


def in_jax():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def conv(h, w, b):
        return lax.conv(h, w, (1, 1), "SAME") + b[:, None, None]

    def pool(h):
        return lax.reduce_window(h, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss(params, x, labels):
        w1, b1, w2, b2, w3, b3 = params
        h = pool(jax.nn.relu(conv(x, w1, b1)))
        h = pool(jax.nn.relu(conv(h, w2, b2)))
        z = h.reshape(len(x), -1) @ w3 + b3
        return (jax.nn.logsumexp(z, axis=1) - z[jnp.arange(len(x)), labels]).mean()

    return loss


ROWS = (Workload("cnn", "small CNN, batch 32", data, ours, in_torch, in_jax, must_reach=125, rate=1e-3),)

if __name__ == "__main__":
    main(__doc__, ROWS)

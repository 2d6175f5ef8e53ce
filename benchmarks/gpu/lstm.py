"""An LSTM of 128 steps, batch 64, 128 features to 256 hidden, float32: a loss and gradients by all weights."""

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    steps, batch, features, hidden = (16, 8, 16, 32) if small else (128, 64, 128, 256)
    shapes = ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,))
    weights = [(rng.normal(size=shape) * 0.1).astype("f4") for shape in shapes]
    return weights, rng.normal(size=(steps, batch, features)).astype("f4")


def ours(weights, x):
    hs, _ = pb.nn.lstm(x, *weights)
    return pb.sum(hs * hs)


def in_torch():
    """The vendor's fused layer, which is the best PyTorch has."""
    import torch

    def loss(weights, x):
        w, u, b = weights
        zero = torch.zeros(1, x.shape[1], u.shape[1], device=x.device)
        biases = [b, torch.zeros_like(b)]
        hs, _, _ = torch.lstm(x, (zero, zero), [w, u, *biases], True, 1, 0.0, True, False, False)
        return (hs * hs).sum()

    return loss


def in_jax():
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        w, u, b = weights
        zero = jnp.zeros((x.shape[1], u.shape[1]), x.dtype)

        def step(state, at):
            h, c = state
            i, f, g, o = jnp.split(at + h @ u.T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        hs = jax.lax.scan(step, (zero, zero), x @ w.T + b)[1]
        return jnp.sum(hs * hs)

    return loss


ROWS = (Workload("lstm", "LSTM 128 steps, batch 64, 128 to 256", data, ours, in_torch, in_jax),)

if __name__ == "__main__":
    main(__doc__, ROWS)

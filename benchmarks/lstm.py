"""An LSTM over sequences, loss and gradients by all weights: float32, 64 steps, batch 16, 32 features, 64 hidden; and
128 steps, batch 64, 128 features, 256 hidden.

The limit: compiled, a third of PyTorch's time for the same cell in a loop. PyTorch's own fused layer is beside it.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

SIZES = {"64 steps, batch 16, 32 to 64": (64, 16, 32, 64), "128 steps, batch 64, 128 to 256": (128, 64, 128, 256)}
EAGER = "pullback, eager"
LIMITS = (Limit("PyTorch, a loop", 1 / 3),)


def data(steps, batch, features, hidden):
    rng = np.random.default_rng(0)
    shapes = ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,))
    weights = [(rng.normal(size=s) * 0.1).astype(np.float32) for s in shapes]
    return weights, rng.normal(size=(steps, batch, features)).astype(np.float32)


def loss(weights, x):
    hs, _ = pb.nn.lstm(x, *weights)
    return pb.sum(hs * hs)


def compiled(weights, x):
    step = pb.jit(pb.grad(loss))
    return lambda: step(weights, x)


def eager(weights, x):
    step = pb.grad(loss)
    return lambda: step(weights, x)


def jax_scan(weights, x):
    import jax
    import jax.numpy as jnp

    hidden = weights[1].shape[1]

    def total(weights, x):
        w, u, b = weights
        zero = jnp.zeros((x.shape[1], hidden), jnp.float32)

        def step(state, at):
            h, c = state
            i, f, g, o = jnp.split(at + h @ u.T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        hs = jax.lax.scan(step, (zero, zero), x @ w.T + b)[1]
        return jnp.sum(hs * hs)

    step = jax.jit(jax.grad(total))
    weights, x = [jnp.asarray(w) for w in weights], jnp.asarray(x)
    return lambda: jax.block_until_ready(step(weights, x))


def torch_loop(weights, x):
    import torch

    torch.set_num_threads(1)
    w, u, b = (torch.tensor(a, requires_grad=True) for a in weights)
    x = torch.tensor(x)

    def run():
        h = c = torch.zeros(x.shape[1], u.shape[1])
        hs = []
        for at in (x @ w.T + b).unbind():
            i, f, g, o = (at + h @ u.T).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            hs.append(h)
        return torch.autograd.grad((torch.stack(hs) ** 2).sum(), (w, u, b))

    return run


def torch_layer(weights, x):
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.LSTM(x.shape[2], weights[1].shape[1])
    with torch.no_grad():
        for p, a in zip(layer.parameters(), [*weights, np.zeros_like(weights[2])], strict=True):
            p.copy_(torch.tensor(a))
    parameters, x = list(layer.parameters())[:3], torch.tensor(x)

    def run():
        hs, _ = layer(x)
        return torch.autograd.grad((hs * hs).sum(), parameters)

    return run


MAKERS = {
    OURS: compiled, EAGER: eager, "jax.jit": jax_scan, "PyTorch, a loop": torch_loop, "torch.nn.LSTM": torch_layer,
}  # fmt: skip

if __name__ == "__main__":
    options = start(__doc__)
    print(machine())
    for title, sizes in SIZES.items():
        steps = gather(MAKERS, *data(*sizes))
        check_agreement(steps, 2e-3)
        report(f"LSTM, {title}", race(steps, 3 if options.quick else 20), LIMITS)

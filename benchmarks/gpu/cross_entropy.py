"""Cross-entropy of 4096 x 32000 logits with its gradient: bound by memory."""

import numpy as np
from arena import Workload, main

import pullback as pb


def data(small):
    rng = np.random.default_rng(0)
    rows, classes = (64, 3200) if small else (4096, 32000)
    return [rng.standard_normal((rows, classes), dtype="f4")], rng.integers(0, classes, rows)


def ours(parameters, labels):
    return pb.nn.cross_entropy(parameters[0], labels)


def in_torch():
    from torch.nn import functional

    return lambda parameters, labels: functional.cross_entropy(parameters[0], labels)


def in_jax():
    import jax
    import jax.numpy as jnp

    def loss(parameters, labels):
        logs = jax.nn.log_softmax(parameters[0])
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    return loss


TITLE = "cross-entropy 4096 x 32000, with gradient"
ROWS = (Workload("entropy", TITLE, data, ours, in_torch, in_jax, must_reach=300, tolerance=1e-4),)

if __name__ == "__main__":
    main(__doc__, ROWS)

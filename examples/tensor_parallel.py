"""Divides one layer among ranks: each has some of its hidden units, and the sum over ranks is the layer's result.

The first matrix is divided by columns and the second by rows, so that a rank computes its hidden units by itself; two
collectives a block are all that ranks exchange, `shared` in front (which sends nothing) and `total` behind, and in the
backward pass the other way round.

Run it with: python examples/tensor_parallel.py              (ranks are threads of one process)
or with:     pullback run -n 4 examples/tensor_parallel.py   (ranks are processes)
"""

import numpy as np

import pullback as pb
from pullback import distributed, optim


def block(x, w, v):
    """A residual block of this rank's hidden units: columns of the first matrix, rows of the second."""
    return x + distributed.total(pb.tanh(distributed.shared(x) @ w) @ v)


def predict(layers, x):
    for w, v in layers:
        x = block(x, w, v)
    return x


def own_part(layers):
    """This rank's columns and rows of whole matrices."""
    return [(distributed.part(w, axis=1), distributed.part(v, axis=0)) for w, v in layers]


def main(steps: int = 120, ranks: int = 4) -> float:
    random = np.random.default_rng(0)
    whole = [(random.normal(size=(6, 16)) / 2, random.normal(size=(16, 6)) / 8) for _ in range(2)]
    x = random.normal(size=(64, 6))
    y = np.sin(x[:, ::-1]) * np.abs(x)
    rule = optim.adam(0.02)

    def loss(layers):
        return pb.mean((predict(layers, x) - y) ** 2)

    def train():
        step = pb.jit(pb.value_and_grad(loss))
        layers = own_part(whole)
        state, values, first = rule.init(layers), [], pb.grad(loss)(layers)
        for _ in range(steps):
            value, gradients = step(layers)
            updates, state = rule.update(gradients, state, layers)
            layers = optim.apply_updates(layers, updates)
            values.append(float(value))
        return values, first

    alone, gradients = train()
    distributed.init()  # does nothing where no launcher started this process
    if distributed.is_initialized():
        ranks = distributed.world_size()
        results = {distributed.rank(): train()}
    else:
        results = dict(enumerate(distributed.run(train, ranks)))
    for rank, (values, first) in results.items():
        assert np.allclose(values, alone, rtol=1e-9)
        for (w, v), (dw, dv) in zip(gradients, first, strict=True):
            assert np.allclose(np.split(w, ranks, axis=1)[rank], dw, atol=1e-12)
            assert np.allclose(np.split(v, ranks, axis=0)[rank], dv, atol=1e-12)
    if distributed.rank() == 0:
        print(
            f"loss {alone[0]:.4f} to {alone[-1]:.4f}; on {ranks} ranks, each with {16 // ranks} of 16 units: the same"
        )
    assert alone[-1] < 0.3 * alone[0]
    return alone[-1]


if __name__ == "__main__":
    main()

"""Sends micro-batches through a chain of layers, one layer a rank: `shift` inside `scan`, differentiated as it stands.

In each tick every rank applies its layer to what came from the rank before, and sends the result on. The first rank
takes in a new micro-batch, the last one has a finished one. The backward pass of the scan is the pipeline run in the
other direction: the transpose of `shift` sends cotangents back.

Run it with: python examples/pipeline.py              (ranks are threads of one process)
or with:     pullback run -n 4 examples/pipeline.py   (ranks are processes)
"""

import numpy as np

import pullback as pb
from pullback import distributed, optim


def run_pipeline(w, batches):
    """What the last rank has finished, for each micro-batch; other ranks have other things in these places."""
    stages, rank, count = distributed.world_size(), distributed.rank(), len(batches)
    fill = np.zeros((stages - 1, *batches.shape[1:]))  # ticks until the last rank has its first micro-batch

    def tick(came, new):
        here = pb.where(rank == 0, new, came)
        done = pb.tanh(here @ w)
        return distributed.shift(done), done

    _, finished = pb.scan(tick, np.zeros(batches.shape[1:]), np.concatenate([batches, fill]))
    return finished[stages - 1 :] if count else finished


def main(steps: int = 80, ranks: int = 4) -> float:
    distributed.init()  # does nothing where no launcher started this process
    ranks = distributed.world_size() if distributed.is_initialized() else ranks
    random = np.random.default_rng(0)
    layers = random.normal(size=(ranks, 5, 5)) / 2
    batches = random.normal(size=(8, 16, 5))
    target = np.tanh(batches @ (random.normal(size=(5, 5)) / 2))
    rule = optim.adam(0.03)

    def serial_loss(layers):
        h = batches
        for w in layers:
            h = pb.tanh(h @ w)
        return pb.mean((h - target) ** 2)

    def loss(w):
        """The error of the last rank's results, as a value that all ranks have in common."""
        is_last = distributed.rank() == distributed.world_size() - 1
        errors = pb.mean((run_pipeline(w, batches) - target) ** 2)
        return distributed.total(errors * is_last)

    def train():
        w = layers[distributed.rank()]
        step = pb.jit(pb.value_and_grad(loss))
        state, values, first = rule.init(w), [], pb.grad(loss)(w)
        for _ in range(steps):
            value, gradient = step(w)
            updates, state = rule.update(gradient, state, w)
            w = optim.apply_updates(w, updates)
            values.append(float(value))
        return values, first

    if distributed.is_initialized():
        results = {distributed.rank(): train()}
    else:
        results = dict(enumerate(distributed.run(train, ranks)))
    wanted = pb.grad(serial_loss)(layers)
    worst = max(float(np.abs(first - wanted[r]).max()) for r, (_, first) in results.items())
    values = results[distributed.rank()][0]
    if distributed.rank() == 0:
        print(f"gradients of {ranks} stages against the whole chain: {worst:.1e}")
        print(f"loss {values[0]:.4f} to {values[-1]:.4f}")
    assert worst < 1e-12
    assert values[-1] < 0.5 * values[0]
    return values[-1]


if __name__ == "__main__":
    main()

"""Trains a network on digits by several ranks, each with a part of every batch, and gets the bits of training by one.

Run it with: python examples/data_parallel.py              (ranks are threads of one process)
or with:     pullback run -n 4 examples/data_parallel.py   (ranks are processes, which share the work)
"""

import numpy as np

import pullback as pb
from pullback import distributed, optim


def error(params, images, labels):
    """The sum of the errors of some samples, and how many they are."""
    hidden = pb.nn.relu(images @ params["w1"] + params["b1"])
    scores = hidden @ params["w2"] + params["b2"]
    return pb.nn.cross_entropy(scores, labels, reduction="sum"), len(images)


def make_params():
    random = np.random.default_rng(0)
    shapes = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
    return {name: (random.normal(size=s) / 8 * (len(s) == 2)).astype("float32") for name, s in shapes.items()}


def train(epochs: int):
    """Parameters after training, and the loss of each step: one script for any number of ranks."""
    images, labels = pb.data.digits()
    loss = distributed.data_parallel(error, slices=8)  # sums over eight pieces: the same bits on 1, 2, 4 or 8 ranks
    rule = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2))

    @pb.jit
    def step(params, state, *batch):
        value, gradients = pb.value_and_grad(loss)(params, *batch)
        updates, state = rule.update(gradients, state, params)
        return optim.apply_updates(params, updates), state, value

    params, losses = make_params(), []
    state = rule.init(params)
    for _ in range(epochs):
        for batch in distributed.batches((images[:1536], labels[:1536]), 128):
            params, state, value = step(params, state, *batch)
            losses.append(float(value))
    return params, losses


def main(epochs: int = 12, ranks: int = 4) -> float:
    distributed.init()  # does nothing where no launcher started this process
    if distributed.is_initialized():
        results = [train(epochs)]
        distributed.check_replicas(results[0][0])
    else:
        results = distributed.run(lambda: train(epochs), ranks)
    params, losses = results[0]
    images, labels = pb.data.digits()
    scores = pb.nn.relu(images[1536:] @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
    right = float((scores.argmax(1) == labels[1536:]).mean())
    if distributed.rank() == 0:
        print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {right:.1%} of held-out digits are read")
    if not distributed.is_initialized():
        alone, _ = train(epochs)
        same = all(np.array_equal(alone[name], p[name]) for p, _ in results for name in alone)
        print(f"{ranks} ranks and one have the same bits: {same}")
        assert same
    assert right > 0.88
    return right


if __name__ == "__main__":
    main()

"""Trains a network that learns a new task in five steps: training differentiated through training.

Each task is a sine wave seen at ten points. The inner learner is an optimizer of `pb.optim`, and its rules are made of
ops: so the loss after five of its steps has a gradient by the weights it started from, and by its learning rates, which
are learned as well. `vmap` runs all tasks of a batch together, `jit` makes inner training, the backward pass through
it and the outer step one native call.

Run it with: python examples/maml.py
"""

import itertools

import numpy as np

import pullback as pb


def network(layers, x):
    for w, b in layers[:-1]:
        x = pb.tanh(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def loss(layers, x, y):
    return pb.nn.mse_loss(network(layers, x), y)


def adapted(meta, x, y, steps):
    """The weights after a few steps of gradient descent with momentum on one task."""
    layers = meta["layers"]
    rule = pb.optim.sgd(pb.exp(meta["log_rate"]), momentum=0.5)
    state = rule.init(layers)
    for _ in range(steps):
        updates, state = rule.update(pb.grad(loss)(layers, x, y), state, layers)
        layers = pb.optim.apply_updates(layers, updates)
    return layers


def after_training(meta, task, steps=5):
    """The loss on points of the task that the inner training has not seen."""
    x, y, unseen, wanted = task
    return loss(adapted(meta, x, y, steps), unseen, wanted)


def meta_loss(meta, tasks, steps=5):
    return pb.mean(pb.vmap(lambda task: after_training(meta, task, steps))(tasks))


def draw_tasks(random, count, points=10):
    amplitude, phase = random.uniform(0.5, 3.0, (count, 1, 1)), random.uniform(0.0, np.pi, (count, 1, 1))
    x, unseen = random.uniform(-5.0, 5.0, (2, count, points, 1))
    return tuple(a for p in (x, unseen) for a in (p, amplitude * np.sin(p - phase)))


def main(steps: int = 1200, width: int = 32) -> float:
    random = np.random.default_rng(0)
    sizes = (1, width, width, 1)
    layers = [(random.normal(size=(m, n)) / np.sqrt(m), np.zeros(n)) for m, n in itertools.pairwise(sizes)]
    meta = {"layers": layers, "log_rate": np.log(0.02)}
    test = draw_tasks(random, 200)

    rule = pb.optim.chain(pb.optim.clip_by_global_norm(10.0), pb.optim.adam(pb.optim.schedules.cosine(5e-3, steps)))
    state = rule.init(meta)

    @pb.jit
    def step(meta, state, tasks):
        value, slopes = pb.value_and_grad(meta_loss)(meta, tasks)
        updates, state = rule.update(slopes, state, meta)
        return value, pb.optim.apply_updates(meta, updates), state

    fresh = float(meta_loss(meta, test))
    print(" step  loss after five inner steps")
    for i in range(steps + 1):
        value, meta, state = step(meta, state, draw_tasks(random, 16))
        if i % (steps // 5) == 0:
            print(f"{i:5d}  {value:.4f}")
    print(f"\nnew tasks, untrained network: {fresh:.3f} after five steps")
    errors = [float(meta_loss(meta, test, inner)) for inner in range(6)]
    for inner, error in enumerate(errors):
        print(f"           trained network: {error:.3f} after {inner} steps")
    print(f"learning rate it chose for itself: {np.exp(meta['log_rate']):.3f}")
    assert errors[5] < 0.5 * min(fresh, errors[0])
    return errors[5]


if __name__ == "__main__":
    main()

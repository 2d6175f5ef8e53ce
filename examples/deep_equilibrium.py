"""Classifies handwritten digits with one hidden layer that is an equation: z = tanh(W z + U x + b).

Such a layer is as deep as it needs to be, and training it takes the memory of one step: the backward pass
differentiates the equation. W is kept a contraction, so there is one solution and it can be found. The step is
compiled: the search for z, the linear solve of the backward pass and the optimizer are one native program, loops
included.

Run it with: python examples/deep_equilibrium.py
"""

import numpy as np

import pullback as pb
from pullback.data import digits

WIDTH = 48
DERIVATIVE = pb.implicit.Implicit(adjoint=pb.implicit.GMRES(restart=10), tol=1e-3)


def contraction(V):
    """V scaled so that no row of absolute values sums to more than 0.9."""
    rows = pb.sum(pb.abs(V), axis=1, keepdims=True)
    return 0.9 * V / pb.maximum(rows, 1.0)


def layer(z, W, injected):
    return pb.tanh(z @ W.T + injected)


def scores(model, x):
    start = np.zeros((len(x), WIDTH), np.float32)
    injected = pb.nn.linear(x, model["U"], model["b"])
    z = pb.fixed_point(layer, start, contraction(model["V"]), injected, tol=1e-4, derivative=DERIVATIVE)
    return pb.nn.linear(z, model["R"], model["c"])


def loss(model, x, labels):
    return pb.nn.cross_entropy(scores(model, x), labels)


def new_model(random):
    shapes = {"V": (WIDTH, WIDTH), "U": (WIDTH, 64), "b": (WIDTH,), "R": (10, WIDTH), "c": (10,)}
    return {name: (random.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32) for name, shape in shapes.items()}


def main(epochs: int = 12, batch: int = 100) -> float:
    random = np.random.default_rng(0)
    images, labels = digits()
    order = random.permutation(len(images))
    train, test = order[:1400], order[1400:]
    model = new_model(random)
    rule = pb.optim.adam(5e-3)
    state = rule.init(model)

    @pb.jit
    def step(model, state, x, labels):
        value, slopes = pb.value_and_grad(loss)(model, x, labels)
        updates, state = rule.update(slopes, state, model)
        return value, pb.optim.apply_updates(model, updates), state

    def accuracy(model):
        return float(np.mean(np.argmax(scores(model, images[test]), axis=1) == labels[test]))

    print("epoch    loss  accuracy on digits it has not seen")
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in np.split(random.permutation(train), len(train) // batch):
            value, model, state = step(model, state, images[rows], labels[rows])
            total += float(value) * batch / len(train)
        if epoch % 3 == 0 or epoch == 1:
            print(f"{epoch:5d}  {total:.4f}  {accuracy(model):.3f}")

    x = images[test[:100]]
    found = pb.implicit.solve.fixed_point(
        layer, np.zeros((100, WIDTH), np.float32), contraction(model["V"]), x @ model["U"].T + model["b"], tol=1e-4
    )
    print(f"the layer of 100 images took {found.report.steps} steps to converge")
    assert accuracy(model) > 0.93
    return accuracy(model)


if __name__ == "__main__":
    main()

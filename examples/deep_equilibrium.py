"""Handwritten digits in, a classifier out whose only hidden layer is an equation: z = tanh(W z + U x + b).

Such a layer is as deep as it needs to be, and training it takes the memory of one step: what goes back is the
derivative of the equation. W is kept a contraction, so there is one answer and it can be found.

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


def hidden(model, x):
    def layer(z, W, injected):
        return pb.tanh(z @ W.T + injected)

    start = np.zeros((len(x), WIDTH), np.float32)
    injected = x @ model["U"].T + model["b"]
    return pb.fixed_point(layer, start, contraction(model["V"]), injected, tol=1e-4, derivative=DERIVATIVE)


def loss(model, x, labels):
    scores = hidden(model, x) @ model["R"].T + model["c"]
    chosen = pb.take_along_axis(pb.log_softmax(scores, axis=1), labels[:, None], axis=1)
    return -pb.mean(chosen)


def accuracy(model, x, labels):
    scores = hidden(model, x) @ model["R"].T + model["c"]
    return float(np.mean(np.argmax(scores, axis=1) == labels))


def new_model(random):
    shapes = {"V": (WIDTH, WIDTH), "U": (WIDTH, 64), "b": (WIDTH,), "R": (10, WIDTH), "c": (10,)}
    return {name: (random.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32) for name, shape in shapes.items()}


def main(epochs: int = 12, batch: int = 100, rate: float = 0.3) -> float:
    random = np.random.default_rng(0)
    images, labels = digits()
    order = random.permutation(len(images))
    train, test = order[:1400], order[1400:]
    model = new_model(random)
    step = pb.value_and_grad(loss)
    print("epoch    loss  accuracy on digits it has not seen")
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in np.split(random.permutation(train), len(train) // batch):
            value, slope = step(model, images[rows], labels[rows])
            model = {name: model[name] - np.float32(rate) * slope[name] for name in model}
            total += float(value) * batch / len(train)
        if epoch % 3 == 0 or epoch == 1:
            print(f"{epoch:5d}  {total:.4f}  {accuracy(model, images[test], labels[test]):.3f}")
    found = pb.implicit.solve.fixed_point(
        lambda z, x: pb.tanh(z @ contraction(model["V"]).T + x @ model["U"].T + model["b"]),
        np.zeros((100, WIDTH), np.float32), images[test[:100]], tol=1e-4,
    )  # fmt: skip
    print(f"the layer of 100 images took {found.report.steps} steps to settle")
    return accuracy(model, images[test], labels[test])


if __name__ == "__main__":
    main()

"""Solves Poisson's equation by a network: -(u_xx + u_yy) = f on a square, u = 0 on its rim.

The loss is made of second derivatives of the network by its input, and training differentiates the loss by the
weights: third derivatives in all. `pb.laplacian` runs one Taylor series of order two along both axes at once instead
of building a Hessian at every point, and `pb.jit` makes the whole step, optimizer included, one native call.

Run it with: python examples/pinn.py
"""

import itertools

import numpy as np

import pullback as pb


def u(point, layers):
    """A small network times x(1-x)y(1-y), so that the rim is right whatever the weights are."""
    h = point
    for w, b in layers[:-1]:
        h = pb.tanh(w @ h + b)
    w, b = layers[-1]
    x, y = point
    return pb.sum(w @ h + b) * 16.0 * x * (1.0 - x) * y * (1.0 - y)


def exact(points):
    return np.sin(np.pi * points[:, 0]) * np.sin(2 * np.pi * points[:, 1])


def source(points):
    return 5 * np.pi**2 * exact(points)


def residual(layers, points, f):
    return pb.vmap(pb.laplacian(u), (0, None))(points, layers) + f


def loss(layers, points, f):
    return pb.mean(residual(layers, points, f) ** 2)


def new_network(random, sizes=(2, 32, 32, 1)):
    return [(random.normal(size=(n, m)) / np.sqrt(m), np.zeros(n)) for m, n in itertools.pairwise(sizes)]


def main(steps: int = 1500, count: int = 256) -> float:
    random = np.random.default_rng(0)
    layers = new_network(random)
    rule = pb.optim.adam(pb.optim.schedules.cosine(1e-2, steps))
    state = rule.init(layers)

    @pb.jit
    def step(layers, state, points, f):
        value, slopes = pb.value_and_grad(loss)(layers, points, f)
        updates, state = rule.update(slopes, state, layers)
        return value, pb.optim.apply_updates(layers, updates), state

    print(" step      loss")
    for i in range(steps + 1):
        points = random.uniform(size=(count, 2))
        value, layers, state = step(layers, state, points, source(points))
        if i % (steps // 5) == 0:
            print(f"{i:5d}  {value:8.2e}")

    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 41)] * 2), axis=-1).reshape(-1, 2)
    error = np.abs(pb.vmap(u, (0, None))(grid, layers) - exact(grid)).max()
    print(f"largest error on a grid of 41 x 41 points: {error:.1e} (the solution reaches 1)")
    assert error < 0.02
    return float(error)


if __name__ == "__main__":
    main()

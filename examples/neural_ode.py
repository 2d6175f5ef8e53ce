"""Learns the law of a pendulum's motion: a network in a differential equation, with two kinds of backward pass.

The state moves by dy/dt = network(y), in n Runge-Kutta steps. Its gradient can be computed
- through the steps themselves, from a few snapshots (`pb.checkpoint_loop`): exact, in memory that hardly grows with n;
- by the adjoint equation, solved from the end to the start together with the state, which stores nothing at all. It is
  the gradient of the differential equation, not of its n steps, so it is off by as much as the steps are.

Run it with: python examples/neural_ode.py
"""

import numpy as np

import pullback as pb

END = 1.0


def speed(y, w, b, v, c):
    return pb.tanh(y @ w + b) @ v + c


def runge_kutta(f, y, h):
    """One step of fourth order of dy/dt = f(y); y is a tuple of arrays."""

    def moved(slopes, h):
        return tuple(a + h * s for a, s in zip(y, slopes, strict=True))

    first = f(y)
    second = f(moved(first, h / 2))
    third = f(moved(second, h / 2))
    fourth = f(moved(third, h))
    mean = tuple((p + 2 * q + 2 * r + s) / 6 for p, q, r, s in zip(first, second, third, fourth, strict=True))
    return moved(mean, h)


def step(i, y, *weights, n):
    return runge_kutta(lambda y: (speed(y[0], *weights),), (y,), END / n)[0]


def checkpointed(y, *weights, n):
    """The state at the END; in the backward pass, steps are taken again from five snapshots."""
    return pb.checkpoint_loop(lambda i, y, *weights: step(i, y, *weights, n=n), y, n, *weights, snapshots=5)


@pb.custom_op
def adjoint(y, w, b, v, c, *, n):
    """The same state at the END, with a rule of its own for the backward pass."""
    return pb.fori_loop(0, n, lambda i, y: step(i, y, w, b, v, c, n=n), y)


adjoint.def_spec(lambda y, w, b, v, c, n: y)  # so that it can be compiled: the result is like y


@adjoint.def_vjp
def _(bar, out, w, b, v, c, n):
    # y' = f(y, weights) and a = dL/dy give a' = -a f_y; dL/dweights is the integral of a f_weights
    def speeds(state):
        f, pull = pb.vjp(speed, state[0], w, b, v, c)
        return f, *(-share for share in pull(state[1]))

    start = (out, bar, *map(np.zeros_like, (w, b, v, c)))
    return pb.fori_loop(0, n, lambda i, state: runge_kutta(speeds, state, -END / n), start)[1:]


def pendulum(y):
    """The law that is to be found: angles and speeds of pendulums with some friction."""
    return np.stack([y[:, 1], -2.0 * np.sin(y[:, 0]) - 0.3 * y[:, 1]], axis=1)


def main(steps: int = 600, width: int = 32) -> float:
    random = np.random.default_rng(0)
    start = random.uniform(-2.0, 2.0, size=(128, 2))
    end = start
    for _ in range(100):
        (end,) = runge_kutta(lambda y: (pendulum(y[0]),), (end,), END / 100)
    weights = (
        random.normal(size=(2, width)),
        random.normal(size=width),
        0.1 * random.normal(size=(width, 2)),
        np.zeros(2),
    )

    def loss(weights, flow, n):
        return pb.nn.mse_loss(flow(start, *weights, n=n), end)

    def plain(y, *weights, n):
        for i in range(n):
            y = step(i, y, *weights, n=n)
        return y

    print("steps  checkpointed and plain tape differ by  checkpointed and adjoint by")
    for n in (10, 20, 40):
        tape, exact, by_adjoint = (pb.grad(loss)(weights, flow, n)[0] for flow in (plain, checkpointed, adjoint))
        size, off = np.abs(exact).max(), np.abs(by_adjoint - exact).max()
        print(f"{n:5d}  {np.abs(exact - tape).max() / size:36.1e}  {off / size:27.1e}")
        assert np.allclose(exact, tape, rtol=1e-12)
    assert off < 1e-6 * size

    rule = pb.optim.adam(pb.optim.schedules.cosine(0.05, steps))
    state = rule.init(weights)

    @pb.jit
    def train(weights, state):
        value, slopes = pb.value_and_grad(loss)(weights, adjoint, 10)
        updates, state = rule.update(slopes, state, weights)
        return value, pb.optim.apply_updates(weights, updates), state

    print("\n step  mean squared error at the end of the path")
    for i in range(steps + 1):
        value, weights, state = train(weights, state)
        if i % (steps // 5) == 0:
            print(f"{i:5d}  {value:.2e}")
    points = random.uniform(-1.5, 1.5, size=(200, 2))
    error = np.abs(speed(points, *weights) - pendulum(points)).mean()
    print(f"the law it found is off by {error:.3f} on average, of {np.abs(pendulum(points)).mean():.3f}")
    assert value < 1e-3
    assert error < 0.1
    return float(error)


if __name__ == "__main__":
    main()

"""The Hessian of functions of 50 parameters, float64: the loss of a small network, and Rosenbrock's valley.

The network has 5 inputs, 7 hidden units and 16 samples, with a penalty on its 50 weights: 20 ops, most of them on tiny
arrays. The limit: a third of the time of PyTorch's `torch.func.hessian`, eager.
"""

import numpy as np
from contest import OURS, Limit, alone, burst, check_agreement, gather, machine, race, report, start

import pullback as pb
from pullback.transforms.jacobian.functions import hessian

LIMITS = (Limit("PyTorch", 1 / 3),)
RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(16, 5)), RNG.normal(size=16)


def network(xp, inputs, targets):
    """The same text for each contestant; `xp` is its library."""

    def loss(p):
        hidden = xp.tanh(xp.matmul(inputs, p[:35].reshape((5, 7))) + p[35:42])
        error = xp.matmul(hidden, p[42:49]) + p[49] - targets
        return (error * error).sum() * (1 / 16) + (p * p).sum() * 0.05

    return loss


def rosenbrock(xp, inputs, targets):
    def valley(x):
        slope, rest = x[1:] - x[:-1] ** 2, 1.0 - x[:-1]
        return (100.0 * slope * slope + rest * rest).sum()

    return valley


def ours(make, point):
    second = hessian(make(pb, INPUTS, TARGETS))
    return lambda: [second(point)]


def pytorch(make, point):
    import torch

    second = torch.func.hessian(make(torch, torch.tensor(INPUTS), torch.tensor(TARGETS)))
    x = torch.tensor(point)
    return lambda: [second(x)]


def jax_eager(make, point, compiled=False):
    import jax

    jax.config.update("jax_enable_x64", True)
    x = jax.numpy.asarray(point)
    second = jax.hessian(make(jax.numpy, jax.numpy.asarray(INPUTS), jax.numpy.asarray(TARGETS)))
    second = jax.jit(second) if compiled else second
    return lambda: [second(x).block_until_ready()]


def jax_compiled(make, point):
    return jax_eager(make, point, compiled=True)


MAKERS = {OURS: ours, "PyTorch": pytorch, "JAX without jit": jax_eager, "JAX with jit": jax_compiled}


MODELS = {"network": network, "Rosenbrock": rosenbrock}


def main():
    options = start(__doc__)
    point = RNG.normal(size=50) / 2
    if options.only:
        name, case = options.only
        print(min(burst(MAKERS[name](MODELS[case], point)) for _ in range(20)))
        return
    print(machine())
    for case, make in MODELS.items():
        steps = gather(MAKERS, make, point)
        check_agreement(steps, tolerance=1e-9)
        times = race(steps, seconds=2 if options.quick else 15)
        report(f"Hessian by 50 parameters, {case}, float64, all in one process", times, LIMITS)
        times = alone(list(steps), case, rounds=1 if options.quick else 5)
        report(f"Hessian by 50 parameters, {case}, float64, each in a process of its own", times, LIMITS)


if __name__ == "__main__":
    main()

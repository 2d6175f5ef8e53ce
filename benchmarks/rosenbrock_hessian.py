"""The Hessian of Rosenbrock's function at 1,000 and 5,000 unknowns, float64: sparse by a plan against dense ones.

The limits: a twentieth of PyTorch's time (`torch.func.hessian`) at 1,000, a tenth of JAX's (`jit(hessian)`) at 5,000,
where PyTorch takes seconds and is left out. The time to make the plan, once for all calls, is given beside.
"""

from time import perf_counter

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, readable, report, start

import pullback as pb
from pullback.transforms.sparse import sparse_hessian

LIMITS = {1_000: (Limit("PyTorch", 1 / 20),), 5_000: (Limit("JAX, jit", 1 / 10),)}


def rosenbrock(total):
    """The function, with the library's own sum."""
    return lambda x: total(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def ours(x):
    plan = sparse_hessian.plan(rosenbrock(pb.sum), x)
    return lambda: plan(x)


def unchecked(x):
    plan = sparse_hessian.plan(rosenbrock(pb.sum), x)
    return lambda: plan(x, check=False)


def pytorch(x):
    import torch

    torch.set_num_threads(1)
    given = torch.tensor(x)
    hessian = torch.func.hessian(rosenbrock(torch.sum))
    return lambda: hessian(given)


def jax_compiled(x):
    import jax

    jax.config.update("jax_enable_x64", True)
    given = jax.numpy.asarray(x)
    hessian = jax.jit(jax.hessian(rosenbrock(jax.numpy.sum)))
    return lambda: hessian(given).block_until_ready()


MOST = {OURS: ours, "pullback, no check": unchecked, "JAX, jit": jax_compiled}
MAKERS = {1_000: {**MOST, "PyTorch": pytorch}, 5_000: MOST}


def dense(steps):
    """Each step's answer as a list of one dense array, for comparing."""
    return {
        name: lambda step=step: [found.toarray() if hasattr(found := step(), "toarray") else found]
        for name, step in steps.items()
    }


def planning(x):
    """The best time to make a plan, of a few."""
    times = []
    for _ in range(5):
        begin = perf_counter()
        sparse_hessian.plan(rosenbrock(pb.sum), x)
        times.append(perf_counter() - begin)
    return min(times)


def main():
    options = start(__doc__)
    print(machine())
    for n, limits in LIMITS.items():
        x = np.random.default_rng(0).normal(size=n)
        steps = gather(MAKERS[n], x)
        check_agreement(dense(steps), tolerance=1e-12)
        times = race(steps, seconds=3 if options.quick else 20)
        report(f"Rosenbrock's Hessian, {n:,} unknowns, float64", times, limits)
        print(f"  making the plan, once: {readable(planning(x))}")


if __name__ == "__main__":
    main()

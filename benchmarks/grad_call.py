"""`grad` of a function of 100 ops on 8 floats, against the same ops and `backward` written out on the tape.

What a function transform adds to the tape it runs on. Peers run the same function through their own `grad`.
"""

from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

STEPS = 33  # three ops each, and the sum


def chain(x, library):
    h = x
    for _ in range(STEPS):
        h = library.tanh(h * x + x)
    return library.sum(h)


def by_grad(x):
    import pullback as pb

    gradient = pb.grad(lambda t: chain(t, pb))
    return lambda: [gradient(x)]


def by_tape(x):
    import pullback as pb

    def step():
        t = pb.tensor(x, requires_grad=True)
        chain(t, pb).backward()
        return [t.grad.numpy()]

    return step


def torch_func(x):
    import torch

    torch.set_num_threads(1)
    gradient, given = torch.func.grad(lambda t: chain(t, torch)), torch.tensor(x)
    return lambda: [gradient(given)]


def hips_autograd(x):
    import autograd.numpy as anp
    from autograd import grad

    gradient = grad(lambda t: chain(t, anp))
    return lambda: [gradient(x)]


def jax_eager(x):
    import jax

    jax.config.update("jax_enable_x64", True)
    gradient = jax.grad(lambda t: chain(t, jax.numpy))
    return lambda: [gradient(x)]


def main() -> None:
    options = start(__doc__)
    import numpy as np

    x = np.linspace(0.1, 0.8, 8)
    makers = {
        OURS: by_grad, "pullback tape": by_tape, "torch.func.grad": torch_func, "HIPS autograd": hips_autograd,
        "JAX eager": jax_eager,
    }  # fmt: skip
    print(machine())
    steps = gather(makers, x)
    check_agreement(steps, 1e-12)
    times = race(steps, 2 if options.quick else 20)
    report("grad of 100 ops on 8 floats", times, (Limit("pullback tape", 1.15),), "pullback tape")


if __name__ == "__main__":
    main()

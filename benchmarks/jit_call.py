"""What a call of a compiled function costs: 1, 8 and 10 small arrays in and out, as arrays, as tensors, on the tape.

float32 vectors of 4 elements, so that next to nothing is computed. `jit` against `jax.jit`, whose arrays are its own;
on the tape, a compiled loss with `backward` against the compiled gradient, and PyTorch eager. The last table is the
same for a network, where the arithmetic counts.
"""

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

RNG = np.random.default_rng(0)


def doubled(*arrays):
    return [x * 2.0 for x in arrays]


def loss(*arrays):
    return sum((x * x).sum() for x in arrays)


def network_loss(tanh, x, y, w, b, v, c):
    h = tanh(x @ w + b) @ v + c - y
    return (h * h).sum()


def ours(arrays):
    import pullback as pb

    f = pb.jit(doubled)
    return lambda: f(*arrays)


def ours_on_tensors(arrays):
    import pullback as pb

    f, given = pb.jit(doubled), [pb.tensor(a) for a in arrays]
    return lambda: [t.value for t in f(*given)]


def ours_recorded(arrays):
    import pullback as pb

    f, given = pb.jit(doubled), [pb.tensor(a, requires_grad=True) for a in arrays]
    return lambda: [t.value for t in f(*given)]


def jax_compiled(arrays):
    import jax

    f, given = jax.jit(doubled), [jax.numpy.asarray(a) for a in arrays]
    return lambda: jax.block_until_ready(f(*given))


def torch_eager(arrays):
    import torch

    torch.set_num_threads(1)
    given = [torch.tensor(a) for a in arrays]
    return lambda: doubled(*given)


def our_gradient(f, arrays, places):
    import pullback as pb

    g = pb.jit(pb.grad(lambda *a: f(pb, *a), argnums=places))
    return lambda: g(*arrays)


def our_backward(f, arrays, places):
    import pullback as pb

    compiled = pb.jit(lambda *a: f(pb, *a))
    given = [pb.tensor(a, requires_grad=i in places) for i, a in enumerate(arrays)]
    leaves = [given[i] for i in places]

    def step():
        for t in leaves:
            t.grad = None
        compiled(*given).backward()
        return [t.grad.value for t in leaves]

    return step


def jax_gradient(f, arrays, places):
    import jax

    g, given = jax.jit(jax.grad(lambda *a: f(jax.numpy, *a), argnums=places)), [jax.numpy.asarray(a) for a in arrays]
    return lambda: jax.block_until_ready(g(*given))


def torch_backward(f, arrays, places):
    import torch

    torch.set_num_threads(1)
    given = [torch.tensor(a, requires_grad=i in places) for i, a in enumerate(arrays)]
    leaves = [given[i] for i in places]

    def step():
        for t in leaves:
            t.grad = None
        f(torch, *given).backward()
        return [t.grad for t in leaves]

    return step


CALLS = {
    OURS: ours, "tensors": ours_on_tensors, "recorded": ours_recorded, "JAX, compiled": jax_compiled,
    "PyTorch": torch_eager,
}  # fmt: skip
GRADIENTS = {
    OURS: our_backward, "jit(grad)": our_gradient, "JAX, compiled": jax_gradient, "PyTorch": torch_backward,
}  # fmt: skip


def main() -> None:
    options = start(__doc__)
    seconds = 1.0 if options.quick else 10.0
    print(machine())
    for count in (1, 8, 10):
        arrays = [RNG.normal(size=4).astype("f") for _ in range(count)]
        steps = gather(CALLS, arrays)
        check_agreement(steps, 1e-6)
        times = race(steps, seconds)
        report(f"{count} arrays in and out, doubled", times)
        print(f"  tensors add {1e6 * (times['tensors'] - times[OURS]):.2f} us, limit 1.50 us")
    for count in (1, 10):
        arrays = [RNG.normal(size=4).astype("f") for _ in range(count)]
        steps = gather(GRADIENTS, lambda xp, *a: loss(*a), arrays, tuple(range(count)))
        check_agreement(steps, 1e-5)
        report(f"sum of squares of {count} arrays, forward and backward", race(steps, seconds))
    for sizes, batch in (((16, 64, 4), 32), ((784, 256, 10), 64)):
        shapes = ((batch, sizes[0]), (batch, sizes[2]), sizes[:2], sizes[1:2], sizes[1:], sizes[2:])
        arrays = [(RNG.normal(size=s) / np.sqrt(s[0])).astype("f") for s in shapes]
        steps = gather(GRADIENTS, lambda xp, *a: network_loss(xp.tanh, *a), arrays, (2, 3, 4, 5))
        check_agreement(steps, 1e-4)
        report(
            f"network {sizes[0]}-{sizes[1]}-{sizes[2]}, batch {batch}, forward and backward", race(steps, seconds),
            (Limit("jit(grad)", 1.5),),
        )  # fmt: skip


if __name__ == "__main__":
    main()

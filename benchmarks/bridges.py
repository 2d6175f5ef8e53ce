"""What a call across a border costs: value and gradient of a function here, through PyTorch's autograd, through
`jax.grad` and as a library of C called by ctypes; and of PyTorch's and JAX's functions as ops here.

A sum over 8 float32 numbers, where there is nothing but the call, and a network of 784-256-10 with a batch of 64. The
peers compute the same by themselves.
"""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from contest import OURS, check_agreement, gather, machine, race, report, start

RNG = np.random.default_rng(0)


def small(xp, w, x):
    return (xp.sin(w) * x).sum()


def network(xp, w, v, x):
    h = xp.tanh(x @ w) @ v
    return (h * h).sum()


def ours(f, arrays, places):
    import pullback as pb

    g = pb.jit(pb.grad(lambda *a: f(pb, *a), argnums=places))
    return lambda: g(*arrays)


def c_library(f, arrays, places):
    import pullback as pb

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "f"
    made = pb.exchange.to_c_library(lambda *a: f(pb, *a), *arrays, path=path, gradient=places, cpu="native")
    library = ctypes.CDLL(str(made.library))
    outs = [np.empty(a.shape, a.dtype) for a in made.functions[1].arguments if a.is_output]
    given = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outs)]

    def step(folder=folder):
        assert library.f_gradient(*given) == 0
        return outs[1:]

    return step


def torch_step(arrays, places, call):
    import torch

    torch.set_num_threads(1)
    given = [torch.tensor(a, requires_grad=i in places) for i, a in enumerate(arrays)]
    return lambda: torch.autograd.grad(call(*given), [given[i] for i in places])


def wrapped_torch(f, arrays, places):
    import pullback as pb

    return torch_step(arrays, places, pb.interop.torch.wrap(lambda *a: f(pb, *a)))


def torch_alone(f, arrays, places):
    import torch

    return torch_step(arrays, places, lambda *a: f(torch, *a))


def jax_step(arrays, places, call):
    import jax

    g, given = jax.jit(jax.grad(call, places)), [jax.numpy.asarray(a) for a in arrays]
    return lambda: jax.block_until_ready(g(*given))


def wrapped_jax(f, arrays, places):
    import pullback as pb

    return jax_step(arrays, places, pb.interop.jax.wrap(lambda *a: f(pb, *a)))


def jax_alone(f, arrays, places):
    import jax

    return jax_step(arrays, places, lambda *a: f(jax.numpy, *a))


def torch_as_op(f, arrays, places):
    import torch

    import pullback as pb

    torch.set_num_threads(1)
    g = pb.grad(pb.interop.torch.as_op(lambda *a: f(torch, *a)), argnums=places)
    return lambda: g(*arrays)


def jax_as_op(f, arrays, places):
    import jax

    import pullback as pb

    g = pb.grad(pb.interop.jax.as_op(lambda *a: f(jax.numpy, *a)), argnums=places)
    return lambda: g(*arrays)


CONTESTANTS = {
    OURS: ours, "library of C": c_library, "torch.wrap": wrapped_torch, "PyTorch": torch_alone,
    "jax.wrap": wrapped_jax, "JAX, compiled": jax_alone, "torch.as_op": torch_as_op, "jax.as_op": jax_as_op,
}  # fmt: skip


def main() -> None:
    options = start(__doc__)
    seconds = 2.0 if options.quick else 20.0
    print(machine())
    vectors = [RNG.normal(size=8).astype("f") for _ in range(2)]
    shapes = (784, 256), (256, 10), (64, 784)
    matrices = [(RNG.normal(size=s) / np.sqrt(s[0])).astype("f") for s in shapes]
    for title, f, arrays, places in (
        ("a sum over 8 numbers", small, vectors, (0,)),
        ("network 784-256-10, batch 64", network, matrices, (0, 1)),
    ):
        steps = gather(CONTESTANTS, f, arrays, places)
        check_agreement(steps, 1e-4)
        report(f"{title}, value and gradient", race(steps, seconds))


if __name__ == "__main__":
    main()

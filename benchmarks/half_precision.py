"""bfloat16 and float16 on one core: chains, norms and sums of ten million numbers, and matrix products.

Each against the same in float32, compiled and eager, beside PyTorch and JAX. Half of the bytes have to be read and
written, so the chains and norms in bfloat16 have to be 1.5 times as fast as in float32; a product may take no longer.
"""

import numpy as np
from contest import OURS, Limit, gather, machine, race, report, start

import pullback as pb

ROWS, COLUMNS = 10_000, 1000
DTYPES = ("bfloat16", "float16", "float32")
RNG = np.random.default_rng(0)


#: For each name: ours, PyTorch's (of F and its arguments), JAX's (of its module nn, of numpy and its arguments), the
#: number of arguments.
CHAINS = {
    "x * 2 + 1": (lambda x: x * 2 + 1, lambda f, x: x * 2 + 1, lambda nn, jnp, x: x * 2 + 1, 1),
    "(x * y + x) * y - y": (
        lambda x, y: (x * y + x) * y - y, lambda f, x, y: (x * y + x) * y - y,
        lambda nn, jnp, x, y: (x * y + x) * y - y, 2,
    ),
    "relu(x * y) + 0.5 * x": (
        lambda x, y: pb.nn.relu(x * y) + 0.5 * x, lambda f, x, y: f.relu(x * y) + 0.5 * x,
        lambda nn, jnp, x, y: nn.relu(x * y) + 0.5 * x, 2,
    ),
    "cast to float32": (
        lambda x: x.astype("float32"), lambda f, x: x.float(), lambda nn, jnp, x: x.astype("float32"), 1,
    ),
    "tanh(x * y)": (
        lambda x, y: pb.tanh(x * y), lambda f, x, y: (x * y).tanh(), lambda nn, jnp, x, y: jnp.tanh(x * y), 2,
    ),
    "gelu": (pb.nn.gelu, lambda f, x: f.gelu(x), lambda nn, jnp, x: nn.gelu(x, approximate=False), 1),
    "sum": (pb.sum, lambda f, x: x.sum(), lambda nn, jnp, x: x.sum(), 1),
    "sum of rows": (lambda x: pb.sum(x, axis=1), lambda f, x: x.sum(1), lambda nn, jnp, x: x.sum(1), 1),
    "sum of columns": (lambda x: pb.sum(x, axis=0), lambda f, x: x.sum(0), lambda nn, jnp, x: x.sum(0), 1),
    "layer norm": (
        pb.nn.layer_norm, lambda f, x: f.layer_norm(x, (COLUMNS,)),
        lambda nn, jnp, x: nn.standardize(x, axis=-1, epsilon=1e-5), 1,
    ),
    "rms norm": (
        pb.nn.rms_norm, lambda f, x: f.rms_norm(x, (COLUMNS,), eps=1e-6),
        lambda nn, jnp, x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), 1,
    ),
    "softmax": (pb.softmax, lambda f, x: f.softmax(x, -1), lambda nn, jnp, x: nn.softmax(x), 1),
}  # fmt: skip
#: Chains that are bound by their mathematics, which is float32's whatever the bytes, or that write float32.
UNLIMITED = ("cast to float32", "tanh(x * y)", "gelu")
PRODUCT = (lambda x, y: x @ y, lambda f, x, y: x @ y, lambda nn, jnp, x, y: x @ y, 2)


def compiled(functions, args, dtype):
    fast = pb.jit(functions[0])
    given = [a.astype(getattr(pb, dtype)) for a in args]
    return lambda: fast(*given)


def eager(functions, args, dtype):
    given = [pb.tensor(a, dtype=dtype) for a in args]
    return lambda: functions[0](*given)


def pytorch(functions, args, dtype):
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(1)
    given = [torch.tensor(a).to(getattr(torch, dtype)) for a in args]
    return lambda: functions[1](functional, *given)


def jax(functions, args, dtype):
    import jax

    fast = jax.jit(lambda *xs: functions[2](jax.nn, jax.numpy, *xs))
    given = [jax.numpy.asarray(a).astype(dtype) for a in args]
    return lambda: fast(*given).block_until_ready()


def contestants(ours, peers, has_float16):
    """Ours in bfloat16, in float16 and in float32, and peers in bfloat16 and in float16."""
    found = {OURS: (ours, "bfloat16"), f"{OURS} float16": (ours, "float16"), f"{OURS} float32": (ours, "float32")}
    dtypes = DTYPES[: 2 if has_float16 else 1]
    return found | {f"{name} {dtype}": (make, dtype) for name, make in peers.items() for dtype in dtypes}


def contest(title, functions, args, limit, seconds):
    ways = (("compiled", compiled, {"JAX": jax, "PyTorch": pytorch}), ("eager", eager, {"PyTorch": pytorch}))
    for way, ours, peers in ways:
        # PyTorch's product of float16 takes minutes on processors without instructions for it
        chosen = contestants(ours, peers, functions is not PRODUCT)
        makers = {
            name: lambda functions, args, make=make, dtype=dtype: make(functions, args, dtype)
            for name, (make, dtype) in chosen.items()
        }
        steps = gather(makers, functions, args)
        limits = () if limit is None else (Limit(f"{OURS} float32", limit),)
        report(f"{title}, {way} (pullback: bfloat16)", race(steps, seconds), limits)


def main():
    options = start(__doc__)
    print(machine())
    args = [RNG.uniform(-1, 1, (ROWS, COLUMNS)).astype("f") for _ in range(2)]
    seconds = 0.5 if options.quick else 4.0
    for name, functions in CHAINS.items():
        limit = None if name in UNLIMITED else 1 / 1.5
        contest(name, functions, args[: functions[3]], limit, seconds)
    for n in (512, 1024, 2048):
        pair = [RNG.normal(size=(n, n)).astype("f") for _ in range(2)]
        contest(f"product of {n} x {n}", PRODUCT, pair, 1.0, seconds)


if __name__ == "__main__":
    main()

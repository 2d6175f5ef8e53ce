"""Compiled work: training steps of small networks, a chain of tanh, cross-entropy and layer norm with gradients.

float32. `jit` against `jax.jit`, PyTorch eager and `torch.compile` (where a C++ compiler is installed); the parameters
of the steps are donated in the first two. The first call of each compiler is timed too.
"""

import shutil
from itertools import pairwise
from time import perf_counter

import numpy as np
from contest import OURS, Limit, check_agreement, gather, machine, race, report, start

import pullback as pb

RNG = np.random.default_rng(0)
first_calls = {}


def normal(*shape):
    return RNG.normal(size=shape).astype("f")


def timed(name, call, *args):
    begin = perf_counter()
    answer = call(*args)
    first_calls[name] = perf_counter() - begin
    return answer


def network(sizes, batch):
    params = [p for a, b in pairwise(sizes) for p in (normal(a, b) / np.float32(a) ** 0.5, np.zeros(b, "f"))]
    return params, normal(batch, sizes[0]), normal(batch, sizes[-1])


def forward(xp, params, x, y):
    h = x
    for i in range(0, len(params) - 2, 2):
        h = xp.tanh(h @ params[i] + params[i + 1])
    return ((h @ params[-2] + params[-1] - y) ** 2).mean()


def step_ours(params, x, y):
    def step(params, x, y):
        g = pb.grad(lambda p: forward(pb, p, x, y))(params)
        return [p - 0.001 * q for p, q in zip(params, g, strict=True)]

    compiled = pb.jit(step, donate_argnums=0)
    state = [timed(OURS, compiled, [p.copy() for p in params], x, y)]

    def run():
        state[0] = compiled(state[0], x, y)
        return []

    return run


def step_jax(params, x, y):
    import jax
    import jax.numpy as jnp

    def step(params, x, y):
        g = jax.grad(lambda p: forward(jnp, p, x, y))(params)
        return [p - 0.001 * q for p, q in zip(params, g, strict=True)]

    compiled = jax.jit(step, donate_argnums=0)
    x, y = jnp.asarray(x), jnp.asarray(y)
    begin = [jnp.asarray(p) for p in params]
    state = [timed("JAX, compiled", lambda p: jax.block_until_ready(compiled(p, x, y)), begin)]

    def run():
        state[0] = jax.block_until_ready(compiled(state[0], x, y))
        return []

    return run


def step_torch(params, x, y, compiler=lambda f: f):
    import torch

    torch.set_num_threads(1)
    leaves = [torch.tensor(p, requires_grad=True) for p in params]
    x, y = torch.tensor(x), torch.tensor(y)
    loss = compiler(lambda leaves, x, y: forward(torch, leaves, x, y))

    def run():
        g = torch.autograd.grad(loss(leaves, x, y), leaves)
        with torch.no_grad():
            torch._foreach_add_(leaves, g, alpha=-0.001)
        return []

    return run


def torch_compiler():
    """`torch.compile`, afresh for each contest; it writes C++."""
    import torch

    if shutil.which("g++") is None:
        raise ModuleNotFoundError(name="a C++ compiler")
    torch._dynamo.reset()
    return torch.compile


def step_torch_compiled(params, x, y):
    run = step_torch(params, x, y, torch_compiler())
    timed("PyTorch, compiled", run)
    return run


def chain(xp, w, h, x):
    for _ in range(100):
        h = xp.tanh(h * w + x)
    return h.sum()


def entropy(xp, z, rows, labels):
    top = z.max(1)[0][:, None] if xp.__name__ == "torch" else z.max(axis=1, keepdims=True)
    shifted = z - top
    return (xp.log(xp.exp(shifted).sum(1)) - shifted[rows, labels]).mean()


def normed(xp, x, g, b, d):
    m = x.mean(-1)[:, None]
    v = ((x - m) ** 2).mean(-1)[:, None]
    return (((x - m) / xp.sqrt(v + 1e-5) * g + b) * d).sum()


def gradient_ours(f, args, count):
    compiled = pb.jit(pb.value_and_grad(lambda *a: f(pb, *a), argnums=tuple(range(count))))
    timed(OURS, compiled, *args)
    return lambda: flat(compiled(*args))


def gradient_jax(f, args, count):
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(jax.value_and_grad(lambda *a: f(jnp, *a), argnums=tuple(range(count))))
    args = [jnp.asarray(a) for a in args]
    timed("JAX, compiled", lambda: jax.block_until_ready(compiled(*args)))
    return lambda: flat(jax.block_until_ready(compiled(*args)))


def gradient_torch(f, args, count, compiler=lambda f: f):
    import torch

    torch.set_num_threads(1)
    args = [torch.tensor(a, requires_grad=i < count) for i, a in enumerate(args)]
    of_args = compiler(lambda *a: f(torch, *a))

    def run():
        value = of_args(*args)
        return [value, *torch.autograd.grad(value, args[:count])]

    return run


def gradient_torch_compiled(f, args, count):
    run = gradient_torch(f, args, count, torch_compiler())
    timed("PyTorch, compiled", run)
    return run


def flat(answer):
    return [answer[0], *answer[1]]


STEPS = {
    OURS: step_ours,
    "JAX, compiled": step_jax,
    "PyTorch": step_torch,
    "PyTorch, compiled": step_torch_compiled,
}
GRADIENTS = {
    OURS: gradient_ours,
    "JAX, compiled": gradient_jax,
    "PyTorch": gradient_torch,
    "PyTorch, compiled": gradient_torch_compiled,
}


def contest(title, makers, limits, seconds, tolerance, *data):
    first_calls.clear()
    steps = gather(makers, *data)
    if tolerance:
        check_agreement(steps, tolerance)
    report(title, race(steps, seconds), limits)
    print("  first call: " + ", ".join(f"{name} {1e3 * t:.0f} ms" for name, t in first_calls.items()))


def main():
    options = start(__doc__)
    print(machine())
    seconds = 1.0 if options.quick else 6.0
    for sizes, batch, ratios in (
        ((8, 32, 32, 1), 1, (1 / 8, 1 / 40, 1)),
        ((16, 64, 64, 4), 32, (1 / 3, 1, 1)),
        ((784, 256, 128, 10), 64, (1 / 1.05,) * 3),
        ((1024, 1024, 1024, 10), 256, (1.03,) * 3),
    ):
        limits = (Limit("JAX, compiled", ratios[0]), Limit("PyTorch", ratios[1]), Limit("PyTorch, compiled", ratios[2]))
        title = f"a training step of {'-'.join(map(str, sizes))}, batch {batch}"
        contest(title, STEPS, limits, seconds, 0, *network(sizes, batch))
    limits = tuple(Limit(peer, 1 / 1.5) for peer in ("JAX, compiled", "PyTorch", "PyTorch, compiled"))
    for n in (100, 10_000, 1_000_000):
        data = [0.3 * normal(n), 0.5 * normal(n), 0.5 * normal(n)]
        contest(
            f"tanh(h * w + x) 100 times with gradient, {n} elements", GRADIENTS, limits, seconds, 1e-3, chain, data, 1
        )
    data = [normal(256, 1000), np.arange(256), RNG.integers(0, 1000, 256)]
    contest("softmax cross-entropy 256x1000 with gradient", GRADIENTS, limits, seconds, 1e-4, entropy, data, 1)
    data = [normal(512, 768), normal(768), normal(768), normal(512, 768)]
    contest("layer norm 512x768 with gradients", GRADIENTS, limits, seconds, 1e-3, normed, data, 3)


if __name__ == "__main__":
    main()

"""Compile time: training steps, gradients and Hessian-vector products, from the Python function to code that can run.

`pb.jit(f).lower(*args).code` with nothing on disk, then with the machine code on disk;
`jax.jit(f).lower(*args).compile()` with its own cache on disk turned off. Each compiles a function it has not seen,
after a first one that loads the compiler. Processor time on one core, which is what an idle machine takes: a
compilation cannot be repeated often enough to find a quiet moment on a busy one.
"""

import importlib.util
import os
import shutil
import tempfile
from time import process_time

import numpy as np
from compiled import RNG, chain, entropy, forward, network, normal, normed
from contest import OURS, machine, start

import pullback as pb

PLACE = tempfile.mkdtemp(prefix="pullback-compile-time-")
COLUMNS = (OURS, f"{OURS}, on disk", "JAX")


def step(package, xp):
    """A training step of a network, as `compiled.py` has it."""

    def run(params, x, y):
        g = package.grad(lambda p: forward(xp, p, x, y))(params)
        return [p - 0.001 * q for p, q in zip(params, g, strict=True)]

    return run


def gradient(f, count):
    def make(package, xp):
        return package.value_and_grad(lambda *a: f(xp, *a), argnums=tuple(range(count)))

    return make


def product(length):
    """The Hessian-vector product of a chain of so many ops, written out."""

    def make(package, xp):
        def f(x):
            for _ in range(length // 2):
                x = xp.sin(x) * 1.01
            return xp.sum(x)

        return lambda x, v: package.jvp(package.grad(f), (x,), (v,))[1]

    return make


def ours(make, args, donated, place):
    os.environ["PULLBACK_CACHE_DIR"] = place
    return timed(lambda f: pb.jit(f, donate_argnums=donated).lower(*args).code, make(pb, pb))


def theirs(make, args, donated):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    args = jax.tree.map(jnp.asarray, args)
    return timed(lambda f: jax.jit(f, donate_argnums=donated).lower(*args).compile(), make(jax, jnp))


def timed(call, f):
    begin = process_time()
    call(f)
    return process_time() - begin


def measured(make, args, donated, repeats, peer):
    """The best processor time of each column; None where the peer is not asked."""
    cold = min(ours(make, args, donated, "off") for _ in range(repeats))
    warm = min(ours(make, args, donated, PLACE) for _ in range(repeats + 1))
    asked = peer and importlib.util.find_spec("jax")  # a peer that is not installed is left out
    return cold, warm, min(theirs(make, args, donated) for _ in range(peer)) if asked else None


def row(title, times, limit):
    cold, warm, jax = times
    said = [f"{1e3 * cold:.0f} ms", f"{1e3 * warm:.0f} ms", "" if jax is None else f"{1e3 * jax:.0f} ms"]
    ratio = "" if jax is None else f"{cold / jax:.2f}"
    ratio += "" if jax is None or limit is None else f" ({limit:.2f}{'' if cold <= limit * jax else ', missed'})"
    print(f"| {title} | {' | '.join(said)} | {ratio} |", flush=True)


def main():
    options = start(__doc__)
    print(machine())
    repeats = 2 if options.quick else 5
    measured(step, network((2, 2, 1), 1), (), 1, 1)  # loads both compilers
    print(f"\n| | {' | '.join(COLUMNS)} | {OURS} over JAX (limit) |\n|{'---|' * (len(COLUMNS) + 2)}")
    for sizes, batch in (
        ((8, 32, 32, 1), 1),
        ((16, 64, 64, 4), 32),
        ((784, 256, 128, 10), 64),
        ((1024, 1024, 1024, 10), 256),
    ):
        title = f"a training step of {'-'.join(map(str, sizes))}, batch {batch}"
        row(title, measured(step, network(sizes, batch), (0,), repeats, repeats), 0.5)
    for n in (100, 10_000, 1_000_000):
        title = f"tanh(h * w + x) 100 times with gradient, {n} elements"
        row(title, measured(gradient(chain, 1), [normal(n) for _ in range(3)], (), repeats, repeats), 0.5)
    args = [normal(256, 1000), np.arange(256), RNG.integers(0, 1000, 256)]
    row("softmax cross-entropy 256x1000 with gradient", measured(gradient(entropy, 1), args, (), repeats, repeats), 0.5)
    args = [normal(512, 768), normal(768), normal(768), normal(512, 768)]
    row("layer norm 512x768 with gradients", measured(gradient(normed, 3), args, (), repeats, repeats), 0.5)
    for length, peer in ((101, 2), (401, 1), (1001, 0 if options.quick else 1), (4001, 0)):
        title = f"Hessian-vector product of a chain of {length} ops"
        row(title, measured(product(length), [normal(100), normal(100)], (), 2, peer), None)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)

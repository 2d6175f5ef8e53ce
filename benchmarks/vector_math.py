"""Elementary functions on 10,000 numbers: pullback's compiled ones against NumPy, jax.jit and PyTorch.

Run: python benchmarks/vector_math.py [float32|float64]
"""

import sys
import time

import jax
import numpy as np
import torch

import pullback as pb
from pullback.compile.jit import jit

COUNT = 10_000
WORDS = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "tanh": "tanh", "sigmoid": None, "sin": "sin",
    "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "erf": None,
}  # fmt: skip


def best(call, x, repeats=300):
    """Microseconds of the fastest call."""
    call(x)
    found = 1e9
    for _ in range(repeats):
        start = time.perf_counter_ns()
        call(x)
        found = min(found, time.perf_counter_ns() - start)
    return found / 1e3


def contenders(name, numpy_name):
    of_jax = jax.jit(getattr(jax.nn, name, None) or getattr(jax.numpy, name, None) or getattr(jax.scipy.special, name))
    of_torch = getattr(torch, name)
    of_numpy = getattr(np, numpy_name) if numpy_name else None
    return {
        "pullback": (jit(getattr(pb, name)), lambda x: x),
        "numpy": (of_numpy, lambda x: x),
        "jax": (lambda x: of_jax(x).block_until_ready(), jax.numpy.asarray),
        "torch": (of_torch, torch.from_numpy),
    }


def main():
    dtype = np.dtype(sys.argv[1] if len(sys.argv) > 1 else "float32")
    if dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    x = np.random.default_rng(0).uniform(0.01, 0.99, COUNT).astype(dtype)
    print(f"{'':8} {'pullback':>9} {'numpy':>9} {'jax':>9} {'torch':>9}   microseconds, {dtype}, {COUNT} numbers")
    for name, numpy_name in WORDS.items():
        row = [best(f, to(x)) if f else float("nan") for f, to in contenders(name, numpy_name).values()]
        print(f"{name:8} " + " ".join(f"{t:9.2f}" for t in row))


if __name__ == "__main__":
    main()

"""Random programs in half precision: dtypes in every mode, bits where the rule promises them, and the judge of jit."""

import numpy as np
import pytest

import pullback as pb
from pullback.compile.cpu.runtime import link

pytest.importorskip("ml_dtypes")
ROWS = np.array([1, 0, 2, 2])
ONE = [
    pb.tanh, pb.sin, lambda x: pb.exp(-x * x), pb.abs, pb.nn.relu, pb.nn.sigmoid, lambda x: x * 0.3 + 1, pb.nn.gelu,
    lambda x: pb.softmax(x, axis=-1), lambda x: pb.nn.layer_norm(x, eps=0.1), lambda x: pb.cumsum(x, axis=0) * 0.25,
    lambda x: pb.flip(x, axis=1), lambda x: x - pb.mean(x, axis=1, keepdims=True), lambda x: x[ROWS] * 0.7,
    lambda x: pb.max(x, axis=0, keepdims=True) + x * 0.1, lambda x: pb.where(x > 0.3, x, 0.5 * x),
    lambda x: pb.clip(x, -0.7, 0.9), lambda x: pb.roll(x, 1, axis=0), lambda x: x.astype("float32").astype(x.dtype),
]  # fmt: skip
TWO = [
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - 0.3 * y, lambda x, y: x / (y * y + 1), pb.maximum,
    pb.hypot, lambda x, y: x @ (y.T @ y) * 0.1, lambda x, y: pb.where(x < y, x, y),
]  # fmt: skip


def random_program(seed):
    rng = np.random.default_rng(seed)
    plan = [(rng.integers(3), rng.integers(len(ONE)), rng.integers(len(TWO))) for _ in range(rng.integers(3, 8))]

    def f(x, y):
        for takes_one, one, two in plan:
            x, y = (ONE[one](x), y) if takes_one else (TWO[two](x, y), x)
        return x

    return f


def bits(tree):
    return [np.asarray(x).astype(np.float64).tolist() for x in pb.tree.leaves(tree)]


def check_program(seed, dtype):
    f, half, rng = random_program(seed), getattr(pb, dtype), np.random.default_rng([seed, 1])
    x, y = (rng.normal(size=(4, 6)).astype(half) for _ in range(2))

    def slopes(function):
        return pb.grad(lambda x, y: pb.sum(function(x, y).astype("float32") ** 2), (0, 1))

    eager, pulled = f(pb.tensor(x), pb.tensor(y)), slopes(f)(x, y)
    found = [eager, *pulled, pb.jit(f, check=True)(x, y), pb.vmap(f)(np.stack([x, x]), np.stack([y, y]))]
    found += [*pb.jit(slopes(f), check=True)(x, y), pb.jvp(f, (x, y), (y, x))[1]]
    assert {v.dtype for v in found} == {np.dtype(half)}
    # the same ops on the same numbers: run again, and seen one by one
    assert bits(pb.checkpoint(f)(pb.tensor(x), pb.tensor(y))) == bits(eager)
    assert bits(slopes(pb.checkpoint(f))(x, y)) == bits(pulled)
    with pb.detect_anomaly():
        assert bits(slopes(f)(x, y)) == bits(pulled)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", [0, 7, 15, 21, 32])
def test_random_programs(monkeypatch, seed, dtype):
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    check_program(seed, dtype)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_many_random_programs(monkeypatch, dtype):
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    for seed in range(300):
        check_program(seed, dtype)

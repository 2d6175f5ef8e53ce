"""Compiled functions whose collectives are of arrays on GPUs, on stand-ins: for CUDA, CuPy and NCCL."""

import fake_cuda_driver
import nccl_ranks
import numpy as np
import pytest
from fake_cupy import nccl

import pullback as pb
from pullback import distributed
from pullback.compile import specialization
from pullback.program.overlap import start_sums_early

cuda_emulator = pytest.importorskip("cuda_emulator")
if not cuda_emulator.has_compiler():
    pytest.skip("the emulator needs g++", allow_module_level=True)

X = np.random.default_rng(0).normal(size=(2, 4, 3))
W = {"a": np.random.default_rng(1).normal(size=(3, 3)), "b": np.random.default_rng(2).normal(size=3)}


@pytest.fixture
def cupy():
    nccl.Behaviour.reset()
    with fake_cuda_driver.installed() as (found, _):
        yield found
    nccl.Behaviour.reset()


def train(asarray):
    """Some steps of a compiled function; the last value and gradient."""
    x = asarray(X[distributed.rank()])
    w = {name: asarray(p) for name, p in W.items()}

    def loss(w):
        w = distributed.shared(w)
        return distributed.total(pb.sum(pb.tanh(x @ w["a"] + w["b"]) ** 2))

    step = pb.jit(pb.value_and_grad(loss))
    for _ in range(4):
        value, g = step(w)
        w = {name: w[name] - 0.1 * g[name] for name in w}
    return [np.asarray(v.get() if hasattr(v, "get") else v) for v in (value, g["a"], g["b"])]


@pytest.mark.parametrize("is_split", [False, True])
def test_compiled_steps_are_those_of_the_host(cupy, monkeypatch, is_split):
    if is_split:  # into buckets that are started early
        monkeypatch.setattr(specialization, "start_sums_early", lambda program: start_sums_early(program, 1e-5))
    wanted = distributed.run(lambda: train(np.asarray), 2)
    found = nccl_ranks.returned(nccl_ranks.run(lambda: train(cupy.asarray), 2))
    for mine, other, one in zip(*found, wanted[0], strict=True):
        np.testing.assert_array_equal(mine, other)
        np.testing.assert_allclose(mine, one, rtol=1e-12)
    sizes = [size for rank, name, size in nccl.Behaviour.log if rank == 0 and name == "allGather"]
    assert sizes == [8, *([24, 72] if is_split else [96])] * 4


def test_second_derivatives_and_ranks_that_differ(cupy):
    def on_rank(asarray):
        x = asarray(X[distributed.rank()])

        def f(w):
            return distributed.total(pb.sum(pb.sin(x @ distributed.shared(w)) ** 2))

        found = pb.jit(lambda w: pb.jvp(pb.grad(f), (w,), (w,))[1])(asarray(W["a"]))
        return found.get() if hasattr(found, "get") else found

    wanted = distributed.run(lambda: on_rank(np.asarray), 2)
    for mine in nccl_ranks.returned(nccl_ranks.run(lambda: on_rank(cupy.asarray), 2)):
        np.testing.assert_allclose(mine, wanted[0], rtol=1e-12)

    def differing():
        return pb.jit(lambda x: distributed.all_gather(x, axis=distributed.rank()))(cupy.asarray(W["a"]))

    for error in nccl_ranks.run(differing, 2):
        assert type(error) is pb.errors.MismatchError
        assert "rank 1: compiled" in str(error)

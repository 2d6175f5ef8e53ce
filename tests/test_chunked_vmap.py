"""`vmap(chunk_size=)`: the results of the whole batch, computed a chunk at a time."""

import numpy as np
import pytest

import pullback as pb
from pullback import errors

ROWS = np.random.default_rng(0).normal(size=(7, 4))


def energy(x, w):
    return pb.sum(pb.tanh(x * w)) * x, {"total": pb.sum(x * w), "w": w}


def same(left, right):
    for one, other in zip(pb.tree.leaves(left), pb.tree.leaves(right), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 100])
@pytest.mark.parametrize("mode", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_results_are_those_of_the_whole_batch_to_the_bit(size, mode):
    w = np.linspace(-1, 1, 4)
    axes, out_axes = (0, None), (-1, {"total": 0, "w": None})
    whole = pb.vmap(energy, axes, out_axes)
    chunked = pb.vmap(energy, axes, out_axes, chunk_size=size)
    same(mode(chunked)(ROWS, w), mode(whole)(ROWS, w))
    across = mode(pb.vmap(energy, (1, None), (1, {"total": 0, "w": None}), chunk_size=size))(ROWS.T.copy(), w)
    same(across[1], whole(ROWS, w)[1]) if mode is not pb.jit else None
    np.testing.assert_allclose(across[0], whole(ROWS, w)[0], rtol=1e-13)


@pytest.mark.parametrize("size", [2, 7])
def test_derivatives_go_through(size):
    w = np.linspace(-1, 1, 4)

    def loss(n):
        return lambda x, w: pb.sum(pb.vmap(energy, (0, None), chunk_size=n)(x, w)[0] ** 2)

    left, right = loss(size), loss(None)
    for derive in (lambda f: pb.grad(f, (0, 1)), lambda f: pb.jit(pb.grad(f, (0, 1))), lambda f: pb.hessian(f, 1)):
        for one, other in zip(
            pb.tree.leaves(derive(left)(ROWS, w)), pb.tree.leaves(derive(right)(ROWS, w)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    along = [pb.jvp(f, (ROWS, w), (ROWS, w))[1] for f in (left, right)]
    np.testing.assert_allclose(*along, rtol=1e-13)
    t = pb.tensor(ROWS, requires_grad=True)
    pb.sum(pb.vmap(pb.checkpoint(lambda x: energy(x, w)[0]), chunk_size=size)(t)).backward()
    np.testing.assert_allclose(
        t.grad.numpy(), pb.grad(lambda x: pb.sum(pb.vmap(energy, (0, None))(x, w)[0]))(ROWS), rtol=1e-13
    )


def test_draws_are_those_of_the_whole_batch():
    keys = pb.random.split(pb.random.key(3), 7)

    def by_key(x, k):
        return x + pb.random.normal(size=(4,), key=k)

    same(pb.vmap(by_key, chunk_size=3)(ROWS, keys), pb.vmap(by_key)(ROWS, keys))
    same(pb.jit(pb.vmap(by_key, chunk_size=3))(ROWS, keys), pb.vmap(by_key)(ROWS, keys))

    def common(x):
        return x + pb.random.normal(size=(4,)) + np.random.normal()

    found = []
    for size in (None, 3):
        pb.random.seed(5)
        np.random.seed(5)
        found.append((pb.vmap(common, chunk_size=size)(ROWS), pb.random.normal(), np.random.normal()))
    same(*found)


def test_the_function_sets_things_once():
    count = pb.tensor(0.0)
    generator = np.random.default_rng(0)

    def f(x):
        count.fill_(count + 1.0)
        return x * generator.normal()

    for size in (None, 2, 7):
        count.fill_(0.0)
        found = pb.vmap(f, chunk_size=size)(ROWS)
        assert float(count) == 1.0
        assert np.ptp(found / ROWS) < 1e-12
    state = np.random.default_rng(0)
    state.normal(size=3)
    assert generator.normal() == state.normal()


def test_batches_inside_and_around_chunks():
    cube = np.random.default_rng(1).normal(size=(3, 5, 2))
    f = pb.vmap(lambda x: x / pb.sum(x * x), chunk_size=2)
    same(pb.vmap(f)(cube), pb.vmap(pb.vmap(lambda x: x / pb.sum(x * x)))(cube))
    rows = pb.vmap(f, chunk_size=2)
    same(rows(cube), pb.vmap(f)(cube))
    same(pb.vmap(pb.grad(lambda x: pb.sum(x**3)), chunk_size=4)(ROWS), 3 * ROWS**2)
    same(pb.vmap(lambda: pb.ones(2), axis_size=5, chunk_size=2)(), np.ones((5, 2)))
    same(pb.vmap(lambda x, *, y: x + y, chunk_size=2)(ROWS, y=ROWS), ROWS + ROWS)
    assert pb.vmap(lambda x: x, chunk_size=2)(np.ones((0, 3))).shape == (0, 3)


def test_a_chunk_bounds_the_memory():
    x = np.ones((64, 1000))

    def wide(v):
        return pb.sum(pb.sort(v[:, None] * v[None, :8], axis=0)[::2])

    peaks = {}
    for size in (None, 8):
        with pb.memory.profile() as report:
            pb.vmap(wide, chunk_size=size)(x)
        peaks[size] = report.peak
    assert peaks[8] < peaks[None] / 5
    compiled = [pb.jit(pb.vmap(wide, chunk_size=size)).lower(x).memory() for size in (None, 8)]
    assert compiled[1].arena < compiled[0].arena / 5


def test_what_is_no_size_is_refused():
    for size in (0, -1, 2.0, "all", True):
        with pytest.raises(errors.ArgumentError, match="chunk_size"):
            pb.vmap(lambda x: x, chunk_size=size)

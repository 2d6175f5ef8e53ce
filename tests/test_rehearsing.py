"""Functions that are run to plan, or once for each chunk: streams and state are as after one run."""

import random

import numpy as np
import pytest

import pullback as pb

X = np.linspace(0.1, 1.0, 6)
GENERATOR = np.random.default_rng(3)
DRAWS = {
    "default": lambda: pb.random.normal(size=6),
    "numpy.random": lambda: np.random.normal(size=6),
    "random": lambda: np.array([random.random() for _ in range(6)]),
    "generator": lambda: GENERATOR.normal(size=6),
}
TAKEN = {
    "jacobian": lambda f: pb.jacobian(f)(X),
    "chunks": lambda f: pb.jacobian(f, mode="forward", memory_budget=200)(X),
    "hessian": lambda f: pb.hessian(lambda x: pb.sum(f(x)))(X),
    "sparse_jacobian": lambda f: pb.sparse_jacobian(f)(X).toarray(),
    "both sides": lambda f: pb.sparse_jacobian(f, coloring="bidirectional")(X).toarray(),
    "sparse_hessian": lambda f: pb.sparse_hessian(lambda x: pb.sum(f(x)))(X).toarray(),
    "jacobian_diagonal": lambda f: np.diag(pb.jacobian_diagonal(f)(X)),
    "hessian_diagonal": lambda f: np.diag(pb.hessian_diagonal(lambda x: pb.sum(f(x)))(X)),
}


@pytest.fixture(autouse=True)
def seeded():
    pb.random.seed(0)
    np.random.seed(0)
    random.seed(0)
    GENERATOR.bit_generator.state = np.random.default_rng(3).bit_generator.state


@pytest.mark.parametrize("stream", DRAWS)
@pytest.mark.parametrize("taken", TAKEN)
def test_a_derivative_draws_once(taken, stream):
    draw = DRAWS[stream]
    start, after = draw(), draw()
    seeded.__wrapped__()
    found = TAKEN[taken](lambda x: pb.sin(x * draw()))
    expected = -(start**2) * np.sin(X * start) if "hess" in taken else start * np.cos(X * start)
    np.testing.assert_allclose(found, np.diag(expected), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(draw(), after)


def test_chunks_are_more_than_one():
    runs = []
    pb.jacobian(lambda x: (runs.append(None), pb.sin(x))[1], mode="forward", memory_budget=200)(X)
    assert len(runs) > 2


class Counting:
    """State of a user's object, of a module, and of a tensor."""

    def __init__(self):
        self.steps, self.last = 0, np.zeros(6)
        self.layer = pb.nn.BatchNorm(1, dtype=np.float64).arrays()
        self.total = pb.tensor(0.0)

    def __call__(self, x):
        self.steps += 1
        self.last = pb.stop_gradient(x) if self.steps < 0 else self.steps * np.ones(6)
        self.total += 1.0
        return pb.sin(x) * pb.reshape(self.layer(pb.reshape(x, (6, 1))), (6,))


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("taken", ["jacobian", "chunks"])
def test_state_moves_once(taken, branches):
    plain, counting = Counting(), Counting()
    plain(X)
    TAKEN[taken](lambda x: counting(x) if not branches or x[0] > 0 else x)
    assert counting.steps == plain.steps == 1
    assert counting.total.item() == 1.0
    np.testing.assert_array_equal(counting.last, plain.last)
    np.testing.assert_allclose(np.asarray(counting.layer.mean), np.asarray(plain.layer.mean), rtol=1e-14)


def test_planning_leaves_no_sketch_in_an_attribute():
    class Holding:
        def __call__(self, x):
            self.seen = pb.tanh(x)
            return pb.sin(x)

    holding = Holding()
    holding.seen = X
    plan = []
    pb.jacobian(lambda x: (plan.append(holding), holding(x))[1], memory_budget="1 MiB", mode="reverse")(X)
    assert "sketch" not in repr(holding.seen)


def test_a_plan_made_inside_a_checkpoint_is_not_missed_by_its_second_run():
    f = pb.checkpoint(lambda x: pb.jacobian(lambda x: pb.sin(x) if x[0] > 0 else x)(x), verify=True)
    found = pb.grad(lambda x: pb.sum(f(x)))(X)
    np.testing.assert_allclose(found, -np.sin(X), rtol=1e-12)


def test_statistics_that_leave_nested_transforms_carry_no_derivatives():
    x = np.linspace(-1, 1, 9).reshape(3, 3)
    plain = pb.nn.BatchNorm(3, dtype=np.float64)
    plain(x)

    def product(layer):
        return lambda x: pb.ggnvp(layer, lambda y: 0.5 * pb.sum(y * y), (x,), (np.ones((3, 3)),))

    for taken in (lambda f: f(x), lambda f: pb.jvp(f, (x,), (x,)), lambda f: pb.grad(lambda x: pb.sum(f(x)))(x)):
        layer = pb.nn.BatchNorm(3, dtype=np.float64)
        taken(product(layer))
        np.testing.assert_allclose(np.asarray(layer.mean), np.asarray(plain.mean), rtol=1e-14)

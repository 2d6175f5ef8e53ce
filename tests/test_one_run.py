"""Transforms that looked at a function twice: planning draws no random numbers, and products run the model once."""

import numpy as np

import pullback as pb

X = np.linspace(0.1, 1, 3)


def noisy(x):
    return pb.sin(x * pb.random.normal(size=3))


def test_a_gauss_newton_product_belongs_to_one_draw():
    pb.random.seed(0)
    found = pb.ggnvp(noisy, lambda y: 0.5 * pb.sum(y * y), (X,), (X,))
    pb.random.seed(0)
    jacobian = pb.jacfwd(noisy)(X)
    np.testing.assert_allclose(found, jacobian.T @ jacobian @ X, rtol=1e-12)


def test_a_gauss_newton_product_runs_the_model_once():
    runs = []
    pb.ggnvp(lambda x: (runs.append(1), pb.sin(x))[1], lambda y: pb.sum(y * y), (X,), (X,))
    assert len(runs) == 1


def test_planning_a_jacobian_draws_nothing():
    ends = []
    for transform in (pb.jacobian, pb.jacrev, pb.jacfwd):
        pb.random.seed(0)
        value = transform(noisy)(X)
        ends.append((value, pb.random.uniform()))
    for value, after in ends[1:]:
        np.testing.assert_allclose(value, ends[0][0], rtol=1e-12)
        assert after == ends[0][1]


def test_anomalies_are_looked_for_where_there_are_numbers():
    spec = pb.Spec((3,), "float64")
    with pb.detect_anomaly():
        assert pb.memory.predict(lambda x: pb.sum(pb.sin(x)), spec).peak > 0
        graph = pb.stage(pb.grad(lambda x: pb.sum(pb.sin(x))))(spec)
    assert [e.op.name for e in graph.equations] == ["sin", "sum", "cos", "multiply"]

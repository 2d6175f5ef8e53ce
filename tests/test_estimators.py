"""Gradient estimators against exact expectations, within 4 standard errors."""

import numpy as np
import pytest

import pullback as pb

D = pb.distributions
KEYS = pb.random.split(pb.random.key(5), 400)


def f(x):
    return pb.sum((x - 0.3) ** 3)


def exact(p):
    return p * f(1.0) + (1 - p) * f(0.0)


def estimate(slope):
    """Mean and standard error over keys, in one batch."""
    found = pb.vmap(slope)(KEYS)
    return found.mean(), found.std() / np.sqrt(len(KEYS))


@pytest.mark.parametrize("baseline", ["leave-one-out", None, 0.2])
def test_score_function_is_unbiased_and_baselines_help(baseline):
    slope = pb.grad(lambda p, key: D.score_function(f, D.Bernoulli(p), key=key, samples=8, baseline=baseline))
    mean, error = estimate(lambda key: slope(0.3, key))
    assert abs(mean - pb.grad(exact)(0.3)) < 4 * error
    second = pb.vmap(lambda key: pb.grad(lambda p: slope(p, key) * p)(0.3))(KEYS)
    assert abs(second.mean() - pb.grad(lambda p: pb.grad(exact)(p) * p)(0.3)) < 4 * second.std() / 20


def test_leave_one_out_lowers_the_variance():
    def spread(baseline):
        g = lambda x: f(x) + 5.0  # noqa: E731
        slope = pb.grad(lambda p, key: D.score_function(g, D.Bernoulli(p), key=key, samples=8, baseline=baseline))
        return pb.vmap(lambda key: slope(0.3, key))(KEYS).std()

    assert spread("leave-one-out") < 0.2 * spread(None)


def test_score_function_of_counts_vectors_and_what_f_depends_on():
    slope = pb.grad(lambda r, key: D.score_function(lambda x: x**2 * r, D.Poisson(r), key=key, samples=16))
    mean, error = estimate(lambda key: slope(2.0, key))  # d/dr r (r + r^2)
    assert abs(mean - (2 * 2.0 + 3 * 4.0)) < 4 * error
    weights = np.array([1.0, -2.0, 0.5])
    logits = np.array([0.3, 0.0, -0.4])
    d = lambda s: D.Independent(D.OneHotCategorical(logits=pb.stack([s, s])), 1)  # noqa: E731
    slope = pb.grad(lambda s, key: D.score_function(lambda x: pb.sum(x @ weights), d(s), key=key, samples=4))
    found = pb.vmap(lambda key: slope(logits, key))(KEYS)
    expected = pb.grad(lambda s: 2 * pb.sum(pb.softmax(s) * weights))(logits)
    assert (np.abs(found.mean(0) - expected) < 4 * found.std(0) / 20).all()
    with pytest.raises(pb.errors.ArgumentError, match="number"):
        D.score_function(lambda x: x * np.ones(2), D.Bernoulli(0.3), key=KEYS[0])
    with pytest.raises(pb.errors.ArgumentError, match="baseline"):
        D.score_function(f, D.Bernoulli(0.3), key=KEYS[0], baseline="mean")


def test_straight_through_is_exact_for_linear_functions():
    slope = pb.jit(pb.grad(lambda p, key: 3.0 * pb.sum(D.straight_through(D.Bernoulli(p), (4,), key=key))))
    assert np.isclose(slope(0.3, KEYS[0]), 12.0)
    hot = D.straight_through(D.OneHotCategorical([0.2, 0.8]), (5,), key=KEYS[0])
    assert set(np.unique(hot)) <= {0.0, 1.0}


@pytest.mark.parametrize("family", [D.Bernoulli, D.OneHotCategorical])
def test_relaxed_draws_approach_choices(family):
    logits = np.array([0.4, -0.7])
    soft = D.relaxed_sample(family(logits=logits), 0.01, (2000,), key=KEYS[0])
    choices = D.relaxed_sample(family(logits=logits), 0.01, (2000,), key=KEYS[0], hard=True)
    assert set(np.unique(choices)) <= {0.0, 1.0}
    mean = family(logits=logits).mean
    assert (np.abs(choices.mean(0) - mean) < 4 * np.sqrt(mean * (1 - mean) / 2000)).all()
    assert np.mean(np.abs(soft - choices) > 0.01) < 0.05
    slope = pb.grad(lambda s: pb.sum(D.relaxed_sample(family(logits=s), 0.5, key=KEYS[0])[0]))(logits)
    assert slope[0] > 0
    with pytest.raises(pb.errors.UnsupportedFunction, match="Poisson"):
        D.relaxed_sample(D.Poisson(1.0), 0.5, key=KEYS[0])

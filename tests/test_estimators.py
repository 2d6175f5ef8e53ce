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


NORMAL = (lambda m, s: D.Normal(m, s), (0.4, 1.3))
MEASURES = {
    "normal": (*NORMAL, lambda m, s: m**3 + 3 * m * s**2),
    "exponential": (D.Exponential, (1.7,), lambda r: 6.0 / r**3),
    "gamma rate": (lambda r: D.Gamma(2.5, r), (1.4,), lambda r: 2.5 * 3.5 * 4.5 / r**3),
    "bernoulli": (D.Bernoulli, (0.3,), lambda p: p),
    "poisson": (D.Poisson, (1.2,), lambda r: r**3 + 3 * r**2 + r),
}


@pytest.mark.parametrize("name", MEASURES)
def test_measure_valued_derivatives_are_unbiased(name):
    """Of E x^3, by every parameter; those by what else f depends on are those of f."""
    family, values, mean_cube = MEASURES[name]
    mean = lambda *p, key: D.measure_valued(lambda x: x**3, family(*p), key=key, samples=16)  # noqa: E731
    for i in range(len(values)):
        slope = pb.grad(mean, i)
        found, error = estimate(lambda key: slope(*values, key=key))  # noqa: B023
        assert abs(found - pb.grad(mean_cube, i)(*values)) < 4 * error + 1e-12, (name, i)
    value, error = estimate(lambda key: mean(*values, key=key))
    assert abs(value - mean_cube(*values)) < 4 * error
    inner = lambda c, key: D.measure_valued(lambda x: c * x, family(*values), key=key, samples=4)  # noqa: E731
    assert np.isclose(pb.grad(inner)(2.0, key=KEYS[0]), inner(1.0, key=KEYS[0]))


def test_measure_valued_of_many_coordinates():
    """Each coordinate by itself, of equal numbers of coordinates and draws; and compiled."""
    rates = np.array([0.5, 1.0, 2.0])
    f = lambda x: pb.prod(x + 1.0) + pb.max(x)  # noqa: E731
    mean = lambda r, key: D.measure_valued(f, D.Independent(D.Poisson(r), 1), key=key, samples=3)  # noqa: E731
    found = pb.vmap(lambda key: pb.grad(mean)(rates, key))(KEYS)
    score = lambda r, key: D.score_function(f, D.Independent(D.Poisson(r), 1), key=key, samples=200)  # noqa: E731
    other = pb.vmap(lambda key: pb.grad(score)(rates, key))(KEYS)
    gap = np.abs(found.mean(0) - other.mean(0))
    assert (gap < 4 * np.hypot(found.std(0), other.std(0)) / 20).all()
    eager = pb.grad(mean)(rates, KEYS[0])
    assert np.allclose(pb.jit(pb.grad(mean))(rates, KEYS[0]), eager, rtol=1e-13)
    forward = pb.jvp(lambda r: mean(r, KEYS[0]), (rates,), (rates,))[1]
    assert type(forward) is type(found) is np.ndarray
    assert np.allclose(forward, eager @ rates)


def test_measure_valued_refuses_what_it_lacks():
    mean = lambda m: D.measure_valued(lambda x: x, D.Normal(m, 1.0), key=KEYS[0])  # noqa: E731
    with pytest.raises(pb.errors.GraphError, match="second"):
        pb.grad(pb.grad(mean))(0.3)
    with pytest.raises(pb.errors.GraphError, match="second"):
        pb.jit(pb.hessian(mean))(0.3)
    with pytest.raises(pb.errors.UnsupportedFunction, match="StudentT"):
        D.measure_valued(lambda x: x, D.StudentT(3.0), key=KEYS[0])
    with pytest.raises(pb.errors.GraphError, match="Gamma"):
        pb.grad(lambda a: D.measure_valued(lambda x: x, D.Gamma(a, 1.0), key=KEYS[0]))(2.0)

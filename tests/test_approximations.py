"""Laplace approximation and the evidence bound, where both are known."""

import numpy as np
import pytest

import pullback as pb

D = pb.distributions
KEY = pb.random.key(2)
COVARIANCE = np.array([[2.0, 0.6], [0.6, 1.0]])


def test_laplace_is_exact_for_a_normal_posterior_and_differentiable():
    target = D.MultivariateNormal([1.0, -2.0], COVARIANCE)
    found = D.laplace_approximation(target.log_prob, np.zeros(2))
    assert np.allclose(found.mean, target.mean, atol=1e-6)
    assert np.allclose(found.covariance_matrix, COVARIANCE)

    def mode(m):
        density = lambda x, m: pb.sum(D.Normal(m, 1.0).log_prob(x))  # noqa: E731
        return pb.sum(D.laplace_approximation(density, np.zeros(2), m).mean)

    assert np.isclose(pb.grad(mode)(0.7), 2.0)
    with pytest.raises(pb.errors.ArgumentError, match="vector"):
        D.laplace_approximation(D.Normal().log_prob, 0.0)


def test_laplace_of_a_gamma_posterior():
    """In log coordinates: mode log(a / b), curvature a."""
    density = D.to_unconstrained(lambda z: pb.sum(D.Gamma(5.0, 2.0).log_prob(z)), D.constraints.positive)
    found = D.laplace_approximation(density, np.zeros(1))
    assert np.allclose(found.mean, np.log(2.5), atol=1e-6)
    assert np.allclose(found.variance, 1 / 5)


def test_variational_inference_finds_a_normal_posterior():
    target = D.MultivariateNormal([1.0, -2.0], COVARIANCE)
    fill = D.FillTriangular()
    guide = lambda p: D.MultivariateNormal(p["loc"], scale_tril=fill.forward(p["factor"]))  # noqa: E731
    params = {"loc": np.zeros(2), "factor": np.zeros(3)}
    rule = pb.optim.adam(pb.optim.schedules.cosine(0.1, 400))
    state = rule.init(params)

    @pb.jit
    def step(params, state, key):
        grads = pb.grad(lambda p: -D.elbo(target.log_prob, guide(p), key=key, samples=64))(params)
        updates, state = rule.update(grads, state, params)
        return pb.optim.apply_updates(params, updates), state

    for i in range(400):
        params, state = step(params, state, pb.random.fold_in(KEY, i))
    assert np.allclose(guide(params).mean, target.mean, atol=0.02)
    assert np.allclose(guide(params).covariance_matrix, COVARIANCE, atol=0.05)
    assert abs(D.elbo(target.log_prob, guide(params), key=KEY, samples=100)) < 0.01
    with pytest.raises(pb.errors.UnsupportedFunction, match="score_function"):
        D.elbo(target.log_prob, D.Poisson(1.0), key=KEY)
    with pytest.raises(pb.errors.ArgumentError, match="Independent"):
        D.elbo(target.log_prob, D.Normal(np.zeros(2)), key=KEY)

"""Stochastic traces, log-determinants and Laplacians: against NumPy on the whole, within their standard errors."""

import numpy as np
import pytest

import pullback as pb
from pullback import curvature, errors

RNG = np.random.default_rng(0)
N = 30
BASIS = np.linalg.qr(RNG.normal(size=(N, N)))[0]
VALUES = 1.0 + np.geomspace(20.0, 0.01, N)
A = BASIS @ np.diag(VALUES) @ BASIS.T
KEY = pb.random.key(0)


def product(v):
    return A @ v


def within(estimate, exact, sigmas=4.0):
    assert estimate.standard_error > 0
    assert abs(estimate.value - exact) < sigmas * estimate.standard_error + 1e-9, (estimate, exact)


@pytest.mark.parametrize("mode", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_traces_and_log_determinants_are_within_their_errors(mode):
    within(mode(lambda key: curvature.hutch_plus_plus(product, np.zeros(N), key, 45))(KEY), np.trace(A))
    within(mode(lambda key: curvature.log_determinant(product, np.zeros(N), key, 12, 40))(KEY), np.linalg.slogdet(A)[1])
    roots = mode(lambda key: curvature.function_trace(pb.sqrt, product, np.zeros(N), key, 12, 40))(KEY)
    within(roots, np.sqrt(VALUES).sum())


def test_estimates_are_unbiased():
    keys = pb.random.split(KEY, 200)
    for f, exact in (
        (lambda k: curvature.hutch_plus_plus(product, np.zeros(N), k, 12), np.trace(A)),
        (lambda k: curvature.log_determinant(product, np.zeros(N), k, 10, 2), np.linalg.slogdet(A)[1]),
    ):
        draws = pb.jit(pb.vmap(f))(keys)
        mean, error = draws.value.mean(), draws.value.std() / np.sqrt(200)
        assert abs(mean - exact) < 4 * error
        # the stated error is that of one draw
        assert 0.5 < np.sqrt((draws.standard_error**2).mean()) / draws.value.std() < 2.0


def test_hutch_plus_plus_beats_hutchinson_where_few_eigenvalues_are_large():
    low = BASIS[:, :6] @ np.diag([9.0, 8, 7, 6, 5, 4]) @ BASIS[:, :6].T
    found = curvature.hutch_plus_plus(lambda v: low @ v, np.zeros(N), KEY, 21)
    np.testing.assert_allclose(found.value, 39.0, rtol=1e-10)
    plain = curvature.hutchinson_trace(lambda v: low @ v, np.zeros(N), KEY, 21)
    assert abs(plain.value - 39.0) > 1e-3
    small = curvature.hutch_plus_plus(lambda v: 2.0 * v, np.zeros(2), KEY, 30)
    np.testing.assert_allclose(small.value, 4.0, rtol=1e-12)


def test_derivatives_are_those_of_the_estimate_and_unbiased():
    """d log det (A + s I) / ds is the trace of the inverse."""
    f = lambda s, k: curvature.log_determinant(lambda v: A @ v + s * v, np.zeros(N), k, 10, 4).value  # noqa: E731
    s, h = 0.3, 1e-5
    found = pb.grad(f)(s, KEY)
    np.testing.assert_allclose(found, (f(s + h, KEY) - f(s - h, KEY)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(pb.jvp(lambda s: f(s, KEY), (s,), (1.0,))[1], found, rtol=1e-9)
    second = pb.grad(pb.grad(f))(s, KEY)
    slope = lambda s: pb.grad(f)(s, KEY)  # noqa: E731
    np.testing.assert_allclose(second, (slope(s + h) - slope(s - h)) / (2 * h), rtol=1e-5)
    draws = pb.jit(pb.vmap(pb.grad(f), (None, 0)))(s, np.stack([KEY, *pb.random.split(KEY, 100)]))
    np.testing.assert_allclose(draws[0], found, rtol=1e-9)
    exact = (1 / (VALUES + s)).sum()
    assert abs(draws.mean() - exact) < 4 * draws.std() / 10
    trace = pb.grad(lambda s: curvature.hutch_plus_plus(lambda v: s * (A @ v), np.zeros(N), KEY, 15).value)(2.0)
    np.testing.assert_allclose(trace, curvature.hutch_plus_plus(product, np.zeros(N), KEY, 15).value, rtol=1e-12)


def test_trees_and_dtypes():
    like = {"a": np.zeros(2, np.float32), "b": np.zeros((1, 1), np.float32)}
    twice = lambda v: pb.tree.map(lambda x: 2 * x, v)  # noqa: E731
    for found in (
        curvature.hutch_plus_plus(twice, like, KEY, 6),
        curvature.function_trace(lambda x: x, twice, like, KEY, 2, 3),
    ):
        assert found.value.dtype == np.float32
        np.testing.assert_allclose(found.value, 6.0, rtol=1e-5)


def energy(x, w=1.0):
    return pb.sum(pb.sin(x)) * pb.sum(x * x) * w


@pytest.mark.parametrize("mode", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_laplacians_and_divergences(mode):
    x = RNG.normal(size=(4, 3))
    found = mode(lambda x, key: curvature.stochastic_laplacian(energy, 400)(x, 2.0, key=key))(x, KEY)
    within(found, 2.0 * pb.laplacian(energy)(x))
    field = lambda x: pb.sin(x) * pb.sum(x)  # noqa: E731
    found = mode(lambda x, key: curvature.stochastic_divergence(field, 400)(x, key=key))(x, KEY)
    within(found, pb.divergence(field)(x))
    separable = curvature.stochastic_laplacian(lambda x: pb.sum(x**4), 2)(x, key=KEY)
    np.testing.assert_allclose(separable.value, 12 * (x**2).sum(), rtol=1e-12)
    assert separable.standard_error < 1e-10 * separable.value
    one = curvature.stochastic_laplacian(energy, 1)(x, key=KEY)
    assert np.isnan(one.standard_error)


def test_estimates_of_functions_have_derivatives_and_batches():
    x = RNG.normal(size=(5,))
    f = lambda x: curvature.stochastic_laplacian(energy, 3)(x, key=KEY).value  # noqa: E731
    h = 1e-6
    wanted = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(5)]
    np.testing.assert_allclose(pb.grad(f)(x), wanted, rtol=1e-6)
    np.testing.assert_allclose(pb.jit(pb.grad(f))(x), wanted, rtol=1e-6)
    rows, keys = RNG.normal(size=(3, 5)), pb.random.split(KEY, 3)
    each = pb.vmap(lambda x, k: curvature.stochastic_laplacian(energy, 3)(x, key=k).value)(rows, keys)
    one = [curvature.stochastic_laplacian(energy, 3)(r, key=k).value for r, k in zip(rows, keys, strict=True)]
    np.testing.assert_allclose(each, one, rtol=1e-12)


@pytest.mark.parametrize("steps", [3, 8])
def test_few_different_eigenvalues_exhaust_the_space_and_leave_derivatives(steps):
    """A matrix of low rank and a diagonal has three eigenvalues, so that more than three steps find nothing more."""
    low = BASIS[:, :2] @ np.diag([3.0, 8.0]) @ BASIS[:, :2].T

    def estimate(p, f=pb.log):
        return curvature.function_trace(f, lambda v: p[0] * v + p[1] * (low @ v), np.zeros(N), KEY, steps, 3).value

    p, h, large = np.array([0.4, 1.5]), 1e-5, np.array([3.0, 8.0])
    # what the random vectors hold of both directions, by two moments
    moments = [estimate(np.array([0.0, 1.0]), lambda x, k=k: x**k) for k in (1, 2)]
    shares = np.linalg.solve([large, large**2], moments)

    def exact(p):
        return N * np.log(p[0]) + shares @ np.log((p[0] + p[1] * large) / p[0])

    np.testing.assert_allclose(estimate(p), exact(p), rtol=1e-10)
    slope = [(exact(p + h * e) - exact(p - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(pb.grad(estimate)(p), slope, rtol=1e-7)
    np.testing.assert_allclose(pb.grad(lambda p: estimate(1e-12 * p))(p), slope, rtol=1e-7)


def test_what_makes_no_sense_is_refused():
    for call in (
        lambda: curvature.hutch_plus_plus(product, np.zeros(N), KEY, 2),
        lambda: curvature.log_determinant(product, np.zeros(N), KEY, N + 1),
        lambda: curvature.function_trace(3, product, np.zeros(N), KEY),
        lambda: curvature.stochastic_laplacian(energy, 0),
        lambda: curvature.stochastic_laplacian(lambda x: x)(np.ones(2), key=KEY),
        lambda: curvature.stochastic_divergence(pb.sum)(np.ones(2), key=KEY),
        lambda: curvature.stochastic_laplacian(energy)(np.ones(2, complex), key=KEY),
        lambda: curvature.stochastic_laplacian(energy)({"x": np.ones(2)}, key=KEY),
    ):
        with pytest.raises(errors.PullbackError):
            call()

"""HMC and NUTS: moments within standard errors, invariance, reversibility, order of the energy error; diagnostics."""

import numpy as np
import pytest
import scipy.stats as st

import pullback as pb
from pullback.distributions.sampling.leapfrog import Phase, Place, energy, take_leapfrog
from pullback.distributions.sampling.metric import DiagonalMetric

D = pb.distributions
KEY = pb.random.key(11)
UNIT = DiagonalMetric(np.ones(1))
SCALES = np.array([0.1, 1.0, 10.0])


def gaussian(x):
    return -0.5 * pb.sum((x / SCALES) ** 2)


@pytest.mark.parametrize("kernel", [D.NUTS(), D.HMC(steps=12)], ids=["NUTS", "HMC"])
def test_moments_of_a_gaussian(kernel):
    found = D.mcmc(gaussian, np.ones(3), key=KEY, kernel=kernel, draws=1500, warmup=500, chains=2)
    x = found.draws
    assert x.shape == (2, 1500, 3)
    assert (D.split_rhat(x) < 1.02).all()
    error = SCALES / np.sqrt(D.effective_sample_size(x))
    assert (np.abs(x.mean((0, 1))) < 4 * error).all()
    error = SCALES**2 * np.sqrt(2 / D.effective_sample_size(x**2))
    assert (np.abs((x**2).mean((0, 1)) - SCALES**2) < 4 * error).all()
    assert not found.diverged.any()
    assert (found.acceptance.mean(1) > 0.6).all()
    ratio = found.inverse_mass / SCALES**2
    assert (np.abs(np.log(ratio)) < 1).all()


@pytest.mark.parametrize("kernel", [D.NUTS(max_depth=6), D.HMC(steps=4)], ids=["NUTS", "HMC"])
def test_one_transition_leaves_the_target_as_it_is(kernel):
    """Exact draws, one transition of a coarse step each: they follow the target still, tails included."""
    d = D.StudentT(5.0)
    slope = pb.value_and_grad(lambda x: pb.sum(d.log_prob(x)))
    start = d.sample((4000, 1), key=KEY)

    @pb.jit
    def move(x):
        def one(carry, row):
            key, x = row
            made = kernel.move(key, slope, Place(x, *slope(x)), 1.1, UNIT)
            return carry, made.place.position

        return pb.scan(one, 0.0, x)[1]

    moved = move((pb.random.split(pb.random.fold_in(KEY, 1), 4000), start))
    assert np.mean(moved != start) > 0.5
    assert st.kstest(moved[:, 0], st.t(5).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(np.abs(moved[:, 0]), np.abs(start[:, 0]))[0, 1]) < 0.9


def test_leapfrog_is_reversible_and_of_second_order():
    slope = pb.value_and_grad(lambda x: -pb.sum(x**4) / 4 - 0.5 * x[0] * x[1])
    x = np.array([0.3, -0.8])
    start = Phase(Place(x, *slope(x)), np.array([0.5, 0.2]))

    def walk(phase, step, count):
        for _ in range(count):
            phase = take_leapfrog(slope, phase, step, DiagonalMetric(np.ones(2)))
        return phase

    end = walk(start, 0.1, 20)
    back = walk(Phase(end.place, -end.momentum), 0.1, 20)
    assert np.allclose(back.place.position, x, atol=1e-13)
    metric = DiagonalMetric(np.ones(2))
    errors = [abs(energy(walk(start, 2 / n, n), metric) - energy(start, metric)) for n in (160, 320, 640)]
    assert np.allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.05)


def test_ranks_of_the_truth_are_uniform():
    """Simulation-based: where a parameter lies among draws of the posterior of its own data. Parameters and data of
    many problems are one chain's coordinates, which do not depend on each other.
    """
    count = 40
    truth = D.Gamma(2.0, 1.0).sample((count,), key=KEY)
    data = D.Poisson(3.0 * truth).sample(key=pb.random.fold_in(KEY, 9))
    density = D.to_unconstrained(
        lambda z: pb.sum(D.Gamma(2.0, 1.0).log_prob(z) + D.Poisson(3.0 * z).log_prob(data)), D.constraints.positive
    )
    found = D.mcmc(density, np.ones(count), key=KEY, draws=1000, warmup=300)
    ranks = (found.draws[0, ::4] < truth).mean(0)
    assert st.kstest(ranks, st.uniform.cdf).pvalue > 1e-3
    # conjugate: each posterior is known
    exact = st.gamma(2.0 + data, scale=1 / 4)
    error = exact.std() / np.sqrt(D.effective_sample_size(found.draws))
    assert (np.abs(found.draws[0].mean(0) - exact.mean()) < 4.5 * error).all()


def test_trees_and_supports():
    density = D.to_unconstrained(
        lambda t: D.Gamma(3.0, 2.0).log_prob(t["rate"]) + D.Dirichlet([2.0, 3.0, 4.0]).log_prob(t["shares"]),
        {"rate": D.constraints.positive, "shares": D.constraints.simplex},
    )
    start = {"rate": 1.0, "shares": np.full(3, 1 / 3)}
    found = D.mcmc(density, start, key=KEY, draws=1500, warmup=400)
    assert found.draws["shares"].shape == (1, 1500, 3)
    assert np.allclose(found.draws["shares"].sum(-1), 1.0)
    error = np.sqrt(3) / 2 / np.sqrt(D.effective_sample_size(found.draws["rate"]))
    assert abs(found.draws["rate"].mean() - 1.5) < 4 * error
    assert np.allclose(found.draws["shares"].mean((0, 1)), np.array([2, 3, 4]) / 9, atol=0.03)


def test_a_dense_mass_learns_correlations():
    """A narrow ridge: the matrix is learnt, trajectories get short, chains are the same on any number of threads."""
    covariance = np.array([[1.0, 0.99], [0.99, 1.0]])
    precision = np.linalg.inv(covariance)
    ridge = lambda x: -0.5 * x @ (precision @ x)  # noqa: E731
    settings = {"key": KEY, "draws": 800, "warmup": 400, "chains": 3}
    found = D.mcmc(ridge, np.ones(2), dense=True, **settings)
    assert found.inverse_mass.shape == (3, 2, 2)
    assert found.slopes.mean() < 5.0  # 14 by a mass for each coordinate
    x = found.draws
    assert np.allclose(np.cov(x.reshape(-1, 2).T), covariance, atol=0.15)
    assert np.allclose(found.inverse_mass.mean(0), covariance, atol=0.25)
    assert (np.abs(x.mean((0, 1))) < 4 / np.sqrt(D.effective_sample_size(x))).all()
    threads = pb.get_num_threads()
    try:
        pb.set_num_threads(1)
        alone = D.mcmc(ridge, np.ones(2), dense=True, **settings)
    finally:
        pb.set_num_threads(threads)
    assert np.array_equal(alone.draws, x)


def test_divergences_are_told():
    """A step far too long for a narrow valley, held by no warmup."""
    run = D.compile_chain(lambda x: -0.5 * pb.sum((x * np.array([1.0, 1e8])) ** 2), draws=5, warmup=0)
    made = D.NUTS().move(
        KEY, slope := pb.value_and_grad(lambda x: -0.5 * pb.sum((x * 1e4) ** 2)), Place(np.ones(1), *slope(np.ones(1))),
        1.0, UNIT,
    )  # fmt: skip
    assert made.diverged
    assert run(KEY, np.zeros(2)).positions.shape == (5, 2)
    assert " host " not in str(pb.explain(run, KEY, np.zeros(2)))


def test_effective_sample_size_of_autoregressions():
    """A process of correlation rho has (1 - rho) / (1 + rho) effective draws each."""
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.5, 0.9):
        x = np.zeros((4, 4000))
        for t in range(1, 4000):
            x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=4)
        expected = 16000 * (1 - rho) / (1 + rho)
        assert 0.8 < D.effective_sample_size(x) / expected < 1.25
    assert D.split_rhat(np.cumsum(x, axis=1)) > 1.1
    with pytest.raises(pb.errors.ShapeError, match="chains"):
        D.split_rhat(np.zeros(9))
    stuck = np.stack([np.ones((2, 20)), np.full((2, 20), np.inf)], axis=-1)
    assert np.isnan(D.effective_sample_size(stuck)).all()


def test_starts():
    """Those that no chain can leave are refused, integers and single precision taken."""
    with pytest.raises(pb.errors.ArgumentError, match="start is nan"):
        D.mcmc(lambda x: pb.log(x) - x, -1.0, key=KEY, draws=5, warmup=5)
    with pytest.raises(pb.errors.ArgumentError, match="start is -inf"):
        D.mcmc(D.Gamma(2.0).log_prob, -1.0, key=KEY, draws=5, warmup=5)
    with pytest.raises(pb.errors.ArgumentError, match="slope"):
        D.mcmc(lambda x: pb.sqrt(x * 0.0) - x * x, 1.0, key=KEY, draws=5, warmup=5)
    found = D.mcmc(lambda t: -(t["a"] ** 2) - t["b"] ** 2, {"a": 0, "b": 1.0}, key=KEY, draws=5, warmup=5)
    assert found.draws["a"].dtype == np.float64
    for kernel in (D.NUTS(), D.HMC(steps=3)):
        start = np.zeros(2, np.float32)
        found = D.mcmc(lambda x: -pb.sum(x * x), start, key=KEY, kernel=kernel, draws=5, warmup=25)
        assert found.draws.dtype == found.acceptance.dtype == found.step_size.dtype == np.float32


def test_a_chain_has_no_derivative():
    """Draws jump where one is accepted or not: refused by the start, and by what the density depends on."""

    def run(s, x):
        density = lambda x: -pb.sum((x / s) ** 2)  # noqa: E731
        return D.compile_chain(density, kernel=D.HMC(steps=1), draws=1, warmup=1)(KEY, x).positions

    for f in (lambda x: run(2.0, x * np.ones(2)), lambda s: run(s, np.ones(2))):
        with pytest.raises(pb.errors.GraphError, match="mcmc: draws are accepted"):
            pb.grad(lambda v: pb.sum(f(v)))(1.0)  # noqa: B023
    with pytest.raises(pb.errors.GraphError, match="mcmc: draws are accepted"):
        D.mcmc(lambda x: -x * x, pb.tensor(0.0, requires_grad=True), key=KEY)
    mean = lambda s: s * pb.sum(run(pb.stop_gradient(s), np.ones(2)))  # noqa: E731
    assert np.isclose(pb.grad(mean)(2.0), mean(2.0) / 2.0)


def test_wrong_settings_are_named():
    with pytest.raises(pb.errors.ArgumentError, match="target"):
        D.compile_chain(gaussian, target=1.5)
    with pytest.raises(pb.errors.ArgumentError, match="kernel"):
        D.mcmc(gaussian, np.ones(3), key=KEY, kernel="nuts")
    with pytest.raises(pb.errors.ArgumentError, match=r"kernel must be .*NUTS\(\)"):
        D.compile_chain(gaussian, kernel=D.NUTS)
    for kind, name in ((D.HMC, "steps"), (D.NUTS, "max_depth")):
        with pytest.raises(pb.errors.ArgumentError, match=f"{name} must be an integer"):
            kind(2.5)
    with pytest.raises(pb.errors.ArgumentError, match="HMC"):
        D.HMC(steps=0)
    with pytest.raises(pb.errors.ArgumentError, match="max_depth"):
        D.NUTS(max_depth=0)
    with pytest.raises(pb.errors.ArgumentError, match="chains"):
        D.mcmc(gaussian, np.ones(3), key=KEY, chains=0)
    with pytest.raises(pb.errors.ArgumentError, match="wants draws"):
        D.mcmc(gaussian, np.ones(3), key=KEY, draws=0)
    with pytest.raises(pb.errors.DtypeError, match="warmup must be an integer"):
        D.compile_chain(gaussian, warmup=2.5)
    with pytest.raises(pb.errors.ArgumentError, match="start vector"):
        D.compile_chain(gaussian)(KEY, np.ones((2, 3)))
    with pytest.raises(pb.errors.DtypeError, match="real"):
        D.mcmc(gaussian, np.ones(3, complex), key=KEY)
    with pytest.raises(pb.errors.ShapeError, match="return a number"):
        D.mcmc(lambda x: -x * x, np.ones(1), key=KEY)

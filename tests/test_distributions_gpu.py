"""Distributions whose parameters lie on a GPU: all they can do, against the same on the CPU."""

import numpy as np
import pytest
from gpu import cupy, installed_cupy  # noqa: F401 - a fixture

import pullback as pb

D = pb.distributions
KEY = pb.random.key(3)
SPD = np.array([[2.0, 0.3], [0.3, 1.0]])

#: By name: a distribution of arrays, the arrays, points.
TABLE = {
    "Normal": (D.Normal, (0.7, 1.3), 0.4),
    "LogNormal": (D.LogNormal, (0.7, 1.3), 0.4),
    "HalfNormal": (D.HalfNormal, (1.3,), 0.4),
    "Uniform": (D.Uniform, (-1.0, 2.5), 0.4),
    "Exponential": (D.Exponential, (1.3,), 0.4),
    "Laplace": (D.Laplace, (0.7, 1.3), 0.4),
    "Cauchy": (D.Cauchy, (0.7, 1.3), 0.4),
    "HalfCauchy": (D.HalfCauchy, (1.3,), 0.4),
    "StudentT": (D.StudentT, (3.5, 0.3, 1.2), 0.4),
    "Gamma": (D.Gamma, (2.3, 1.7), 0.4),
    "InverseGamma": (D.InverseGamma, (2.3, 1.7), 0.4),
    "Beta": (D.Beta, (2.2, 3.1), 0.4),
    "Chi2": (D.Chi2, (4.5,), 0.4),
    "FisherSnedecor": (D.FisherSnedecor, (3.5, 5.2), 0.4),
    "ContinuousBernoulli": (D.ContinuousBernoulli, (0.3,), 0.4),
    "Kumaraswamy": (D.Kumaraswamy, (1.3, 2.0), 0.4),
    "Gumbel": (D.Gumbel, (0.5, 1.5), 0.4),
    "Logistic": (D.Logistic, (0.5, 1.5), 0.4),
    "Weibull": (D.Weibull, (0.5, 1.5), 0.4),
    "GeneralizedPareto": (D.GeneralizedPareto, (0.1, 2.0, 0.3), 0.4),
    "Pareto": (D.Pareto, (0.1, 2.0), 0.4),
    "VonMises": (D.VonMises, (0.4, 2.5), 0.4),
    "RelaxedBernoulli": (lambda p: D.RelaxedBernoulli(0.5, p), (0.3,), 0.4),
    "Bernoulli": (D.Bernoulli, (0.3,), 1.0),
    "Binomial": (lambda p: D.Binomial(5, p), (0.3,), 2.0),
    "Geometric": (D.Geometric, (0.3,), 2.0),
    "Poisson": (D.Poisson, (1.3,), 2.0),
    "NegativeBinomial": (D.NegativeBinomial, (3.5, 0.4), 2.0),
    "Categorical": (D.Categorical, (np.array([0.2, 0.3, 0.5]),), 2),
    "OneHotCategorical": (D.OneHotCategorical, (np.array([0.2, 0.3, 0.5]),), np.array([0.0, 1.0, 0.0])),
    "RelaxedOneHotCategorical": (
        lambda p: D.RelaxedOneHotCategorical(0.5, p), (np.array([0.2, 0.8]),), np.array([0.3, 0.7]),
    ),
    "Multinomial": (lambda p: D.Multinomial(3, p), (np.array([0.2, 0.3, 0.5]),), np.array([0.0, 1.0, 2.0])),
    "Dirichlet": (D.Dirichlet, (np.array([1.2, 2.3]),), np.array([0.3, 0.7])),
    "LogisticNormal": (D.LogisticNormal, (np.array([0.3]), np.array([1.2])), np.array([0.3, 0.7])),
    "MultivariateNormal": (D.MultivariateNormal, (np.array([0.3, 0.1]), SPD), np.array([0.3, 0.7])),
    "LowRankMultivariateNormal": (
        D.LowRankMultivariateNormal, (np.zeros(2), np.ones((2, 1)), np.ones(2)), np.array([0.3, 0.7]),
    ),
    "Wishart": (D.Wishart, (np.array(3.3), SPD), SPD + np.eye(2)),
    "LKJCholesky": (lambda c: D.LKJCholesky(3, c), (1.3,), np.linalg.cholesky(np.eye(3) * 0.8 + 0.2)),
    "Independent": (lambda m: D.Independent(D.Normal(m, 1.0), 1), (np.array([0.3, 0.1]),), np.array([0.3, 0.7])),
    "Mixture": (
        lambda p, m: D.Mixture(D.Categorical(p), D.Normal(m, 1.0)), (np.array([0.3, 0.7]), np.arange(2.0)), 0.3,
    ),
    "TransformedDistribution": (
        lambda m: D.TransformedDistribution(D.Normal(m, 1.0), D.Sigmoid()), (0.3,), 0.4,
    ),
}  # fmt: skip
LOOKS = {
    "log_prob": lambda d, x: d.log_prob(x),
    "mean": lambda d, x: d.mean,
    "variance": lambda d, x: d.variance,
    "mode": lambda d, x: d.mode,
    "entropy": lambda d, x: d.entropy(),
    "cdf": lambda d, x: d.cdf(x),
    "icdf": lambda d, x: d.icdf(x * 0.0 + 0.3),
    "sample": lambda d, x: d.sample((4,), key=KEY),
    "rsample": lambda d, x: d.rsample((4,), key=KEY),
}
#: Bessel functions of any order.
LACKED_BY_CUPY = {"VonMises": ("slopes of log_prob", "slopes of entropy", "slopes of cdf", "slopes of rsample")}
DERIVED = ("log_prob", "entropy", "cdf", "rsample", "mean")


def find(call):
    """The leaves of a result, or the error in their place."""
    try:
        with np.errstate(all="ignore"):
            found = pb.tree.leaves([call()])
        return [pb.tensor(x).detach().cpu().numpy() for x in found]
    except pb.errors.PullbackError as error:
        return error


def check(name, on_gpu, on_cpu, what):
    if isinstance(on_cpu, Exception):
        assert type(on_gpu) is type(on_cpu), (what, on_gpu)
        return
    if isinstance(on_gpu, pb.errors.DeviceError) and what in LACKED_BY_CUPY.get(name, ()):
        assert "cupyx.scipy.special has no such function" in str(on_gpu)
        return
    assert not isinstance(on_gpu, Exception), (what, on_gpu)
    for found, wanted in zip(on_gpu, on_cpu, strict=True):
        assert found.shape == wanted.shape, what
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10, err_msg=what)


@pytest.mark.parametrize("name", TABLE)
def test_distributions(name):
    family, values, point = TABLE[name]
    values = [np.asarray(v) for v in values]
    given, x = [cupy.asarray(v) for v in values], cupy.asarray(point)
    for what, look in LOOKS.items():
        on_cpu = find(lambda: look(family(*values), np.asarray(point)))  # noqa: B023
        check(name, find(lambda: look(family(*given), x)), on_cpu, what)  # noqa: B023
        if what in DERIVED and not isinstance(on_cpu, Exception):
            slope = pb.grad(lambda *p: pb.sum(pb.sin(look(family(*p), x if at_gpu else np.asarray(point)))),  # noqa: B023
                            tuple(range(len(values))))  # fmt: skip
            at_gpu = False
            on_cpu = find(lambda: slope(*values))  # noqa: B023
            at_gpu = True
            check(name, find(lambda: slope(*given)), on_cpu, f"slopes of {what}")  # noqa: B023


def test_measure_valued_derivatives():
    mean = lambda r: D.measure_valued(lambda z: z**2, D.Poisson(r), key=KEY, samples=16)  # noqa: E731
    assert np.isclose(float(pb.grad(mean)(cupy.asarray(2.0))), pb.grad(mean)(2.0))

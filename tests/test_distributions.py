"""Distributions against SciPy, quadrature and differences: densities, derivatives, draws, moments, divergences."""

import math
import pickle
import threading

import numpy as np
import pytest
import scipy.integrate
import scipy.special as sp
import scipy.stats as st

import pullback as pb

D = pb.distributions
KEY = pb.random.key(7)

#: family, parameters, the same of SciPy, points of the support
CONTINUOUS = [
    (D.Normal, (0.7, 1.3), lambda m, s: st.norm(m, s), (-2.0, 0.7, 5.0)),
    (D.LogNormal, (0.3, 0.8), lambda m, s: st.lognorm(s, scale=np.exp(m)), (0.05, 1.0, 7.0)),
    (D.HalfNormal, (1.7,), lambda s: st.halfnorm(scale=s), (0.0, 0.4, 4.0)),
    (D.Uniform, (-1.0, 2.5), lambda a, b: st.uniform(a, b - a), (-0.9, 1.0, 2.4)),
    (D.Exponential, (2.5,), lambda r: st.expon(scale=1 / r), (0.0, 0.3, 4.0)),
    (D.Laplace, (0.2, 1.4), lambda m, s: st.laplace(m, s), (-3.0, 0.9, 4.0)),
    (D.Cauchy, (0.2, 1.4), lambda m, s: st.cauchy(m, s), (-30.0, 0.9, 4.0)),
    (D.HalfCauchy, (1.4,), lambda s: st.halfcauchy(scale=s), (0.0, 0.9, 40.0)),
    (D.StudentT, (3.5, 0.3, 1.2), lambda v, m, s: st.t(v, m, s), (-6.0, 0.4, 2.0)),
    (D.Gamma, (2.3, 1.7), lambda a, r: st.gamma(a, scale=1 / r), (0.02, 1.0, 6.0)),
    (D.Gamma, (0.4, 0.7), lambda a, r: st.gamma(a, scale=1 / r), (0.001, 1.0, 6.0)),
    (D.InverseGamma, (3.3, 1.7), lambda a, r: st.invgamma(a, scale=r), (0.1, 1.0, 6.0)),
    (D.Beta, (2.2, 3.1), lambda a, b: st.beta(a, b), (0.01, 0.4, 0.97)),
    (D.Chi2, (4.5,), lambda v: st.chi2(v), (0.1, 3.0, 12.0)),
    (D.FisherSnedecor, (3.5, 5.2), lambda m, n: st.f(m, n), (0.1, 1.0, 7.0)),
    (D.ContinuousBernoulli, (0.3,), lambda p: st.truncexpon(-sp.logit(p), scale=-1 / sp.logit(p)), (0.1, 0.4, 0.95)),
    (D.Gumbel, (0.5, 1.5), lambda m, s: st.gumbel_r(m, s), (-2.0, 0.5, 6.0)),
    (D.Logistic, (0.5, 1.5), lambda m, s: st.logistic(m, s), (-9.0, 0.4, 6.0)),
    (D.Weibull, (1.5, 2.2), lambda s, k: st.weibull_min(k, scale=s), (0.1, 1.0, 3.0)),
    (D.GeneralizedPareto, (1.0, 2.0, 0.3), lambda m, s, x: st.genpareto(x, m, s), (1.2, 2.0, 40.0)),
    (D.GeneralizedPareto, (1.0, 2.0, -0.4), lambda m, s, x: st.genpareto(x, m, s), (1.2, 2.0, 4.9)),
    (D.Pareto, (1.5, 4.2), lambda s, a: st.pareto(a, scale=s), (1.6, 2.0, 9.0)),
    (D.VonMises, (0.4, 2.5), lambda m, k: st.vonmises(k, m), (-2.0, 0.4, 3.0)),
]
DISCRETE = [
    (D.Bernoulli, (0.3,), lambda p: st.bernoulli(p), (0, 1)),
    (D.Geometric, (0.3,), lambda p: st.geom(p, -1), (0, 1, 7)),
    (D.Poisson, (3.4,), lambda r: st.poisson(r), (0, 2, 11)),
    (D.NegativeBinomial, (3.5, 0.4), lambda r, p: st.nbinom(r, 1 - p), (0, 2, 11)),
]
ALL = CONTINUOUS + DISCRETE
by_family = pytest.mark.parametrize(
    ("family", "values", "reference", "points"), ALL, ids=lambda x: getattr(x, "__name__", None)
)
continuous = pytest.mark.parametrize(
    ("family", "values", "reference", "points"), CONTINUOUS, ids=lambda x: getattr(x, "__name__", None)
)


def difference(f, x, step=1e-5):
    """The slope of f by Richardson's extrapolation of central differences."""
    slopes = [(f(x + h) - f(x - h)) / (2 * h) for h in (step * max(abs(x), 1), 0.5 * step * max(abs(x), 1))]
    return (4 * slopes[1] - slopes[0]) / 3


@by_family
def test_log_density_and_every_slope(family, values, reference, points):
    log_of = lambda r: r.logpdf if hasattr(r.dist, "pdf") else r.logpmf  # noqa: E731
    for x in points:
        expected = log_of(reference(*values))(x)
        assert np.isclose(family(*values).log_prob(x), expected, rtol=1e-12, atol=1e-12)
        slopes = pb.grad(lambda *p: family(*p).log_prob(x), tuple(range(len(values))))(*values)  # noqa: B023
        for i, slope in enumerate(slopes):

            def moved(v):
                return log_of(reference(*values[:i], v, *values[i + 1 :]))(x)  # noqa: B023

            assert np.isclose(slope, difference(moved, values[i]), rtol=2e-7, atol=2e-7), (x, i)


@continuous
def test_slope_in_the_value(family, values, reference, points):
    for x in points[1:]:
        slope = pb.grad(family(*values).log_prob)(x)
        assert np.isclose(slope, difference(reference(*values).logpdf, x), rtol=2e-7, atol=2e-7)


@by_family
def test_moments(family, values, reference, points):
    d, r = family(*values), reference(*values)
    if family is D.VonMises:
        return
    assert np.allclose(d.mean, r.mean(), equal_nan=True)
    if family is not D.HalfCauchy:
        assert np.allclose(d.variance, r.var(), equal_nan=True)
        assert np.allclose(d.stddev, r.std(), equal_nan=True)
    assert d.mean.shape == d.variance.shape == d.batch_shape == ()


@continuous
def test_entropy_by_quadrature(family, values, reference, points):
    assert np.isclose(family(*values).entropy(), reference(*values).entropy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "values", "reference", "points"), DISCRETE, ids=lambda x: getattr(x, "__name__", None)
)
def test_discrete_probabilities_sum_to_one(family, values, reference, points):
    x = np.arange(300.0) if family is not D.Bernoulli else np.arange(2.0)
    p = family(*values).prob(x)
    assert np.isclose(p.sum(), 1.0)
    assert np.allclose(np.cumsum(p), family(*values).cdf(x))
    if family in (D.Bernoulli, D.Geometric):
        assert np.isclose(family(*values).entropy(), -(p[p > 0] * np.log(p[p > 0])).sum())
    assert np.all(family(*values).log_prob([-1.0, 0.5]) == -np.inf)
    assert family(*values).cdf(-0.5) == 0
    assert np.isclose(family(*values).cdf(0.5), p[0])


@continuous
def test_distribution_function_and_its_inverse(family, values, reference, points):
    d, r = family(*values), reference(*values)
    p = np.array([1e-6, 0.1, 0.5, 0.77, 0.999])
    assert np.allclose(d.cdf(np.array(points)), r.cdf(points), rtol=1e-10)
    assert np.allclose(d.icdf(p), r.ppf(p), rtol=1e-9)
    assert np.allclose(d.cdf(d.icdf(p)), p, rtol=1e-9)
    assert np.isnan(d.icdf([-0.1, 1.1, math.nan])).all()
    assert np.isnan(d.cdf(math.nan))
    assert [d.cdf(-np.inf), d.cdf(np.inf)] == [0.0, 1.0]
    density = pb.vmap(pb.grad(d.cdf))(np.array(points[1:]))
    assert np.allclose(density, r.pdf(points[1:]), rtol=1e-9)


@pytest.mark.parametrize(
    "d",
    [D.StudentT(4.0, 0.2, 1.5), D.Laplace(0.2, 1.5), D.Cauchy(0.2), D.VonMises(0.2, 3.0)],
    ids=lambda d: type(d).__name__,
)
def test_slopes_at_the_median(d):
    """The middle is where formulas by |x| and x^2 have none."""
    assert np.isclose(pb.grad(d.cdf)(0.2), d.prob(0.2))
    assert np.isclose(pb.grad(d.cdf)(0.2 + 1e-8), d.prob(0.2))
    assert np.isclose(pb.grad(d.icdf)(0.5), 1 / d.prob(0.2))
    assert np.isclose(pb.grad(lambda d: d.cdf(0.2))(d).loc, -d.prob(0.2))
    assert all(np.isfinite(x).all() for x in pb.tree.leaves(pb.grad(lambda d: d.icdf(0.5))(d)))


def test_slopes_at_an_open_end():
    ends = [(D.InverseGamma(2.0, 1.5), 0.0), (D.LogNormal(0.1, 0.7), 0.0)]
    ends += [
        (d, -np.inf) for d in (D.Normal(0.1, 0.7), D.Laplace(), D.Cauchy(), D.StudentT(3.0), D.Gumbel(), D.Logistic())
    ]
    for d, end in ends:
        assert d.cdf(end) == pb.grad(d.cdf)(end) == 0.0
        assert all(np.isfinite(x).all() for x in pb.tree.leaves(pb.grad(lambda d: d.cdf(end))(d)))  # noqa: B023


@continuous
def test_draws_follow_the_distribution(family, values, reference, points):
    x = family(*values).sample((4000,), key=KEY)
    assert st.kstest(x, reference(*values).cdf).pvalue > 1e-3
    assert np.array_equal(x, family(*values).rsample((4000,), key=KEY))


@pytest.mark.parametrize(
    ("family", "values", "reference"),
    [*(row[:3] for row in DISCRETE), (D.Binomial, (7, 0.3), lambda n, p: st.binom(n, p))],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_discrete_draws_follow_the_distribution(family, values, reference):
    x = family(*values).sample((4000,), key=KEY)
    assert x.dtype == np.float64
    r = reference(*values)
    top = int(r.ppf(0.98))
    expected = np.append(r.pmf(np.arange(top)), r.sf(top - 1)) * x.size
    counts = np.bincount(np.minimum(x, top).astype(int), minlength=top + 1)
    assert st.chisquare(counts, expected).pvalue > 1e-3


@continuous
def test_reparametrized_draws_move_with_every_parameter(family, values, reference, points):
    """d E[f(x)] by draws, within 4.5 standard errors of the slope of the quantile's integral."""
    if family is D.VonMises:
        return  # SciPy's quantiles are a search each: test_angles_move_with_the_concentration
    n = 3000
    mean = lambda *p: np.tanh(reference(*p).ppf((np.arange(20000) + 0.5) / 20000)).mean()  # noqa: E731
    draws = lambda *p: pb.tanh(family(*p).rsample((n,), key=KEY))  # noqa: E731
    for i in range(len(values)):
        slopes = pb.jvp(draws, values, tuple(float(i == j) for j in range(len(values))))[1]

        def moved(v):
            return mean(*values[:i], v, *values[i + 1 :])  # noqa: B023

        error = slopes.std() / math.sqrt(n)
        assert abs(slopes.mean() - difference(moved, values[i], 1e-4)) < 4.5 * error + 2e-4, i


def test_binomial_by_probabilities_and_logits():
    p = 0.3
    logit = math.log(p / (1 - p))
    for x in (0, 3, 7):
        expected = st.binom(7, p).logpmf(x)
        assert np.isclose(D.Binomial(7, p).log_prob(x), expected)
        assert np.isclose(D.Binomial(7, logits=logit).log_prob(x), expected)
        slope = pb.grad(lambda p: D.Binomial(7, p).log_prob(x))(p)  # noqa: B023
        assert np.isclose(slope, x / p - (7 - x) / (1 - p))
        slope = pb.grad(lambda s: D.Binomial(7, logits=s).log_prob(x))(logit)  # noqa: B023
        assert np.isclose(slope, x - 7 * p)
    assert np.isclose(D.Binomial(7, p).prob(np.arange(8)).sum(), 1.0)
    assert np.allclose(D.Binomial(7, p).cdf([0, 3, 7, 9]), st.binom(7, p).cdf([0, 3, 7, 9]))
    assert D.Binomial(7, p).mode == 2.0


@pytest.mark.parametrize("family", [D.Bernoulli, D.Geometric])
def test_probabilities_and_logits_are_the_same_law(family):
    a, b = family(0.2), family(logits=math.log(0.25))
    assert np.isclose(a.logits, b.logits)
    assert np.isclose(a.probs, b.probs)
    assert np.isclose(a.log_prob(1), b.log_prob(1))
    assert np.isclose(a.entropy(), b.entropy())
    with pytest.raises(pb.errors.ArgumentError, match="either probs or logits"):
        family(0.2, 0.3)


def test_certain_events_have_finite_slopes():
    assert D.Bernoulli(0.0).log_prob(0) == 0.0
    assert D.Bernoulli(1.0).log_prob(0) == -np.inf
    assert np.isfinite(pb.grad(lambda p: D.Bernoulli(p).log_prob(0))(0.0))
    assert D.Bernoulli(logits=800.0).log_prob(0) == -800.0
    d = D.Categorical(logits=np.array([0.0, -np.inf]))
    assert d.entropy() == 0.0
    assert d.log_prob(1) == -np.inf


def test_categorical_and_one_hot():
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    d = D.Categorical(2 * p)
    assert d.batch_shape == (2,)
    assert d.event_shape == ()
    assert np.allclose(d.log_prob([0, 2]), np.log([0.2, 0.1]))
    assert np.allclose(d.log_prob(np.arange(3)[:, None]), np.log(p.T))
    assert np.allclose(d.mean, p @ np.arange(3))
    assert d.mode.tolist() == [2, 0]
    assert np.allclose(d.cdf(1.5), p[:, :2].sum(1))
    assert np.allclose(d.entropy(), st.entropy(p, axis=1))
    assert d.log_prob(3).tolist() == [-np.inf] * 2
    hot = D.OneHotCategorical(p)
    assert hot.batch_shape == (2,)
    assert hot.event_shape == (3,)
    assert np.allclose(hot.log_prob(np.eye(3)[[0, 2]]), np.log([0.2, 0.1]))
    assert hot.log_prob([0.5, 0.5, 0.0]).tolist() == [-np.inf] * 2
    x = d.sample((4000,), key=KEY)
    assert st.chisquare(np.bincount(x[:, 0].astype(int)), p[0] * 4000).pvalue > 1e-3
    y = hot.sample((4000,), key=KEY)
    assert y.shape == (4000, 2, 3)
    assert np.array_equal(y.argmax(-1), x)
    slope = pb.grad(lambda s: D.Categorical(logits=s).log_prob(1))(np.zeros(3))
    assert np.allclose(slope, [-1 / 3, 2 / 3, -1 / 3])


def test_multinomial():
    p = np.array([0.2, 0.3, 0.5])
    d = D.Multinomial(6, p)
    assert np.isclose(d.log_prob([1, 2, 3]), st.multinomial(6, p).logpmf([1, 2, 3]))
    assert d.log_prob([1, 2, 4]) == -np.inf
    x = d.sample((3000,), key=KEY)
    assert x.shape == (3000, 3)
    assert (x.sum(-1) == 6).all()
    error = np.sqrt(6 * p * (1 - p) / 3000)
    assert (np.abs(x.mean(0) - d.mean) < 4 * error).all()
    assert np.allclose(np.cov(x.T), 6 * (np.diag(p) - np.outer(p, p)), atol=0.12)


def test_dirichlet():
    a = np.array([0.7, 2.0, 3.5])
    d, r = D.Dirichlet(a), st.dirichlet(a)
    x = np.array([0.2, 0.3, 0.5])
    assert np.isclose(d.log_prob(x), r.logpdf(x))
    assert np.isclose(d.entropy(), r.entropy())
    assert np.allclose(d.mean, r.mean())
    assert np.allclose(d.variance, r.var())
    assert d.log_prob([0.2, 0.3, 0.6]) == -np.inf
    for i, slope in enumerate(pb.grad(lambda a: D.Dirichlet(a).log_prob(x))(a)):
        unit = np.eye(3)[i]
        assert np.isclose(slope, difference(lambda v: st.dirichlet(a + v * unit).logpdf(x), 0.0), rtol=1e-7)  # noqa: B023
    assert np.allclose(D.Dirichlet([2.0, 3.0]).mode, [1 / 3, 2 / 3])
    assert np.isnan(d.mode).all()
    draws = d.sample((4000,), key=KEY)
    assert st.kstest(draws[:, 1], st.beta(2.0, 4.2).cdf).pvalue > 1e-3


def covariance():
    a = np.random.default_rng(3).normal(size=(3, 3))
    return a @ a.T + np.eye(3)


def test_multivariate_normal_in_each_form():
    c, m, x = covariance(), np.array([0.1, -0.4, 0.9]), np.array([0.3, 0.2, 0.5])
    expected = st.multivariate_normal(m, c).logpdf(x)
    forms = [
        D.MultivariateNormal(m, c),
        D.MultivariateNormal(m, precision_matrix=np.linalg.inv(c)),
        D.MultivariateNormal(m, scale_tril=np.linalg.cholesky(c)),
        D.LowRankMultivariateNormal(m, np.linalg.cholesky(c - 0.5 * np.eye(3)), np.full(3, 0.5)),
    ]
    for d in forms:
        assert np.isclose(d.log_prob(x), expected)
        assert np.allclose(d.covariance_matrix, c)
        assert type(d.precision_matrix) is np.ndarray
        assert np.allclose(d.precision_matrix, np.linalg.inv(c))
        assert np.allclose(d.scale_tril, np.linalg.cholesky(c))
        assert type(d.variance) is np.ndarray
        assert np.allclose(d.variance, np.diag(c))
        assert np.isclose(d.entropy(), st.multivariate_normal(m, c).entropy())
        draws = d.sample((6000,), key=KEY)
        assert np.allclose(np.cov(draws.T), c, atol=0.35)
        assert np.allclose(draws.mean(0), m, atol=0.15)
    slope = pb.grad(lambda c: D.MultivariateNormal(m, c).log_prob(x))(c)
    g = np.linalg.solve(c, x - m)
    assert np.allclose(slope, 0.5 * (np.outer(g, g) - np.linalg.inv(c)))
    batch = D.MultivariateNormal(np.zeros((4, 1, 3)), np.stack([c, 2 * c]))
    assert batch.batch_shape == (4, 2)
    assert batch.sample((5,), key=KEY).shape == (5, 4, 2, 3)
    assert batch.log_prob(x).shape == (4, 2)


def test_independent_takes_axes_in():
    d = D.Independent(D.Normal(np.zeros((4, 3)), np.ones(3)), 1)
    assert (d.batch_shape, d.event_shape) == ((4,), (3,))
    assert np.allclose(d.log_prob(np.ones(3)), 3 * st.norm.logpdf(1.0))
    assert d.log_prob(np.ones(3)).shape == (4,)
    assert np.allclose(d.entropy(), 3 * st.norm.entropy())
    assert d.sample((2,), key=KEY).shape == (2, 4, 3)
    inside = D.Independent(D.Exponential(np.ones(3)), 1)
    assert inside.log_prob([1.0, -1.0, 2.0]) == -np.inf
    with pytest.raises(pb.errors.ShapeError, match="no 2 axes"):
        D.Independent(D.Normal(np.zeros(3)), 2)


def test_mixture():
    w, m, s = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.5])
    d = D.Mixture(D.Categorical(w), D.Normal(m, s))
    x = np.linspace(-3, 5, 7)
    pdf = (w * st.norm(m, s).pdf(x[:, None])).sum(1)
    assert np.allclose(d.log_prob(x), np.log(pdf))
    assert np.allclose(d.cdf(x), (w * st.norm(m, s).cdf(x[:, None])).sum(1))
    assert np.isclose(d.mean, w @ m)
    assert np.isclose(d.variance, w @ (s**2 + m**2) - (w @ m) ** 2)
    assert st.kstest(d.sample((3000,), key=KEY), lambda x: (w * st.norm(m, s).cdf(x[:, None])).sum(1)).pvalue > 1e-3
    vectors = D.Mixture(D.Categorical(w), D.Independent(D.Normal(np.zeros((2, 3)), 1.0), 1))
    assert vectors.event_shape == (3,)
    assert vectors.sample((5,), key=KEY).shape == (5, 3)
    assert np.isclose(vectors.log_prob(np.ones(3)), 3 * st.norm.logpdf(1.0))
    steps = D.Mixture(D.Categorical(w), D.Uniform([0.0, 2.0], [1.0, 4.0]))
    assert np.allclose(steps.prob([0.5, 1.5, 3.0]), [0.3, 0.0, 0.35])
    with pytest.raises(pb.errors.UnsupportedFunction, match="jump"):
        d.rsample(key=KEY)


def test_a_weight_of_zero_has_a_slope():
    """Where a component has no weight, more of it changes the density all the same."""
    log_prob = lambda w: D.Mixture(D.Categorical(w), D.Normal(np.array([0.0, 1.0]))).log_prob(0.3)  # noqa: E731
    ratio = st.norm.pdf(0.3) / st.norm.pdf(0.3, 1.0)
    assert np.allclose(pb.grad(log_prob)(np.array([0.0, 1.0])), [ratio - 1, 0.0])
    far = D.Mixture(D.Categorical([1e-300, 1.0]), D.Normal(np.array([0.0, 100.0]), 1.0))
    assert np.allclose(far.log_prob([0.0, 100.0]), [st.norm.logpdf(0.0) + math.log(1e-300), st.norm.logpdf(0.0)])


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (D.Normal(0.3, 1.2), D.Normal(-0.5, 0.8)),
        (D.LogNormal(0.3, 0.6), D.LogNormal(-0.5, 0.8)),
        (D.HalfNormal(1.2), D.HalfNormal(0.8)),
        (D.Uniform(0.0, 1.0), D.Uniform(-1.0, 3.0)),
        (D.Exponential(1.2), D.Exponential(0.8)),
        (D.Laplace(0.3, 1.2), D.Laplace(-0.5, 0.8)),
        (D.Cauchy(0.3, 1.2), D.Cauchy(-0.5, 0.8)),
        (D.HalfCauchy(1.2), D.HalfCauchy(0.8)),
        (D.Gamma(2.3, 1.2), D.Gamma(1.5, 0.8)),
        (D.InverseGamma(2.3, 1.2), D.InverseGamma(1.5, 0.8)),
        (D.Chi2(3.0), D.Chi2(5.0)),
        (D.Exponential(1.2), D.Gamma(1.5, 0.8)),
        (D.Gamma(1.5, 0.8), D.Exponential(1.2)),
        (D.Beta(2.0, 3.0), D.Beta(1.5, 1.2)),
        (D.Gumbel(0.3, 1.2), D.Gumbel(-0.5, 1.8)),
        (D.Weibull(1.2, 2.0), D.Weibull(0.8, 1.5)),
        (D.Pareto(2.0, 3.0), D.Pareto(1.0, 1.5)),
        (D.VonMises(0.3, 2.0), D.VonMises(-1.0, 0.7)),
    ],
    ids=lambda d: type(d).__name__,
)
def test_divergence_by_quadrature(p, q):
    low, high = {D.VonMises: (-math.pi, math.pi), D.Uniform: (0.0, 1.0)}.get(type(p), (p.support.low, p.support.high))
    f = lambda x: float(p.prob(x)) * float(p.log_prob(x) - q.log_prob(x)) if p.prob(x) > 0 else 0.0  # noqa: E731
    expected = scipy.integrate.quad(f, float(low), float(high), limit=200)[0]
    assert np.isclose(D.kl_divergence(p, q), expected, rtol=1e-6)
    assert abs(D.kl_divergence(p, p)) < 1e-14


@pytest.mark.parametrize(
    ("p", "q", "top"),
    [
        (D.Bernoulli(0.3), D.Bernoulli(logits=0.4), 2),
        (D.Binomial(5, 0.3), D.Binomial(5, 0.6), 6),
        (D.Binomial(3, 0.3), D.Binomial(5, 0.6), 4),
        (D.Geometric(0.3), D.Geometric(0.6), 200),
        (D.NegativeBinomial(2.5, 0.3), D.NegativeBinomial(2.5, 0.6), 200),
        (D.Poisson(2.0), D.Poisson(3.0), 60),
        (D.Categorical([0.3, 0.7]), D.Categorical(logits=[0.0, 0.3]), 2),
    ],
    ids=lambda d: type(d).__name__,
)
def test_divergence_of_counts(p, q, top):
    x = np.arange(float(top))
    assert np.isclose(D.kl_divergence(p, q), (p.prob(x) * (p.log_prob(x) - q.log_prob(x))).sum())


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (D.Gamma(2.5, 1.5), D.Normal(0.3, 1.2)),
        (D.Pareto(1.5, 3.5), D.Gamma(1.5, 0.8)),
        (D.Uniform(0.2, 0.9), D.Beta(1.5, 2.2)),
        (D.Uniform(0.2, 0.9), D.Gumbel(0.3, 1.2)),
        (D.Normal(0.3, 1.2), D.Laplace(-0.5, 0.8)),
        (D.Normal(0.3, 1.2), D.Gumbel(-0.5, 0.8)),
        (D.Beta(2.0, 3.0), D.ContinuousBernoulli(0.7)),
        (D.Weibull(1.2, 2.0), D.Exponential(0.7)),
    ],
    ids=lambda d: type(d).__name__,
)
def test_divergence_by_moments(p, q):
    low, high = p.icdf([1e-14, 1 - 1e-14])
    f = lambda x: float(p.prob(x)) * float(p.log_prob(x) - q.log_prob(x))  # noqa: E731
    expected = scipy.integrate.quad(f, low, high, limit=200, points=[p.mean, q.mean])[0]
    assert np.isclose(D.kl_divergence(p, q), expected, rtol=1e-5)
    assert np.isclose(pb.jit(D.kl_divergence)(p, q), D.kl_divergence(p, q))


def test_divergence_is_infinite_where_draws_are_impossible():
    assert D.kl_divergence(D.Normal(np.zeros(2)), D.Gamma(2.0)).tolist() == [np.inf] * 2
    assert D.kl_divergence(D.Uniform([0.2, -0.2], 0.9), D.Beta(1.5, 2.0)).tolist()[1] == np.inf
    assert D.kl_divergence(D.Poisson(2.0), D.Binomial(3, 0.5)) == np.inf
    assert D.kl_divergence(D.Poisson(2.0), D.Poisson(0.0)) == np.inf
    assert D.kl_divergence(D.Poisson(0.0), D.Poisson(2.0)) == 2.0
    assert np.isclose(D.kl_divergence(D.Normal(0.0, 1e-170), D.Normal()), 170 * math.log(10) - 0.5)
    assert pb.value_and_grad(lambda s: D.kl_divergence(D.Normal(), D.Pareto(s, 2.0)))(1.0) == (np.inf, 0.0)
    x = np.array([0.0, 1.0])
    p, q = D.Bernoulli(0.3), D.Poisson(1.4)
    assert np.isclose(D.kl_divergence(p, q), (p.prob(x) * (p.log_prob(x) - q.log_prob(x))).sum())
    with pytest.raises(pb.errors.ShapeError, match=r"\(3,\) and \(4,\)"):
        D.kl_divergence(D.Poisson(np.ones(3)), D.Poisson(np.ones(4)))


def test_divergence_of_matrices_and_shares():
    c, e = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, -0.3], [-0.3, 1.5]])
    divergence = lambda n, m, c: D.kl_divergence(D.Wishart(n, c), D.Wishart(m, e))  # noqa: E731
    x = D.Wishart(4.5, c).sample((4000,), key=KEY)
    gap = D.Wishart(4.5, c).log_prob(x) - D.Wishart(3.5, e).log_prob(x)
    assert abs(divergence(4.5, 3.5, c) - gap.mean()) < 4 * gap.std() / np.sqrt(4000)
    normal = D.kl_divergence(D.MultivariateNormal(np.zeros(2), c), D.MultivariateNormal(np.zeros(2), e))
    assert np.isclose(divergence(4.5, 4.5, c), 4.5 * normal)
    slopes = pb.grad(divergence, (0, 1))(4.5, 3.5, c)
    assert np.isclose(slopes[0], difference(lambda n: divergence(n, 3.5, c), 4.5))
    assert np.isclose(slopes[1], difference(lambda m: divergence(4.5, m, c), 3.5))
    shares = [D.LogisticNormal(m, np.full(2, s)) for m, s in ((0.0, 1.0), (1.0, 2.0))]
    assert np.isclose(D.kl_divergence(*shares), 2 * D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 2.0)))


def test_divergence_by_different_total_counts():
    counts = np.array([3, 3, 3]), np.array([5, 3, 2])
    found = D.kl_divergence(D.Binomial(counts[0], 0.3), D.Binomial(counts[1], 0.4))
    assert np.isclose(found[1], D.kl_divergence(D.Binomial(3, 0.3), D.Binomial(3, 0.4)))
    assert found[2] == np.inf
    with pytest.raises(pb.errors.UnsupportedFunction, match="total_count differs"):
        D.kl_divergence(D.NegativeBinomial(2.0, 0.3), D.NegativeBinomial(3.0, 0.3))
    of_count = lambda r: D.kl_divergence(D.NegativeBinomial(r, 0.3), D.NegativeBinomial(2.0, 0.4))  # noqa: E731
    for f in (of_count, pb.jit(of_count)):
        with pytest.raises(pb.errors.GraphError, match="kl_divergence: the closed form"):
            pb.grad(f)(2.0)
    assert np.isclose(pb.jit(of_count)(2.0), of_count(2.0))


def test_divergence_of_low_rank_and_of_images():
    w, d = np.array([[1.0], [0.5], [-0.3]]), np.array([1.0, 0.5, 2.0])
    low, full = D.LowRankMultivariateNormal(np.zeros(3), w, d), D.MultivariateNormal(np.zeros(3), w @ w.T + np.diag(d))
    other = D.MultivariateNormal(np.ones(3), covariance())
    assert np.isclose(D.kl_divergence(low, other), D.kl_divergence(full, other))
    assert np.isclose(D.kl_divergence(other, low), D.kl_divergence(other, full))
    assert abs(D.kl_divergence(low, low)) < 1e-14
    image = lambda m, s: D.TransformedDistribution(  # noqa: E731
        D.Normal(np.full(3, m)), [D.Affine(0.0, s), D.StickBreaking()]
    )
    assert np.isclose(D.kl_divergence(image(0.0, 2.0), image(1.0, 2.0)), 1.5)
    with pytest.raises(pb.errors.UnsupportedFunction, match="bijectors"):
        D.kl_divergence(image(0.0, 2.0), image(0.0, 3.0))


def test_divergence_of_vectors_and_unknown_pairs():
    c = covariance()
    p, q = D.MultivariateNormal(np.zeros(3), c), D.MultivariateNormal(np.ones(3), np.eye(3))
    expected = 0.5 * (np.trace(c) + 3 - 3 - np.linalg.slogdet(c)[1])
    assert np.isclose(D.kl_divergence(p, q), expected)
    p, q = D.Dirichlet([1.0, 2.0]), D.Dirichlet([2.0, 2.5])
    assert np.isclose(D.kl_divergence(p, q), D.kl_divergence(D.Beta(1.0, 2.0), D.Beta(2.0, 2.5)))
    p, q = (D.Independent(D.Normal(np.full(3, m)), 1) for m in (0.0, 1.0))
    assert np.isclose(D.kl_divergence(p, q), 1.5)
    with pytest.raises(pb.errors.UnsupportedFunction, match="StudentT and Normal"):
        D.kl_divergence(D.StudentT(3.0), D.Normal())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: D.Normal(0.0, -1.0), "Normal: scale must be in: positive numbers; got -1.0"),
        (lambda: D.Normal(math.nan, 1.0), "Normal: loc"),
        (lambda: D.Beta([1.0, 0.0], 1.0), "Beta: concentration1"),
        (lambda: D.Uniform(2.0, 1.0), "Uniform: low must be below high"),
        (lambda: D.Bernoulli(1.5), "Bernoulli: probs"),
        (lambda: D.Binomial(2.5, 0.5), "Binomial: total_count"),
        (lambda: D.Categorical([0.5, -0.1]), "Categorical: probs"),
        (lambda: D.Categorical(0.5), "Categorical: probs needs 1 axes"),
        (lambda: D.MultivariateNormal(np.zeros(2)), "pass one of"),
        (lambda: D.MultivariateNormal(np.zeros(2), scale_tril=np.ones((2, 2))), "lower triangles"),
        (lambda: D.MultivariateNormal(np.zeros(2), np.eye(3)), "square matrices"),
        (lambda: D.Normal(np.zeros(3), np.ones(2)), "do not fit together"),
        (lambda: D.Normal(np.zeros(3)).log_prob(np.zeros(2)), "does not fit"),
        (lambda: D.Dirichlet([1.0, 1.0]).log_prob(np.zeros(3)), "at the end"),
        (lambda: D.Normal().log_prob(1j), "Normal: a value must be real"),
        (lambda: D.Normal("a"), "Normal: loc must be real"),
        (lambda: D.Normal().sample((-1,)), r"Normal\.sample: a shape"),
        (lambda: D.NegativeBinomial(3.0, 1.0), "NegativeBinomial: probs"),
        (lambda: D.kl_divergence(D.Dirichlet(np.ones(2)), D.Dirichlet(np.ones(3))), r"\(2,\) and \(3,\) differ"),
        (lambda: D.kl_divergence(D.Categorical(np.ones(2)), D.Categorical(np.ones(3))), "2 and 3 classes differ"),
        (lambda: D.kl_divergence(D.Normal(), 1.0), "kl_divergence: wants a distribution"),
        (lambda: D.score_function(lambda x: x, 0.5, key=KEY), "score_function: wants a distribution"),
        (lambda: D.elbo(lambda x: x, 0.5, key=KEY), "elbo: wants a distribution"),
        (lambda: D.Geometric(0.0), "Geometric: probs"),
        (lambda: D.Wishart(1.0, np.eye(2)), "Wishart: df"),
        (lambda: D.Wishart(3.0, np.zeros((2, 3))), "Wishart: covariance_matrix must be square"),
        (lambda: D.MultivariateNormal(np.zeros(2), scale_tril=np.ones((3, 2))), "scale_tril must be square"),
        (lambda: D.LKJCholesky(1), "LKJCholesky: dim"),
        (lambda: D.LogisticNormal(0.0, 1.0), "LogisticNormal: loc"),
        (lambda: D.Normal(np.zeros(3)).expand((4,)), r"Normal\.expand"),
        (lambda: D.Poisson(2.0).enumerate_support(), r"Poisson\.enumerate_support"),
        (lambda: D.elbo(lambda x: x, D.Normal(), key=KEY, samples=0), "elbo: samples"),
        (lambda: D.elbo(lambda x: x, D.Independent(D.Normal(np.zeros(3)), 1), key=KEY), r"elbo: .* got shape \(3,\)"),
        (lambda: D.laplace_approximation(lambda t: t["a"], {"a": 0.0}), "ravel_pytree"),
        (lambda: pb.grad(lambda s: D.Normal(0.0, s).log_prob(1.0))(-1.0), "Normal: scale"),
        (lambda: D.Binomial(np.ones(2, int), np.ones(3)), r"Binomial: .* do not fit together: .*\(2,\).*\(3,\)"),
        (lambda: D.Normal(0.0, 1.0, validate_args=False), "'validate_args'.\n  Parameters are checked .* leave it out"),
        (lambda: D.Categorical(logit=[0.0, 1.0]), "Categorical: there is no argument 'logit'.\n  Here it is logits="),
        (lambda: D.Independent(D.Normal(), reinterpreted_batch_ndims=0), "Here it is reinterpreted="),
        (lambda: D.TransformedDistribution(D.Normal(), transforms=[D.Exp()]), "Here it is bijector="),
        (lambda: D.Normal().sample(sample_shape=(3,)), "sample: there is no argument .*\n  Here it is shape="),
        (lambda: D.Normal().rsample(sample_shape=(3,)), "rsample: there is no argument .*\n  Here it is shape="),
    ],
)
def test_wrong_parameters_are_named(make, said):
    with pytest.raises(pb.errors.PullbackError, match=said):
        make()


@pytest.mark.parametrize("wrap", [lambda f: f, pb.jit, pb.checkpoint], ids=["eager", "jit", "checkpoint"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda p: D.Bernoulli(p).sample(key=KEY),
        lambda p: D.Normal(p, 1.0).sample(key=KEY),
        lambda p: D.Categorical(logits=p * np.ones(3)).sample(key=KEY),
        lambda p: D.Geometric(p).sample(key=KEY),
        lambda p: D.Mixture(D.Categorical([1.0, 1.0]), D.Normal(p * np.ones(2))).sample(key=KEY),
    ],
)
def test_a_draw_that_is_constant_is_refused_under_grad(draw, wrap):
    with pytest.raises(pb.errors.GraphError, match="detach"):
        pb.grad(wrap(draw))(0.3)
    with pytest.raises(pb.errors.GraphError, match="detach"):
        pb.jvp(draw, (0.3,), (1.0,))


def test_a_draw_in_a_branch_of_a_compiled_function_is_refused():
    """The outer program has no op that refuses: a derivative of zero would be returned."""
    draw = lambda p: D.Bernoulli(p).sample(key=KEY)  # noqa: E731
    f = pb.jit(lambda p: pb.cond(p > 0, draw, lambda p: 0.0, p))
    leaf = pb.tensor(0.9, requires_grad=True)
    for call in (lambda: pb.grad(f)(0.9), lambda: pb.grad(pb.checkpoint(f))(0.9), lambda: f(leaf)):
        with pytest.raises(pb.errors.GraphError, match="detach"):
            call()


def test_compiled_draws_of_what_is_held_constant():
    draw = pb.jit(lambda p: D.Bernoulli(p).sample(key=KEY))
    x, held = draw(0.9), pb.stop_gradient
    assert pb.grad(lambda p: p * draw(held(p)))(0.9) == x
    assert pb.hessian(lambda p: p * p * draw(held(p)))(0.9) == 2 * x
    assert np.all(pb.grad(lambda p: pb.sum(p * pb.vmap(draw)(held(p))))(np.full(2, 0.9)) == x)
    closed = lambda p, t: p * pb.jit(lambda q: draw(q * t))(1.0)  # noqa: E731
    assert pb.grad(lambda p: closed(p, held(p)))(0.9) == x
    # a value that an inner call of value_and_grad computed has no derivative by that call's variable
    inner = lambda t: pb.value_and_grad(lambda y: y * t)(0.9)[0]  # noqa: E731
    assert pb.grad(lambda p: p * draw(inner(held(p))))(0.9) == draw(0.81)
    p = pb.tensor(0.9, requires_grad=True)
    (p * draw(p.detach()) + p * draw(held(p))).backward()
    assert p.grad == 2 * x


def test_draws_under_no_grad():
    p = pb.tensor(0.3, requires_grad=True)
    with pb.no_grad():
        assert D.Bernoulli(p).sample(key=KEY) == D.Bernoulli(0.3).sample(key=KEY)
        assert pb.random.poisson(p, key=KEY) == pb.random.poisson(0.3, key=KEY)

    def draw(p):
        with pb.no_grad():
            return p * D.Poisson(p).sample(key=KEY)

    assert pb.grad(draw)(9.0) == pb.grad(pb.jit(draw))(9.0) == 0.0
    for wrap in (lambda f: f, pb.jit):
        with pytest.raises(pb.errors.GraphError, match="detach"):
            pb.jvp(wrap(draw), (9.0,), (1.0,))


def test_a_key_is_no_shape_of_draws():
    # a key of JAX's users, by position, was taken for the shape (0, seed): no draws
    for law in (D.Normal(0.0, 1.0), D.Categorical(probs=np.ones(3) / 3), D.Dirichlet(np.ones(2))):
        with pytest.raises(pb.errors.DtypeError, match="Pass a key by keyword"):
            law.sample(pb.random.key(7))
    with pytest.raises(pb.errors.DtypeError, match="Pass a key by keyword"):
        D.Normal(0.0, 1.0).rsample(pb.random.key(7))


def test_detached_draws_and_refused_rsample():
    slope = pb.grad(lambda p: D.Bernoulli(p).detach().sample(key=KEY) * p)(0.3)
    assert slope in (0.0, 1.0)
    with pytest.raises(pb.errors.UnsupportedFunction, match=r"Poisson\.rsample"):
        D.Poisson(3.0).rsample(key=KEY)


@by_family
def test_transforms_agree(family, values, reference, points):
    """jit, vmap over parameters and values, and a second derivative in both orders."""
    arrays = [np.array([v, v * 1.1]) for v in values]
    x = float(points[-1])
    log_prob = lambda p: family(*p).log_prob(x)  # noqa: E731
    each = np.array([family(*(float(a[i]) for a in arrays)).log_prob(x) for i in range(2)])
    assert np.allclose(family(*arrays).log_prob(x), each, rtol=1e-13)
    assert np.allclose(pb.vmap(log_prob)(arrays), each, rtol=1e-13)
    assert np.allclose(pb.jit(log_prob)(arrays), each, rtol=1e-12)
    total = lambda p: pb.sum(pb.vmap(log_prob)(p))  # noqa: E731
    for a, b in zip(pb.grad(total)(arrays), pb.jit(pb.grad(total))(arrays), strict=True):
        assert np.allclose(a, b, rtol=1e-10)
    first = lambda v: pb.grad(lambda v: family(v, *values[1:]).log_prob(x))(v)  # noqa: E731
    forward = pb.jvp(first, (values[0],), (1.0,))[1]
    assert np.allclose(forward, pb.grad(first)(values[0]))
    assert np.allclose(forward, difference(first, values[0], 1e-4), rtol=1e-5, atol=1e-6)


def test_fisher_information():
    """Minus the expected Hessian, by exact expectations."""
    hessian = pb.hessian(lambda p, x: D.Normal(p[0], p[1]).log_prob(x))
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    mean = sum(w * hessian(np.array([0.5, 2.0]), 0.5 + 2.0 * z) for z, w in zip(nodes, weights, strict=True))
    assert np.allclose(-mean / weights.sum(), np.diag([1 / 4, 2 / 4]))
    d, x = D.Poisson(2.5), np.arange(80.0)
    second = pb.grad(pb.grad(lambda r: pb.sum(d.prob(x) * D.Poisson(r).log_prob(x))))(2.5)
    assert np.isclose(-second, 1 / 2.5)


def test_distributions_are_trees():
    d = D.Mixture(D.Categorical([0.3, 0.7]), D.Normal([0.0, 1.0], 1.0))
    slopes = pb.grad(lambda d: d.log_prob(0.4))(d)
    assert type(slopes) is D.Mixture
    assert slopes.components.loc.shape == (2,)
    same = pb.jit(lambda d: d)(d)
    assert np.isclose(same.log_prob(0.4), d.log_prob(0.4))
    rows = pb.vmap(lambda d, k: d.rsample(key=k))(D.Normal(np.arange(3.0), np.ones(3)), pb.random.split(KEY, 3))
    assert rows.shape == (3,)
    assert np.unique(rows - np.arange(3)).size == 3
    tree = D.Independent(D.Gamma(np.ones(2), 2.0), 1)
    assert pb.tree.map(lambda x: x, tree).reinterpreted == 1
    assert "Gamma(concentration=" in repr(tree)


def test_modules_and_optimizers_learn_parameters():
    x = D.Normal(3.0, 0.5).sample((200,), key=KEY)
    loc, spread = pb.tensor(0.0, requires_grad=True), pb.tensor(0.0, requires_grad=True)
    optimizer = pb.optim.Adam([loc, spread], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        (-pb.mean(D.Normal(loc, pb.exp(spread)).log_prob(x))).backward()
        optimizer.step()
    assert abs(loc.item() - x.mean()) < 1e-2
    assert abs(math.exp(spread.item()) - x.std()) < 1e-2
    net = pb.nn.Linear(2, 3)
    d = D.Categorical(logits=net(np.ones((4, 2))))
    (-pb.sum(d.log_prob([0, 1, 2, 0]))).backward()
    assert net.weight.grad.shape == net.weight.shape
    f = pb.checkpoint(lambda a: pb.sum(D.Gamma(a, 1.0).rsample((5,), key=KEY)))
    assert np.isclose(pb.grad(f)(2.0), pb.grad(lambda a: pb.sum(D.Gamma(a, 1.0).rsample((5,), key=KEY)))(2.0))


def test_threads_see_the_same_numbers():
    found = [None] * 4
    f = pb.jit(pb.grad(lambda a: D.Gamma(a, 1.0).log_prob(1.3)))

    def work(i):
        found[i] = float(f(1.0 + i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert np.allclose(found, [pb.grad(lambda a: D.Gamma(a, 1.0).log_prob(1.3))(1.0 + i) for i in range(4)])


def test_shapes_of_one_and_of_equal_sizes():
    d = D.Normal(np.zeros((3, 1)), np.ones((1, 3)))
    assert d.batch_shape == (3, 3)
    assert d.mean.shape == (3, 3)
    assert d.entropy().shape == (3, 3)
    assert d.sample((3,), key=KEY).shape == (3, 3, 3)
    assert d.log_prob(np.zeros((3, 1, 1))).shape == (3, 3, 3)
    assert D.Normal(np.zeros(1)).sample((1,), key=KEY).shape == (1, 1)
    assert D.Categorical(np.ones((1, 1))).log_prob(0).tolist() == [0.0]
    assert D.Multinomial(4, [1.0]).sample(key=KEY).tolist() == [4.0]
    assert D.MultivariateNormal([0.0], [[4.0]]).log_prob([1.0]) == D.Normal(0.0, 2.0).log_prob(1.0)


def test_outside_and_edges():
    assert D.Gamma(2.0).log_prob([-1.0, 0.0]).tolist() == [-np.inf, -np.inf]
    assert abs(D.Gamma(1.0).log_prob(0.0)) < 1e-14
    assert D.Gamma(0.5).log_prob(0.0) == np.inf
    assert D.Uniform(0.1, 0.7).log_prob([0.1, 0.7]).tolist() == [-math.log(0.7 - 0.1)] * 2
    assert np.isnan(D.Gamma(2.0).log_prob(math.nan))
    assert np.isnan(D.Uniform().log_prob(math.nan))
    assert pb.grad(D.Exponential(1.0).log_prob)(-3.0) == 0.0
    assert D.InverseGamma(2.0).log_prob(0.0) == -np.inf
    assert np.isnan(D.StudentT(0.5).mean)
    assert D.StudentT(1.5).variance == np.inf
    assert D.Pareto(1.0, 0.5).mean == np.inf
    for d in (D.Gamma(2.0), D.Weibull(1.0, 2.0), D.Poisson(2.0), D.NegativeBinomial(2.0, 0.3), D.Exponential()):
        assert d.log_prob(np.inf) == -np.inf
    assert np.isnan(D.Categorical([0.3, 0.7]).log_prob([math.nan, 0.0])).tolist() == [True, False]
    assert np.isnan(D.Bernoulli(0.3).cdf([math.nan, 0.0])).tolist() == [True, False]
    assert [D.Cauchy().icdf(1.0), D.HalfCauchy().icdf(1.0)] == [np.inf, np.inf]
    assert np.isclose(D.Geometric(1e-12).cdf(1.0), 2e-12, rtol=1e-9)
    assert np.isclose(pb.hessian(D.StudentT(3.0).log_prob)(0.0), -4 / 3)
    assert np.isclose(D.StudentT(1e8).cdf(0.3), st.norm.cdf(0.3), rtol=1e-8)
    assert np.isclose(D.StudentT(1e15).entropy(), st.norm.entropy(), rtol=1e-10)
    for d, x, expected in [
        (D.Cauchy(), 1e300, -math.log(math.pi) - 2 * math.log(1e300)),
        (D.StudentT(1e12), 1.0, st.norm.logpdf(1.0)),
        (D.Logistic(), -800.0, -800.0),
        (D.VonMises(0.0, 1e8), 0.0, 0.5 * math.log(1e8 / (2 * math.pi))),
        (D.NegativeBinomial(1e10, logits=-20.0), 15, st.poisson(1e10 * math.exp(-20.0)).logpmf(15)),
    ]:
        assert np.isclose(d.log_prob(x), expected, rtol=1e-6)


@by_family
def test_float32(family, values, reference, points):
    d = family(*(np.float32(v) for v in values))
    x = np.asarray(points, np.float32)
    assert d.dtype == np.float32
    of_numbers = family(*values)
    assert d.log_prob(x).dtype == of_numbers.log_prob(x).dtype == of_numbers.cdf(x).dtype == np.float32
    assert np.allclose(d.log_prob(x), of_numbers.log_prob(x), rtol=1e-6)
    assert np.allclose(d.log_prob(x), family(*values).log_prob(x), rtol=1e-4, atol=1e-5)
    if family is not D.VonMises:
        assert d.sample((2,), key=KEY).dtype == np.float32
    assert d.mean.dtype == d.variance.dtype == np.float32


def test_the_generalized_pareto_distribution_near_its_exponential_case():
    slope = pb.grad(lambda x: D.GeneralizedPareto(1.0, 2.0, x).log_prob(4.0))
    second = pb.jit(pb.grad(slope))
    for xi in (-1e-9, 0.0, 1e-5, 0.02):
        d, r = D.GeneralizedPareto(1.0, 2.0, xi), st.genpareto(xi, 1.0, 2.0)
        assert np.allclose(d.cdf([0.0, 1.5, 50.0]), r.cdf([0.0, 1.5, 50.0]))
        assert np.allclose(d.icdf([0.0, 0.3, 1.0]), r.ppf([0.0, 0.3, 1.0]))
        assert np.isclose(slope(xi), 1.5**2 / 2 - 1.5, rtol=0.1)
        assert np.isclose(second(xi), difference(slope, xi), rtol=1e-5)
    ends = D.GeneralizedPareto(0.0, 1.0, np.array([0.5, -0.5]))
    assert np.isfinite(ends.log_prob(3.0)).tolist() == [True, False]
    assert ends.icdf(1.0).tolist() == [np.inf, 2.0]


def test_densities_and_slopes_are_native():
    """A step of the host in a sampler's loop costs a hundred times what all the others do."""
    x = np.array([0.2, 0.7, 0.1])

    def density(t):
        a, b = pb.exp(t[0]), pb.exp(t[1])
        numbers = (
            D.Gamma(a, b),
            D.InverseGamma(a, b),
            D.Beta(a, b),
            D.StudentT(a, b, a),
            D.Weibull(a, b),
            D.Kumaraswamy(a, b),
        )
        counts = (D.Poisson(a), D.NegativeBinomial(a, logits=b), D.Bernoulli(a / (a + b)), D.Geometric(a / (a + b)))
        shares = D.Dirichlet(pb.stack([a, b, a])).log_prob(x) + D.Categorical(pb.stack([a, b])).log_prob(1)
        return sum(pb.sum(d.log_prob(x)) for d in numbers) + sum(pb.sum(d.log_prob([0, 1, 1])) for d in counts) + shares

    def supports(t):
        """What parameters on a simplex and of a correlation matrix cost a sampler."""
        simplex, factors = D.StickBreaking(), D.CorrelationCholesky()
        corners = D.Dirichlet(np.ones(3)).log_prob(simplex.forward(t)) + simplex.log_det(t)
        relaxed = D.RelaxedBernoulli(0.5, pb.sigmoid(t)).log_prob(x[:2])
        return corners + D.LKJCholesky(2, pb.exp(t[0])).log_prob(factors.forward(t[:1])) + pb.sum(relaxed)

    assert " host " not in str(pb.explain(pb.jit(supports), np.array([0.1, 0.3])))
    # entropies and divergences are made of the same functions
    guide = lambda a: D.kl_divergence(D.Gamma(a, 2.0), D.Gamma(2.0, a)) - D.Beta(a, 2.0).entropy()  # noqa: E731
    assert " host " not in str(pb.explain(pb.jit(guide), 0.3))
    slope = pb.jit(pb.value_and_grad(density))
    assert np.allclose(slope(np.array([0.1, 0.3]))[1], pb.grad(density)(np.array([0.1, 0.3])), rtol=1e-10)
    assert " host " not in str(pb.explain(slope, np.array([0.1, 0.3])))


def test_normalizers_against_many_digits():
    mp = pytest.importorskip("mpmath")
    from pullback.distributions import normalizers
    from pullback.distributions.normalizers import entropy_part, log_beta, log_gamma

    points = [1e-8, 0.5, 1.0, 7.9, 8.0, 50.0, 1e7, 1e12]
    with mp.workdps(60):
        digamma = {a: mp.digamma(a) for a in points}
        for a in points:
            assert np.isclose(normalizers.digamma(a), float(digamma[a]), rtol=1e-14)
            for order in (-1.0, 2.0):
                exact = mp.loggamma(a) - (mp.mpf(a) - order) * digamma[a] + mp.mpf(a)
                assert np.isclose(entropy_part(a, order), float(exact), rtol=1e-14, atol=1e-14)
            assert np.isclose(log_gamma(a), float(mp.loggamma(a)), rtol=1e-14, atol=1e-14)
            assert np.isclose(pb.grad(log_gamma)(a), float(digamma[a]), rtol=1e-14)
            assert np.isclose(pb.grad(pb.grad(log_gamma))(a), float(mp.polygamma(1, a)), rtol=1e-14)
            for b in (1e-8, 0.5, 8.0, 1e7):
                both = mp.mpf(a) + mp.mpf(b)
                exact = float(mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(both))
                assert np.isclose(log_beta(a, b), exact, rtol=1e-14, atol=1e-14)
                assert np.isclose(pb.grad(log_beta)(a, b), float(digamma[a] - mp.digamma(both)), rtol=1e-12, atol=1e-15)


def test_logit_has_its_digits_near_a_half():
    mp = pytest.importorskip("mpmath")
    from pullback.distributions.ratios import logit

    for p in (1e-300, 0.2, 0.25, 0.3, 0.5 - 1e-9, 0.5, 0.5 + 1e-12, 0.74, 0.75, 1 - 1e-16):
        with mp.workdps(40):
            exact = mp.log(mp.mpf(p) / (1 - mp.mpf(p)))
            assert np.isclose(logit(p), float(exact), rtol=1e-15, atol=0.0)
            assert np.isclose(pb.grad(logit)(p), float(1 / (mp.mpf(p) * (1 - mp.mpf(p)))), rtol=1e-14)
    assert logit(np.array([0.0, 1.0])).tolist() == [-np.inf, np.inf]
    assert np.isnan(logit(np.array([-0.5, 1.5, math.nan]))).all()


def test_float32_beside_python_numbers():
    p = np.array([0.2, 0.8], np.float32)
    for d, x in ((D.Binomial(4, p), [1, 2]), (D.Multinomial(4, p), [1, 3]), (D.Kumaraswamy(p, 2.0), [0.3, 0.4])):
        assert d.log_prob(np.array(x, np.float32)).dtype == np.float32
    one, x = np.float32(0.3), np.full(2, 0.3, np.float32)
    image = D.TransformedDistribution(D.Normal(0.0, one), [D.Softplus(), D.Power(2.0)])
    found = [
        *(d.log_prob(x) for d in (D.NegativeBinomial(one, 0.3), D.RelaxedBernoulli(one, 0.3))),
        *(D.Binomial(np.array([3, 4]), p).log_prob(x) for p in (one, 0.3)),
        D.NegativeBinomial(np.array([3, 4]), one).detach().sample(key=KEY),
        *(d.cdf(x) for d in (image, D.RelaxedBernoulli(one, 0.3))),
        D.Normal(0.0, one).icdf(0.3),
        # numbers of a compiled function are no arrays either
        D.Normal(0.0, 1.0).detach().log_prob(x),
        pb.jit(lambda d: d.log_prob(x))(D.Normal(0.0, 1.0)),
        pb.jit(lambda s: D.Gamma(one, s).log_prob(one))(2.0),
        *(D.kl_divergence(*pair) for pair in ((D.Gamma(one), D.Gamma(2.0)), (D.Gamma(2.0), D.Gamma(one)))),
    ]
    assert {y.dtype for y in found} == {np.dtype(np.float32)}


def test_kumaraswamy_is_a_power_of_a_beta():
    a, b, x = 2.5, 0.7, np.array([0.1, 0.5, 0.99])
    d, same = D.Kumaraswamy(a, b), D.TransformedDistribution(D.Beta(1.0, b), D.Power(1 / a))
    assert np.allclose(d.log_prob(x), same.log_prob(x))
    assert np.allclose(d.cdf(x), same.cdf(x))
    assert np.allclose(d.icdf([0.1, 0.9]), same.icdf([0.1, 0.9]))
    entropy = scipy.integrate.quad(lambda u: -d.log_prob(d.icdf(u)), 0, 1)[0]
    assert np.isclose(d.entropy(), entropy, rtol=1e-6)
    moments = [scipy.integrate.quad(lambda u, n=n: d.icdf(u) ** n, 0, 1)[0] for n in (1, 2)]
    assert np.allclose([d.mean, d.variance], [moments[0], moments[1] - moments[0] ** 2])
    assert np.isclose(pb.grad(d.log_prob)(d_mode := D.Kumaraswamy(2.0, 3.0).mode * 0.9), pb.grad(same.log_prob)(d_mode))


def test_continuous_bernoulli_of_any_odds():
    x = np.linspace(0.0, 1.0, 4001)
    for s in (-700.0, -5.0, -0.3001, -0.2999, 0.0, 0.1, 4.0):
        d = D.ContinuousBernoulli(logits=s)
        assert np.isclose(np.trapezoid(d.prob(x), x), 1.0, rtol=1e-2 if abs(s) > 100 else 1e-5)
        assert np.isclose(pb.grad(lambda s: -D.ContinuousBernoulli(logits=s).log_prob(0.0))(s), d.mean, rtol=1e-9)
        assert np.isclose(pb.grad(lambda s: D.ContinuousBernoulli(logits=s).mean)(s), d.variance, rtol=1e-9)
        assert np.allclose(d.icdf(d.cdf([1e-4, 0.02])), [1e-4, 0.02], rtol=1e-9)
        assert np.isclose(pb.grad(d.cdf)(0.3), d.prob(0.3), rtol=1e-10)
    rising = D.ContinuousBernoulli(logits=np.array([4.0, 50.0, 800.0]))
    assert np.allclose(rising.icdf(1e-30)[:2], 1e-30 * np.expm1([4.0, 50.0]) / [4.0, 50.0], rtol=1e-8)
    assert rising.icdf(0.0).tolist() == [0.0, 0.0, 0.0]


def test_relaxed_choices_have_densities():
    u = np.linspace(1e-6, 1 - 1e-6, 2001)
    d = D.RelaxedBernoulli(0.7, [0.2, 0.8])
    z = np.linspace(-60.0, 60.0, 4001)[:, None]  # over the logit, where the density has no poles
    total = np.trapezoid(d.prob(sp.expit(z)) * sp.expit(z) * sp.expit(-z), z[:, 0], axis=0)
    assert np.allclose(total, 1.0, rtol=1e-3)
    pair = D.RelaxedOneHotCategorical(0.7, [0.2, 0.8])
    # of two classes each share is a relaxed Bernoulli number
    assert np.allclose(pair.log_prob(np.stack([1 - u, u], -1)), D.RelaxedBernoulli(0.7, 0.8).log_prob(u), rtol=1e-9)
    x = pair.rsample((3000,), key=KEY)
    assert st.kstest(x[:, 1], D.RelaxedBernoulli(0.7, 0.8).cdf).pvalue > 1e-3
    assert np.isclose((x[:, 1] > 0.5).mean(), 0.8, atol=0.03)
    assert pair.log_prob([0.0, 1.0]) == -np.inf
    three = D.RelaxedOneHotCategorical(np.array([0.5, 2.0]), logits=np.array([0.1, 0.2, -0.4]))
    assert (three.batch_shape, three.event_shape) == ((2,), (3,))
    assert np.isfinite(three.log_prob(three.sample((4,), key=KEY))).all()
    shares = D.LogisticNormal(np.zeros((4, 2)), 1.0)
    assert (shares.batch_shape, shares.event_shape, shares.expand((5, 4)).batch_shape) == ((4,), (3,), (5, 4))


def test_wishart():
    c, x = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])
    d, r = D.Wishart(4.5, c), st.wishart(4.5, c)
    assert np.isclose(d.log_prob(x), r.logpdf(x))
    assert np.isclose(d.entropy(), r.entropy())
    assert np.allclose(d.mean, r.mean())
    assert np.allclose(d.variance, r.var())
    assert np.allclose(d.mode, r.mode())
    assert d.log_prob([[1.0, 2.0], [2.0, 1.0]]) == d.log_prob([[1.0, 0.2], [0.5, 1.0]]) == -np.inf
    draws = d.rsample((4000,), key=KEY)
    assert (np.abs(draws.mean(0) - d.mean) < 4 * np.sqrt(d.variance / 4000)).all()
    assert np.allclose(draws.var(0), d.variance, rtol=0.15)
    # x_00 / c_00 is chi-square of df degrees, and moves with them
    assert st.kstest(draws[:, 0, 0] / 2.0, st.chi2(4.5).cdf).pvalue > 1e-3
    slopes = pb.jvp(lambda v: D.Wishart(v, c).rsample((2000,), key=KEY)[:, 0, 1], (4.5,), (1.0,))[1]
    assert abs(slopes.mean() - c[0, 1]) < 4 * slopes.std() / np.sqrt(2000)
    assert np.allclose(D.Wishart([3.0, 4.5], c).log_prob(x)[1], r.logpdf(x))


def test_factors_of_correlation_matrices():
    for eta in (0.7, 2.0):
        d = D.LKJCholesky(3, eta)
        factors = d.sample((4000,), key=pb.random.key(1))
        assert np.all(d.support.check(factors))
        found = factors @ factors.transpose(0, 2, 1)
        for i, j in ((1, 0), (2, 0), (2, 1)):
            assert st.kstest((found[:, i, j] + 1) / 2, st.beta(eta + 0.5, eta + 0.5).cdf).pvalue > 1e-3
        # the density of factors integrates to one: over numbers, by the bijector onto them
        density = D.to_unconstrained(D.LKJCholesky(2, eta).log_prob, d)
        x = np.linspace(-20.0, 20.0, 2001)[:, None]
        assert np.isclose(np.trapezoid(np.exp(pb.vmap(density)(x)), x[:, 0]), 1.0, rtol=1e-8)
    slopes = pb.jvp(lambda e: D.LKJCholesky(2, e).rsample((4000,), key=KEY)[:, 1, 0] ** 2, (2.0,), (1.0,))[1]
    assert abs(slopes.mean() + 0.08) < 4 * slopes.std() / np.sqrt(4000)  # E r^2 = 1 / (2 eta + 1)
    assert D.LKJCholesky(3, [1.0, 2.0]).expand((4, 2)).sample(key=KEY).shape == (4, 2, 3, 3)


EVERY_KIND = [
    D.Normal(0.0, np.ones(3)), D.Bernoulli(0.3), D.Binomial(3, 0.3), D.Categorical(np.ones(3)),
    D.OneHotCategorical(np.ones((1, 3))), D.Multinomial(4, np.ones(3)), D.Dirichlet(np.ones(3)),
    D.MultivariateNormal(np.zeros(2), np.eye(2)), D.LowRankMultivariateNormal(np.zeros(2), np.ones((2, 1)), np.ones(2)),
    D.Independent(D.Normal(np.zeros(3)), 1), D.Mixture(D.Categorical(np.ones(2)), D.Normal(np.zeros(2))),
    D.TransformedDistribution(D.Normal(np.zeros(2)), D.StickBreaking()),
]  # fmt: skip


@pytest.mark.parametrize("d", EVERY_KIND, ids=lambda d: type(d).__name__)
def test_expanded_distributions_draw_for_each(d):
    wide = d.expand((4, 3))
    x = wide.sample((2,), key=KEY)
    assert type(wide) is type(d)
    assert (wide.batch_shape, wide.event_shape) == ((4, 3), d.event_shape)
    assert x.shape == (2, 4, 3, *d.event_shape)
    assert np.allclose(wide.log_prob(x), d.log_prob(x))


def test_values_and_entropies_of_counts():
    for d in (D.Bernoulli([0.3, 0.6]), D.Binomial(3, [0.3, 0.6]), D.Categorical(np.ones((2, 3)))):
        x = d.enumerate_support()
        assert np.allclose(d.prob(x).sum(0), 1.0)
        assert d.enumerate_support(expand=False).shape == (len(x), 1)
        assert np.allclose(d.entropy(), -(d.prob(x) * d.log_prob(x)).sum(0))
        assert np.allclose(d.perplexity(), np.exp(d.entropy()))
    assert D.OneHotCategorical(np.ones((2, 3))).enumerate_support().shape == (3, 2, 3)
    p = np.array([0.2, 0.3, 0.5])
    assert np.isclose(D.Multinomial(5, p).entropy(), st.multinomial(5, p).entropy())
    assert np.allclose(D.Binomial(3, [0.0, 1.0]).entropy(), 0.0)


def _mp_densities():
    mp = pytest.importorskip("mpmath")
    lg, log = mp.loggamma, mp.log
    return {
        D.StudentT: lambda x, v, m, s: (
            lg((v + 1) / 2) - lg(v / 2) - log(v * mp.pi) / 2 - log(s) - (v + 1) / 2 * log(1 + ((x - m) / s) ** 2 / v)
        ),
        D.Gamma: lambda x, a, r: a * log(r) - lg(a) + (a - 1) * log(x) - r * x,
        D.InverseGamma: lambda x, a, r: a * log(r) - lg(a) - (a + 1) * log(x) - r / x,
        D.Beta: lambda x, a, b: lg(a + b) - lg(a) - lg(b) + (a - 1) * log(x) + (b - 1) * log(1 - x),
        D.NegativeBinomial: lambda x, r, p: lg(r + x) - lg(x + 1) - lg(r) + r * log(1 - p) + x * log(p),
        D.VonMises: lambda x, m, k: k * mp.cos(x - m) - log(2 * mp.pi * mp.besseli(0, k)),
        D.Weibull: lambda x, s, k: log(k / s) + (k - 1) * log(x / s) - (x / s) ** k,
        D.Cauchy: lambda x, m, s: -log(mp.pi * s * (1 + ((x - m) / s) ** 2)),
        D.Kumaraswamy: lambda x, a, b: log(a * b) + (a - 1) * log(x) + (b - 1) * log(1 - x**a),
        D.FisherSnedecor: lambda x, m, n: (
            lg((m + n) / 2)
            - lg(m / 2)
            - lg(n / 2)
            + m / 2 * log(m / n)
            + (m / 2 - 1) * log(x)
            - (m + n) / 2 * log(1 + m * x / n)
        ),
    }


@pytest.mark.parametrize(
    ("family", "values", "x"),
    [
        (D.StudentT, (1e7, 0.5, 2.0), 3.0),
        (D.StudentT, (0.05, 0.5, 2.0), 1e6),
        (D.StudentT, (3.5, 0.3, 1.2), 1e170),
        (D.Gamma, (1e5, 3.0), 3.3e4),
        (D.Gamma, (1e-3, 1e-3), 1e-8),
        (D.InverseGamma, (1e-2, 50.0), 1e5),
        (D.Beta, (1e4, 2e-3), 0.999999),
        (D.NegativeBinomial, (1e4, 1e-4), 3.0),
        (D.VonMises, (0.3, 300.0), 0.35),
        (D.Weibull, (1e-3, 20.0), 1.1e-3),
        (D.Cauchy, (0.5, 1e-6), 1e4),
        (D.Kumaraswamy, (1e-3, 2.5), 1 - 2.0**-53),
        (D.FisherSnedecor, (1e8, 2.5), 3.0),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_extreme_parameters_against_many_digits(family, values, x):
    mp = pytest.importorskip("mpmath")
    density = _mp_densities()[family]
    with mp.workdps(60):
        exact = float(density(mp.mpf(x), *map(mp.mpf, values)))
        point = tuple(map(mp.mpf, values))
        orders = np.eye(len(values), dtype=int).tolist()
        slopes = [float(mp.diff(lambda *p: density(mp.mpf(x), *p), point, tuple(order))) for order in orders]
    # gammaln of a large shape has an absolute error of its own size times eps
    assert np.isclose(family(*values).log_prob(x), exact, rtol=1e-9, atol=1e-9)
    found = pb.grad(lambda *p: family(*p).log_prob(x), tuple(range(len(values))))(*values)
    assert np.allclose(found, slopes, rtol=1e-8, atol=1e-12)


def test_distributions_are_pickled_and_saved(tmp_path):
    d = D.Mixture(D.Categorical([0.3, 0.7]), D.Independent(D.Normal(np.zeros((2, 3)), 1.0), 1))
    pb.save(tmp_path / "d.safetensors", {"d": d})
    for same in (pickle.loads(pickle.dumps(d)), pb.load(tmp_path / "d.safetensors")["d"]):
        assert same.event_shape == (3,)
        assert np.array_equal(same.log_prob(np.ones(3)), d.log_prob(np.ones(3)))


def test_angles_move_with_the_concentration():
    """Quantiles at a fixed probability, by every order: against differences of SciPy's distribution function."""
    p = np.array([1e-3, 0.2, 0.5, 0.9])
    for k in (0.2, 2.5, 40.0):
        x = D.VonMises(0.0, k).icdf(p)
        slope = pb.jvp(lambda k: D.VonMises(0.0, k).icdf(p), (k,), (1.0,))[1]
        moved = (st.vonmises.cdf(x, k + 1e-5) - st.vonmises.cdf(x, k - 1e-5)) / 2e-5
        assert np.allclose(slope, -moved / st.vonmises.pdf(x, k), rtol=1e-5, atol=1e-9)
        slope_at = lambda k: pb.grad(lambda k: pb.sum(D.VonMises(0.0, k).icdf(p)))(k)  # noqa: E731
        assert np.isclose(pb.grad(slope_at)(k), (slope_at(k + 1e-4) - slope_at(k - 1e-4)) / 2e-4, rtol=1e-5)
    x = pb.jit(lambda k: D.VonMises(1.0, k).rsample((50,), key=KEY))(3.0)
    assert np.array_equal(x, D.VonMises(1.0, 3.0).rsample((50,), key=KEY))
    assert np.all(np.abs(x - 1.0) < np.pi)
    assert np.allclose(D.VonMises(0.0, 0.0).icdf(p), 2 * np.pi * (p - 0.5))
    assert D.VonMises(0.0, 2.0).cdf([-4.0, 4.0]).tolist() == [0.0, 1.0]

"""Bijectors: there and back, log-determinants against Jacobians, transformed distributions, densities over supports."""

import numpy as np
import pytest
import scipy.stats as st

import pullback as pb
from pullback.distributions.vector_bijectors import running_sum

D = pb.distributions
KEY = pb.random.key(3)
SCALARS = [
    D.Identity(), D.Affine(0.3, -2.0), D.Exp(), D.Softplus(), D.Sigmoid(), D.Tanh(), D.Inverse(D.Sigmoid()),
    D.Chain((D.Exp(), D.Power(1.7), D.Affine(1.0, 3.0))), D.CumulativeDistribution(D.StudentT(4.0, 0.2, 1.5)),
]  # fmt: skip
TRIANGLE = np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.3, -0.2, 1.5]])
VECTORS = [
    D.StickBreaking(), D.FillTriangular(), D.TriangularAffine(np.arange(3.0), TRIANGLE),
    D.Chain((D.Affine(0.2, np.array([1.0, 2.0, 0.5])), D.StickBreaking())),
]  # fmt: skip
name = lambda b: type(b).__name__  # noqa: E731


@pytest.mark.parametrize("b", SCALARS, ids=name)
def test_numbers(b):
    x = np.array([0.2, 0.5, 0.9])
    y = b.forward(x)
    assert np.allclose(b.inverse(y), x, rtol=1e-12)
    slope = pb.vmap(pb.grad(lambda x: b.forward(x) + 0.0))(x)
    assert np.allclose(b.log_det(x), np.log(np.abs(slope)), rtol=1e-12, atol=1e-14)
    assert np.allclose(pb.jit(lambda b, x: b.log_det(x))(b, x), b.log_det(x))
    assert b.forward_shape((3,)) == y.shape


@pytest.mark.parametrize("b", VECTORS, ids=name)
def test_vectors(b):
    x = np.array([0.2, -0.5, 0.9])
    y = b.forward(x)
    assert np.allclose(b.inverse(y), x, rtol=1e-10)
    assert b.forward_shape(x.shape) == y.shape
    assert b.inverse_shape(y.shape) == x.shape
    # as many of the coordinates of the image as there are numbers
    rows = np.tril_indices(2) if y.ndim == 2 else (np.arange(3),)
    jacobian = pb.jacobian(lambda x: b.forward(x)[rows])(x)
    assert np.isclose(b.log_det(x), np.linalg.slogdet(jacobian)[1])
    batch = np.stack([x, 2 * x])
    assert np.allclose(b.forward(batch)[0], y)
    assert np.allclose(pb.vmap(b.log_det)(batch), b.log_det(batch))


def test_extreme_numbers_keep_their_digits():
    assert np.isclose(D.Tanh().log_det(40.0), 2 * (np.log(2.0) - 40.0))
    assert D.Softplus().inverse(1000.0) == 1000.0
    assert np.isclose(D.Softplus().inverse(D.Softplus().forward(-30.0)), -30.0)
    shares = D.StickBreaking().forward(np.array([30.0, -40.0, 5.0]))
    assert np.isfinite(D.StickBreaking().inverse(shares)).all()
    assert D.FillTriangular().forward(np.array([0.5])).tolist() == [[np.exp(0.5)]]
    with pytest.raises(pb.errors.ShapeError, match="triangle"):
        D.FillTriangular().forward(np.zeros(4))


@pytest.mark.parametrize(
    "constraint", [D.constraints.real, D.constraints.positive, D.constraints.unit_interval,
                   D.constraints.interval(2.0, 5.0), D.constraints.interval(high=1.0), D.constraints.simplex,
                   D.constraints.lower_cholesky], ids=lambda c: c.name,
)  # fmt: skip
def test_the_bijector_onto_a_set_reaches_it(constraint):
    y = D.biject_to(constraint).forward(np.array([0.3, -1.0, 2.0]))
    assert np.all(constraint.check(y))
    with pytest.raises(pb.errors.UnsupportedFunction, match="integers"):
        D.biject_to(D.constraints.nonnegative_integer)


def test_transformed_distributions():
    d = D.TransformedDistribution(D.Normal(0.3, 0.8), D.Exp())
    same = D.LogNormal(0.3, 0.8)
    x = np.array([-1.0, 0.2, 3.0])
    assert np.allclose(d.log_prob(x), same.log_prob(x))
    assert np.allclose(pb.grad(lambda m: D.TransformedDistribution(D.Normal(m, 0.8), D.Exp()).log_prob(2.0))(0.3),
                       pb.grad(lambda m: D.LogNormal(m, 0.8).log_prob(2.0))(0.3))  # fmt: skip
    assert np.array_equal(d.sample((5,), key=KEY), same.sample((5,), key=KEY))
    scaled = D.TransformedDistribution(D.Exponential(1.0), [D.Affine(2.0, 3.0)])
    assert np.allclose(scaled.log_prob([1.0, 2.5]), st.expon(2.0, 3.0).logpdf([1.0, 2.5]))
    c = TRIANGLE @ TRIANGLE.T
    normal = D.TransformedDistribution(D.Normal(np.zeros(3)), D.TriangularAffine(np.ones(3), TRIANGLE))
    assert normal.event_shape == (3,)
    assert np.isclose(normal.log_prob(x), st.multivariate_normal(np.ones(3), c).logpdf(x))
    shares = D.TransformedDistribution(D.Normal(np.zeros(2)), D.StickBreaking())
    assert shares.event_shape == (3,)
    assert shares.sample((4,), key=KEY).shape == (4, 3)
    assert np.isfinite(shares.log_prob([0.2, 0.3, 0.5]))
    each = D.TransformedDistribution(D.MultivariateNormal(np.zeros(3), c), D.Exp())
    y = np.array([0.5, 1.0, 2.0])
    assert np.isclose(each.log_prob(y), st.multivariate_normal(np.zeros(3), c).logpdf(np.log(y)) - np.log(y).sum())
    with pytest.raises(pb.errors.ShapeError, match="maps arrays"):
        D.TransformedDistribution(D.Normal(), D.StickBreaking())


def test_a_bijector_with_a_batch_has_a_draw_for_each():
    """Draws of a base that were shared would be silently dependent."""
    d = D.TransformedDistribution(D.Normal(np.zeros((2, 1))), D.Affine(np.zeros(3), 2.0))
    x = d.sample((4,), key=KEY)
    assert d.batch_shape == (2, 3)
    assert np.unique(x).size == x.size == 24
    assert np.allclose(d.log_prob(x), st.norm(0, 2).logpdf(x))
    classes = D.TransformedDistribution(D.Categorical(np.ones((2, 1, 3))), D.Affine(np.zeros(4), 2.0))
    assert classes.sample((5,), key=KEY).shape == (5, 2, 4)
    with pytest.raises(pb.errors.ShapeError, match="no image"):
        D.TransformedDistribution(D.MultivariateNormal([0.0], [[1.0]]), D.Affine(np.zeros(3))).batch_shape  # noqa: B018


def test_images_of_numbers_have_distribution_functions():
    d, r = (
        D.TransformedDistribution(D.Normal(0.3, 0.8), [D.Affine(0.0, -1.0), D.Exp()]),
        st.lognorm(0.8, scale=np.exp(-0.3)),
    )
    y = np.array([-1.0, 0.0, 0.5, 3.0, np.inf])
    assert np.allclose(d.cdf(y), r.cdf(y))
    assert np.allclose(d.icdf([0.1, 0.5, 0.9]), r.ppf([0.1, 0.5, 0.9]))
    assert np.allclose(pb.vmap(pb.grad(d.cdf))(y[:4]), r.pdf(y[:4]))
    assert d.log_prob([0.0, np.inf]).tolist() == [-np.inf, -np.inf]
    bounded = D.TransformedDistribution(D.Exponential(2.0), D.Affine(1.0, -3.0))
    assert np.allclose(bounded.cdf([-5.0, 0.5, 1.0, 2.0]), 1 - st.expon(scale=0.5).cdf([2.0, 1 / 6, 0.0, -1.0]))


def test_images_on_surfaces_are_nowhere_else():
    shares = D.TransformedDistribution(D.Normal(np.zeros(2)), D.StickBreaking())
    assert shares.log_prob([[0.2, 0.3, 0.6], [0.2, 0.8, 0.0]]).tolist() == [-np.inf, -np.inf]
    assert np.isnan(shares.log_prob([0.2, np.nan, 0.5]))
    assert np.allclose(pb.grad(shares.log_prob)(np.array([0.2, 0.3, 0.6])), 0.0)
    factors = D.TransformedDistribution(D.Normal(np.zeros(3)), D.FillTriangular())
    assert np.isfinite(factors.log_prob([[1.0, 0.0], [2.0, 3.0]]))
    assert factors.log_prob([[1.0, 0.5], [2.0, 3.0]]) == -np.inf


def test_the_support_of_an_image_has_a_bijector():
    for d, x in (
        (D.TransformedDistribution(D.Normal(), D.Exp()), 0.3),
        (D.TransformedDistribution(D.Normal(np.zeros(2)), D.StickBreaking()), np.array([0.3, -1.0])),
    ):
        assert np.isclose(D.to_unconstrained(d.log_prob, d)(x), st.norm.logpdf(x).sum())


@pytest.mark.parametrize("set_", [D.constraints.positive_definite, D.constraints.correlation_cholesky])
def test_numbers_onto_matrices(set_):
    b, x = D.biject_to(set_), np.array([0.3, -0.5, 1.2, 0.1, 0.4, -2.0])
    size = 3 if set_ is D.constraints.positive_definite else 4
    y = b.forward(x)
    assert np.all(set_.check(y))
    assert y.shape == b.forward_shape(x.shape) == (size, size)
    assert b.inverse_shape(y.shape) == x.shape
    assert np.allclose(b.inverse(y), x)
    free = np.tril_indices(size, 0 if size == 3 else -1)
    assert np.isclose(b.log_det(x), np.linalg.slogdet(pb.jacobian(lambda x: b.forward(x)[free])(x))[1])
    batch = np.stack([x, 2 * x])
    assert np.allclose(pb.vmap(b.log_det)(batch), b.log_det(batch))
    loss = lambda x: pb.sum(b.forward(x) ** 3) + b.log_det(x)  # noqa: E731
    assert np.allclose(pb.jit(pb.hessian(loss))(x), pb.hessian(loss)(x))
    back = D.Chain((b, D.Inverse(b)))
    assert (back.rank, back.image_rank, back.log_det(x).shape) == (1, 1, ())
    assert np.isclose(back.log_det(x), 0.0, atol=1e-12)


@pytest.mark.parametrize("b", [*SCALARS[:-1], *VECTORS[:2]], ids=name)
def test_single_precision_stays(b):
    x = np.array([0.2, 0.5, 0.9], np.float32)
    assert b.forward(x).dtype == b.log_det(x).dtype == b.inverse(b.forward(x)).dtype == np.float32


def test_reshaped_points():
    b = D.Reshape((4,), (2, 2))
    d = D.TransformedDistribution(D.Normal(np.zeros((3, 4))), [D.Exp(), b])
    x = d.sample((5,), key=KEY)
    assert (d.batch_shape, d.event_shape, x.shape) == ((3,), (2, 2), (5, 3, 2, 2))
    assert np.allclose(d.log_prob(x), st.lognorm(1.0).logpdf(x).sum((-2, -1)))
    assert D.Inverse(b).forward(x).shape == (5, 3, 4)
    with pytest.raises(pb.errors.ShapeError, match="sizes"):
        D.Reshape((4,), (3,))
    with pytest.raises(pb.errors.ShapeError, match="ends in"):
        b.forward(np.zeros(5))


def test_a_copula():
    """Normal numbers that go together, as gamma numbers: the marginal distributions are what was asked for."""
    margin = D.Inverse(D.CumulativeDistribution(D.Gamma(2.0)))
    base = D.MultivariateNormal(np.zeros(2), [[1.0, 0.5], [0.5, 1.0]])
    d = D.TransformedDistribution(base, [D.CumulativeDistribution(D.Normal()), margin])
    assert st.kstest(d.sample((2000,), key=KEY)[:, 0], st.gamma(2.0).cdf).pvalue > 1e-3
    x = np.array([1.0, 2.0])
    z = st.norm.ppf(st.gamma(2.0).cdf(x))
    expected = st.multivariate_normal(cov=[[1, 0.5], [0.5, 1]]).logpdf(z) - st.norm.logpdf(z).sum()
    assert np.isclose(d.log_prob(x), expected + st.gamma(2.0).logpdf(x).sum())


def test_intervals_of_arrays():
    b = D.biject_to(D.constraints.interval(np.zeros(2), np.array([1.0, 3.0])))
    assert b.forward(np.zeros(2)).tolist() == [0.5, 1.5]


def test_unconstrained_densities_integrate_to_one():
    for d in (D.Gamma(2.0, 3.0), D.Beta(2.0, 1.5), D.Uniform(1.0, 4.0), D.HalfCauchy(1.0)):
        density = D.to_unconstrained(d.log_prob, d)
        x = np.linspace(-40.0, 40.0, 200_001)
        values = np.exp(d.log_prob(density.constrain(x)) + density.bijectors.bijector.log_det(x))
        assert np.isclose(np.trapezoid(values, x), 1.0, rtol=1e-6)
    tree = D.to_unconstrained(
        lambda t: D.Normal(0.0, t["scale"]).log_prob(t["x"]) + D.Dirichlet([1.0, 1.0]).log_prob(t["p"]),
        {"x": D.constraints.real, "scale": D.constraints.positive, "p": D.constraints.simplex},
    )
    point = {"x": 0.3, "scale": 2.0, "p": np.array([0.4, 0.6])}
    back = tree.constrain(tree.unconstrain(point))
    assert np.isclose(back["scale"], 2.0)
    assert np.allclose(back["p"], point["p"])
    slopes = pb.jit(pb.grad(tree))(tree.unconstrain(point))
    assert slopes["p"].shape == (1,)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_running_sums(count):
    x = np.random.default_rng(0).normal(size=(3, count))
    assert np.allclose(running_sum(x), np.cumsum(x, axis=-1), rtol=1e-13, atol=1e-14)
    ends = np.array([1.0, np.inf, 2.0])
    assert running_sum(ends).tolist() == np.cumsum(ends).tolist()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: D.Chain([D.Exp(), 1]), "Chain: wants a bijector, got 1"),
        (lambda: D.Chain(D.Exp()), "Chain: wants a sequence of bijectors, got a Exp"),
        (lambda: D.TransformedDistribution(D.Normal(), 3), "Chain: wants a sequence of bijectors, got 3"),
        (lambda: D.Inverse(np.exp), "Inverse: wants a bijector"),
        (lambda: D.Affine(0.0, [1.0, 0.0]), "Affine: scale must not be 0"),
        (lambda: D.Power(0), "Power: exponent must not be 0"),
        (lambda: D.biject_to(D.Normal()), "biject_to: wants a constraint, got a Normal.\n.*d.support"),
    ],
)
def test_what_is_no_bijector_is_named(make, said):
    with pytest.raises(pb.errors.ArgumentError, match=said):
        make()


def test_bijectors_of_a_generator_are_all_applied():
    assert D.Chain(b for b in (D.Exp(), D.Affine(1.0, 2.0))).forward(0.0) == 3.0

"""Bijectors: there and back, log-determinants against Jacobians, transformed distributions, densities over supports."""

import numpy as np
import pytest
import scipy.stats as st

import pullback as pb

D = pb.distributions
KEY = pb.random.key(3)
SCALARS = [
    D.Identity(), D.Affine(0.3, -2.0), D.Exp(), D.Softplus(), D.Sigmoid(), D.Tanh(), D.Inverse(D.Sigmoid()),
    D.Chain((D.Exp(), D.Power(1.7), D.Affine(1.0, 3.0))),
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

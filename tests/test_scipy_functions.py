"""Functions of SciPy inside functions that are differentiated: right in every transform, or refused by name."""

import functools

import numpy as np
import pytest
import scipy.integrate as integrate
import scipy.interpolate as interpolate
import scipy.linalg as la
import scipy.optimize as optimize
import scipy.signal as signal
import scipy.sparse as sparse
import scipy.special as special
import scipy.stats as stats
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import cg, spsolve
from scipy.stats import norm

import pullback as pb
from pullback import errors

X = np.array([0.7, 1.3, 2.1])
W = np.array([0.4, -1.1, 0.8])
B = np.array([[0.3, -0.2, 0.7], [0.1, 0.9, -0.5], [-0.6, 0.2, 0.4]])
T = np.array([0.3, 0.8, 1.4, 2.5])


def general(x):
    return np.diag(x) + 0.1 * np.outer(x, x) + 0.3 * B * x[0]


def positive(x):
    return np.diag(x + 1.0) + 0.1 * np.outer(x, x)


def lopsided(x, lower=False):
    """Not symmetric: only one triangle is to be read."""
    rest = np.tril(B * x[1], -1)
    return positive(x) + (rest.T if lower else rest)


CALLS = {
    "solve": lambda x: W @ la.solve(general(x), x),
    "solve positive": lambda x: W @ la.solve(lopsided(x), x, assume_a="pos"),
    "solve symmetric lower": lambda x: W @ la.solve(lopsided(x, True), x, lower=True, assume_a="sym"),
    "solve transposed": lambda x: W @ la.solve(general(x), x, transposed=True),
    "inv": lambda x: W @ la.inv(general(x)) @ W,
    "det": lambda x: la.det(general(x), check_finite=False),
    "expm": lambda x: W @ la.expm(general(x)) @ W,
    "logm": lambda x: W @ la.logm(positive(x)) @ W,
    "sqrtm": lambda x: W @ la.sqrtm(positive(x)) @ W,
    "pinv": lambda x: W @ la.pinv(general(x)) @ W,
    "norm": lambda x: la.norm(general(x)) + la.norm(x, 1),
    "cholesky": lambda x: W @ la.cholesky(lopsided(x)) @ W,
    "cholesky lower": lambda x: W @ la.cholesky(lopsided(x, True), lower=True) @ W,
    "cho_solve": lambda x: W @ cho_solve(cho_factor(lopsided(x)), x),
    "cho_solve lower": lambda x: W @ cho_solve(cho_factor(lopsided(x, True), lower=True), x),
    "lu": lambda x: W @ la.lu(general(x))[1] @ la.lu(general(x))[2] @ W,
    "solve_triangular": lambda x: W @ la.solve_triangular(general(x), x, lower=True),
    "eigh": lambda x: W @ la.eigh(lopsided(x, True))[0] + la.eigh(positive(x))[1][:, 0] ** 2 @ W,
    "eigh upper": lambda x: W @ la.eigh(lopsided(x), lower=False, eigvals_only=True),
    "eigvalsh": lambda x: W @ la.eigvalsh(positive(x)),
    "svd": lambda x: W @ la.svd(general(x))[1] + W @ la.svdvals(general(x)),
    "qr": lambda x: np.sum(la.qr(general(x))[1] ** 2 * B),
    "toeplitz": lambda x: W @ la.toeplitz(x) @ W + W @ la.toeplitz(x, x**2) @ x,
    "circulant": lambda x: W @ la.circulant(x) @ (W * x),
    "block_diag": lambda x: np.sum(la.block_diag(general(x), x[None]) ** 2),
    "lstsq": lambda x: W @ la.lstsq(np.vstack([general(x), x]), np.append(x, 1.0))[0],
    "rosen": optimize.rosen,
    "trapezoid": lambda x: integrate.trapezoid(np.sin(x), x),
    "simpson": lambda x: integrate.simpson(np.sin(x), x=x) + integrate.simpson(np.append(x, x**2), dx=0.1),
    "simpson of pairs": lambda x: integrate.simpson(x[:2], x=x[1:]) + integrate.simpson([x[0], 1.0, x[1], 2.0]),
    "cumulative_trapezoid": lambda x: W @ integrate.cumulative_trapezoid(np.sin(x), x, initial=0),
    "logsumexp": lambda x: special.logsumexp(x, b=[1.0, 2.0, 3.0]) + special.logsumexp(general(x), axis=1) @ W,
    "softmax": lambda x: special.softmax(x) @ W + np.sum(special.log_softmax(general(x), axis=0) * B),
    "frozen": lambda x: np.sum(norm(x[0], x[1]).logpdf(T)) + stats.gamma(2.0, scale=x[2]).logpdf(x[0]),
    "outside of the support": lambda x: np.sum(stats.gamma.pdf([-1.0, 0.5], 2.0, scale=x[0])) * x[1],
    "ends of quantiles": lambda x: np.sum(stats.uniform.ppf([0.0, 0.3, 1.0], loc=x[0], scale=x[1])),
    "upper quantiles": lambda x: np.sum(norm.isf([0.3, 0.8], loc=x[0], scale=x[1]) * np.array([x[2], 1.0])),
    "multivariate_normal": lambda x: stats.multivariate_normal.logpdf(W, x, positive(x)),
    "multivariate_normal of points": lambda x: np.sum(stats.multivariate_normal.pdf(B * x[0], W, positive(x)) * W),
    "multivariate_normal of numbers": lambda x: np.sum(stats.multivariate_normal.logpdf(T, x[0], x[1])),
    "multivariate_normal of a diagonal": lambda x: stats.multivariate_normal.logpdf(x, 0.0 * W, [1.0, 2.0, 3.0]),
    "multivariate_normal frozen": lambda x: stats.multivariate_normal(x, positive(x)).logpdf(W)
    + stats.multivariate_normal(W, [[2.0, 0, 0], [0, x[1], 0], [0, 0, 1.0]]).pdf(x),
    "multivariate_normal frozen of constants": lambda x: stats.multivariate_normal(W, np.eye(3) + 0.1).logpdf(x),
    "poisson": lambda x: np.sum(stats.poisson.logpmf([0, 2], x[0])) + stats.poisson.cdf(1, x[1]),
    "binom": lambda x: stats.binom.pmf(2, 5, x[0] / 3) + stats.binom.logpmf(1, 4, x[1] / 3),
    "binom.sf": lambda x: stats.binom.sf(1, 4, x[2] / 3) * x[0],
    "nbinom": lambda x: stats.nbinom.pmf(2, x[1], x[0] / 3) + stats.nbinom.cdf(3, x[1], x[2] / 3),
    "of no integer": lambda x: stats.poisson.pmf([0.5, 1.0], x[0])[1],
}  # fmt: skip
#: Laws with shape parameters, and the methods of each that have formulas.
LAWS = {
    "norm": (), "expon": (), "gamma": (1.7,), "beta": (1.5, 2.5), "t": (3.5,), "lognorm": (0.7,), "uniform": (),
    "laplace": (), "logistic": (), "cauchy": (), "weibull_min": (1.3,), "chi2": (2.7,), "f": (3.0, 4.0),
    "gumbel_r": (), "invgamma": (2.2,), "halfnorm": (), "rayleigh": (), "gennorm": (1.3,), "invgauss": (0.8,),
    "levy": (), "gumbel_l": (), "hypsecant": (),
}  # fmt: skip


def of_law(name, method):
    law, shapes = getattr(stats, name), LAWS[name]

    def call(x):
        # moved so that all of T lies in the support
        return np.sum(getattr(law, method)(T, *(s * x[2] / 2.1 for s in shapes), loc=x[0] - 0.65, scale=x[1] * 2.2))

    return call


P = np.polynomial.polynomial
CALLS |= {
    "toeplitz of a batch": lambda x: np.sum(la.toeplitz(general(x), x) * np.arange(27.0).reshape(3, 3, 3)),
    "circulant of a number": lambda x: la.circulant(x[0])[0, 0] * x[1],
    "spsolve": lambda x: W @ spsolve(sparse.csr_array(B + 3 * np.eye(3)), x),
    "boxcox": lambda x: np.sum(special.boxcox([0.0, 0.5, 2.0], x)) + special.boxcox(x[0], 0.0),
    "degrees that are no integers": lambda x: sum(special.eval_legendre(n, x / 3) @ W for n in (-2, 0, 0.4, 1.6)),
    "more degrees": lambda x: special.eval_chebyt(0.4, x / 3) @ W + special.eval_laguerre(0.3, x) @ W,
    "polynomials": lambda x: np.polynomial.Polynomial(x)(0.4) * np.polynomial.Chebyshev([1, x[0]]).deriv()(x[1]),
    "products of series": lambda x: np.polynomial.Legendre(x).integ()(x[2]) * np.polynomial.Laguerre(x).deriv(2)(0.3),
    "series of many coefficients": lambda x: np.sum(P.polyval(x, B * x) * B) + P.polyval([x[0], 2.0], B)[1, 1],
    "a series at a matrix": lambda x: np.sum(np.polynomial.hermite.hermval(general(x), B)[1] * B),
    "of roots": lambda x: np.sum(P.polyvalfromroots(x, W) * x) + np.sum(P.polyvalfromroots(W, x)),
    "of two variables": lambda x: np.sum(P.polyval2d(x, W, B * x)) + np.sum(P.polygrid2d(x, W, B) * B),
    "fitted": lambda x: np.polynomial.Polynomial.fit([0.0, 1.0, 2.0], x, 1)(1.2),
}
CALLS |= {f"{n}.{m}": of_law(n, m) for n in LAWS for m in ("logpdf", "cdf", "logsf")}
CALLS |= {f"{n}.{m}": of_law(n, m) for n in ("norm", "gamma", "t", "beta") for m in ("pdf", "sf", "logcdf")}


def differences(f, x):
    steps = np.eye(x.size) * 1e-3
    return np.array([(8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / 12e-3 for e in steps], float)


TRANSFORMS = {
    "grad": lambda f: pb.grad(f)(X),
    "jvp": lambda f: np.array([pb.jvp(f, (X,), (e,))[1] for e in np.eye(3)]),
    "vmap": lambda f: pb.vmap(pb.grad(f))(np.stack([X, X + 0.01]))[0],
}


# NumPy warns of the formula that is computed where it is not taken
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_scipy_are_differentiated(name, transform):
    f = CALLS[name]
    np.testing.assert_allclose(TRANSFORMS[transform](f), differences(f, X), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_scipy(name):
    f = CALLS[name]
    np.testing.assert_allclose(pb.value_and_grad(f)(X)[0], f(X), rtol=1e-11)


COMPILED = ("cholesky", "eigh upper", "simpson", "softmax", "frozen", "gamma.cdf", "t.logpdf", "multivariate_normal")


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    f = CALLS[name]
    np.testing.assert_allclose(pb.jit(pb.grad(f))(X), differences(f, X), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", COMPILED)
def test_second_derivatives(name):
    f = CALLS[name]
    want = np.array([(pb.grad(f)(X + e) - pb.grad(f)(X - e)) / 2e-5 for e in np.eye(3) * 1e-5])
    np.testing.assert_allclose(pb.hessian(f)(X), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trans", [0, 1])
def test_lu_factors(trans):
    def f(x):
        return W @ la.lu_solve(la.lu_factor(general(x)[::-1]), x, trans=trans)

    np.testing.assert_allclose(pb.grad(f)(X), differences(f, X), rtol=1e-7)
    with pytest.raises(errors.PullbackError):
        pb.vmap(pb.grad(f))(X[None])  # each element has an order of its own


def scaled(method, x, shapes, scale):
    return method(x, *shapes, scale=scale)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_points_outside_and_bad_parameters_have_scipys_values():
    x = np.array([-1.0, 0.0, 0.5, 2.0, np.nan])
    for law, shapes in ((stats.gamma, (2.0,)), (stats.beta, (2.0, 3.0)), (stats.uniform, ()), (stats.expon, ())):
        for method in ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf"):
            for scale in (1.0, -1.0):
                with np.errstate(all="ignore"):
                    want = getattr(law, method)(x, *shapes, scale=scale)
                found, _ = pb.vjp(functools.partial(scaled, getattr(law, method), x, shapes), scale)
                np.testing.assert_allclose(found, want, rtol=1e-12, err_msg=f"{law.name}.{method}")


def test_gradients_stay_finite_at_points_outside():
    def f(x):
        return np.sum(stats.gamma.pdf(T - 1.0, x[0], scale=x[1])) + np.sum(stats.lognorm.cdf(T - 1.0, x[2]))

    np.testing.assert_allclose(pb.grad(f)(X), differences(f, X), rtol=1e-6)


REFUSED = {
    "quad": (lambda x: integrate.quad(lambda t: np.exp(-x * t), 0.0, 1.0)[0], "pb.trapezoid"),
    "solve_ivp": (lambda x: integrate.solve_ivp(lambda t, y: -x * y, (0.0, 1.0), [1.0]).y[0, -1], "pb.ode.solve"),
    "odeint": (lambda x: integrate.odeint(lambda y, t: -x * y, 1.0, [0.0, 1.0])[-1, 0], "pb.ode.solve"),
    "splrep": (lambda x: interpolate.splev(0.5, interpolate.splrep([0, 1, 2, 3], [x, 1, 1, 1])), "CubicSpline"),
    "minimize": (lambda x: optimize.minimize(lambda t: (t[0] - x) ** 2, [0.0]).x[0], "pb.argmin"),
    "brentq": (lambda x: optimize.brentq(lambda t: t**3 - x, 0.0, 5.0), "pb.root"),
    "fsolve": (lambda x: optimize.fsolve(lambda t: t**3 - x, 1.0)[0], "pb.root"),
    "skewnorm.cdf": (lambda x: stats.skewnorm.cdf(x, 1.0), "pb.distributions"),
    "an option": (lambda x: la.solve(x * np.eye(2), np.ones(2), assume_a="banded")[0], "assume_a"),
    "cg": (lambda x: cg(x * np.eye(2), np.ones(2))[0][0], "pb.sparse.solve"),
    "sparse.diags": (lambda x: (sparse.diags(x * np.ones(3)) @ W).sum(), "pb.sparse"),
    "lfilter": (lambda x: signal.lfilter([x], [1.0, 0.5], W).sum(), "lfilter"),
    "generalized eigenvalues": (lambda x: la.eigh(x * np.eye(2), np.eye(2))[0][0], "b="),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_what_to_use(name):
    call, wanted = REFUSED[name]
    with pytest.raises(errors.PullbackError) as caught:
        pb.grad(call)(0.7)
    assert wanted in str(caught.value)


def test_bare_arguments_get_scipys_functions_and_results():
    def f(x):
        assert type(la.inv(np.diag([1.0, 2.0]))) is np.ndarray
        assert isinstance(stats.norm.pdf(0.3), float)
        return x * stats.norm(0.0, 1.0).cdf(0.3)

    np.testing.assert_allclose(pb.grad(f)(2.0), stats.norm.cdf(0.3), rtol=1e-15)
    assert la.inv.__module__.startswith("scipy")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sum(np.sin(la.eig(lopsided(x) + np.diag([0, 3, 9]))[1] ** 2)),
        lambda x: np.sum(np.sin(np.linalg.eig(lopsided(x))[1] ** 2)),
        lambda x: np.max(np.linalg.eigvals(lopsided(x))),
        lambda x: np.sum(np.sin(np.poly(positive(x)))) + np.sum(np.roots(np.array([1.0, -6.0 * x[0], x[1]])) * W[:2]),
    ],
)
def test_real_eigenvalues_are_real_numbers_as_numpys_are(f):
    np.testing.assert_allclose(pb.grad(f)(X), differences(f, X), rtol=1e-6)
    np.testing.assert_allclose(pb.value_and_grad(f)(X)[0], f(X), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # SciPy's, of the orders
def test_orders_are_truncated_as_scipy_does():
    def f(x):
        return (special.kn(1.6, x) + special.yn(0.5, x) + special.expn(0.4, x)) @ W

    np.testing.assert_allclose(pb.grad(f)(X), differences(f, X), rtol=1e-6)
    np.testing.assert_allclose(pb.value_and_grad(f)(X)[0], f(X), rtol=1e-12)

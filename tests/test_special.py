"""`pb.special` at 40 digits: first and second derivatives at random points over wide domains, and at extreme ones."""

from __future__ import annotations

import math
import threading
import zlib

import mpmath as mp
import numpy as np
import pytest

import pullback as pb
from pullback import special
from pullback.ops import load_all_ops
from pullback.ops.eager import public_function
from pullback.tools.certify.oracles.scalars import PRECISION, mpmath_functions

FUNCTIONS = mpmath_functions()


def flat(low, high):
    return lambda rng: float(rng.uniform(low, high))


def wide(low, high):
    """Evenly spread in the exponent."""
    return lambda rng: float(10 ** rng.uniform(low, high))


def either(low, high):
    """The same, of either sign."""
    return lambda rng: float(rng.choice([-1, 1]) * 10 ** rng.uniform(low, high))


def below_one(low, high):
    return lambda rng: 1 - float(10 ** rng.uniform(low, high))


def negative(low, high):
    return lambda rng: -float(10 ** rng.uniform(low, high))


def whole(low, high):
    return lambda rng: int(rng.integers(low, high))


def held(draw):
    """An argument in which the function is not differentiable here."""
    return lambda rng: mp.mpf(draw(rng))


#: Where each function is tested: one draw per argument.
DOMAINS = {
    "gamma": [flat(-8, 100)],
    "lgamma": [wide(-8, 8)],
    "digamma": [wide(-6, 8)],
    "polygamma": [whole(0, 5), wide(-2, 5)],
    "polygamma_difference": [whole(0, 4), wide(-3, 9), wide(-3, 9)],
    "rgamma": [flat(-6, 50)],
    "beta": [wide(-2, 2), wide(-2, 2)],
    "betaln": [wide(-3, 8), wide(-3, 8)],
    "binom": [flat(10, 50), flat(0.1, 9)],
    "poch": [wide(-1, 1.5), wide(-2, 1.5)],
    "zeta": [held(flat(1.2, 9)), wide(-2, 3)],
    "gammainc": [wide(-3, 2.5), wide(-3, 2.5)],
    "gammaincc": [wide(-3, 2.5), wide(-3, 2.5)],
    "betainc": [wide(-2, 2), wide(-2, 2), flat(0.01, 0.99)],
    "erfc": [either(-3, 1.3)],
    "erfcx": [either(-3, 1)],
    "erfinv": [flat(-0.999, 0.999)],
    "erfcinv": [wide(-30, 0)],
    "ndtr": [either(-3, 1.4)],
    "ndtri": [wide(-30, -0.1)],
    "log_ndtr": [negative(-3, 4)],
    "dawsn": [either(-3, 5)],
    "fresnel_s": [either(-2, 1)],
    "fresnel_c": [either(-2, 1)],
    "jv": [held(flat(-3, 20)), wide(-2, 2.5)],
    "yv": [held(flat(-3, 10)), wide(-1, 2.5)],
    "iv": [held(flat(-3, 20)), wide(-2, 2.5)],
    "kv": [either(-2, 1.5), wide(-2, 2)],
    "ive": [held(flat(-3, 20)), wide(-2, 6)],
    "kve": [either(-2, 1.8), wide(-3, 6)],
    "j0": [either(-3, 2.5)],
    "j1": [either(-3, 2.5)],
    "y0": [wide(-3, 2)],
    "y1": [wide(-3, 0.5)],
    "i0": [either(-3, 2.5)],
    "i1": [either(-3, 2.5)],
    "k0": [wide(-3, 1)],
    "k1": [wide(-3, 0.5)],
    "i0e": [either(-3, 6)],
    "i1e": [either(-3, 6)],
    "k0e": [wide(-3, 1)],
    "k1e": [wide(-3, 0.5)],
    "spherical_jn": [whole(0, 8), wide(-2, 2)],
    "spherical_yn": [whole(0, 8), wide(-1, 2)],
    "spherical_in": [whole(0, 8), wide(-2, 2)],
    "spherical_kn": [whole(0, 8), wide(-1, 2)],
    "airy_ai": [flat(-30, 30)],
    "airy_bi": [flat(-30, 30)],
    "entr": [wide(-20, 20)],
    "rel_entr": [wide(-9, 9), wide(-9, 9)],
    "xlogy": [either(-9, 9), wide(-9, 9)],
    "xlog1py": [either(-9, 9), wide(-20, 9)],
    "logit": [wide(-30, -0.1)],
    "log_expit": [either(-3, 2.5)],
    "expi": [either(-3, 2.3)],
    "exp1": [wide(-3, 2.5)],
    "expn": [whole(0, 6), wide(-3, 2.5)],
    "sine_integral": [either(-3, 2.5)],
    "cosine_integral": [wide(-3, 2.5)],
    "sinh_integral": [either(-3, 2)],
    "cosh_integral": [wide(-3, 2)],
    "spence": [wide(-3, 4)],
    "lambertw_upper": [wide(-3, 8)],
    "lambertw_lower": [negative(-8, -0.5)],
    "ellipkm1": [wide(-12, 1)],
    "ellipk": [below_one(-8, 1.5)],
    "ellipe": [below_one(-8, 1.5)],
    "hyp0f1": [held(flat(0.5, 5)), either(-2, 2)],
    "hyp1f1": [held(flat(-3, 5)), held(flat(0.5, 5)), either(-2, 1.5)],
    "hyp2f1": [held(flat(-2, 4)), held(flat(-2, 4)), held(flat(0.5, 5)), flat(-3, 0.95)],
    "eval_hermite": [whole(2, 12), flat(-4, 4)],
    "eval_hermitenorm": [whole(2, 12), flat(-4, 4)],
    "eval_laguerre": [whole(2, 12), flat(0, 9)],
    "eval_legendre": [whole(2, 12), flat(-1, 1)],
    "eval_chebyt": [whole(2, 12), flat(-1, 1)],
    "eval_chebyu": [whole(2, 12), flat(-1, 1)],
    "eval_gegenbauer": [whole(2, 9), held(flat(0.3, 3)), flat(-1, 1)],
    "eval_genlaguerre": [whole(2, 9), held(flat(-0.5, 3)), flat(0, 9)],
    "eval_jacobi": [whole(2, 9), held(flat(-0.5, 3)), held(flat(-0.5, 3)), flat(-1, 1)],
}
POINTS = 4


def along(function, args, place):
    """A function of one of its arguments."""
    return lambda t: function(*args[:place], t, *args[place + 1 :])


def derivatives(name, args, place):
    """(ours, mpmath's) first and second derivative of one argument at a point."""
    ours = along(public_function(load_all_ops()[name]), [float(a) if isinstance(a, mp.mpf) else a for a in args], place)
    x = np.asarray(float(args[place]))
    with np.errstate(all="ignore"), mp.workdps(PRECISION):
        theirs = along(FUNCTIONS[name], [a if isinstance(a, int) else mp.mpf(a) for a in args], place)
        point = mp.mpf(args[place])
        for order, f in ((1, pb.grad(ours)), (2, pb.grad(pb.grad(ours)))):
            yield float(f(x)), float(mp.re(mp.diff(theirs, point, order)))


@pytest.mark.parametrize("name", DOMAINS)
def test_derivatives_at_forty_digits(name):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    compared = 0
    for _ in range(POINTS):
        args = [draw(rng) for draw in DOMAINS[name]]
        moving = [i for i, a in enumerate(args) if isinstance(a, float)]
        for place in moving:
            scale = 1.0
            for order, (mine, true) in enumerate(derivatives(name, args, place)):
                if not (1e-280 < abs(true) < 1e280):
                    continue
                compared += 1
                scale = max(scale, abs(true)) if order else abs(true)
                assert abs(mine - true) <= (1e-10, 2e-9)[order] * abs(true) + 1e-15 * scale, (args, place, order)
    assert compared >= POINTS


@pytest.mark.parametrize(
    ("a", "x"),
    [(1e-3, 1e-5), (0.3, 40.0), (5e3, 5.1e3), (5e3, 4.8e3), (20.5, 1e-6), (1e-6, 0.5), (300.0, 900.0), (1.0, 1.0)],
)
def test_incomplete_gamma_in_its_parameter_at_extreme_points(a, x):
    with mp.workdps(50):
        upper = x > a
        f = lambda t: mp.gammainc(t, x, mp.inf, regularized=True) if upper else FUNCTIONS["gammainc"](t, mp.mpf(x))  # noqa: E731
        true = [float(mp.diff(f, mp.mpf(a), n)) for n in (1, 2, 3)]
    f = along(special.gammaincc if upper else special.gammainc, [None, x], 0)
    mine = [float(g(np.asarray(a))) for g in (pb.grad(f), pb.grad(pb.grad(f)), pb.grad(pb.grad(pb.grad(f))))]
    np.testing.assert_allclose(mine[0], true[0], rtol=1e-12)
    np.testing.assert_allclose(mine[1], true[1], rtol=1e-9)
    np.testing.assert_allclose(mine[2], true[2], rtol=1e-7)


def test_incomplete_beta_mixed_parameters():
    a, b, x = 2.5, 1.25, 0.7
    with mp.workdps(PRECISION):
        true = float(mp.diff(lambda s, t: FUNCTIONS["betainc"](s, t, mp.mpf(x)), (a, b), (1, 1)))
        cubic = float(mp.diff(lambda s, t: FUNCTIONS["betainc"](s, t, mp.mpf(x)), (a, b), (2, 1)))
    both = pb.grad(pb.grad(special.betainc, 0), 1)
    np.testing.assert_allclose(both(a, b, x), true, rtol=1e-12)
    np.testing.assert_allclose(pb.grad(both, 0)(a, b, x), cubic, rtol=1e-11)


@pytest.mark.parametrize("inverse", ["gammaincinv", "gammainccinv"])
def test_inverse_of_incomplete_gamma_moves_with_its_parameter(inverse):
    """At a fixed probability the whole derivative of P(a, x(a)) in a is zero, at every order."""
    forth = getattr(special, inverse.removesuffix("inv"))
    back = getattr(special, inverse)
    f = lambda a: forth(a, back(a, 0.3))  # noqa: E731
    for a in (0.4, 2.0, 40.0):
        np.testing.assert_allclose(pb.grad(f)(a), 0.0, atol=1e-14)
        np.testing.assert_allclose(pb.grad(pb.grad(f))(a), 0.0, atol=1e-12)


def test_inverse_of_incomplete_beta_moves_with_its_parameters():
    for forth, back in ((special.betainc, special.betaincinv), (special.betaincc, special.betainccinv)):
        f = lambda a, b: forth(a, b, back(a, b, 0.3))  # noqa: E731, B023
        np.testing.assert_allclose([pb.grad(f, i)(2.0, 0.7) for i in (0, 1)], 0.0, atol=1e-13)
        np.testing.assert_allclose(pb.grad(pb.grad(f, 0), 1)(2.0, 0.7), 0.0, atol=1e-11)


#: function, point, first derivative, second derivative (None: not compared)
EXTREMES = [
    (special.lgamma, 1e300, math.log(1e300), None),
    (special.lgamma, 1e-300, -1e300, None),
    (special.digamma, 1e100, 1e-100, None),
    (special.erfcx, 1e10, -1e-20 / math.sqrt(math.pi), 2e-30 / math.sqrt(math.pi)),
    (special.erfc, 40.0, 0.0, 0.0),
    (special.log_ndtr, -1e10, 1e10, -1.0),
    (special.log_ndtr, 60.0, 0.0, 0.0),
    (special.ndtri_exp, -1e10, 1 / math.sqrt(2e10), None),
    (special.dawsn, 1e6, -5e-13, 1e-18),
    (special.rgamma, -3.0, -6.0, None),
    (special.rgamma, 0.0, 1.0, 2 * 0.5772156649015329),
    (special.spence, 1.0, -1.0, 0.5),
    (lambda x: special.sici(x)[0], 0.0, 1.0, 0.0),
    (lambda x: special.shichi(x)[0], 0.0, 1.0, 0.0),
    (special.lambertw, 0.0, 1.0, -2.0),
    (special.ellipk, 0.0, math.pi / 8, 9 * math.pi / 64),
    (special.ellipe, 0.0, -math.pi / 8, -3 * math.pi / 64),
    (special.i0e, 0.0, 0.0, None),
    (special.i1e, 0.0, 0.5, None),
    (special.i0e, 1e10, -0.5e-10 * 1 / math.sqrt(2e10 * math.pi), None),
    (special.i1e, -1e10, -0.5e-10 * 1 / math.sqrt(2e10 * math.pi), None),
    (special.k0e, 1e10, -0.5e-10 * math.sqrt(math.pi / 2e10), None),
    (special.j1, 0.0, 0.5, 0.0),
    (special.log_expit, 800.0, 0.0, 0.0),
    (special.log_expit, -800.0, 1.0, 0.0),
    (special.log_expit, -40.0, 1.0, -math.exp(-40)),
    (lambda x: special.xlogy(x, 0.0), 0.0, 0.0, 0.0),
    (lambda x: special.xlog1py(x, -1.0), 0.0, 0.0, 0.0),
    (lambda x: special.gammainc(1.0, x), 0.0, 1.0, -1.0),
    (lambda x: special.gammainc(3.0, x), 0.0, 0.0, 0.0),
    (lambda a: special.gammainc(a, 0.0), 2.0, 0.0, 0.0),
    (lambda a: special.gammainc(a, np.inf), 2.0, 0.0, 0.0),
    (lambda a: special.betainc(a, 2.0, 1.0), 2.0, 0.0, 0.0),
    (lambda x: special.betainc(1.0, 3.0, x), 0.0, 3.0, None),
    (lambda a: special.betaln(a, 1.0), 1e15, -1e-15, 1e-30),
    (lambda a: special.betaln(a, 1e-3), 1e15, -1e-18, None),
    (lambda v: special.kv(v, 1.0), 0.0, 0.0, None),
    (lambda v: special.kv(v, np.inf), 1.5, 0.0, 0.0),
    (lambda x: special.kve(1.5, x), np.inf, 0.0, 0.0),
    (lambda x: special.kve(1.5, x), 0.0, -np.inf, np.inf),
    (lambda x: special.spherical_jn(0, x), 0.0, 0.0, -1 / 3),
    (lambda x: special.spherical_jn(1, x), 0.0, 1 / 3, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(EXTREMES)))
def test_extreme_points(number):
    f, x, first, second = EXTREMES[number]
    x = np.asarray(x)
    np.testing.assert_allclose(pb.grad(f)(x), first, rtol=1e-9, atol=1e-300)
    with np.errstate(divide="ignore"):  # of the part that is not asked for
        np.testing.assert_allclose(pb.jvp(f, [x], [np.ones(())])[1], first, rtol=1e-9, atol=1e-300)
    if second is not None:
        np.testing.assert_allclose(pb.grad(pb.grad(f))(x), second, rtol=1e-9, atol=1e-300)


def test_entropy_is_steep_at_zero():
    with np.errstate(divide="ignore"):
        assert pb.grad(special.entr)(0.0) == np.inf
    assert np.isnan(pb.grad(special.entr)(-1.0))
    assert special.entr(-1.0) == -np.inf


def test_order_of_bessel_k():
    """d/dv at a half order, and the Matern kernel in its smoothness."""
    with mp.workdps(PRECISION):
        true = [float(mp.diff(lambda v: mp.besselk(v, 2), 1.5, n)) for n in (1, 2, 3)]
    f = along(special.kv, [None, 2.0], 0)
    mine = [pb.grad(f)(1.5), pb.grad(pb.grad(f))(1.5), pb.grad(pb.grad(pb.grad(f)))(1.5)]
    np.testing.assert_allclose(mine, true, rtol=1e-13)

    def matern(nu, r):
        z = pb.sqrt(2 * nu) * r
        return 2 ** (1 - nu) / special.gamma(nu) * z**nu * special.kv(nu, z)

    step = 1e-6
    differences = (matern(1.3 + step, 0.7) - matern(1.3 - step, 0.7)) / (2 * step)
    np.testing.assert_allclose(pb.grad(matern)(1.3, 0.7), differences, rtol=1e-8)


REFUSED = {
    "jv": (special.jv, 0, (1.5, 2.0)),
    "yv": (special.yv, 0, (1.5, 2.0)),
    "iv": (special.iv, 0, (1.5, 2.0)),
    "ive": (special.ive, 0, (1.5, 2.0)),
    "zeta": (special.zeta, 0, (2.5, 2.0)),
    "polygamma": (special.polygamma, 0, (1.0, 2.0)),
    "expn": (special.expn, 0, (1.0, 2.0)),
    "hyp1f1": (special.hyp1f1, 1, (1.0, 2.0, 0.5)),
    "hyp2f1": (special.hyp2f1, 2, (1.0, 2.0, 3.0, 0.5)),
    "eval_jacobi": (special.eval_jacobi, 1, (2.0, 2.0, 3.0, 0.5)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_derivatives_are_refused_in_both_modes(name):
    f, place, args = REFUSED[name]
    values = [np.asarray(a) for a in args]
    with pytest.raises(pb.errors.UnsupportedFunction, match=name):
        pb.grad(f, place)(*values)
    with pytest.raises(pb.errors.UnsupportedFunction, match=name):
        pb.jvp(along(f, values, place), [values[place]], [np.ones(())])
    assert np.isfinite(pb.grad(f, len(args) - 1)(*values))


COMPLEX = {
    "gamma": (),
    "loggamma": (),
    "digamma": (),
    "erfc": (),
    "expi": (),
    "exp1": (),
    "fresnel_s": (),
    "sine_integral": (),
    "airy_ai": (),
    "jv": (2,),
    "iv": (1,),
    "hyp1f1": (1.5, 2.5),
    "spherical_jn": (1,),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_values_and_slopes(name):
    """The value at 40 digits; for a holomorphic f the gradient of Re f is conj(f')."""
    z, before = 1.3 + 0.4j, COMPLEX[name]
    f = public_function(load_all_ops()[name])
    with mp.workdps(PRECISION):
        value = complex(FUNCTIONS[name](*before, mp.mpc(z)))
        slope = complex(mp.diff(lambda t: FUNCTIONS[name](*before, t), mp.mpc(z)))
    np.testing.assert_allclose(f(*before, np.asarray(z)), value, rtol=1e-12)
    x = pb.tensor(z, requires_grad=True)
    if name == "digamma":
        with pytest.raises(pb.errors.DtypeError, match="complex"):
            pb.real(f(x)).backward()
        return
    pb.real(f(*before, x)).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.conj(slope), rtol=1e-12)


def test_real_functions_refuse_complex_arguments():
    with pytest.raises(pb.errors.DtypeError, match="gammainc: complex"):
        special.gammainc(1 + 1j, 2.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtypes_are_kept(dtype):
    x = np.array([0.5, 2.0], dtype)
    for f in (special.lgamma, special.erfcx, special.i0e, lambda a: special.gammainc(a, 1.5)):
        assert f(x).dtype == x.dtype
        assert pb.grad(lambda v: pb.sum(f(v)))(x).dtype == x.dtype  # noqa: B023


def test_integers_are_answered_in_floats():
    assert special.lgamma(np.array([1, 2], np.int8)).dtype == np.float16
    assert special.jv(np.array([1, 2]), np.float32(1.0)).dtype == np.float64
    assert special.jv(1, np.ones(2, np.float32)).dtype == np.float32


def test_composites():
    np.testing.assert_allclose(special.factorial(np.array([0.0, 5.0])), [1.0, 120.0])
    np.testing.assert_allclose(special.comb(np.array([5.0, 3.0]), np.array([2.0, 4.0])), [10.0, 0.0])
    assert pb.grad(special.comb)(3.0, 4.0) == 0.0
    from scipy.special import multigammaln

    np.testing.assert_allclose(special.multigammaln(4.5, 3), multigammaln(4.5, 3))
    with pytest.raises(pb.errors.ArgumentError, match="positive integer"):
        special.multigammaln(4.5, 0)
    with pytest.raises(pb.errors.ArgumentError, match="branches"):
        special.lambertw(1.0, k=3)
    assert special.gammaln is special.lgamma
    assert special.erf is pb.erf
    assert special.expit is pb.sigmoid


def test_lambert_branches():
    x = np.array([-0.3, -0.1])
    for k in (0, -1):
        w = special.lambertw(x, k=k)
        np.testing.assert_allclose(w * np.exp(w), x, rtol=1e-14)
    assert np.isnan(special.lambertw(-1.0))
    assert np.isnan(special.lambertw(1.0, k=-1))


def test_every_public_function_says_what_it_is():
    for name in special.__all__:
        assert getattr(special, name).__doc__, name


def test_an_order_is_made_once_whatever_thread_asks():
    from pullback.ops.special.incomplete_gamma import gamma_moment

    found = []
    threads = [threading.Thread(target=lambda: found.append(gamma_moment(7))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_large_arrays_go_through_the_quadrature_in_parts():
    a = np.linspace(0.5, 20, 1300)
    whole = pb.grad(lambda v: pb.sum(special.gammainc(v, 3.0)))(a)
    part = pb.grad(lambda v: pb.sum(special.gammainc(v, 3.0)))(a[600:610])
    np.testing.assert_allclose(whole[600:610], part, rtol=1e-14)


def test_erf_of_complex_numbers_has_the_derivative_of_the_plane() -> None:
    """erf refused complex numbers where erfc took them."""
    z = np.array([0.3 + 0.2j, -1.0 + 0.5j, 2.0 - 1.0j])
    assert np.allclose(pb.erf(z) + special.erfc(z), 1.0, rtol=1e-13)
    gradient = pb.grad(lambda z: pb.sum(pb.real(pb.erf(z))))(z)
    assert np.allclose(gradient, np.conj(2 / math.sqrt(math.pi) * np.exp(-z * z)), rtol=1e-13)
    assert pb.erf(z.astype(np.complex64)).dtype == np.complex64

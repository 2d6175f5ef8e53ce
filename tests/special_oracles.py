"""Every op of `pullback.special` as mpmath computes it at 40 digits: what the generated tests compare values with."""

from __future__ import annotations

import re

import mpmath as mp
import numpy as np

from pullback.ops import everything

PRECISION = 40


def elementwise(function):
    """A function of mpmath numbers as one of arrays, computed at 40 digits."""

    def oracle(*arrays):
        with mp.workdps(PRECISION):
            cast = [[_number(v) for v in a.ravel().tolist()] for a in np.broadcast_arrays(*arrays)]
            found = [complex(function(*row)) for row in zip(*cast, strict=True)]
        out = np.array(found, dtype=complex).reshape(np.broadcast_shapes(*(np.shape(a) for a in arrays)))
        return out if any(np.iscomplexobj(a) for a in arrays) else out.real

    return oracle


def _number(v):
    return v if isinstance(v, int) else mp.mpmathify(v)


def gamma_weight(a, x):
    return x**a * mp.exp(-x) / mp.gamma(a)


def gammainc(a, x):
    return mp.gammainc(a, 0, x, regularized=True)


def beta_weight(a, b, x):
    return x**a * (1 - x) ** b / mp.beta(a, b)


def betainc(a, b, x):
    return mp.betainc(a, b, 0, x, regularized=True)


def root(f, start):
    return mp.findroot(f, start, tol=mp.mpf(10) ** -70)


def bisected(f, low, high):
    """The root of a monotone function, by halving."""
    low, high = mp.mpf(low), mp.mpf(high)
    rising = f(high) > f(low)
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (middle, high) if (f(middle) < 0) == rising else (low, middle)
    return low


def ndtr(x):
    return mp.ncdf(x)


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def dawsn(x):
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def spherical(kind, factor):
    return lambda n, x: mp.sqrt(factor / x) * kind(n + mp.mpf(1) / 2, x)


def ellipd(p):
    return mp.elliprd(0, p, 1) / 3


def owens_t(h, a):
    return mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]) / (2 * mp.pi)


def log_ratio(x):
    return mp.log(x) / (1 - x)


def scaled_i(v, x):
    return mp.exp(-abs(x)) * mp.besseli(v, x)


def scaled_k(v, x):
    return mp.exp(x) * mp.besselk(v, x)


def of_whole_order(f, n):
    return lambda x: f(n, x)


BESSEL = {"j": mp.besselj, "y": mp.bessely, "i": mp.besseli, "k": mp.besselk}
FUNCTIONS = {
    "gamma": mp.gamma,
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
    "loggamma": mp.loggamma,
    "digamma": mp.digamma,
    "polygamma": lambda n, x: mp.polygamma(n, x),
    "polygamma_difference": lambda n, a, b: mp.polygamma(n, a + b) - mp.polygamma(n, a),
    "rgamma": mp.rgamma,
    "beta": mp.beta,
    "betaln": lambda a, b: mp.log(abs(mp.beta(a, b))),
    "binom": mp.binomial,
    "poch": mp.rf,
    "zeta": mp.zeta,
    "gamma_density": lambda a, x: gamma_weight(a, x) / x,
    "gammainc": gammainc,
    "gammaincc": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    "gammaincinv": lambda a, p: bisected(lambda x: gammainc(a, x) - p, "1e-12", 60),
    "gammainccinv": lambda a, p: bisected(lambda x: 1 - p - gammainc(a, x), "1e-12", 60),
    "beta_weight": beta_weight,
    "betainc": betainc,
    "betaincc": lambda a, b, x: 1 - betainc(a, b, x),
    "betaincinv": lambda a, b, p: bisected(lambda x: betainc(a, b, x) - p, 0, 1),
    "betainccinv": lambda a, b, p: bisected(lambda x: 1 - p - betainc(a, b, x), 0, 1),
    "erfc": mp.erfc,
    "erfcx": erfcx,
    "erfinv": mp.erfinv,
    "erfcinv": lambda x: mp.erfinv(1 - x),
    "ndtr": ndtr,
    "ndtri": lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    "normal_hazard": lambda x: mp.npdf(x) / ndtr(x),
    "log_ndtr": lambda x: mp.log1p(-ndtr(-x)) if x > 0 else mp.log(ndtr(x)),
    "ndtri_exp": lambda y: mp.sqrt(2) * mp.erfinv(2 * mp.exp(y) - 1),
    "dawsn": dawsn,
    "fresnel_s": mp.fresnels,
    "fresnel_c": mp.fresnelc,
    "owens_t": owens_t,
    "jv": mp.besselj,
    "yv": mp.bessely,
    "iv": mp.besseli,
    "kv": mp.besselk,
    "ive": scaled_i,
    "kve": scaled_k,
    **{f"{kind}{n}": of_whole_order(f, n) for n in (0, 1) for kind, f in BESSEL.items()},
    **{f"i{n}e": of_whole_order(scaled_i, n) for n in (0, 1)},
    **{f"k{n}e": of_whole_order(scaled_k, n) for n in (0, 1)},
    "spherical_jn": spherical(mp.besselj, mp.pi / 2),
    "spherical_yn": spherical(mp.bessely, mp.pi / 2),
    "spherical_in": spherical(mp.besseli, mp.pi / 2),
    "spherical_kn": spherical(mp.besselk, mp.pi / 2),
    "airy_ai": mp.airyai,
    "airy_ai_prime": lambda x: mp.airyai(x, derivative=1),
    "airy_bi": mp.airybi,
    "airy_bi_prime": lambda x: mp.airybi(x, derivative=1),
    "entr": lambda x: -x * mp.log(x),
    "rel_entr": lambda x, y: x * mp.log(x / y),
    "kl_div": lambda x, y: x * mp.log(x / y) - x + y,
    "xlogy": lambda x, y: x * mp.log(y),
    "xlog1py": lambda x, y: x * mp.log(1 + y),
    "logit": lambda p: mp.log(p / (1 - p)),
    "log_expit": lambda x: -mp.log(1 + mp.exp(-x)),
    "expi": mp.ei,
    "exp1": mp.e1,
    "expn": mp.expint,
    "sine_integral": mp.si,
    "cosine_integral": mp.ci,
    "sinh_integral": mp.shi,
    "cosh_integral": mp.chi,
    "spence": lambda x: mp.polylog(2, 1 - x),
    "lambertw_upper": lambda x: mp.lambertw(x),
    "lambertw_lower": lambda x: mp.lambertw(x, -1).real,
    "ellipdm1": ellipd,
    "ellipkm1": lambda p: mp.ellipk(1 - p),
    "ellipk": mp.ellipk,
    "ellipe": mp.ellipe,
    "hyp0f1": mp.hyp0f1,
    "hyp1f1": mp.hyp1f1,
    "hyp2f1": mp.hyp2f1,
    "eval_hermite": mp.hermite,
    "eval_hermitenorm": lambda n, x: mp.mpf(2) ** (-mp.mpf(n) / 2) * mp.hermite(n, x / mp.sqrt(2)),
    "eval_laguerre": lambda n, x: mp.laguerre(n, 0, x),
    "eval_legendre": mp.legendre,
    "eval_chebyt": mp.chebyt,
    "eval_chebyu": mp.chebyu,
    "eval_gegenbauer": mp.gegenbauer,
    "eval_genlaguerre": mp.laguerre,
    "eval_jacobi": mp.jacobi,
}  # fmt: skip


def of_order(name):
    """Ops that are made by order, such as `gamma_moment_2`, as derivatives by mpmath."""
    base, *orders = re.fullmatch(r"([a-z_]+?)_(\d+)(?:_(\d+))?", name).groups()
    j, k = (int(n or 0) for n in orders)
    if base == "gamma_moment":
        return lambda a, y: mp.diff(lambda t: gammainc(t, mp.exp(y)), a, j) / gamma_weight(a, mp.exp(y))
    if base == "gammainc_in_parameter":
        return lambda a, x: mp.diff(lambda t: gammainc(t, x), a, j)
    if base == "betainc_in_parameters":
        return lambda a, b, x: mp.diff(lambda s, t: betainc(s, t, x), (a, b), (j, k))
    if base == "beta_moment":
        return lambda a, b, x: mp.diff(lambda s, t: betainc(s, t, x), (a, b), (j, k)) / beta_weight(a, b, x)
    if base == "kve_derivative":
        return lambda v, x: mp.diff(lambda s, t: scaled_k(t, s), (x, v), (j, k))
    if base == "ive_derivative":
        return lambda v, x: mp.diff(lambda t: scaled_i(v, t), x, j)
    plain = {"erfcx_derivative": erfcx, "dawsn_derivative": dawsn, "log_ratio": log_ratio}[base]
    return lambda x: mp.diff(plain, x, j)


FUNCTIONS |= {name: of_order(name) for name in everything() if re.fullmatch(r"[a-z_]+_\d(_\d)?", name)}
SPECIAL = {name: elementwise(function) for name, function in FUNCTIONS.items()}
#: Ops whose complex derivative is tested too.
PLANE = {
    "gamma", "loggamma", "erfc", "fresnel_s", "fresnel_c", "jv", "yv", "iv", "airy_ai", "airy_ai_prime", "airy_bi",
    "airy_bi_prime", "expi", "exp1", "sine_integral", "cosine_integral", "sinh_integral", "cosh_integral", "hyp0f1",
    "hyp1f1", "hyp2f1", "spherical_jn", "spherical_yn", "spherical_in", "spherical_kn",
}  # fmt: skip
#: Relative tolerances where SciPy's own value is not good to 1e-13.
DIGITS: dict[str, float] = {}

"""Ufuncs of `scipy.special` under other names here, or written by special functions that are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..lazy import find_public


def _special(name: str) -> Any:
    return find_public(f"special.{name}")


def chdtr(v: Any, x: Any) -> Any:
    return _special("gammainc")(v / 2, x / 2)


def chdtrc(v: Any, x: Any) -> Any:
    return _special("gammaincc")(v / 2, x / 2)


def gdtr(a: Any, b: Any, x: Any) -> Any:
    return _special("gammainc")(b, a * x)


def gdtrc(a: Any, b: Any, x: Any) -> Any:
    return _special("gammaincc")(b, a * x)


def pdtr(k: Any, m: Any) -> Any:
    return _special("gammaincc")(np.floor(k) + 1.0, m)


def pdtrc(k: Any, m: Any) -> Any:
    return _special("gammainc")(np.floor(k) + 1.0, m)


def fdtr(dfn: Any, dfd: Any, x: Any) -> Any:
    return _special("betainc")(dfn / 2, dfd / 2, dfn * x / (dfd + dfn * x))


def fdtrc(dfn: Any, dfd: Any, x: Any) -> Any:
    return _special("betainc")(dfd / 2, dfn / 2, dfd / (dfd + dfn * x))


def stdtr(df: Any, t: Any) -> Any:
    # half of the mass beyond |t|, which is I(df / (df + t^2); df / 2, 1 / 2)
    tail = 0.5 * _special("betainc")(df / 2, 0.5, df / (df + t * t))
    return np.where(t > 0, 1.0 - tail, tail)


def stdtrit(df: Any, p: Any) -> Any:
    # the inverse of the above: with z the quantile of the tail, t^2 = df (1 / z - 1)
    near = np.abs(p - 0.5) < 1e-7  # there by the slope, as the root has none at the median
    tail = np.where(near, 0.25, np.where(p < 0.5, p, 1.0 - p))
    distance = np.sqrt(df * (1.0 / _special("betaincinv")(df / 2, 0.5, 2 * tail) - 1.0))
    slope = np.sqrt(np.pi * df) * np.exp(_log_gamma(df / 2) - _log_gamma((df + 1.0) / 2))
    return np.where(near, (p - 0.5) * slope, np.where(p < 0.5, -distance, distance))


def fdtri(dfn: Any, dfd: Any, p: Any) -> Any:
    z = _special("betaincinv")(dfn / 2, dfd / 2, p)
    return dfd * z / (dfn * (1.0 - z))


def beta_pdf(x: Any, a: Any, b: Any) -> Any:
    return np.exp(_special("xlog1py")(b - 1.0, -x) + _special("xlogy")(a - 1.0, x) - _special("betaln")(a, b))


def beta_ppf(p: Any, a: Any, b: Any) -> Any:
    return _special("betaincinv")(a, b, p)


def cauchy_ppf(p: Any, loc: Any, scale: Any) -> Any:
    return loc - scale / np.tan(np.pi * p)


def binom_cdf(k: Any, n: Any, p: Any) -> Any:
    k = np.floor(k)
    return _special("betainc")(n - k, k + 1.0, 1.0 - p)


def binom_sf(k: Any, n: Any, p: Any) -> Any:
    k = np.floor(k)
    return _special("betainc")(k + 1.0, n - k, p)


def binom_pmf(k: Any, n: Any, p: Any) -> Any:
    log_choices = _log_gamma(n + 1.0) - _log_gamma(k + 1.0) - _log_gamma(n - k + 1.0)
    return np.exp(log_choices + _special("xlogy")(k, p) + _special("xlog1py")(n - k, -p))


def nbinom_cdf(k: Any, n: Any, p: Any) -> Any:
    return _special("betainc")(n, np.floor(k) + 1.0, p)


def nbinom_sf(k: Any, n: Any, p: Any) -> Any:
    return _special("betainc")(np.floor(k) + 1.0, n, 1.0 - p)


def nbinom_pmf(k: Any, n: Any, p: Any) -> Any:
    log_choices = _log_gamma(k + n) - _log_gamma(k + 1.0) - _log_gamma(n)
    return np.exp(log_choices + n * np.log(p) + _special("xlog1py")(k, -p))


def _log_gamma(x: Any) -> Any:
    return _special("gammaln")(x)


def cosm1(x: Any) -> Any:
    return -2.0 * np.sin(0.5 * x) ** 2


def boxcox(x: Any, lmbda: Any) -> Any:
    # (x^l - 1) / l = log x * (e^u - 1) / u with u = l log x, which has no hole at l = 0; at x = 0 it is -1 / l
    at_zero = np.logical_and(x == 0, lmbda > 0)
    logarithm = np.log(np.where(at_zero, 1.0, x))
    return np.where(at_zero, -1.0 / np.where(at_zero, lmbda, 1.0), logarithm * exprel(lmbda * logarithm))


def exprel(x: Any) -> Any:
    near = np.abs(x) < 1e-5
    safe = np.where(near, 1.0, x)
    return np.where(near, 1.0 + x * (0.5 + x * (1.0 / 6.0 + x / 24.0)), np.expm1(safe) / safe)


def kn(n: Any, x: Any) -> Any:
    return _special("kv")(np.trunc(n), x)


def yn(n: Any, x: Any) -> Any:
    return _special("yv")(np.trunc(n), x)


def exp10(x: Any) -> Any:
    return np.exp(x * np.log(10.0))


#: By SciPy's name; NumPy's functions are NumPy's.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("expm1", "log1p", "exp2", "cbrt")},
    "chdtr": chdtr, "chdtrc": chdtrc, "gdtr": gdtr, "gdtrc": gdtrc, "pdtr": pdtr, "pdtrc": pdtrc, "fdtr": fdtr,
    "fdtrc": fdtrc, "stdtr": stdtr,
    "stdtrit": stdtrit, "fdtri": fdtri, "cosm1": cosm1, "boxcox": boxcox, "exprel": exprel, "exp10": exp10,
    "kn": kn, "yn": yn,
}  # fmt: skip
#: Of those that only SciPy's own distributions call.
PRIVATE: dict[str, Callable[..., Any]] = {
    "_beta_pdf": beta_pdf, "_beta_ppf": beta_ppf, "_cauchy_ppf": cauchy_ppf,
    "_binom_cdf": binom_cdf, "_binom_sf": binom_sf, "_binom_pmf": binom_pmf,
    "_nbinom_cdf": nbinom_cdf, "_nbinom_sf": nbinom_sf, "_nbinom_pmf": nbinom_pmf,
}  # fmt: skip

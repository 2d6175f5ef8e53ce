"""An elementwise case in, its error at 40 digits out: first and second derivatives against mpmath's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...transforms import jvp
from .cases import Case

__all__ = ["PRECISION", "forty_digits", "scalar_function"]

PRECISION = 40
#: What a derivative is measured against at least: below that, a formula may have cancelled as far as the value has.
_FLOOR = 1e-3
#: How much of the movement by the argument itself is allowed for: some ulps, in units of the tolerance of 1e-10.
_ULPS = 1e-4
#: How much further off a derivative of each order may be.
_LOOSER = {1: 1.0, 2: 20.0}
#: Functions that mpmath has under the op's own name, with the op's meaning.
_SAME_NAME = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "beta", "cos", "cosh", "digamma", "ellipe",
    "ellipk", "erf", "erfc", "erfinv", "exp", "expm1", "gamma", "hyp0f1", "hyp1f1", "hyp2f1", "hypot", "j0",
    "j1", "log", "log10", "log1p", "loggamma", "power", "rgamma", "sigmoid", "sin", "sinh", "sqrt", "tan",
    "tanh",
}  # fmt: skip
#: Functions that it has under another name, or that are one line of it.
_OTHER_NAME: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "add": lambda mp: lambda x, y: x + y,
    "subtract": lambda mp: lambda x, y: x - y,
    "multiply": lambda mp: lambda x, y: x * y,
    "divide": lambda mp: lambda x, y: x / y,
    "negative": lambda mp: lambda x: -x,
    "positive": lambda mp: lambda x: x,
    "square": lambda mp: lambda x: x * x,
    "reciprocal": lambda mp: lambda x: 1 / x,
    "rsqrt": lambda mp: lambda x: 1 / mp.sqrt(x),
    "relu": lambda mp: lambda x: max(x, mp.mpf(0)),
    "abs": lambda mp: abs,
    "maximum": lambda mp: max,
    "minimum": lambda mp: min,
    "fmax": lambda mp: max,
    "fmin": lambda mp: min,
    "logaddexp": lambda mp: lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))),
    "softplus": lambda mp: lambda x: max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x))),
    "logaddexp2": lambda mp: lambda x, y: mp.log(mp.mpf(2) ** x + mp.mpf(2) ** y, 2),
    "exp2": lambda mp: lambda x: mp.mpf(2) ** x,
    "log2": lambda mp: lambda x: mp.log(x, 2),
    "cbrt": lambda mp: lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "deg2rad": lambda mp: mp.radians,
    "rad2deg": lambda mp: mp.degrees,
    "lgamma": lambda mp: lambda x: mp.log(abs(mp.gamma(x))),
    "betaln": lambda mp: lambda a, b: mp.log(abs(mp.beta(a, b))),
    "binom": lambda mp: mp.binomial,
    "poch": lambda mp: mp.rf,
    "polygamma": lambda mp: lambda n, x: mp.polygamma(int(n), x),
    "polygamma_difference": lambda mp: lambda n, a, b: mp.polygamma(int(n), a + b) - mp.polygamma(int(n), a),
    "zeta": lambda mp: mp.zeta,
    "gammainc": lambda mp: lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda mp: lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    "betainc": lambda mp: lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
    "betaincc": lambda mp: lambda a, b, x: mp.betainc(a, b, x, 1, regularized=True),
    "erfcx": lambda mp: lambda x: mp.exp(x * x) * mp.erfc(x),
    "erfcinv": lambda mp: lambda x: mp.erfinv(1 - x),
    "ndtr": lambda mp: mp.ncdf,
    "ndtri": lambda mp: lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    "log_ndtr": lambda mp: lambda x: mp.log(mp.ncdf(x)),
    "dawsn": lambda mp: lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
    "fresnel_s": lambda mp: mp.fresnels,
    "fresnel_c": lambda mp: mp.fresnelc,
    "jv": lambda mp: mp.besselj,
    "yv": lambda mp: mp.bessely,
    "iv": lambda mp: mp.besseli,
    "kv": lambda mp: mp.besselk,
    "y0": lambda mp: functools.partial(mp.bessely, 0),
    "y1": lambda mp: functools.partial(mp.bessely, 1),
    "i0": lambda mp: functools.partial(mp.besseli, 0),
    "i1": lambda mp: functools.partial(mp.besseli, 1),
    "k0": lambda mp: functools.partial(mp.besselk, 0),
    "k1": lambda mp: functools.partial(mp.besselk, 1),
    "airy_ai": lambda mp: mp.airyai,
    "airy_bi": lambda mp: mp.airybi,
    "entr": lambda mp: lambda x: -x * mp.log(x),
    "rel_entr": lambda mp: lambda x, y: x * mp.log(x / y),
    "kl_div": lambda mp: lambda x, y: x * mp.log(x / y) - x + y,
    "xlogy": lambda mp: lambda x, y: x * mp.log(y),
    "xlog1py": lambda mp: lambda x, y: x * mp.log1p(y),
    "logit": lambda mp: lambda p: mp.log(p / (1 - p)),
    "log_expit": lambda mp: lambda x: -mp.log1p(mp.exp(-x)),
    "expi": lambda mp: mp.ei,
    "exp1": lambda mp: mp.e1,
    "expn": lambda mp: lambda n, x: mp.expint(int(n), x),
    "sine_integral": lambda mp: mp.si,
    "cosine_integral": lambda mp: mp.ci,
    "sinh_integral": lambda mp: mp.shi,
    "cosh_integral": lambda mp: mp.chi,
    "spence": lambda mp: lambda x: mp.polylog(2, 1 - x),
    "lambertw_upper": lambda mp: mp.lambertw,
    "ellipkm1": lambda mp: lambda p: mp.ellipk(1 - p),
}


def scalar_function(name: str) -> Callable[..., Any] | None:
    """The op of that name on mpmath's numbers, or None: there is no such function, or no mpmath."""
    try:
        import mpmath as mp
    except ModuleNotFoundError:
        return None
    if name in _SAME_NAME:
        return getattr(mp, name)  # type: ignore[no-any-return]
    return _OTHER_NAME[name](mp) if name in _OTHER_NAME else None


def elementwise(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """A function of mpmath's numbers on arrays, at 40 digits."""
    import mpmath as mp

    rows = np.broadcast_arrays(*arrays)
    with mp.workdps(PRECISION):
        found = [complex(function(*map(_number, row))) for row in zip(*(a.ravel() for a in rows), strict=True)]
    out = np.array(found, dtype=complex).reshape(rows[0].shape)
    return out if any(np.iscomplexobj(a) for a in arrays) else out.real


def _number(x: Any) -> Any:
    import mpmath as mp

    return int(x) if np.asarray(x).dtype.kind in "iub" else mp.mpmathify(x.item() if isinstance(x, np.generic) else x)


def forty_digits(case: Case) -> tuple[float, str] | None:
    """The worst error of the first two derivatives at points of the first sample and at extreme ones."""
    if case.op is None or case.number or case.op.family != "elementwise" or not case.op.differentiable:
        return None
    function = scalar_function(case.op.name)
    if function is None or any(np.asarray(a).dtype != np.float64 for a in case.floats) or not case.moving:
        return None
    worst, words = -1.0, ""
    for args in _points(case):
        for place in case.moving:
            if case.op.pull_of(place) is None:
                continue
            for order, mine, true, size in _derivatives(case, function, args, place):
                error = abs(mine - true) / (size * _LOOSER[order]) if np.isfinite(mine) else np.inf
                if error > worst:
                    worst = error
                    words = f"derivative {order} in argument {place} at {args}: rule {mine:.16g}, 40 digits {true:.16g}"
    return None if worst < 0 else (worst, words)


def _points(case: Case) -> Iterator[list[Any]]:
    """Two points of the sample, and one of them far out and close to zero in one argument at a time."""
    rows = [a.ravel() for a in np.broadcast_arrays(*case.args)]
    for i in range(min(2, len(rows[0]))):
        yield [row[i].item() for row in rows]
    for place in case.moving:
        for factor in (1e-6, 30.0, 1e3):
            args = [row[-1].item() for row in rows]
            args[place] *= factor
            yield args


def _derivatives(
    case: Case, function: Callable[..., Any], args: list[Any], place: int
) -> Iterator[tuple[int, float, float, float]]:
    """First and second derivative in one argument: the order, ours, mpmath's, and the size an error is measured by.

    An ulp of x moves f' by eps |x f''|, so no formula can be better than that; it is part of the size.
    """

    def ours(t: Any) -> Any:
        return case.call(*args[:place], t, *args[place + 1 :])

    def slope(t: Any) -> Any:
        return jvp(ours, (t,), (np.ones(()),))[1]

    def curve(t: Any) -> Any:
        return jvp(slope, (t,), (np.ones(()),))[1]

    exact = _exact(function, args, place)
    x = np.asarray(args[place])
    for order, rule in enumerate((slope, curve)[: max(len(exact) - 1, 0)]):
        true, moved = exact[order], abs(float(x) * exact[order + 1])
        if 1e-200 < abs(true) < 1e200:
            yield order + 1, float(rule(x)), true, max(abs(true), _FLOOR, _ULPS * moved)


def _exact(function: Callable[..., Any], args: list[Any], place: int) -> list[float]:
    """The first three derivatives by mpmath; none where it has no real, finite answer."""
    import mpmath as mp

    with mp.workdps(PRECISION):
        exact = [_number(np.asarray(a)[()]) for a in args]
        try:
            found = list(mp.diffs(lambda t: function(*exact[:place], t, *exact[place + 1 :]), exact[place], 3))[1:]
        except (ArithmeticError, NotImplementedError, TypeError, ValueError, mp.libmp.NoConvergence):
            return []
    return [float(mp.re(d)) for d in found] if all(mp.isfinite(d) and not mp.im(d) for d in found) else []

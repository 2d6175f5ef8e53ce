"""Elementwise ops on scalars: plain Python where that is exact, mpmath at 40 digits elsewhere."""

from __future__ import annotations

import cmath
import functools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .random_draws import threefry

PRECISION = 40
Scalar = Callable[..., Any]


def map_python_scalars(function: Scalar, arrays: Sequence[Any]) -> Any:
    """A function of Python scalars, element by element of arrays that are broadcast."""
    rows = np.broadcast_arrays(*arrays)
    found = [function(*row) for row in zip(*(a.ravel().tolist() for a in rows), strict=True)]
    return np.array(found, dtype=None if found else float).reshape(rows[0].shape)


def map_mpmath_scalars(function: Scalar, arrays: Sequence[Any]) -> Any:
    """A function of mpmath numbers, element by element of arrays that are broadcast, at 40 digits."""
    import mpmath as mp

    rows = np.broadcast_arrays(*arrays)
    with mp.workdps(PRECISION):
        numbers = ([to_mpmath(v) for v in a.ravel().tolist()] for a in rows)
        found = [complex(function(*row)) for row in zip(*numbers, strict=True)]
    out = np.array(found, dtype=complex).reshape(rows[0].shape)
    if any(np.iscomplexobj(a) for a in arrays):
        return out
    return np.where(out.imag == 0, out.real, np.nan)  # outside of its domain a real function has no value


def to_mpmath(x: Any) -> Any:
    import mpmath as mp

    return int(x) if isinstance(x, int) else mp.mpmathify(x)


def _maximum(x: Any, y: Any) -> Any:
    """The first that is NaN, else the larger; complex numbers in lexicographic order."""
    return x if x != x or not (y != y or _lexicographic_key(y) > _lexicographic_key(x)) else y


def _minimum(x: Any, y: Any) -> Any:
    return x if x != x or not (y != y or _lexicographic_key(y) < _lexicographic_key(x)) else y


def _lexicographic_key(x: Any) -> Any:
    return (x.real, x.imag)


def _compare(relation: Scalar) -> Scalar:
    """A relation of numbers, complex ones in lexicographic order."""
    return lambda x, y: (
        relation(_lexicographic_key(x), _lexicographic_key(y)) if isinstance(x + y, complex) else relation(x, y)
    )


def _skip_nan(choose: Scalar) -> Scalar:
    return lambda x, y: y if x != x else x if y != y else choose(x, y)


def _sign(x: Any) -> Any:
    if isinstance(x, complex):
        return x / abs(x) if x else 0j
    return x if x != x else (x > 0) - (x < 0)


def _round_finite(rounding: Scalar) -> Scalar:
    def rounded(x: Any) -> Any:
        if isinstance(x, complex):
            return complex(rounded(x.real), rounded(x.imag))
        return x if isinstance(x, int) or not math.isfinite(x) else float(rounding(x))

    return rounded


def _remainder(x: Any, y: Any) -> Any:
    """x - n y with the sign of y."""
    if isinstance(x, int):
        return x % y if y else 0
    if math.isinf(x) or x != x or y != y or y == 0:
        return math.nan
    if math.isinf(y):
        return x if x == 0 or (x < 0) == (y < 0) else y
    return x % y


def _floor_divide(x: Any, y: Any) -> Any:
    if isinstance(x, int):
        return x // y if y else 0
    if x != x or y != y or x == y == 0 or (math.isinf(x) and y):
        return math.nan
    return float(x // y) if y else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _fmod(x: Any, y: Any) -> Any:
    """x - n y with the sign of x."""
    if isinstance(x, int):
        return int(math.copysign(abs(x) % abs(y), x)) if y else 0
    return math.nan if math.isinf(x) or y == 0 else math.fmod(x, y)


def _heaviside(x: Any, y: Any) -> Any:
    return x if x != x else y if x == 0 else float(x > 0)


def _shift_left(x: int, y: int) -> int:
    """In signed 64 bits, where a shift by too much or by a negative count gives 0, as in NumPy."""
    return (x * 2**y + 2**63) % 2**64 - 2**63 if 0 <= y < 64 else 0


def _shift_right(x: int, y: int) -> int:
    return x // 2**y if 0 <= y < 64 else -(x < 0)


#: Ops that are exact on Python scalars.
EXACT_SCALARS: dict[str, Scalar] = {
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "less": _compare(operator.lt),
    "less_equal": _compare(operator.le),
    "greater": _compare(operator.gt),
    "greater_equal": _compare(operator.ge),
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) != bool(y),
    "logical_not": lambda x: not x,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_invert": lambda x: not x if isinstance(x, bool) else -x - 1,
    "bitwise_left_shift": _shift_left,
    "bitwise_right_shift": _shift_right,
    "bitwise_count": lambda x: abs(x).bit_count(),
    "gcd": math.gcd,
    "lcm": math.lcm,
    "isnan": lambda x: x != x,
    "isinf": cmath.isinf,
    "isfinite": cmath.isfinite,
    "signbit": lambda x: math.copysign(1.0, x) < 0,
    "sign": _sign,
    "ceil": _round_finite(math.ceil),
    "floor": _round_finite(math.floor),
    "trunc": _round_finite(math.trunc),
    "rint": _round_finite(round),
    "copysign": math.copysign,
    "fmod": _fmod,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "heaviside": _heaviside,
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": _skip_nan(_maximum),
    "fmin": _skip_nan(_minimum),
    "where": lambda condition, x, y: x if condition else y,
    "zero_unless": lambda condition, x: x if condition else 0 * x,
    "clip": lambda x, lower, upper: _minimum(_maximum(x, lower), upper),
    "relu": lambda x: x if x != x or x > 0 else 0.0,
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conj": lambda x: x.conjugate(),
    "positive": lambda x: x,
    "negative": lambda x: -x,
    "stop_gradient": lambda x: x,
    "random_word_first": lambda a, b, c, d, e: threefry((a, b), (c, (d + e) % 2**32))[0],
    "random_word_second": lambda a, b, c, d, e: threefry((a, b), (c, (d + e) % 2**32))[1],
}


@functools.cache
def mpmath_functions() -> dict[str, Scalar]:
    """Elementwise ops by name on mpmath numbers; none without mpmath, which is not a dependency."""
    try:
        import mpmath as mp
    except ModuleNotFoundError:
        return {}
    same = {name: getattr(mp, name) for name in _SAME_NAME}
    groups = (
        _elementary_functions,
        _gamma_functions,
        _normal_functions,
        _bessel_functions,
        _integral_functions,
        _polynomial_functions,
    )
    return same | {name: f for group in groups for name, f in group(mp).items()}


def mpmath_function(name: str) -> Scalar | None:
    """The op of that name on mpmath numbers, also one of a family by order, such as `gamma_moment_2`."""
    known = mpmath_functions()
    return known[name] if name in known else _derivative_by_name(name) if known else None


_SAME_NAME = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "beta", "cos", "cosh", "digamma", "ellipe",
    "ellipk", "erf", "erfc", "erfinv", "exp", "expm1", "gamma", "hyp0f1", "hyp1f1", "hyp2f1", "hypot", "j0",
    "j1", "log", "log10", "log1p", "loggamma", "power", "rgamma", "sigmoid", "sin", "sinh", "sqrt", "tan",
    "tanh", "zeta",
)  # fmt: skip


def _elementary_functions(mp: Any) -> dict[str, Scalar]:
    return {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "divide": lambda x, y: x / y,
        "square": lambda x: x * x,
        "reciprocal": lambda x: 1 / x,
        "rsqrt": lambda x: 1 / mp.sqrt(x),
        "abs": abs,
        "negative": lambda x: -x,
        "positive": lambda x: x,
        "relu": lambda x: max(x, mp.mpf(0)),
        "maximum": max,
        "minimum": min,
        "fmax": max,
        "fmin": min,
        "logaddexp": lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))),
        "logaddexp2": lambda x, y: mp.log(mp.mpf(2) ** x + mp.mpf(2) ** y, 2),
        "softplus": lambda x: max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x))),
        "gelu_by_tanh": lambda x: x * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))) / 2,
        "exp2": lambda x: mp.mpf(2) ** x,
        "log2": lambda x: mp.log(x, 2),
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        "deg2rad": mp.radians,
        "rad2deg": mp.degrees,
        "entr": lambda x: -x * mp.log(x) if x else x,
        "rel_entr": lambda x, y: x * mp.log(x / y) if x else x,
        "kl_div": lambda x, y: x * mp.log(x / y) - x + y if x else y,
        "xlogy": lambda x, y: x * mp.log(y) if x else x,
        "xlog1py": lambda x, y: x * mp.log1p(y) if x else x,
        "log_ratio": lambda x: mp.log(x) / (1 - x),
        "logit": lambda p: mp.log(p / (1 - p)),
        "log_expit": lambda x: -mp.log1p(mp.exp(-x)),
    }


def _gamma_functions(mp: Any) -> dict[str, Scalar]:
    def lower(a: Any, x: Any) -> Any:
        return mp.gammainc(a, 0, x, regularized=True)

    def incomplete(a: Any, b: Any, x: Any) -> Any:
        return mp.betainc(a, b, 0, x, regularized=True)

    def von_mises_quantile(p: Any, k: Any) -> Any:
        # the series of the distribution function: x / 2 pi + 1/2 + sum of I_j(k) sin(j x) / (j pi I_0(k))
        ratios = [mp.besseli(j, k) / (j * mp.pi * mp.besseli(0, k)) for j in range(1, 60)]

        def probability(x: Any) -> Any:
            return x / (2 * mp.pi) + mp.mpf(0.5) + sum(r * mp.sin(j * x) for j, r in enumerate(ratios, 1))

        return bisect(lambda x: probability(x) - p, -mp.pi, mp.pi)

    return {
        "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
        "polygamma": lambda n, x: mp.polygamma(int(n), x),
        "polygamma_difference": lambda n, a, b: mp.polygamma(int(n), a + b) - mp.polygamma(int(n), a),
        "betaln": lambda a, b: mp.log(abs(mp.beta(a, b))),
        "binom": mp.binomial,
        "poch": mp.rf,
        "gamma_density": lambda a, x: x ** (a - 1) * mp.exp(-x) / mp.gamma(a),
        "gammainc": lower,
        "gammaincc": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
        "gammaincinv": lambda a, p: bisect(lambda x: lower(a, x) - p, mp.mpf("1e-12"), mp.mpf(60)),
        "gammainccinv": lambda a, p: bisect(lambda x: 1 - p - lower(a, x), mp.mpf("1e-12"), mp.mpf(60)),
        "beta_weight": lambda a, b, x: x**a * (1 - x) ** b / mp.beta(a, b),
        "betainc": incomplete,
        "betaincc": lambda a, b, x: mp.betainc(a, b, x, 1, regularized=True),
        "von_mises_quantile": von_mises_quantile,
        "betaincinv": lambda a, b, p: bisect(lambda x: incomplete(a, b, x) - p, mp.mpf(0), mp.mpf(1)),
        "betainccinv": lambda a, b, p: bisect(lambda x: 1 - p - incomplete(a, b, x), mp.mpf(0), mp.mpf(1)),
    }


def bisect(f: Scalar, low: Any, high: Any) -> Any:
    """The root of a monotone function, by halving."""
    rises = f(high) > f(low)
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (middle, high) if (f(middle) < 0) == rises else (low, middle)
    return low


def _normal_functions(mp: Any) -> dict[str, Scalar]:
    def owens_t(h: Any, a: Any) -> Any:
        return mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]) / (2 * mp.pi)

    return {
        "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
        "erfcinv": lambda x: mp.erfinv(1 - x),
        "ndtr": mp.ncdf,
        "ndtri": lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
        "normal_hazard": lambda x: mp.npdf(x) / mp.ncdf(x),
        "log_ndtr": lambda x: mp.log1p(-mp.ncdf(-x)) if x > 0 else mp.log(mp.ncdf(x)),
        "ndtri_exp": lambda y: mp.sqrt(2) * mp.erfinv(2 * mp.exp(y) - 1),
        "dawsn": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
        "fresnel_s": mp.fresnels,
        "fresnel_c": mp.fresnelc,
        "owens_t": owens_t,
    }


def _bessel_functions(mp: Any) -> dict[str, Scalar]:
    kinds = {"j": mp.besselj, "y": mp.bessely, "i": mp.besseli, "k": mp.besselk}

    def scaled_i(v: Any, x: Any) -> Any:
        return mp.exp(-abs(mp.re(x))) * mp.besseli(v, x)

    def scaled_k(v: Any, x: Any) -> Any:
        return mp.exp(x) * mp.besselk(v, x)

    def spherical(kind: Scalar) -> Scalar:
        return lambda n, x: mp.sqrt(mp.pi / (2 * x)) * kind(n + mp.mpf(1) / 2, x)

    return {
        **{f"{letter}v": kind for letter, kind in kinds.items()},
        **{f"{letter}{n}": functools.partial(kind, n) for letter, kind in kinds.items() for n in (0, 1)},
        "ive": scaled_i,
        "kve": scaled_k,
        **{f"i{n}e": functools.partial(scaled_i, n) for n in (0, 1)},
        **{f"k{n}e": functools.partial(scaled_k, n) for n in (0, 1)},
        **{f"spherical_{letter}n": spherical(kind) for letter, kind in kinds.items()},
        "airy_ai": mp.airyai,
        "airy_ai_prime": lambda x: mp.airyai(x, derivative=1),
        "airy_bi": mp.airybi,
        "airy_bi_prime": lambda x: mp.airybi(x, derivative=1),
    }


def _integral_functions(mp: Any) -> dict[str, Scalar]:
    return {
        "expi": mp.ei,
        "exp1": mp.e1,
        "expn": lambda n, x: mp.expint(int(n), x),
        "sine_integral": mp.si,
        "cosine_integral": mp.ci,
        "sinh_integral": mp.shi,
        "cosh_integral": mp.chi,
        "spence": lambda x: mp.polylog(2, 1 - x),
        "lambertw_upper": mp.lambertw,
        "lambertw_lower": lambda x: mp.lambertw(x, -1),
        "ellipdm1": lambda p: mp.elliprd(0, p, 1) / 3,
        "ellipkm1": lambda p: mp.ellipk(1 - p),
    }


def _polynomial_functions(mp: Any) -> dict[str, Scalar]:
    return {
        "eval_hermite": mp.hermite,
        "eval_hermitenorm": lambda n, x: mp.mpf(2) ** (-mp.mpf(n) / 2) * mp.hermite(n, x / mp.sqrt(2)),
        "eval_laguerre": lambda n, x: mp.laguerre(n, 0, x),
        "eval_legendre": mp.legendre,
        "eval_chebyt": mp.chebyt,
        "eval_chebyu": mp.chebyu,
        "eval_gegenbauer": mp.gegenbauer,
        "eval_genlaguerre": mp.laguerre,
        "eval_jacobi": mp.jacobi,
    }


#: Families of ops by order: of which function they are the derivative, in which arguments, and over what.
_DERIVATIVE_OPS: dict[str, tuple[str, tuple[int, ...], Scalar | None]] = {
    "gamma_moment": ("gammainc", (0,), lambda mp, a, x: x**a * mp.exp(-x) / mp.gamma(a)),
    "gammainc_in_parameter": ("gammainc", (0,), None),
    "betainc_in_parameters": ("betainc", (0, 1), None),
    "beta_moment": ("betainc", (0, 1), lambda mp, a, b, x: x**a * (1 - x) ** b / mp.beta(a, b)),
    "kve_derivative": ("kve", (1, 0), None),
    "ive_derivative": ("ive", (1,), None),
    "erfcx_derivative": ("erfcx", (0,), None),
    "dawsn_derivative": ("dawsn", (0,), None),
    "log_ratio": ("log_ratio", (0,), None),
}


def _derivative_by_name(name: str) -> Scalar | None:
    """An op such as `gamma_moment_2`, as a derivative by mpmath."""
    import mpmath as mp

    found = re.fullmatch(r"([a-z_]+?)_(\d+)(?:_(\d+))?", name)
    if found is None or found[1] not in _DERIVATIVE_OPS:
        return None
    base, places, over = _DERIVATIVE_OPS[found[1]]
    orders = tuple(int(n) for n in found.groups()[1:] if n is not None)
    function = mpmath_functions()[base]
    moved = places[: len(orders)]

    def derivative(*args: Any) -> Any:
        if found[1] == "gamma_moment":
            args = (args[0], mp.exp(args[1]))

        def partial_function(*values: Any) -> Any:
            given = dict(zip(moved, values, strict=True))
            return function(*(given.get(i, a) for i, a in enumerate(args)))

        slope = mp.diff(partial_function, tuple(args[i] for i in moved), orders)
        return slope if over is None else slope / over(mp, *args)

    return derivative


def _spacing(x: Any) -> Any:
    """The distance to the next number of the dtype away from zero, by its exponent; it has the number's sign."""
    info = np.finfo(x.dtype)
    exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, info.minexp)
    gap = np.where(x == 0, info.smallest_subnormal, np.ldexp(np.copysign(1.0, x), exponent - info.nmant))
    return np.where(np.isfinite(x), gap, np.nan)


def _nextafter(x: Any, y: Any) -> Any:
    """The next float by counting: the bits of floats, read as integers, are in their order."""
    x, y = np.broadcast_arrays(x, y)
    whole = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.array(x).view(whole)
    away = (np.abs(y) > np.abs(x)) & (np.signbit(x) == np.signbit(y)) | (x == 0)
    tiny = np.copysign(np.finfo(x.dtype).smallest_subnormal, y)
    stepped = np.where(x == 0, tiny, (bits + np.where(away, 1, -1).astype(whole)).view(x.dtype))
    return np.where(x == y, y, np.where(np.isnan(x) | np.isnan(y), np.nan, stepped))


#: Ops whose result is about the digits of the dtype itself.
DIGIT_ORACLES: dict[str, Scalar] = {"nextafter": _nextafter, "spacing": _spacing}

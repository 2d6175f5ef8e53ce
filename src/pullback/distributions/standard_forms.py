"""Laws of single numbers in their standard form, without location and scale: density, draw, distribution function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ops.dispatch import as_value, shape
from ..ops.elementwise.arithmetic import hypot
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import (
    atan,
    atan2,
    cos,
    erf,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    power,
    sigmoid,
    sin,
    softplus,
    sqrt,
    square,
    tan,
    where,
)
from ..ops.random import samplers
from ..ops.random.keys import fold_in
from ..ops.special.bessel import i0e, i1e
from ..ops.special.circular import von_mises_cdf, von_mises_quantile
from ..ops.special.error_functions import erfinv, ndtr, ndtri
from ..ops.special.gamma import gammaln
from ..ops.special.incomplete_beta import betainc, betaincinv
from ..ops.special.incomplete_gamma import gammainc, gammaincc, gammainccinv, gammaincinv
from . import constraints
from .law import Law, batch_of
from .normalizers import digamma, entropy_part, log_beta, log_gamma
from .ratios import expm1_ratio, log1p_ratio, logit, times_log, times_log1p

EULER = float(np.euler_gamma)
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def cotangent_of_turns(p: Any) -> Any:
    """1 / tan(pi p) for p up to a half; infinite at 0, and exact near it."""
    return cos(math.pi * p) / sin(math.pi * p)


NORMAL = Law(
    support=constraints.real,
    log_density=lambda x: -0.5 * square(x) - HALF_LOG_2PI,
    draw=lambda size, key, dtype: samplers.normal(size=size, key=key, dtype=dtype),
    mean=lambda: 0.0,
    variance=lambda: 1.0,
    mode=lambda: 0.0,
    entropy=lambda: 0.5 + HALF_LOG_2PI,
    cdf=ndtr,
    icdf=ndtri,
)
HALF_NORMAL = Law(
    support=constraints.nonnegative,
    log_density=lambda x: -0.5 * square(x) - HALF_LOG_2PI + math.log(2.0),
    draw=lambda size, key, dtype: magnitude(samplers.normal(size=size, key=key, dtype=dtype)),
    mean=lambda: math.sqrt(2 / math.pi),
    variance=lambda: 1.0 - 2 / math.pi,
    mode=lambda: 0.0,
    entropy=lambda: 0.5 + HALF_LOG_2PI - math.log(2.0),
    cdf=lambda x: erf(x * math.sqrt(0.5)),
    icdf=lambda p: math.sqrt(2.0) * erfinv(p),
)
UNIFORM = Law(
    support=constraints.unit_interval,
    log_density=lambda x: x * 0.0,
    draw=lambda size, key, dtype: samplers.uniform(size=size, key=key, dtype=dtype),
    mean=lambda: 0.5,
    variance=lambda: 1 / 12,
    mode=lambda: 0.5,
    entropy=lambda: 0.0,
    cdf=lambda x: x,
    icdf=lambda p: p,
)
EXPONENTIAL = Law(
    support=constraints.nonnegative,
    log_density=lambda x: -x,
    draw=lambda size, key, dtype: samplers.exponential(size=size, key=key, dtype=dtype),
    mean=lambda: 1.0,
    variance=lambda: 1.0,
    mode=lambda: 0.0,
    entropy=lambda: 1.0,
    cdf=lambda x: -expm1(-x),
    icdf=lambda p: -log1p(-p),
)
LAPLACE = Law(
    support=constraints.real,
    log_density=lambda x: -magnitude(x) - math.log(2.0),
    draw=lambda size, key, dtype: samplers.laplace(size=size, key=key, dtype=dtype),
    mean=lambda: 0.0,
    variance=lambda: 2.0,
    mode=lambda: 0.0,
    entropy=lambda: 1.0 + math.log(2.0),
    # not by |x|, whose slope at 0 would be 0
    cdf=lambda x: where(x < 0, 0.5 * exp(where(x < 0, x, 0.0)), 1.0 - 0.5 * exp(-where(x < 0, 0.0, x))),
    icdf=lambda p: where(p < 0.5, log(2.0 * p), -log(2.0 * (1.0 - p))),
)
CAUCHY = Law(
    support=constraints.real,
    # by hypot, since the square of x overflows long before its logarithm
    log_density=lambda x: -math.log(math.pi) - 2.0 * log(hypot(1.0, x)),
    draw=lambda size, key, dtype: samplers.cauchy(size=size, key=key, dtype=dtype),
    mean=lambda: math.nan,
    variance=lambda: math.nan,
    mode=lambda: 0.0,
    entropy=lambda: math.log(4 * math.pi),
    cdf=lambda x: atan2(1.0, -x) / math.pi,
    icdf=lambda p: where(p > 0.5, cotangent_of_turns(1.0 - p), -cotangent_of_turns(p)),
)
HALF_CAUCHY = Law(
    support=constraints.nonnegative,
    log_density=lambda x: math.log(2 / math.pi) - 2.0 * log(hypot(1.0, x)),
    draw=lambda size, key, dtype: magnitude(samplers.cauchy(size=size, key=key, dtype=dtype)),
    mean=lambda: math.inf,
    variance=lambda: math.inf,
    mode=lambda: 0.0,
    entropy=lambda: math.log(2 * math.pi),
    cdf=lambda x: atan(x) * (2 / math.pi),
    icdf=lambda p: where(p > 0.5, cotangent_of_turns(0.5 * (1.0 - p)), tan(where(p > 0.5, 0.0, p) * (math.pi / 2))),
)
GUMBEL = Law(
    support=constraints.real,
    log_density=lambda x: -x - exp(-x),
    draw=lambda size, key, dtype: samplers.gumbel(size=size, key=key, dtype=dtype),
    mean=lambda: EULER,
    variance=lambda: math.pi**2 / 6,
    mode=lambda: 0.0,
    entropy=lambda: 1.0 + EULER,
    cdf=lambda x: exp(-exp(-x)),
    icdf=lambda p: -log(-log(p)),
)
LOGISTIC = Law(
    support=constraints.real,
    log_density=lambda x: -x - 2.0 * softplus(-x),
    draw=lambda size, key, dtype: samplers.logistic(size=size, key=key, dtype=dtype),
    mean=lambda: 0.0,
    variance=lambda: math.pi**2 / 3,
    mode=lambda: 0.0,
    entropy=lambda: 2.0,
    cdf=sigmoid,
    icdf=logit,
)


def _mirror(is_low: Any, x: Any, total: float) -> Any:
    """What is known of the lower half of a symmetric distribution, for both."""
    return where(is_low, x, total - x)


def student_t(df: Any) -> Law:
    """Student's t with df degrees of freedom."""

    def log_density(x: Any) -> Any:
        # the two log-gammas are a log-beta, which keeps its digits for large df; far out the square would overflow
        z = x / sqrt(df)
        far = magnitude(z) > 1e10
        tail = where(far, 2.0 * log(magnitude(where(far, z, 1.0))), log1p(square(where(far, 0.0, z))))
        return -log_beta(0.5 * df, 0.5) - 0.5 * log(df) - 0.5 * (df + 1.0) * tail

    def tail(x: Any) -> Any:
        # below x <= 0: y = (1 + x / s) / 2 is a beta variable of two equal shapes, and smooth at 0, which x^2 is not
        s = hypot(x, sqrt(df))
        return betainc(0.5 * df, 0.5 * df, 0.5 * (df / s) / (s - x))

    def low_quantile(p: Any) -> Any:
        y = betaincinv(0.5 * df, 0.5 * df, p)
        return sqrt(df) * (y - 0.5) / sqrt(y * (1.0 - y))

    def entropy() -> Any:
        half = 0.5 * (df + 1.0)
        # the difference of digammas loses its digits for large df, where two terms of its series have them all
        series = 1.0 / df + 0.5 / square(df)
        gap = where(df > 1e4, series, digamma(half) - digamma(0.5 * df))
        return half * gap + 0.5 * log(df) + log_beta(0.5 * df, 0.5)

    return Law(
        support=constraints.real,
        log_density=log_density,
        draw=lambda size, key, dtype: samplers.student_t(df, size=size, key=key, dtype=dtype),
        batch_shape=shape(df),
        mean=lambda: where(df > 1.0, 0.0, math.nan),
        variance=lambda: where(df > 2.0, df / where(df > 2.0, df - 2.0, 1.0), where(df > 1.0, math.inf, math.nan)),
        mode=lambda: 0.0,
        entropy=entropy,
        cdf=lambda x: _mirror(x < 0, tail(where(x < 0, x, -x)), 1.0),
        icdf=lambda p: _mirror(p < 0.5, low_quantile(where(p < 0.5, p, 1.0 - p)), 0.0),
    )


def gamma(a: Any) -> Law:
    """The gamma distribution of shape a."""
    return Law(
        support=constraints.nonnegative,
        log_density=lambda x: times_log(a - 1.0, x) - x - log_gamma(a),
        draw=lambda size, key, dtype: samplers.gamma(a, size=size, key=key, dtype=dtype),
        batch_shape=shape(a),
        mean=lambda: a,
        variance=lambda: a,
        mode=lambda: maximum(a - 1.0, 0.0),
        entropy=lambda: entropy_part(a, 1.0),
        cdf=lambda x: gammainc(a, x),
        icdf=lambda p: gammaincinv(a, p),
    )


def inverse_gamma(a: Any) -> Law:
    """The distribution of 1 / x for a gamma variable x of shape a."""
    return Law(
        support=constraints.positive,
        log_density=lambda x: -(a + 1.0) * log(x) - 1.0 / x - log_gamma(a),
        draw=lambda size, key, dtype: 1.0 / samplers.gamma(a, size=size, key=key, dtype=dtype),
        batch_shape=shape(a),
        mean=lambda: where(a > 1.0, 1.0 / where(a > 1.0, a - 1.0, 1.0), math.inf),
        variance=lambda: where(a > 2.0, 1.0 / (square(a - 1.0) * where(a > 2.0, a - 2.0, 1.0)), math.inf),
        mode=lambda: 1.0 / (a + 1.0),
        entropy=lambda: entropy_part(a, -1.0),
        cdf=lambda x: gammaincc(a, 1.0 / x),
        icdf=lambda p: 1.0 / gammainccinv(a, p),
    )


def beta(a: Any, b: Any) -> Law:
    """The beta distribution, between 0 and 1."""
    total = a + b

    def mode() -> Any:
        """Inside where both are above one, at an end where the density is greatest there, else NaN: both ends are."""
        inner = (a - 1.0) / where(total > 2.0, total - 2.0, 1.0)
        at_end = where((a >= 1.0) & (b <= 1.0) & (a > b), 1.0, where((a <= 1.0) & (b >= 1.0) & (a < b), 0.0, math.nan))
        return where((a > 1.0) & (b > 1.0), inner, at_end)

    return Law(
        support=constraints.unit_interval,
        log_density=lambda x: times_log(a - 1.0, x) + times_log1p(b - 1.0, -x) - log_beta(a, b),
        draw=lambda size, key, dtype: samplers.beta(a, b, size=size, key=key, dtype=dtype),
        batch_shape=batch_of(a, b),
        mean=lambda: a / total,
        variance=lambda: a / total * (b / total) / (total + 1.0),
        mode=mode,
        entropy=lambda: entropy_part(a, 1.0) + entropy_part(b, 1.0) - entropy_part(total, 2.0),
        cdf=lambda x: betainc(a, b, x),
        icdf=lambda p: betaincinv(a, b, p),
    )


def fisher(m: Any, n: Any) -> Law:
    """Fisher's F with m and n degrees of freedom: y = m x / (m x + n) is a beta variable."""
    a, b = 0.5 * m, 0.5 * n

    def quantile(p: Any) -> Any:
        y = betaincinv(a, b, p)
        return n * y / (m * (1.0 - y))

    def draw(size: Any, key: Any, dtype: Any) -> Any:
        above = samplers.gamma(a, size=size, key=fold_in(key, 0), dtype=dtype) / a
        return above * b / samplers.gamma(b, size=size, key=fold_in(key, 1), dtype=dtype)

    def variance() -> Any:
        near = where(n > 4.0, n, 5.0)
        found = 2.0 * square(near) * (m + near - 2.0) / (m * square(near - 2.0) * (near - 4.0))
        return where(n > 4.0, found, where(n > 2.0, math.inf, math.nan))

    def entropy() -> Any:
        return log(b / a) + entropy_part(a, 1.0) + entropy_part(b, -1.0) - entropy_part(a + b, 0.0)

    def log_density(x: Any) -> Any:
        # y^a (1 - y)^b / (x B(a, b)): from t = 1 on by 1 / t, since log t^a cancels most of log (1 + t)^a for large a
        t = m / n * x
        high = t > 1.0
        below = a * log(as_value(m / n)) + times_log(a - 1.0, where(high, 1.0, x)) - a * log1p(where(high, 0.0, t))
        above = -a * log1p(1.0 / where(high, t, 1.0)) - log(where(high, x, 1.0))
        return where(high, above, below) - b * log1p(t) - log_beta(a, b)

    return Law(
        support=constraints.nonnegative,
        log_density=log_density,
        draw=draw,
        inside=1.0,
        batch_shape=batch_of(m, n),
        mean=lambda: where(n > 2.0, n / where(n > 2.0, n - 2.0, 1.0), math.nan),
        variance=variance,
        mode=lambda: where(m > 2.0, (m - 2.0) / m * n / (n + 2.0), 0.0),
        entropy=entropy,
        cdf=lambda x: betainc(a, b, m * x / (m * x + n)),
        icdf=quantile,
    )


def weibull(k: Any) -> Law:
    """The Weibull distribution of shape k."""

    def moment(order: float) -> Any:
        return exp(gammaln(1.0 + order / k))

    return Law(
        support=constraints.nonnegative,
        log_density=lambda x: log(k) + times_log(k - 1.0, x) - power(x, k),
        draw=lambda size, key, dtype: samplers.weibull(k, size=size, key=key, dtype=dtype),
        batch_shape=shape(k),
        mean=lambda: moment(1.0),
        variance=lambda: moment(2.0) - square(moment(1.0)),
        mode=lambda: where(k > 1.0, power(maximum(1.0 - 1.0 / k, 1e-300), 1.0 / k), 0.0),
        entropy=lambda: EULER * (1.0 - 1.0 / k) - log(k) + 1.0,
        cdf=lambda x: -expm1(-power(x, k)),
        icdf=lambda p: power(-log1p(-p), 1.0 / k),
    )


def pareto(alpha: Any) -> Law:
    """The Pareto distribution from 1 upwards."""
    return Law(
        support=constraints.interval(1.0),
        log_density=lambda x: log(alpha) - (alpha + 1.0) * log(x),
        draw=lambda size, key, dtype: 1.0 + samplers.pareto(alpha, size=size, key=key, dtype=dtype),
        inside=2.0,
        batch_shape=shape(alpha),
        mean=lambda: where(alpha > 1.0, alpha / where(alpha > 1.0, alpha - 1.0, 1.0), math.inf),
        variance=lambda: where(
            alpha > 2.0,
            alpha / (square(where(alpha > 2.0, alpha - 1.0, 1.0)) * where(alpha > 2.0, alpha - 2.0, 1.0)),
            math.inf,
        ),
        mode=lambda: 1.0,
        entropy=lambda: 1.0 + 1.0 / alpha - log(alpha),
        cdf=lambda x: -expm1(-alpha * log(x)),
        icdf=lambda p: exp(-log1p(-p) / alpha),
    )


def generalized_pareto(xi: Any) -> Law:
    """The generalized Pareto distribution of shape xi from 0 upwards: exponential for 0, with an end for xi < 0."""

    def depth(x: Any) -> Any:
        # -log of the tail: log(1 + xi x) / xi
        return x * log1p_ratio(xi * x)

    def quantile(p: Any) -> Any:
        at_end = p >= 1.0  # false for NaN
        fall = -log1p(-where(at_end, 0.5, p))
        end = where(xi < 0, -1.0 / where(xi < 0, xi, -1.0), math.inf)
        return where(at_end, end, fall * expm1_ratio(xi * fall))

    return Law(
        support=constraints.nonnegative,
        log_density=lambda x: -(1.0 + xi) * depth(x),
        draw=lambda size, key, dtype: quantile(samplers.uniform(size=size, key=key, dtype=dtype)),
        inside=0.0,
        batch_shape=shape(xi),
        mean=lambda: where(xi < 1.0, 1.0 / where(xi < 1.0, 1.0 - xi, 1.0), math.inf),
        variance=lambda: where(xi < 0.5, 1.0 / (square(1.0 - xi) * where(xi < 0.5, 1.0 - 2.0 * xi, 1.0)), math.inf),
        mode=lambda: where(xi > -1.0, 0.0, math.nan),
        entropy=lambda: 1.0 + xi,
        cdf=lambda x: -expm1(-depth(x)),
        icdf=quantile,
    )


def von_mises(kappa: Any) -> Law:
    """The von Mises distribution of angles around 0; moments are those of the circle."""

    def log_density(x: Any) -> Any:
        # kappa (cos x - 1) as a square, which keeps its digits near 0
        return -2.0 * kappa * square(sin(0.5 * x)) - math.log(2 * math.pi) - log(i0e(kappa))

    def resultant() -> Any:
        return i1e(kappa) / i0e(kappa)

    return Law(
        support=constraints.real,
        log_density=log_density,
        draw=lambda size, key, dtype: von_mises_quantile(samplers.uniform(size=size, key=key, dtype=dtype), kappa),
        batch_shape=shape(kappa),
        mean=lambda: 0.0,
        variance=lambda: 1.0 - resultant(),
        mode=lambda: 0.0,
        cdf=lambda x: von_mises_cdf(x, kappa),
        icdf=lambda p: von_mises_quantile(p, kappa),
        entropy=lambda: math.log(2 * math.pi) + log(i0e(kappa)) + kappa * (1.0 - resultant()),
    )

"""Distributions between 0 and 1 besides the beta: Kumaraswamy's, and the continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, final

from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import exp, expm1, log, log1p, maximum, minimum, power, square, where
from ..ops.random import samplers
from ..ops.value_objects import set_fields, value_object
from . import odds
from .constraints import positive, unit_interval
from .distribution import Distribution, parameter, ranked
from .law import Law, batch_of
from .normalizers import digamma, log_beta
from .ratios import expm1_ratio, log1p_ratio, polynomial, split, times_log, times_log1p
from .standard_forms import EULER


@final
@value_object
class Kumaraswamy(Distribution):
    """Like the beta distribution, with a distribution function in closed form: 1 - (1 - x^a)^b for concentrations a, b.

    >>> import pullback as pb
    >>> round(float(pb.distributions.Kumaraswamy(1.0, 3.0).mean), 12)
    0.25
    """

    concentration1: Any = parameter(positive)
    concentration0: Any = parameter(positive)

    def law(self) -> Law:
        a, b = self.concentration1, self.concentration0

        def times_log_tail(weight: Any, x: Any) -> Any:
            """weight log(1 - x^a), by 1 - e^(a log x) where x^a may round to 1."""
            q = power(x, a)
            high = q > 0.5
            above = times_log(weight, -expm1(a * log(where(high, x, 0.5))))
            return where(high, above, times_log1p(weight, -where(high, 0.0, q)))

        def moment(order: float) -> Any:
            return b * exp(log_beta(1.0 + order / a, b))

        def quantile(p: Any) -> Any:
            # x^a = 1 - (1 - p)^(1 / b)
            return power(-expm1(log1p(-p) / b), 1.0 / a)

        def mode() -> Any:
            """Inside where both are above one, at an end where the density is greatest there, else NaN."""
            inside = (a > 1.0) & (b > 1.0)
            inner = power(where(inside, (a - 1.0) / where(inside, a * b - 1.0, 1.0), 0.5), 1.0 / a)
            low, high = (a <= 1.0) & (b >= 1.0) & (a < b), (a >= 1.0) & (b <= 1.0) & (a > b)
            return where(inside, inner, where(high, 1.0, where(low, 0.0, math.nan)))

        return Law(
            support=unit_interval,
            log_density=lambda x: log(a) + log(b) + times_log(a - 1.0, x) + times_log_tail(b - 1.0, x),
            draw=lambda size, key, dtype: quantile(samplers.uniform(size=size, key=key, dtype=dtype)),
            batch_shape=batch_of(a, b),
            mean=lambda: moment(1.0),
            variance=lambda: moment(2.0) - square(moment(1.0)),
            mode=mode,
            entropy=lambda: 1.0 - 1.0 / b + (1.0 - 1.0 / a) * (digamma(b + 1.0) + EULER) - log(a) - log(b),
            cdf=lambda x: -expm1(times_log_tail(b, x)),
            icdf=quantile,
        )


@final
@value_object
class ContinuousBernoulli(Distribution):
    """Numbers between 0 and 1 whose density is in proportion to probs^x (1 - probs)^(1 - x): that of a likelihood of
    pixels which are no bits.

    >>> import pullback as pb
    >>> float(pb.distributions.ContinuousBernoulli(0.5).mean)
    0.5
    """

    odds: Any = ranked(0)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        set_fields(self, {"odds": odds.binary("ContinuousBernoulli", probs, logits)})

    @property
    def probs(self) -> Any:
        """The parameter, which is not the mean."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        s = self.odds.logit
        return Law(
            support=unit_interval,
            log_density=lambda x: s * x - log_mass(s),
            draw=lambda size, key, dtype: _quantile(samplers.uniform(size=size, key=key, dtype=dtype), s),
            batch_shape=shape(s),
            mean=lambda: _mean(s),
            variance=lambda: _variance(s),
            mode=lambda: where(s > 0, 1.0, where(s < 0, 0.0, math.nan)),
            entropy=lambda: log_mass(s) - s * _mean(s),
            cdf=lambda x: _probability(x, s),
            icdf=lambda p: _quantile(p, s),
        )


# The density is exp(s x) / M(s) with M(s) = (exp(s) - 1) / s. Near s = 0 the functions of s are 0 / 0: series there.
_SMALL = 0.3


def log_mass(s: Any) -> Any:
    """log M(s)."""
    near, few, far = split(s, _SMALL)
    q = square(few)
    series = 0.5 * few + q * polynomial(
        q, 691 / 15692092416000, 1 / 479001600, -1 / 9676800, 1 / 181440, -1 / 2880, 1 / 24
    )
    # log((exp(s) - 1) / s) = max(s, 0) + log(1 - exp(-|s|)) - log |s|
    size = magnitude(far)
    return where(near, series, where(far > 0, far, 0.0) + log(-expm1(-size)) - log(size))


def _mean(s: Any) -> Any:
    near, few, far = split(s, _SMALL)
    q = square(few)
    series = 0.5 + few * polynomial(q, -691 / 1307674368000, 1 / 47900160, -1 / 1209600, 1 / 30240, -1 / 720, 1 / 12)
    return where(near, series, -1.0 / expm1(-far) - 1.0 / far)


def _variance(s: Any) -> Any:
    near, few, far = split(s, _SMALL)
    q = square(few)
    series = polynomial(q, 1 / 5322240, -1 / 172800, 1 / 6048, -1 / 240, 1 / 12)
    size = magnitude(far)
    steep = exp(-size) / square(expm1(-size))  # 1 / (4 sinh^2(s / 2)), without the overflow
    return where(near, series, 1.0 / square(far) - steep)


def _probability(x: Any, s: Any) -> Any:
    near, few, far = split(s, _SMALL)
    # (exp(s x) - 1) / (exp(s) - 1), for s > 0 by exp(-s)
    fall = -magnitude(far)
    rising = exp(fall * (1.0 - x)) * expm1(fall * x) / expm1(fall)
    series = x * expm1_ratio(few * x) / expm1_ratio(few)
    return where(near, series, where(far > 0, rising, expm1(fall * x) / expm1(fall)))


def _quantile(p: Any, s: Any) -> Any:
    """log(1 + p (exp(s) - 1)) / s."""
    near, few, far = split(s, _SMALL)
    size = magnitude(far)
    decay, high = exp(-size), p > 0.5
    low_part, high_part = where(high, 0.0, p), where(high, p, 1.0)
    falling = -where(high, log(1.0 - high_part + high_part * decay), log1p(low_part * expm1(-size))) / size
    # for s > 0 without the overflow, but where p exp(s) is small: there the sum with 1 would lose the digits
    is_tail = p < decay
    tail, top = where(is_tail, p, 0.0), where(is_tail, 1.0, p)
    steep = log1p(tail * expm1(where(is_tail, size, 0.0))) / size
    rising = where(is_tail, steep, maximum(1.0 + log(top + (1.0 - top) * decay) / size, 0.0))
    return where(near, _small_quantile(p, few), where(far > 0, rising, minimum(falling, 1.0)))


def _small_quantile(p: Any, s: Any) -> Any:
    """log(1 + p (exp(s) - 1)) / s = p M(s) log(1 + u) / u with u = p (exp(s) - 1)."""
    return p * expm1_ratio(s) * log1p_ratio(p * s * expm1_ratio(s))

"""The expectation of one distribution's log-density under another, from what the other knows of its own moments.

For a family q whose log-density is linear in x, x^2, log x, log(1 - x), exp(-c x), the divergence of any p is
    KL(p, q) = -H(p) - E_p[log q],
so n families that know their moments and m such q need n + m formulas, not n m. Where p reaches out of the support of q
it is infinite, whatever the formulas say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.concrete import strip_derivatives
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import divide, erf, exp, expm1, log, logical_or, square, where
from ..ops.reduce.reductions import all as all_of
from ..ops.shape.reshaping import broadcast_to
from .continuous import (
    Beta,
    Chi2,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    InverseGamma,
    Laplace,
    Logistic,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    Weibull,
)
from .discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from .distribution import Distribution
from .normalizers import digamma, log_beta, log_gamma
from .ratios import times_log
from .standard_forms import EULER, HALF_LOG_2PI
from .unit_interval import ContinuousBernoulli, Kumaraswamy, log_mass

Expectation = Callable[..., Any]


def _mean_log_uniform(low: Any, high: Any) -> Any:
    return (times_log(high, high) - times_log(low, low)) / (high - low) - 1.0


#: E log x, E log(1 - x) and E exp(-c x) for c > 0.
_MEAN_LOG: dict[type, Expectation] = {
    Beta: lambda p: digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0),
    Chi2: lambda p: digamma(0.5 * p.df) + math.log(2.0),
    Exponential: lambda p: -EULER - log(p.rate),
    Gamma: lambda p: digamma(p.concentration) - log(p.rate),
    InverseGamma: lambda p: log(p.rate) - digamma(p.concentration),
    Kumaraswamy: lambda p: -(digamma(p.concentration0 + 1.0) + EULER) / p.concentration1,
    LogNormal: lambda p: p.loc,
    Pareto: lambda p: log(p.scale) + 1.0 / p.alpha,
    Uniform: lambda p: _mean_log_uniform(p.low, p.high),
    Weibull: lambda p: log(p.scale) - EULER / p.concentration,
}
_MEAN_LOG_COMPLEMENT: dict[type, Expectation] = {
    Beta: lambda p: digamma(p.concentration0) - digamma(p.concentration1 + p.concentration0),
    Uniform: lambda p: _mean_log_uniform(1.0 - p.high, 1.0 - p.low),
}
_MEAN_DECAY: dict[type, Expectation] = {
    Chi2: lambda p, c: (1.0 + 2.0 * c) ** (-0.5 * p.df),
    Exponential: lambda p, c: divide(p.rate, p.rate + c),
    Gamma: lambda p, c: (1.0 + c / p.rate) ** -p.concentration,
    Normal: lambda p, c: exp(0.5 * square(c * p.scale) - c * p.loc),
    Uniform: lambda p, c: -exp(-c * p.low) * expm1(-c * (p.high - p.low)) / (c * (p.high - p.low)),
}
_MEAN_DISTANCE: dict[type, Expectation] = {
    Normal: lambda p, center: (
        p.scale * math.sqrt(2 / math.pi) * exp(-0.5 * square((p.loc - center) / p.scale))
        + (p.loc - center) * erf((p.loc - center) / (p.scale * math.sqrt(2.0)))
    ),
}
#: Families whose mean, variance and entropy are known and finite, or infinite.
_WITH_MOMENTS = (
    Beta, Chi2, ContinuousBernoulli, Exponential, Gamma, Gumbel, HalfNormal, InverseGamma, Kumaraswamy, Laplace,
    Logistic, LogNormal, Normal, Pareto, Uniform, Weibull,
)  # fmt: skip
_COUNTS = (Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson)


def _of_gamma(p: Any, shape: Any, rate: Any) -> Any:
    return shape * log(rate) - log_gamma(shape) + (shape - 1.0) * _MEAN_LOG[type(p)](p) - rate * p.mean


def _of_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1 - 1.0, q.concentration0 - 1.0
    logs = a * _MEAN_LOG[type(p)](p) + b * _MEAN_LOG_COMPLEMENT[type(p)](p)
    return logs - log_beta(q.concentration1, q.concentration0)


def _of_gumbel(p: Any, q: Any) -> Any:
    decay = exp(q.loc / q.scale) * _MEAN_DECAY[type(p)](p, 1.0 / q.scale)
    return -log(q.scale) - (p.mean - q.loc) / q.scale - decay


_MEAN_LOG_DENSITY: dict[type, Expectation] = {
    Beta: _of_beta,
    Chi2: lambda p, q: _of_gamma(p, 0.5 * q.df, as_value(0.5)),
    ContinuousBernoulli: lambda p, q: q.logits * p.mean - log_mass(q.logits),
    Exponential: lambda p, q: log(q.rate) - q.rate * p.mean,
    Gamma: lambda p, q: _of_gamma(p, q.concentration, q.rate),
    Gumbel: _of_gumbel,
    Laplace: lambda p, q: -log(2.0 * q.scale) - _MEAN_DISTANCE[type(p)](p, q.loc) / q.scale,
    Normal: lambda p, q: -log(q.scale) - HALF_LOG_2PI - 0.5 * (square(p.mean - q.loc) + p.variance) / square(q.scale),
    Pareto: lambda p, q: log(q.alpha) + q.alpha * log(q.scale) - (q.alpha + 1.0) * _MEAN_LOG[type(p)](p),
    Uniform: lambda p, q: -log(q.high - q.low) + 0.0 * p.mean,
}


def divergence_by_moments(p: Distribution, q: Distribution) -> Any:
    """KL(p, q), or None where the moments do not give it."""
    kinds = next((kinds for kinds in (_WITH_MOMENTS, _COUNTS) if type(p) in kinds), ())
    if type(q) not in kinds:
        return None
    outside = strip_derivatives(_reaches_out(p, q))
    if isinstance(outside, np.ndarray | np.bool_) and bool(all_of(outside)):
        return broadcast_to(math.inf, np.broadcast_shapes(p.batch_shape, q.batch_shape))
    if type(p) is Bernoulli and type(q) is Poisson:  # log x! is 0 for both of its values
        return q.rate - times_log(p.mean, q.rate) - p.entropy()
    try:
        mean = _MEAN_LOG_DENSITY[type(q)](p, q)
    except KeyError:  # an expectation under p that the tables do not have
        return None
    return where(outside, math.inf, -p.entropy() - mean)


def _reaches_out(p: Distribution, q: Distribution) -> Any:
    """Whether p has draws that q never has."""
    inner, outer = p.support, q.support
    return logical_or(as_value(inner.low) < outer.low, as_value(inner.high) > outer.high)

"""Kullback-Leibler divergences that have a closed form, registered by the types of both distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.trees import flatten
from ..arrays.value import Value
from ..errors import ShapeError, UnsupportedFunction
from ..ops.concrete import as_bare_array, is_concrete, strip_derivatives
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import cos, exp, log, logical_or, power, square, where
from ..ops.families import result_dtype
from ..ops.linalg.linear_systems import triangular_solve
from ..ops.random.draw_ops import held
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import diagonal
from ..ops.shape.reshaping import broadcast_to
from ..ops.special.bessel import i0e, i1e
from .bijectors import sum_last
from .continuous import (
    Beta,
    Cauchy,
    Chi2,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    VonMises,
    Weibull,
)
from .cross_entropy import divergence_by_moments
from .discrete import Bernoulli, Binomial, Categorical, Geometric, NegativeBinomial, Poisson, of_counts
from .distribution import Distribution, cast_numbers, check_distribution, float_arrays_of
from .matrices import Wishart, log_multigamma, steps
from .normal_vectors import LowRankMultivariateNormal, MultivariateNormal
from .normalizers import digamma, log_beta, log_gamma
from .ratios import times_log
from .relaxed import LogisticNormal
from .standard_forms import EULER
from .vector_bijectors import solve_lower
from .vectors import Dirichlet, OneHotCategorical, log_normalizer
from .wrappers import Independent, TransformedDistribution

Formula = Callable[[Any, Any], Any]
_FORMULAS: dict[tuple[type, type], Formula] = {}


def register_kl(p: type, q: type) -> Callable[[Formula], Formula]:
    """Register a function of (p, q) as the divergence of distributions of these two types.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> @D.register_kl(D.Exponential, D.HalfNormal)
    ... def divergence(p, q):  # E[-log q] - entropy of p
    ...     return 1.0 / (p.rate * q.scale) ** 2 + 0.5 * pb.log(0.5 * pb.pi * q.scale**2) - p.entropy()
    >>> round(float(D.kl_divergence(D.Exponential(1.0), D.HalfNormal(1.0))), 6)
    0.225791
    """

    def register(formula: Formula) -> Formula:
        _FORMULAS[p, q] = formula
        return formula

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """E[log p(x) - log q(x)] for x drawn of p, in closed form; pairs without one raise by name. Infinite where p has
    draws that q never has.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> float(D.kl_divergence(D.Normal(1.0, 1.0), D.Normal(0.0, 1.0)))
    0.5
    """
    check_distribution("kl_divergence", p)
    check_distribution("kl_divergence", q)
    try:
        np.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ShapeError(
            f"kl_divergence: batches of shapes {p.batch_shape} and {q.batch_shape} do not broadcast together."
        ) from None
    if p.event_shape != q.event_shape:
        raise ShapeError(f"kl_divergence: events of shapes {p.event_shape} and {q.event_shape} differ.")
    p, q = _cast_beside(p, q), _cast_beside(q, p)
    formula = _FORMULAS.get((type(p), type(q)))
    with np.errstate(all="ignore"):
        found = divergence_by_moments(p, q) if formula is None else formula(p, q)
    if found is None:
        raise UnsupportedFunction(
            f"kl_divergence: no closed form for {type(p).__name__} and {type(q).__name__}.\n"
            "  Register one by pb.distributions.register_kl, or estimate it: x = p.rsample((n,), key=key), then "
            "pb.mean(p.log_prob(x) - q.log_prob(x), axis=0)."
        )
    return found


def _cast_beside(d: Distribution, other: Distribution) -> Any:
    """Parameters that are Python numbers in the dtype of the other distribution's arrays."""
    arrays = float_arrays_of(other)
    is_cast = arrays and not float_arrays_of(d) and all(s.device == "cpu" for s in arrays)
    return cast_numbers(d, result_dtype(arrays)) if is_cast else d


@register_kl(Normal, Normal)
@register_kl(LogNormal, LogNormal)
def _normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    return 0.5 * (square(ratio) + square((p.loc - q.loc) / q.scale) - 1.0) - log(ratio)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    return 0.5 * (square(ratio) - 1.0) - log(ratio)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    apart = logical_or(q.low > p.low, q.high < p.high)
    return where(apart, math.inf, log((q.high - q.low) / (p.high - p.low)))


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    return q.rate / p.rate - 1.0 - log(q.rate / p.rate)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    gap = magnitude(p.loc - q.loc)
    return log(q.scale / p.scale) + gap / q.scale + p.scale / q.scale * exp(-gap / p.scale) - 1.0


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return log((square(p.scale + q.scale) + square(p.loc - q.loc)) / (4.0 * p.scale * q.scale))


def _of_gammas(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Of shapes a and c, rates b and d."""
    return (a - c) * digamma(a) - log_gamma(a) + log_gamma(c) + c * log(b / d) + a * (d - b) / b


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchy(p: Any, q: Any) -> Any:
    return log(square(p.scale + q.scale) / (4.0 * p.scale * q.scale))


@register_kl(Gamma, Gamma)
@register_kl(InverseGamma, InverseGamma)
def _gamma(p: Any, q: Any) -> Any:
    return _of_gammas(p.concentration, p.rate, q.concentration, q.rate)


@register_kl(Chi2, Chi2)
def _chi2(p: Any, q: Any) -> Any:
    return _of_gammas(0.5 * p.df, 0.5, 0.5 * q.df, 0.5)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    share = (a - c) * digamma(a) + (b - d) * digamma(b) - (a + b - c - d) * digamma(a + b)
    return log_beta(c, d) - log_beta(a, b) + share


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, gap = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = exp(log_gamma(1.0 + ratio) - gap)
    return -log(ratio) + EULER * (ratio - 1.0) + gap + tail - 1.0


@register_kl(Weibull, Weibull)
def _weibull(p: Any, q: Any) -> Any:
    k, m = p.concentration, q.concentration
    moment = power(p.scale / q.scale, m) * exp(log_gamma(m / k + 1.0))
    return log(k / m) - m * log(p.scale / q.scale) + (m / k - 1.0) * EULER + moment - 1.0


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    found = q.alpha * log(p.scale / q.scale) + log(p.alpha / q.alpha) + q.alpha / p.alpha - 1.0
    return where(p.scale < q.scale, math.inf, found)


@register_kl(VonMises, VonMises)
def _von_mises(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    resultant = i1e(a) / i0e(a)
    # log I0 = log i0e + kappa
    apart = b - b * resultant * cos(p.loc - q.loc)
    return log(i0e(b) / i0e(a)) + apart - a * (1.0 - resultant)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    return _of_event(p.odds, q.odds)


def _of_event(p: Any, q: Any) -> Any:
    yes, no = p.p, 1.0 - p.p
    return p.times_log(yes) + p.times_log_complement(no) - q.times_log(yes) - q.times_log_complement(no)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    n, m, known = _hold_counts(p, q)
    equal = n * _of_event(p.odds, q.odds)
    if known is not None and np.all(known[0] == known[1]):
        return equal
    # of fewer trials: the closed form has no term for the ways, whose expectation is a sum over counts
    few = math.nan if known is None or not np.any(known[0] < known[1]) else _sum_over_counts(p, q)
    return where(n == m, equal, where(n > m, math.inf, few))


def _sum_over_counts(p: Any, q: Any) -> Any:
    batch = np.broadcast_shapes(p.batch_shape, q.batch_shape)
    logs, others = (of_counts(p.total_count, d.log_prob, "kl_divergence", batch, p.probs) for d in (p, q))
    never = logs == -math.inf
    known = where(never, 0.0, logs)
    return total(where(never, 0.0, exp(known) * (known - where(never, 0.0, others))), axis=0)


def _hold_counts(p: Any, q: Any) -> tuple[Any, Any, Any]:
    """Both total_counts, without a derivative, and both as arrays where their elements are known, else None."""
    counts = [held("kl_divergence", as_value(d.total_count)) for d in (p, q)]
    known = [strip_derivatives(count) for count in counts]
    return *counts, None if any(isinstance(x, Value) for x in known) else [as_bare_array(x, "") for x in known]


@register_kl(NegativeBinomial, NegativeBinomial)
def _negative_binomial(p: Any, q: Any) -> Any:
    n, m, known = _hold_counts(p, q)
    if known is not None and not np.all(known[0] == known[1]):
        raise UnsupportedFunction(
            "kl_divergence: no closed form for NegativeBinomial distributions whose total_count differs.\n"
            "  Estimate it: x = p.sample((n,), key=key), then pb.mean(p.log_prob(x) - q.log_prob(x), axis=0)."
        )
    found = n * _of_event(p.odds, q.odds) / (1.0 - p.probs)
    return where(n == m, found, math.nan)  # traced counts may differ


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return _of_event(p.odds, q.odds) / p.probs


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return times_log(p.rate, p.rate) - times_log(p.rate, q.rate) + q.rate - p.rate


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _categorical(p: Any, q: Any) -> Any:
    counts = [shape(d.odds.value)[-1] for d in (p, q)]
    if counts[0] != counts[1]:
        raise ShapeError(f"kl_divergence: {counts[0]} and {counts[1]} classes differ.")
    return total(p.odds.times_logs(p.probs) - q.odds.times_logs(p.probs), axis=-1)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    mean_log = digamma(a) - digamma(total(a, axis=-1, keepdims=True))
    return log_normalizer(b) - log_normalizer(a) + total((a - b) * mean_log, axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    size, (own, other) = p.event_shape[-1], _broadcast_factors(p, q)
    ratio = triangular_solve(other, own, lower=True)
    gap = solve_lower(other, p.loc - q.loc)
    squares = total(square(ratio), axis=(-2, -1)) + total(square(gap), axis=-1)
    return 0.5 * (squares - size) - _log_diagonal(ratio)


def _broadcast_factors(p: Any, q: Any) -> tuple[Any, Any]:
    """The Cholesky factors of both, broadcast together."""
    factors = p.scale_tril, q.scale_tril
    whole = np.broadcast_shapes(*map(shape, factors))
    own, other = (broadcast_to(x, whole) for x in factors)
    return own, other


def _log_diagonal(factor: Any) -> Any:
    return total(log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


@register_kl(Wishart, Wishart)
def _wishart(p: Any, q: Any) -> Any:
    n, (left, right) = p.event_shape[-1], _broadcast_factors(p, q)
    ratio = triangular_solve(right, left, lower=True)
    apart = 0.5 * p.df * (total(square(ratio), axis=(-2, -1)) - n) - q.df * _log_diagonal(ratio)
    halves = [0.5 * d.df for d in (p, q)]
    mean_log = total(digamma(halves[0] - 0.5 * steps(n, halves[0])), axis=0)
    return apart + log_multigamma(halves[1], n) - log_multigamma(halves[0], n) + (halves[0] - halves[1]) * mean_log


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted != q.reinterpreted:
        raise UnsupportedFunction(
            f"kl_divergence: of a different number of axes that were taken in, {p.reinterpreted} and {q.reinterpreted}."
        )
    inner = kl_divergence(p.base, q.base)
    batch = np.broadcast_shapes(p.base.batch_shape, q.base.batch_shape)
    return sum_last(broadcast_to(inner, batch), p.reinterpreted)


@register_kl(LogisticNormal, LogisticNormal)
def _logistic_normal(p: Any, q: Any) -> Any:
    """Of images under one bijector: that of the bases."""
    inner = _normal(p, q)
    return total(broadcast_to(inner, np.broadcast_shapes(shape(inner), (p.event_shape[-1] - 1,))), axis=-1)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    """Of images under one bijector: that of the bases."""
    if not _are_equal(p.bijector, q.bijector):
        raise UnsupportedFunction("kl_divergence: the bijectors of both distributions must be equal.")
    spare = max(p.bijector.rank - len(p.base.event_shape), 0)
    inner = kl_divergence(p.base, q.base)
    batch = np.broadcast_shapes(p.base.batch_shape, q.base.batch_shape)
    return broadcast_to(sum_last(broadcast_to(inner, batch), spare), np.broadcast_shapes(p.batch_shape, q.batch_shape))


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two trees are the same, as far as can be known now."""
    if a is b:
        return True
    (left, structure), (right, other) = flatten(a), flatten(b)
    if structure != other:
        return False
    known = all(x is y or (is_concrete(x) and is_concrete(y)) for x, y in zip(left, right, strict=True))
    return known and all(
        x is y or np.array_equal(as_bare_array(x, "kl_divergence"), as_bare_array(y, "kl_divergence"))
        for x, y in zip(left, right, strict=True)
    )

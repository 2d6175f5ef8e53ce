"""Discrete distributions of single numbers: counts and choices. Draws are integers as floating-point numbers."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..errors import UnsupportedFunction
from ..ops.concrete import strip_derivatives
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import exp, expm1, log, log1p, minimum, square, where
from ..ops.elementwise.rounding import floor
from ..ops.index.indexing import take_along_axis
from ..ops.random import discrete as draws
from ..ops.random import samplers
from ..ops.random.keys import fold_in
from ..ops.reduce.reductions import argmax
from ..ops.reduce.reductions import sum as total
from ..ops.reduce.scans import cumulative_sum
from ..ops.shape.reshaping import astype, broadcast_to, expand_dims
from ..ops.special.gamma import betaln, gammaln
from ..ops.special.incomplete_beta import betainc
from ..ops.special.incomplete_gamma import gammaincc
from ..ops.value_objects import set_fields, value_object
from . import odds
from .constraints import boolean, integer_interval, nonnegative, nonnegative_integer, positive
from .distribution import Distribution, check_parameter, parameter, ranked, set_parameters
from .law import Law, batch_of, beside
from .normalizers import log_beta
from .ratios import times_log


@final
@value_object
class Bernoulli(Distribution):
    """1 with a probability, else 0, given by probs or by logits.

    >>> import pullback as pb
    >>> float(pb.distributions.Bernoulli(0.25).mean)
    0.25
    """

    odds: Any = ranked(0)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        set_fields(self, {"odds": odds.binary("Bernoulli", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probability of 1."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        o = self.odds
        return Law(
            support=boolean,
            log_density=lambda x: o.times_log(x) + o.times_log_complement(1.0 - x),
            draw=lambda size, key, dtype: astype(draws.bernoulli(o.p, size, key=key), dtype),
            moves=False,
            inside=0.0,
            batch_shape=shape(o.value),
            mean=lambda: o.p,
            variance=lambda: o.p * (1.0 - o.p),
            mode=lambda: where(o.p > 0.5, 1.0, 0.0),
            entropy=lambda: -o.times_log(o.p) - o.times_log_complement(1.0 - o.p),
            cdf=lambda x: where(x == x, 1.0 - o.p, math.nan),
            values=lambda: beside(np.arange(2.0), o.value),
        )


@final
@value_object
class Binomial(Distribution):
    """How many of total_count events of one probability occur.

    >>> import pullback as pb
    >>> float(pb.distributions.Binomial(4, 0.25).mean)
    1.0
    """

    total_count: Any = ranked(0)
    odds: Any = ranked(0)

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None) -> None:
        count = as_value(total_count)
        check_parameter("Binomial", "total_count", count, nonnegative_integer)
        set_parameters(self, {"total_count": count, "odds": odds.binary("Binomial", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probability of each event."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        n, o = float_count(self.total_count, self.odds.value), self.odds

        def log_density(x: Any) -> Any:
            # log C(n, x) = -log(n + 1) - log B(x + 1, n - x + 1); of a Python number, one that does not widen a dtype
            log_next = math.log1p(n) if isinstance(n, int | float) else log1p(n)
            ways = -log_next - betaln(x + 1.0, n - x + 1.0)
            return ways + o.times_log(x) + o.times_log_complement(n - x)

        def entropy() -> Any:
            logs = of_counts(n, log_density, "Binomial.entropy", batch_of(n, o.value), o.value)
            known = where(logs == -math.inf, 0.0, logs)
            return -total(exp(known) * known, axis=0)

        return Law(
            support=integer_interval(0, n),
            log_density=log_density,
            draw=lambda size, key, dtype: astype(draws.binomial(n, o.p, size, key=key), dtype),
            moves=False,
            inside=0.0,
            batch_shape=batch_of(n, o.value),
            mean=lambda: n * o.p,
            variance=lambda: n * o.p * (1.0 - o.p),
            mode=lambda: minimum(floor((n + 1.0) * o.p), n),
            entropy=entropy,
            values=lambda: beside(np.arange(1.0 + count_of(n, "Binomial.enumerate_support")), o.value),
            cdf=lambda x: where(x < 0, 0.0, betainc(n - floor(x), floor(x) + 1.0, 1.0 - o.p)),
        )


def count_of(total_count: Any, what: str) -> int:
    """The number of trials, which is to be known, and one for all."""
    known = strip_derivatives(as_value(total_count))
    if isinstance(known, Value) or len(set(np.ravel(np.asarray(known)).tolist())) != 1:
        raise UnsupportedFunction(f"{what}: wants a total_count that is known, and the same for the whole batch.")
    return int(np.ravel(np.asarray(known))[0])


def of_counts(total_count: Any, f: Any, what: str, batch: Any, parameter: Any) -> Any:
    """f of each count from 0 to total_count, along a new first axis."""
    counts = np.arange(1.0 + count_of(total_count, what))
    return f(beside(counts.reshape(-1, *(1,) * len(batch)), parameter))


def float_count(count: Any, like: Any) -> Any:
    """An array of integers in the dtype of a parameter, which it would widen."""
    found = spec_of(count)
    return count if found.inexact or found.weak is not None else astype(count, spec_of(like).dtype)


@final
@value_object
class Geometric(Distribution):
    """How many times an event of a probability fails to occur before it occurs first: 0, 1, 2, ... as in PyTorch.

    >>> import pullback as pb
    >>> float(pb.distributions.Geometric(0.25).mean)
    3.0
    """

    odds: Any = ranked(0)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        set_fields(self, {"odds": odds.binary("Geometric", probs, logits, odds.POSSIBLE)})

    @property
    def probs(self) -> Any:
        """The probability of the event."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        o = self.odds

        def draw(size: Any, key: Any, dtype: Any) -> Any:
            u = samplers.uniform(size=size, key=key, dtype=dtype)
            return floor(log(u) / o.times_log_complement(1.0))

        return Law(
            support=nonnegative_integer,
            log_density=lambda x: o.times_log_complement(x) + o.times_log(1.0),
            draw=draw,
            moves=False,
            inside=0.0,
            batch_shape=shape(o.value),
            mean=lambda: (1.0 - o.p) / o.p,
            variance=lambda: (1.0 - o.p) / square(o.p),
            mode=lambda: 0.0,
            entropy=lambda: (-o.times_log(o.p) - o.times_log_complement(1.0 - o.p)) / o.p,
            cdf=lambda x: where(x < 0, 0.0, -expm1(o.times_log_complement(floor(x) + 1.0))),
        )


@final
@value_object
class Poisson(Distribution):
    """How many events occur in a unit of time, at a rate.

    >>> import pullback as pb
    >>> float(pb.distributions.Poisson(3.0).variance)
    3.0
    """

    rate: Any = parameter(nonnegative)

    def law(self) -> Law:
        rate = self.rate
        return Law(
            support=nonnegative_integer,
            log_density=lambda x: times_log(x, rate) - rate - gammaln(x + 1.0),
            draw=lambda size, key, dtype: astype(draws.poisson(rate, size, key=key), dtype),
            moves=False,
            inside=0.0,
            batch_shape=shape(rate),
            mean=lambda: rate,
            variance=lambda: rate,
            mode=lambda: floor(rate),
            cdf=lambda x: where(x < 0, 0.0, gammaincc(floor(x) + 1.0, rate)),
        )


@final
@value_object
class NegativeBinomial(Distribution):
    """How many times an event of a probability occurs before it has failed to occur total_count times, as in PyTorch;
    total_count need not be an integer.

    >>> import pullback as pb
    >>> float(pb.distributions.NegativeBinomial(3.0, 0.5).mean)
    3.0
    """

    total_count: Any = ranked(0)
    odds: Any = ranked(0)

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None) -> None:
        count = as_value(total_count)
        check_parameter("NegativeBinomial", "total_count", count, positive)
        set_parameters(
            self, {"total_count": count, "odds": odds.binary("NegativeBinomial", probs, logits, odds.UNCERTAIN)}
        )

    @property
    def probs(self) -> Any:
        """The probability of the event that is counted."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        r, o = float_count(self.total_count, self.odds.value), self.odds

        def log_density(x: Any) -> Any:
            # log C(r + x - 1, x) = -log(r + x) - log B(r, x + 1)
            return o.times_log_complement(r) + o.times_log(x) - log(r + x) - log_beta(r, x + 1.0)

        def draw(size: Any, key: Any, dtype: Any) -> Any:
            # a Poisson variable whose rate is a gamma variable
            first, second = two_keys(key)
            rate = samplers.gamma(r, exp(o.logit), size=size, key=first, dtype=dtype)
            return astype(draws.poisson(rate, size, key=second), dtype)

        return Law(
            support=nonnegative_integer,
            log_density=log_density,
            draw=draw,
            moves=False,
            inside=0.0,
            batch_shape=batch_of(r, o.value),
            mean=lambda: r * exp(o.logit),
            variance=lambda: r * exp(o.logit) / (1.0 - o.p),
            mode=lambda: where(r > 1.0, floor((r - 1.0) * exp(o.logit)), 0.0),
            cdf=lambda x: where(x < 0, 0.0, betainc(r, floor(x) + 1.0, 1.0 - o.p)),
        )


def two_keys(key: Any) -> Any:
    """Two keys from one."""
    return fold_in(key, 0), fold_in(key, 1)


@final
@value_object
class Categorical(Distribution):
    """One of the classes 0, 1, 2, ..., with probabilities along the last axis of probs (in any multiple) or logits.

    >>> import pullback as pb
    >>> round(float(pb.distributions.Categorical([1.0, 3.0]).prob(1)), 12)
    0.75
    """

    odds: Any = ranked(1)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        set_fields(self, {"odds": odds.classes("Categorical", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probabilities, which sum to one."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self.odds.logs

    def law(self) -> Law:
        o = self.odds
        own = shape(o.value)
        places = class_numbers(o.value)
        return Law(
            support=integer_interval(0, own[-1] - 1),
            log_density=lambda x: _pick(o.logs, x),
            draw=lambda size, key, dtype: draw_classes(o.logs, size, key, dtype),
            moves=False,
            inside=0.0,
            batch_shape=own[:-1],
            mean=lambda: total(places * o.p, axis=-1),
            variance=lambda: total(square(places - total(places * o.p, axis=-1, keepdims=True)) * o.p, axis=-1),
            mode=lambda: argmax(o.p, axis=-1),
            entropy=lambda: -total(o.times_logs(o.p), axis=-1),
            values=lambda: beside(np.arange(float(own[-1])), o.value),
            cdf=lambda x: where(x < 0, 0.0, _pick(cumulative_sum(o.p, axis=-1), floor(x))),
        )


def class_numbers(probabilities: Any) -> Any:
    """0, 1, 2, ... for the last axis, in its dtype."""
    found = spec_of(probabilities)
    return beside(np.arange(found.shape[-1]).astype(found.dtype), probabilities)


def draw_classes(logs: Any, size: Any, key: Any, dtype: Any) -> Any:
    """Classes of these log-probabilities, of a shape that ends in that of the batch."""
    own = shape(logs)
    lead = size[: len(size) - len(own) + 1]
    wide = broadcast_to(logs, (*size[len(lead) :], own[-1]))
    return astype(draws.categorical(wide, lead, key=key), dtype)


def _pick(table: Any, x: Any) -> Any:
    """The entries of a table's last axis at these places, both broadcast."""
    count, known = shape(table)[-1], x == x
    outer = batch_of(x, table[..., 0])
    wide = broadcast_to(table, (*outer, count))
    place = expand_dims(astype(broadcast_to(where(known, x, 0.0), outer), "int64"), axis=-1)
    return where(known, take_along_axis(wide, place, axis=-1)[..., 0], math.nan)

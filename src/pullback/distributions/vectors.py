"""Distributions of vectors: one-hot choices, counts of many classes, shares."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ShapeError
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import maximum, where
from ..ops.index.selection import one_hot
from ..ops.random import discrete as draws
from ..ops.random import samplers
from ..ops.random.keys import fold_in
from ..ops.reduce.reductions import argmax
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import stack
from ..ops.shape.reshaping import astype, broadcast_to, expand_dims
from ..ops.special.gamma import gammaln
from ..ops.value_objects import set_fields, value_object
from . import constraints, odds
from .discrete import Binomial, count_of, draw_classes, of_counts
from .distribution import Distribution, check_parameter, ranked, set_parameters
from .law import Law, beside
from .normalizers import entropy_part, log_gamma
from .ratios import times_log


@final
@value_object
class OneHotCategorical(Distribution):
    """One of several classes as a one-hot vector; probs (in any multiple) or logits along the last axis.

    >>> import pullback as pb
    >>> round(float(pb.distributions.OneHotCategorical([1.0, 3.0]).prob([0, 1])), 12)
    0.75
    """

    odds: Any = ranked(1)

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        set_fields(self, {"odds": odds.classes("OneHotCategorical", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probabilities, which sum to one."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self.odds.logs

    def law(self) -> Law:
        o, own = self.odds, shape(self.odds.value)
        count = own[-1]
        return Law(
            support=constraints.one_hot,
            log_density=lambda x: total(o.times_logs(x), axis=-1),
            draw=lambda size, key, dtype: _hot(draw_classes(o.logs, size, key, np.float64), count, dtype),
            moves=False,
            inside=beside(np.arange(count) == 0, o.value),
            batch_shape=own[:-1],
            event_shape=(count,),
            mean=lambda: o.p,
            variance=lambda: o.p * (1.0 - o.p),
            mode=lambda: _hot(argmax(o.p, axis=-1), count, spec_of(o.p).dtype),
            entropy=lambda: -total(o.times_logs(o.p), axis=-1),
            values=lambda: beside(np.eye(count), o.value),
        )


def _hot(classes: Any, count: int, dtype: Any) -> Any:
    return astype(one_hot(astype(classes, "int64"), count), dtype)


@final
@value_object
class Multinomial(Distribution):
    """How often each of several classes is chosen in total_count choices; probs (in any multiple) or logits along the
    last axis.

    >>> import pullback as pb
    >>> pb.distributions.Multinomial(8, [1.0, 3.0]).mean.tolist()
    [2.0, 6.0]
    """

    total_count: Any = ranked(0)
    odds: Any = ranked(1)

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None) -> None:
        count = as_value(total_count)
        check_parameter("Multinomial", "total_count", count, constraints.nonnegative_integer)
        set_parameters(self, {"total_count": count, "odds": odds.classes("Multinomial", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probabilities, which sum to one."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self.odds.logs

    def law(self) -> Law:
        n, o, own = self.total_count, self.odds, shape(self.odds.value)
        wide = n if isinstance(n, int | float) else expand_dims(n, axis=-1)

        def log_density(x: Any) -> Any:
            ways = _log_factorial(n, x) - total(gammaln(x + 1.0), axis=-1)
            return ways + total(o.times_logs(x), axis=-1)

        def entropy() -> Any:
            # the counts of each class are binomial, and the logarithm of how many ways there are is a sum over classes
            count = count_of(n, "Multinomial.entropy")
            each = of_counts(n, Binomial(count, o.p).prob, "Multinomial.entropy", own, o.p)
            logs = beside(gammaln(np.arange(1.0 + count) + 1.0).reshape(-1, *(1,) * len(own)), o.p)
            of_one = -total(o.times_logs(o.p), axis=-1)
            return count * of_one - math.lgamma(count + 1.0) + total(each * logs, axis=(0, -1))

        return Law(
            support=constraints.count_vectors(n),
            log_density=log_density,
            draw=lambda size, key, dtype: astype(_draw_counts(n, o.p, size, key), dtype),
            moves=False,
            inside=beside(np.arange(own[-1]) == 0, o.value) * wide,
            batch_shape=np.broadcast_shapes(shape(n), own[:-1]),
            event_shape=own[-1:],
            mean=lambda: wide * o.p,
            variance=lambda: wide * o.p * (1.0 - o.p),
            entropy=entropy,
        )


def _log_factorial(n: Any, like: Any) -> Any:
    return math.lgamma(n + 1.0) if isinstance(n, int | float) else gammaln(astype(n, spec_of(like).dtype) + 1.0)


def _draw_counts(n: Any, p: Any, size: Any, key: Any) -> Any:
    """Each class takes a binomial part of what the classes before it left."""
    left, found = beside(broadcast_to(as_value(n), size), p), []
    for k in range(shape(p)[-1] - 1):
        rest = total(p[..., k:], axis=-1)
        share = where(rest > 0, p[..., k] / where(rest > 0, rest, 1.0), 0.0)
        taken = draws.binomial(left, share, size, key=fold_in(key, k))
        left = left - taken
        found.append(taken)
    return stack([*found, left], axis=-1)


@final
@value_object
class Dirichlet(Distribution):
    """Vectors of shares that sum to one, with concentrations along the last axis.

    >>> import pullback as pb
    >>> pb.distributions.Dirichlet([1.0, 3.0]).mean.tolist()
    [0.25, 0.75]
    """

    concentration: Any = ranked(1)

    def __init__(self, concentration: Any) -> None:
        value = as_value(concentration)
        if not shape(value):
            raise ShapeError("Dirichlet: concentration must be a vector, one number for each share; got a number.")
        check_parameter("Dirichlet", "concentration", value, constraints.positive)
        set_fields(self, {"concentration": value})

    def law(self) -> Law:
        a = self.concentration
        count = shape(a)[-1]

        def whole() -> Any:
            return total(a, axis=-1)

        def log_density(x: Any) -> Any:
            return total(times_log(a - 1.0, x), axis=-1) - log_normalizer(a)

        def variance() -> Any:
            p = a / expand_dims(whole(), axis=-1)
            return p * (1.0 - p) / (expand_dims(whole(), axis=-1) + 1.0)

        def mode() -> Any:
            least = expand_dims(maximum(whole() - count, 0.0), axis=-1)
            return where(total(where(a > 1.0, 0.0, 1.0), axis=-1, keepdims=True) > 0, math.nan, (a - 1.0) / least)

        def entropy() -> Any:
            return total(entropy_part(a, 1.0), axis=-1) - entropy_part(whole(), float(count))

        return Law(
            support=constraints.simplex,
            log_density=log_density,
            draw=lambda size, key, dtype: samplers.dirichlet(a, size, key=key, dtype=dtype),
            inside=1.0 / count,
            batch_shape=shape(a)[:-1],
            event_shape=(count,),
            mean=lambda: a / expand_dims(whole(), axis=-1),
            variance=variance,
            mode=mode,
            entropy=entropy,
        )


def log_normalizer(a: Any) -> Any:
    """The logarithm of the beta function of many arguments, along the last axis."""
    return total(log_gamma(a), axis=-1) - log_gamma(total(a, axis=-1))

"""Relaxed choices and other images of distributions of numbers: between the choices, on the simplex."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..errors import ShapeError
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import log
from ..ops.random.discrete import gumbel_softmax
from ..ops.reduce.reductions import logsumexp
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import broadcast_to, expand_dims
from ..ops.value_objects import value_object
from . import constraints, odds
from .bijectors import Sigmoid
from .continuous import Logistic, Normal
from .distribution import Distribution, check_parameter, parameter, ranked, set_parameters
from .law import Law, batch_of, log_of_scale
from .vector_bijectors import StickBreaking
from .wrappers import TransformedDistribution


@final
@value_object
class RelaxedBernoulli(Distribution):
    """Numbers between 0 and 1 which, the lower the temperature, lie the nearer to the choices of a Bernoulli
    distribution, and move with its parameter.

    >>> import pullback as pb
    >>> round(float(pb.distributions.RelaxedBernoulli(0.5, 0.5).log_prob(0.5)), 6)
    -0.693147
    """

    temperature: Any = ranked(0)
    odds: Any = ranked(0)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        value = as_value(temperature)
        check_parameter("RelaxedBernoulli", "temperature", value, constraints.positive)
        set_parameters(self, {"temperature": value, "odds": odds.binary("RelaxedBernoulli", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probability that a draw is above a half."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """log(probs / (1 - probs))."""
        return self.odds.logit

    def law(self) -> Law:
        base = Logistic(self.odds.logit / self.temperature, 1.0 / self.temperature)
        return TransformedDistribution(base, Sigmoid()).law()


@final
@value_object
class RelaxedOneHotCategorical(Distribution):
    """Shares that sum to one which, the lower the temperature, lie the nearer to one-hot choices, and move with their
    probabilities (Gumbel-softmax, the concrete distribution).

    >>> import pullback as pb
    >>> round(float(pb.distributions.RelaxedOneHotCategorical(1.0, [0.5, 0.5]).log_prob([0.5, 0.5])), 6)
    0.0
    """

    temperature: Any = ranked(0)
    odds: Any = ranked(1)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None) -> None:
        value = as_value(temperature)
        check_parameter("RelaxedOneHotCategorical", "temperature", value, constraints.positive)
        set_parameters(self, {"temperature": value, "odds": odds.classes("RelaxedOneHotCategorical", probs, logits)})

    @property
    def probs(self) -> Any:
        """The probability of each class to have the greatest share."""
        return self.odds.p

    @property
    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return self.odds.logs

    def law(self) -> Law:
        t, logits, own = self.temperature, self.odds.logs, shape(self.odds.value)
        count = own[-1]
        wide = t if isinstance(t, int | float) else expand_dims(t, axis=-1)

        def log_density(x: Any) -> Any:
            score = logits - wide * log(x)
            ways = math.lgamma(count) + (count - 1.0) * log_of_scale(t)
            return ways + total(score - log(x), axis=-1) - count * logsumexp(score, axis=-1)

        return Law(
            support=constraints.interior_simplex,
            log_density=log_density,
            draw=lambda size, key, dtype: gumbel_softmax(broadcast_to(logits, (*size, count)), wide, key=key),
            inside=1.0 / count,
            batch_shape=np.broadcast_shapes(shape(t), own[:-1]),
            event_shape=(count,),
        )


@final
@value_object
class LogisticNormal(Distribution):
    """Shares that sum to one: the image of n independent normal numbers on n + 1 shares, by stick breaking.

    >>> import numpy as np, pullback as pb
    >>> pb.distributions.LogisticNormal(np.zeros(2), np.ones(2)).event_shape
    (3,)
    """

    loc: Any = parameter(constraints.real)
    scale: Any = parameter(constraints.positive)

    def __post_init__(self) -> None:
        if not (shape(as_value(self.loc)) or shape(as_value(self.scale))):
            raise ShapeError("LogisticNormal: loc and scale must make a vector together, got numbers.")
        Distribution.__post_init__(self)

    def law(self) -> Law:
        return TransformedDistribution(Normal(self.loc, self.scale), StickBreaking()).law()

    def _expand_to(self, batch: Any) -> Any:
        size = batch_of(self.loc, self.scale)[-1:]
        return LogisticNormal(*(broadcast_to(x, (*batch, *size)) for x in (self.loc, self.scale)))

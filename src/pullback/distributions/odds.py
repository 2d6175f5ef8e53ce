"""Probabilities as they were given, by themselves or by logits: each has the form that loses no digits."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from ..errors import ArgumentError
from ..ops.dispatch import as_value, shape
from ..ops.elementwise.pointwise import exp, log, minimum, sigmoid, softplus, stop_gradient, where
from ..ops.functions import log_softmax
from ..ops.reduce.reductions import logsumexp
from ..ops.reduce.reductions import max as greatest
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import broadcast_to, moveaxis
from ..ops.value_objects import value_object
from .constraints import Constraint, real, real_vector, unit_interval
from .distribution import check_parameter
from .ratios import logit, times_log, times_log1p


@final
@value_object
class Probability:
    """p of an event, given as itself."""

    value: Any

    @property
    def p(self) -> Any:
        return self.value

    @property
    def logit(self) -> Any:
        return logit(self.value)

    def times_log(self, x: Any) -> Any:
        """x log p, which is 0 for x = 0."""
        return times_log(x, self.value)

    def times_log_complement(self, x: Any) -> Any:
        """x log(1 - p), which is 0 for x = 0."""
        return times_log1p(x, -self.value)


@final
@value_object
class LogOdds:
    """p of an event, given by log(p / (1 - p))."""

    value: Any

    @property
    def p(self) -> Any:
        return sigmoid(self.value)

    @property
    def logit(self) -> Any:
        return self.value

    def times_log(self, x: Any) -> Any:
        """x log p."""
        return -x * softplus(-self.value)

    def times_log_complement(self, x: Any) -> Any:
        """x log(1 - p)."""
        return -x * softplus(self.value)


@final
@value_object
class Shares:
    """Probabilities of classes along the last axis, given in any multiple."""

    value: Any

    @property
    def p(self) -> Any:
        return self.value / total(self.value, axis=-1, keepdims=True)

    @property
    def logs(self) -> Any:
        return log(self.p)

    def times_logs(self, x: Any) -> Any:
        """x log p, which is 0 for x = 0."""
        return times_log(x, self.p)

    def log_mean_exp(self, x: Any) -> Any:
        """log of the mean of exp(x) along the last axis, with a finite slope in a probability of 0 too."""
        p, x, axis = _align_classes(self.p, x)
        peak = stop_gradient(greatest(where(p > 0, log(p) + x, -math.inf), axis=axis, keepdims=True))
        peak = where(peak == -math.inf, 0.0, peak)
        return log(total(p * exp(minimum(x - peak, 700.0)), axis=axis)) + total(peak, axis=axis)


@final
@value_object
class Logits:
    """Probabilities of classes along the last axis, given by their logarithms up to a constant."""

    value: Any

    @property
    def p(self) -> Any:
        return exp(self.logs)

    @property
    def logs(self) -> Any:
        return log_softmax(self.value, axis=-1)

    def times_logs(self, x: Any) -> Any:
        """x log p, which is 0 for x = 0, also where p is."""
        return where(as_value(x) == 0, 0.0, x * where(as_value(x) == 0, 0.0, self.logs))

    def log_mean_exp(self, x: Any) -> Any:
        """log of the mean of exp(x) along the last axis."""
        logs, x, axis = _align_classes(self.logs, x)
        return logsumexp(logs + x, axis=axis)


def _align_classes(weights: Any, x: Any) -> tuple[Any, Any, int]:
    """Both of one shape, and the axis of the classes: the first one if they are few, since compiled code fills its
    vectors along the last axis.
    """
    whole = np.broadcast_shapes(shape(weights), shape(x))
    weights, x = broadcast_to(weights, whole), broadcast_to(x, whole)
    if len(whole) == 1 or whole[-1] > _FEW:
        return weights, x, -1
    return moveaxis(weights, -1, 0), moveaxis(x, -1, 0), 0


#: So many classes, and no more, are few.
_FEW = 16
#: Of an event that occurs at last.
POSSIBLE = Constraint("probabilities above 0", lambda p: (p <= 0) | (p > 1))
#: Of an event that fails to occur at last.
UNCERTAIN = Constraint("probabilities below 1", lambda p: (p < 0) | (p >= 1))
_VECTOR = Constraint("vectors of numbers not below 0, not all of them 0", lambda x: _is_no_share(x), 1)


def _is_no_share(x: Any) -> Any:
    return ((x < 0).sum(axis=-1) > 0) | (x.sum(axis=-1) <= 0)


def binary(family: str, probs: Any, logits: Any, allowed: Constraint = unit_interval) -> Any:
    """The probability of an event, from whichever of both is given."""
    return _choose(family, probs, logits, (Probability, allowed), (LogOdds, real))


def classes(family: str, probs: Any, logits: Any) -> Any:
    """The probabilities of classes, from whichever of both is given."""
    return _choose(family, probs, logits, (Shares, _VECTOR), (Logits, real_vector))


def _choose(family: str, probs: Any, logits: Any, by_probs: tuple[Any, Any], by_logits: tuple[Any, Any]) -> Any:
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{family}: pass either probs or logits.")
    name, given, (kind, constraint) = ("probs", probs, by_probs) if logits is None else ("logits", logits, by_logits)
    value = as_value(given)
    check_parameter(family, name, value, constraint)
    return kind(value)

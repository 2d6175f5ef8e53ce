"""Likelihoods: losses that are minus a log probability, in a parameter for which Hessian and Fisher matrix are one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from ..arrays.spec import spec_of
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import exp, sigmoid, softplus, square, subtract
from ..ops.index.selection import one_hot
from ..ops.random.discrete import bernoulli as draw_bernoulli
from ..ops.random.discrete import categorical as draw_categorical
from ..ops.random.discrete import poisson as draw_poisson
from ..ops.random.samplers import normal as draw_normal
from ..ops.reduce.reductions import logsumexp
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype
from ..transforms.reverse import grad


@final
@dataclass(frozen=True, slots=True)
class Likelihood:
    """A natural exponential family: minus the log probability of y given an output z is `log_partition(z) - <z, T(y)>`,
    up to what does not depend on z. `statistic(y, z)` is T(y) in the shape of z, `draw(key, z)` a T(y) of a random y.

    Called as `likelihood(z, y)` it is the loss of one sample.

    >>> import numpy as np, pullback as pb
    >>> pb.curvature.categorical(np.zeros(4), 1)
    array(1.38629436)
    """

    name: str
    log_partition: Callable[[Any], Any]
    statistic: Callable[[Any, Any], Any]
    draw: Callable[[Any, Any], Any]

    def __call__(self, z: Any, y: Any) -> Any:
        return subtract(self.log_partition(z), total(z * self.statistic(y, z)))

    def score(self, key: Any, z: Any) -> Any:
        """The gradient of the loss in z for a random y: its mean is 0 and its covariance the Fisher matrix."""
        return subtract(grad(self.log_partition)(z), self.draw(key, z))


def _like(y: Any, z: Any) -> Any:
    return astype(y, spec_of(z).dtype)


def _encode_classes(y: Any, z: Any) -> Any:
    return one_hot(y, shape(z)[-1], dtype=spec_of(z).dtype)


#: Unit normal distributions around each element: half the squared error.
normal = Likelihood(
    "normal", lambda z: total(square(z)) / 2, _like,
    lambda key, z: z + draw_normal(size=shape(z), key=key, dtype=spec_of(z).dtype),
)  # fmt: skip
#: One of the classes along the last axis, by their logits: softmax cross-entropy. y has the number of the class.
categorical = Likelihood(
    "categorical", lambda z: total(logsumexp(z, axis=-1)), _encode_classes,
    lambda key, z: _encode_classes(draw_categorical(z, key=key), z),
)  # fmt: skip
#: 0 or 1 for each element, by its logit: binary cross-entropy.
bernoulli = Likelihood(
    "bernoulli", lambda z: total(softplus(z)), _like,
    lambda key, z: _like(draw_bernoulli(sigmoid(z), key=key), z),
)  # fmt: skip
#: Counts, by the logarithm of their rate.
poisson = Likelihood(
    "poisson", lambda z: total(exp(z)), _like,
    lambda key, z: _like(draw_poisson(exp(z), key=key), z),
)  # fmt: skip

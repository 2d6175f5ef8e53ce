"""Derivatives of expectations over draws that cannot be moved: score function, straight-through, relaxed choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.spec import spec_of
from ..errors import ArgumentError, UnsupportedFunction
from ..ops.axes import as_shape
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import exp, sigmoid, stop_gradient
from ..ops.random.discrete import gumbel_softmax
from ..ops.random.keys import key_on_device
from ..ops.random.samplers import logistic
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype, broadcast_to
from ..transforms.vectorize import vmap
from .constraints import positive
from .discrete import Bernoulli
from .distribution import Distribution, check_distribution, check_parameter, sample_count
from .vectors import OneHotCategorical


def score_function(
    f: Callable[[Any], Any],
    distribution: Distribution,
    *,
    key: Any,
    samples: int = 1,
    baseline: Any = "leave-one-out",
) -> Any:
    """The mean of f over draws, with derivatives that are unbiased to every order, whatever the distribution.

    f takes one draw (of the batch and event shape) and returns a number. Each draw is weighed by its probability over
    itself held constant, which is one, and whose derivative is that of the log-probability. A baseline lowers the
    variance and leaves the mean: for each draw the mean of the others (`"leave-one-out"`, with two draws or more), a
    number that does not depend on the draws, or None.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> mean = lambda p: D.score_function(lambda x: 3.0 * x, D.Bernoulli(p), key=pb.random.key(0), samples=10_000)
    >>> bool(abs(pb.grad(mean)(0.3) - 3.0) < 0.1)
    True
    """
    check_distribution("score_function", distribution)
    count = sample_count(samples, "score_function")
    x = distribution.detach().sample((count,), key=key)
    values = vmap(f)(x)
    if spec_of(values).shape != (count,):
        raise ArgumentError(f"score_function: f must return a number, got shape {spec_of(values).shape[1:]}.")
    log_p = distribution.log_prob(x)
    log_p = total(log_p, axis=tuple(range(1, len(spec_of(log_p).shape))))
    # p / p held constant is 1 and has the derivatives of p over p, to every order
    weight = exp(log_p - stop_gradient(log_p))
    base = _baseline(baseline, values, count)
    return mean(values * weight + base * (1.0 - weight))


def _baseline(baseline: Any, values: Any, count: int) -> Any:
    if baseline is None:
        return 0.0
    if not isinstance(baseline, str):
        return stop_gradient(baseline)
    if baseline != "leave-one-out":
        raise ArgumentError(f"score_function: baseline is 'leave-one-out', a number or None, got {baseline!r}.")
    held = stop_gradient(values)
    return 0.0 if count < 2 else (total(held) - held) / (count - 1)


def straight_through(distribution: Distribution, shape: Any = (), *, key: Any) -> Any:
    """Draws with the derivative of their mean: exact for what is linear in the draws, biased else.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> float(pb.grad(lambda p: 2.0 * D.straight_through(D.Bernoulli(p), key=pb.random.key(0)))(0.3))
    2.0
    """
    check_distribution("straight_through", distribution)
    x = distribution.detach().sample(shape, key=key)
    center = broadcast_to(distribution.mean, spec_of(x).shape)
    return x + (center - stop_gradient(center))


def relaxed_sample(
    distribution: Distribution, temperature: Any, shape: Any = (), *, key: Any, hard: bool = False
) -> Any:
    """Draws of a relaxed Bernoulli or one-hot choice, between the choices, which move with the parameters: the lower
    the temperature, the nearer to choices and the noisier the derivative. With `hard` the values are choices, and the
    derivative is that of the relaxed ones.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> x = D.relaxed_sample(D.OneHotCategorical([0.2, 0.8]), 0.5, (3,), key=pb.random.key(0))
    >>> x.shape, bool(abs(x.sum(-1) - 1.0).max() < 1e-12)
    ((3, 2), True)
    """
    check_parameter("relaxed_sample", "temperature", as_value(temperature), positive)
    lead = as_shape(shape, "relaxed_sample")
    if isinstance(distribution, OneHotCategorical):
        logits = distribution.logits
        wide = broadcast_to(logits, (*lead, *spec_of(logits).shape))
        return gumbel_softmax(
            wide, temperature, hard=hard, key=key_on_device(key, spec_of(wide).device, "relaxed_sample")
        )
    if isinstance(distribution, Bernoulli):
        logits = distribution.logits
        given = key_on_device(key, spec_of(logits).device, "relaxed_sample")
        noise = logistic(size=(*lead, *spec_of(logits).shape), key=given, dtype=distribution.dtype)
        soft = sigmoid((logits + noise) / temperature)
        if not hard:
            return soft
        choice = astype(soft > 0.5, spec_of(soft).dtype)
        return stop_gradient(choice) + (soft - stop_gradient(soft))
    raise UnsupportedFunction(f"relaxed_sample: no relaxation of {type(distribution).__name__} is known.")

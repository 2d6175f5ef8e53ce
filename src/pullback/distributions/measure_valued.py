"""Measure-valued derivatives: that of a density as a constant times the difference of two others, which are drawn.

    d/dtheta p(x; theta) = c (p_plus(x) - p_minus(x)),   so   d/dtheta E f(x) = c (E f(x_plus) - E f(x_minus)),
whatever f is: f need not be differentiable. The two draws are coupled, which lowers the variance. Of many independent
coordinates each is replaced alone, while the others stay as they were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..errors import ArgumentError, UnsupportedFunction
from ..ops.elementwise.pointwise import log, sqrt, where
from ..ops.random.draw_ops import held
from ..ops.random.keys import fold_in, key_on_device, split
from ..ops.random.samplers import exponential, normal, uniform
from ..ops.reduce.reductions import mean
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import broadcast_to, reshape
from ..transforms.custom.custom_op import custom_op
from ..transforms.vectorize import vmap
from .continuous import Exponential, Gamma, Normal
from .discrete import Bernoulli, Poisson
from .distribution import Distribution, sample_count
from .law import beside
from .wrappers import Independent


class Pair(NamedTuple):
    """For one parameter: its name, the constant, and draws of both densities."""

    parameter: str
    constant: Any
    plus: Any
    minus: Any


def _normal_pairs(d: Normal, x: Any, key: Any) -> list[Pair]:
    keys = split(key, 4)
    size = spec_of(x).shape
    # by the mean: Rayleigh variables to either side
    away = d.scale * sqrt(-2.0 * log(uniform(size=size, key=keys[0])))
    by_loc = Pair("loc", 1.0 / (d.scale * math.sqrt(2 * math.pi)), d.loc + away, d.loc - away)
    # by the deviation: Maxwell's density on both sides, of which a uniform share is normal
    length = sqrt(total(normal(size=(3, *size), key=keys[1]) ** 2, axis=0))
    signed = d.scale * where(uniform(size=size, key=keys[2]) < 0.5, length, -length)
    return [by_loc, Pair("scale", 1.0 / d.scale, d.loc + signed, d.loc + signed * uniform(size=size, key=keys[3]))]


def _exponential_pairs(d: Exponential, x: Any, key: Any) -> list[Pair]:
    return [Pair("rate", 1.0 / d.rate, x, x + exponential(size=spec_of(x).shape, key=key) / d.rate)]


def _gamma_pairs(d: Gamma, x: Any, key: Any) -> list[Pair]:
    more = x + exponential(size=spec_of(x).shape, key=key) / d.rate
    return [Pair("rate", d.concentration / d.rate, x, more)]


def _bernoulli_pairs(d: Bernoulli, x: Any, key: Any) -> list[Pair]:
    return [Pair("probs", 1.0, x * 0.0 + 1.0, x * 0.0)]


def _poisson_pairs(d: Poisson, x: Any, key: Any) -> list[Pair]:
    return [Pair("rate", 1.0, x + 1.0, x)]


_PAIRS: dict[type, Callable[[Any, Any, Any], list[Pair]]] = {
    Normal: _normal_pairs,
    Exponential: _exponential_pairs,
    Gamma: _gamma_pairs,
    Bernoulli: _bernoulli_pairs,
    Poisson: _poisson_pairs,
}
#: What has no such pair here: its derivative would be missing.
_WITHOUT: dict[type, tuple[str, ...]] = {Gamma: ("concentration",)}


def measure_valued(f: Callable[[Any], Any], distribution: Distribution, *, key: Any, samples: int = 1) -> Any:
    """The mean of f over draws, with an unbiased first derivative by the parameters of a `Normal`, `Exponential`,
    `Gamma` (its rate), `Bernoulli` or `Poisson`, for any f, smooth or not: by differences of f at two coupled draws.

    f takes one draw (of the batch and event shape) and returns a number. Each number of the draw costs two values of f
    for each parameter, and the variance is often far below that of `score_function`. A derivative of that derivative is
    refused; derivatives by what else f depends on are those of f.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> jump = lambda x: pb.where(x > 1.0, 1.0, 0.0)
    >>> mean = lambda m: D.measure_valued(jump, D.Normal(m, 1.0), key=pb.random.key(0), samples=4000)
    >>> round(float(pb.grad(mean)(1.0)), 3)  # the density at the jump
    0.399
    """
    count = sample_count(samples, "measure_valued")
    family = distribution.base if isinstance(distribution, Independent) else distribution
    if type(family) not in _PAIRS:
        known = ", ".join(sorted(kind.__name__ for kind in _PAIRS))
        raise UnsupportedFunction(
            f"measure_valued: no pair of densities is known for {type(family).__name__}; there is one for {known}.\n"
            "  Use pb.distributions.score_function, or rsample."
        )
    for name in _WITHOUT.get(type(family), ()):
        held(f"{type(family).__name__}.measure_valued", getattr(family, name))
    fixed: Any = family.detach()
    x = fixed.sample((count,), key=fold_in(key, 0))
    key = key_on_device(key, spec_of(x).device, "measure_valued")
    values = vmap(f)(x)
    if spec_of(values).shape != (count,):
        raise ArgumentError(f"measure_valued: f must return a number, got shape {spec_of(values).shape[1:]}.")
    found = mean(values)
    for pair in _PAIRS[type(fixed)](fixed, x, fold_in(key, 1)):
        parameter = getattr(family, pair.parameter)
        if isinstance(parameter, Value):
            theta = broadcast_to(parameter, family.batch_shape)
            found = found + total(_with_slope(theta, pair.constant * _mean_difference(f, x, pair)))
    return found


def _mean_difference(f: Callable[[Any], Any], x: Any, pair: Pair) -> Any:
    """The mean of f(x_plus) - f(x_minus), for each coordinate that is replaced: of the shape of one draw."""
    shape = spec_of(x).shape[1:]
    size = math.prod(shape)
    places = beside(np.eye(size, dtype=np.bool_).reshape(size, *shape), x)

    def difference(place: Any, x: Any, plus: Any, minus: Any) -> Any:
        return f(where(place, plus, x)) - f(where(place, minus, x))

    by_draw = vmap(vmap(difference, (0, None, None, None)), (None, 0, 0, 0))(places, x, pair.plus, pair.minus)
    return reshape(mean(by_draw, axis=0), shape)


@custom_op
def _with_slope(theta: Any, slope: Any) -> Any:
    """Zeros whose derivative by theta is the slope."""
    return np.zeros_like(theta)


@_with_slope.def_spec
def _(theta: Any, slope: Any) -> Any:
    return theta


@_with_slope.def_jvp
def _(tangents: Any, theta: Any, slope: Any) -> Any:
    # the slope was drawn at a fixed theta: its own derivative by theta is not in it
    return tangents[0] * (slope + 0.0 * held("measure_valued", theta))

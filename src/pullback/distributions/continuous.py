"""Continuous distributions of single numbers: each is a standard form, moved and scaled by its parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, final

import numpy as np

from ..errors import ArgumentError
from ..ops.concrete import strip_derivatives
from ..ops.elementwise.pointwise import exp, expm1, log, square, where
from ..ops.value_objects import value_object
from . import standard_forms as forms
from .constraints import Constraint, interval, nonnegative, positive, real
from .distribution import Distribution, parameter
from .law import Law, locate


@final
@value_object
class Normal(Distribution):
    """The normal distribution of mean loc and standard deviation scale.

    >>> import pullback as pb
    >>> round(float(pb.distributions.Normal(0.0, 2.0).log_prob(1.0)), 6)
    -1.737086
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.NORMAL, self.loc, self.scale)


@final
@value_object
class HalfNormal(Distribution):
    """The distribution of the magnitude of a normal variable of mean 0.

    >>> import pullback as pb
    >>> round(float(pb.distributions.HalfNormal(2.0).mean), 6)
    1.595769
    """

    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.HALF_NORMAL, None, self.scale)


@final
@value_object
class Exponential(Distribution):
    """Waiting times of events at a rate.

    >>> import pullback as pb
    >>> float(pb.distributions.Exponential(4.0).mean)
    0.25
    """

    rate: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.EXPONENTIAL, None, 1.0 / self.rate)


@final
@value_object
class Laplace(Distribution):
    """The Laplace distribution: the distance from loc is exponential, on either side.

    >>> import pullback as pb
    >>> float(pb.distributions.Laplace(1.0, 2.0).variance)
    8.0
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.LAPLACE, self.loc, self.scale)


@final
@value_object
class Cauchy(Distribution):
    """The Cauchy distribution, which has no mean.

    >>> import pullback as pb
    >>> float(pb.distributions.Cauchy().cdf(1.0))
    0.75
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.CAUCHY, self.loc, self.scale)


@final
@value_object
class HalfCauchy(Distribution):
    """The distribution of the magnitude of a Cauchy variable around 0.

    >>> import pullback as pb
    >>> float(pb.distributions.HalfCauchy(2.0).cdf(2.0))
    0.5
    """

    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.HALF_CAUCHY, None, self.scale)


@final
@value_object
class StudentT(Distribution):
    """Student's t with df degrees of freedom, moved and scaled.

    >>> import pullback as pb
    >>> float(pb.distributions.StudentT(4.0).variance)
    2.0
    """

    df: Any = parameter(positive)
    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.student_t(self.df), self.loc, self.scale)


@final
@value_object
class Gamma(Distribution):
    """The gamma distribution of a concentration (shape) and a rate, as in PyTorch.

    >>> import pullback as pb
    >>> float(pb.distributions.Gamma(3.0, 2.0).mean)
    1.5
    """

    concentration: Any = parameter(positive)
    rate: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.gamma(self.concentration), None, 1.0 / self.rate)


@final
@value_object
class InverseGamma(Distribution):
    """The distribution of 1 / x for x of a gamma distribution of this concentration and rate.

    >>> import pullback as pb
    >>> float(pb.distributions.InverseGamma(3.0, 4.0).mean)
    2.0
    """

    concentration: Any = parameter(positive)
    rate: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.inverse_gamma(self.concentration), None, self.rate)


@final
@value_object
class Beta(Distribution):
    """The beta distribution, between 0 and 1.

    >>> import pullback as pb
    >>> float(pb.distributions.Beta(1.0, 3.0).mean)
    0.25
    """

    concentration1: Any = parameter(positive)
    concentration0: Any = parameter(positive)

    def law(self) -> Law:
        return forms.beta(self.concentration1, self.concentration0)


@final
@value_object
class FisherSnedecor(Distribution):
    """Fisher's F: the quotient of two chi-square variables, each over its degrees of freedom df1, df2.

    >>> import pullback as pb
    >>> float(pb.distributions.FisherSnedecor(3.0, 4.0).mean)
    2.0
    """

    df1: Any = parameter(positive)
    df2: Any = parameter(positive)

    def law(self) -> Law:
        return forms.fisher(self.df1, self.df2)


@final
@value_object
class Chi2(Distribution):
    """The distribution of sums of df squared standard normal variables; df need not be an integer.

    >>> import pullback as pb
    >>> float(pb.distributions.Chi2(3.0).mean)
    3.0
    """

    df: Any = parameter(positive)

    def law(self) -> Law:
        return locate(forms.gamma(0.5 * self.df), None, 2.0)


@final
@value_object
class Gumbel(Distribution):
    """The Gumbel distribution: the limit law of the greatest of many.

    >>> import pullback as pb
    >>> round(float(pb.distributions.Gumbel().mean), 6)
    0.577216
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.GUMBEL, self.loc, self.scale)


@final
@value_object
class Logistic(Distribution):
    """The logistic distribution, whose distribution function is the sigmoid.

    >>> import pullback as pb
    >>> float(pb.distributions.Logistic().cdf(0.0))
    0.5
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        return locate(forms.LOGISTIC, self.loc, self.scale)


@final
@value_object
class Weibull(Distribution):
    """The Weibull distribution: an exponential variable to the power 1 / concentration, scaled.

    >>> import pullback as pb
    >>> float(pb.distributions.Weibull(2.0, 1.0).mean)
    2.0
    """

    scale: Any = parameter(positive)
    concentration: Any = parameter(positive)

    def law(self) -> Law:
        return locate(forms.weibull(self.concentration), None, self.scale)


@final
@value_object
class Pareto(Distribution):
    """The Pareto distribution from scale upwards, whose density falls as x ** -(alpha + 1).

    >>> import pullback as pb
    >>> float(pb.distributions.Pareto(2.0, 3.0).mean)
    3.0
    """

    scale: Any = parameter(positive)
    alpha: Any = parameter(positive)

    def law(self) -> Law:
        return locate(forms.pareto(self.alpha), None, self.scale)


@final
@value_object
class GeneralizedPareto(Distribution):
    """What exceeds a high threshold loc: exponential for a concentration of 0, with a heavy tail above 0, and up to an
    end, loc - scale / concentration, below 0.

    >>> import pullback as pb
    >>> float(pb.distributions.GeneralizedPareto(1.0, 2.0, 0.5).mean)
    5.0
    """

    loc: Any = parameter(real)
    scale: Any = parameter(positive)
    concentration: Any = parameter(real, 0.0)

    def law(self) -> Law:
        xi = self.concentration
        end = self.loc - self.scale / where(xi < 0, xi, -1.0)
        high = where(xi < 0, end, math.inf)
        support = Constraint("numbers that may exceed the threshold", lambda x: (x < self.loc) | (x > high))
        found = locate(forms.generalized_pareto(xi), self.loc, self.scale)
        return replace(found, support=replace(support, low=self.loc, high=high))


@final
@value_object
class LogNormal(Distribution):
    """The distribution of exp(x) for a normal x of this loc and scale.

    >>> import pullback as pb
    >>> round(float(pb.distributions.LogNormal(0.0, 1.0).mean), 6)
    1.648721
    """

    loc: Any = parameter(real, 0.0)
    scale: Any = parameter(positive, 1.0)

    def law(self) -> Law:
        inner, spread = locate(forms.NORMAL, self.loc, self.scale), square(self.scale)

        def mean() -> Any:
            return exp(self.loc + 0.5 * spread)

        return replace(
            inner,
            support=positive,
            log_density=lambda x: inner.log_density(log(x)) - log(x),
            draw=lambda size, key, dtype: exp(inner.draw(size, key, dtype)),  # type: ignore[misc]
            inside=1.0,
            mean=mean,
            variance=lambda: expm1(spread) * square(mean()),
            mode=lambda: exp(self.loc - spread),
            entropy=lambda: inner.entropy() + self.loc,  # type: ignore[misc]
            cdf=lambda x: inner.cdf(log(x)),  # type: ignore[misc]
            icdf=lambda p: exp(inner.icdf(p)),  # type: ignore[misc]
        )


@final
@value_object
class Uniform(Distribution):
    """The uniform distribution from low to high.

    >>> import pullback as pb
    >>> float(pb.distributions.Uniform(1.0, 3.0).prob(2.0))
    0.5
    """

    low: Any = parameter(real, 0.0)
    high: Any = parameter(real, 1.0)

    def __post_init__(self) -> None:
        Distribution.__post_init__(self)
        width = strip_derivatives(self.high - self.low)
        if isinstance(width, np.ndarray | float | int) and not np.all(width > 0):
            raise ArgumentError(f"Uniform: low must be below high, got {self.low!r} and {self.high!r}.")

    def law(self) -> Law:
        # the ends as they are given: low + (high - low) may round to a neighbor of high
        return replace(locate(forms.UNIFORM, self.low, self.high - self.low), support=interval(self.low, self.high))


@final
@value_object
class VonMises(Distribution):
    """The von Mises distribution of angles around loc: normal on a circle. `mean` and `variance` are those of the
    circle; draws and the distribution function count angles from loc - pi to loc + pi.

    >>> import pullback as pb
    >>> round(float(pb.distributions.VonMises(0.0, 1.0).log_prob(0.0)), 6)
    -1.073791
    """

    loc: Any = parameter(real, 0.0)
    concentration: Any = parameter(nonnegative, 1.0)

    def law(self) -> Law:
        found = locate(forms.von_mises(self.concentration), self.loc, 1.0)
        return replace(found, support=interval(name="angles"))

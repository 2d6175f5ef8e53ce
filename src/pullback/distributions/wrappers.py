"""Distributions made of others: axes of a batch as one event, mixtures, images under bijectors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.dispatch import shape
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import logical_not, maximum, minimum, square, where
from ..ops.index.indexing import take_along_axis
from ..ops.placement import as_value_beside
from ..ops.random.keys import fold_in
from ..ops.reduce.reductions import all as all_of
from ..ops.reduce.reductions import any as any_of
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype, broadcast_to, expand_dims, reshape
from ..ops.value_objects import set_fields, static, value_object
from .bijectors import Bijector, Chain, sum_last
from .constraints import Constraint, stack_of
from .discrete import Categorical
from .distribution import Distribution, check_distribution
from .law import Law


@final
@value_object
class Independent(Distribution):
    """A distribution whose last batch axes, as many as are asked for, belong to the event: log_prob sums over them.

    >>> import numpy as np, pullback as pb
    >>> d = pb.distributions.Independent(pb.distributions.Normal(np.zeros(3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(np.zeros(3)).shape
    ((), (3,), ())
    """

    base: Any
    reinterpreted: int = static(1)

    def __post_init__(self) -> None:
        check_distribution("Independent", self.base)
        if not 0 <= self.reinterpreted <= len(self.base.batch_shape):
            raise ShapeError(
                f"Independent: batches of shape {self.base.batch_shape} have no {self.reinterpreted} axes to take in."
            )

    def law(self) -> Law:
        base: Law = self.base.law()
        count = self.reinterpreted
        cut = len(base.batch_shape) - count
        entropy = base.entropy
        return replace(
            base,
            support=stack_of(base.support, count),
            log_density=lambda x: sum_last(self._spread(base.log_density(x), base, cut), count),
            batch_shape=base.batch_shape[:cut],
            event_shape=(*base.batch_shape[cut:], *base.event_shape),
            draw=None if base.draw is None else base_draw(base, cut),
            entropy=None if entropy is None else (
                lambda: sum_last(broadcast_to(entropy(), base.batch_shape), count)
            ),
            cdf=None if count else base.cdf,
            icdf=None if count else base.icdf,
            values=None if count else base.values,
        )  # fmt: skip

    def _expand_to(self, batch: Any) -> Any:
        cut = len(self.base.batch_shape) - self.reinterpreted
        return Independent(self.base.expand((*batch, *self.base.batch_shape[cut:])), self.reinterpreted)

    def _spread(self, x: Any, base: Law, cut: int) -> Any:
        """A log-density of each element: broadcast, since parameters may have axes of size one."""
        return broadcast_to(x, np.broadcast_shapes(shape(x), base.batch_shape[cut:]))


def base_draw(base: Law, cut: int) -> Any:
    """Draws of a law whose batch axes from `cut` on now are part of the event."""
    return lambda size, key, dtype: base.draw((*size, *base.batch_shape[cut:]), key, dtype)  # type: ignore[misc]


@final
@value_object
class Mixture(Distribution):
    """A component chosen by a categorical distribution, and a draw of it. Components lie along the last batch axis.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> float(D.Mixture(D.Categorical([0.5, 0.5]), D.Normal([-1.0, 1.0], 1.0)).mean)
    0.0
    """

    weights: Any
    components: Any

    def __post_init__(self) -> None:
        check_distribution("Mixture", self.components)
        if not isinstance(self.weights, Categorical):
            raise ArgumentError(f"Mixture: weights must be a Categorical, got {type(self.weights).__name__}.")
        count, batch = shape(self.weights.odds.value)[-1], self.components.batch_shape
        if not batch or batch[-1] != count:
            raise ShapeError(f"Mixture: {count} weights, but components of batch shape {batch}.")

    def law(self) -> Law:
        inner, logs = self.components.law(), self.weights.logits
        rank = len(inner.event_shape)
        batch = np.broadcast_shapes(shape(logs)[:-1], inner.batch_shape[:-1])

        def weigh(x: Any) -> Any:
            weights = self.weights.probs
            return total(_add_axes(weights, rank) * x, axis=-1 - rank)

        def mean() -> Any:
            assert inner.mean is not None
            return weigh(_full(inner.mean(), inner, logs))

        def variance() -> Any:
            assert inner.mean is not None
            assert inner.variance is not None
            gap = _full(inner.mean(), inner, logs) - expand_dims(mean(), axis=-1 - rank)
            return weigh(_full(inner.variance(), inner, logs) + square(gap))

        def cdf(x: Any) -> Any:
            return weigh(self.components.cdf(expand_dims(x, axis=-1)))

        return Law(
            support=_joint_support(inner.support),
            log_density=lambda x: self.weights.odds.log_mean_exp(
                self.components.log_prob(expand_dims(x, axis=-1 - rank))
            ),
            draw=None if inner.draw is None else self._draw_law(inner, logs, batch),
            moves=False,
            inside=inner.inside if rank or not shape(inner.inside) else inner.inside[..., 0],
            batch_shape=batch,
            event_shape=inner.event_shape,
            mean=mean if inner.mean is not None else None,
            variance=variance if inner.mean is not None and inner.variance is not None else None,
            cdf=cdf if inner.cdf is not None and not rank else None,
        )

    def _expand_to(self, batch: Any) -> Any:
        count = shape(self.weights.odds.value)[-1]
        return Mixture(self.weights.expand(batch), self.components.expand((*batch, count)))

    def _draw_law(self, inner: Law, logs: Any, batch: Any) -> Any:
        rank, count = len(inner.event_shape), shape(logs)[-1]

        def draw(size: Any, key: Any, dtype: Any) -> Any:
            wide = broadcast_to(logs, (*batch, count))
            chosen = Categorical(logits=wide).law().draw(size, fold_in(key, 0), dtype)  # type: ignore[misc]
            drawn = inner.draw((*size, count), fold_in(key, 1), dtype)  # type: ignore[misc]
            place = _add_axes(expand_dims(astype(chosen, "int64"), axis=-1), rank)
            place = broadcast_to(place, (*size, 1, *inner.event_shape))
            return reshape(take_along_axis(drawn, place, axis=-1 - rank), (*size, *inner.event_shape))

        return draw


def _joint_support(support: Constraint) -> Constraint:
    """Where any of the components, along an axis in front of the event, may lie."""
    outside, rank = support.outside, support.rank
    if outside is None:
        return support
    joint = lambda x: all_of(outside(expand_dims(x, axis=-1 - rank)), axis=-1)  # noqa: E731
    differ = shape(support.low) or shape(support.high)
    return Constraint(support.name, joint, rank, None if differ else support.make_bijector)


def _full(x: Any, law: Law, weights: Any) -> Any:
    """A constant of the components for each of them, beside the weights if numbers alone make it."""
    return broadcast_to(as_value_beside(weights, x), (*law.batch_shape, *law.event_shape))


def _add_axes(x: Any, count: int) -> Any:
    return reshape(x, (*shape(x), *(1,) * count))


@final
@value_object
class TransformedDistribution(Distribution):
    """The distribution of bijector(x) for a draw x of the base; a sequence of bijectors is a chain.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> d = D.TransformedDistribution(D.Normal(0.0, 1.0), D.Exp())
    >>> bool(abs(d.log_prob(2.0) - D.LogNormal(0.0, 1.0).log_prob(2.0)) < 1e-15)
    True
    """

    base: Any
    bijector: Any

    def __post_init__(self) -> None:
        check_distribution("TransformedDistribution", self.base)
        if not isinstance(self.bijector, Bijector):
            set_fields(self, {"bijector": Chain(self.bijector)})
        if self.bijector.rank > len(self.base.batch_shape) + len(self.base.event_shape):
            raise ShapeError(
                f"TransformedDistribution: the bijector maps arrays of {self.bijector.rank} axes, the base has "
                f"batches {self.base.batch_shape} of events {self.base.event_shape}."
            )

    def law(self) -> Law:
        # a bijector of vectors takes in batch axes of a base of numbers
        rank = self.bijector.rank
        spare = max(rank - len(self.base.event_shape), 0)
        base = (Independent(self.base, spare) if spare else self.base).law()
        over = len(base.event_shape) - rank
        # parameters of the bijector may have batches of their own: a draw of the base for each
        image = self.bijector.forward_shape((*base.batch_shape, *base.event_shape))
        wide = self.bijector.inverse_shape(image)
        cut = len(wide) - len(base.event_shape)
        if wide[cut:] != base.event_shape:
            raise ShapeError(
                f"TransformedDistribution: the bijector makes of events {base.event_shape} larger ones, "
                f"{image[cut:]}, which are no image of them."
            )

        def log_density(y: Any) -> Any:
            x = self.bijector.inverse(y)
            inner = base.log_density(x) if base.support.outside is None else self._safe(base, x)
            return inner - sum_last(self.bijector.log_det(x), over)

        is_number = not base.event_shape and not image[cut:] and base.moves
        return Law(
            support=self._support(base, image[cut:]),
            log_density=log_density,
            draw=None if base.draw is None else (
                lambda size, key, dtype: self.bijector.forward(base.draw(size, key, dtype))  # type: ignore[misc]
            ),
            moves=base.moves,
            inside=self._image_inside(base),
            batch_shape=image[:cut],
            event_shape=image[cut:],
            cdf=self._cdf if is_number and base.cdf is not None else None,
            icdf=self._icdf if is_number and base.icdf is not None else None,
        )  # fmt: skip

    def _expand_to(self, batch: Any) -> Any:
        base = self.base.event_shape
        spare = max(self.bijector.rank - len(base), 0)
        taken = self.base.batch_shape[len(self.base.batch_shape) - spare :]
        return TransformedDistribution(self.base.expand((*batch, *taken)), self.bijector)

    def _image_inside(self, base: Law) -> Any:
        wide = np.broadcast_shapes(shape(base.inside), base.event_shape)
        return self.bijector.forward(broadcast_to(base.inside, wide))

    def _cdf(self, y: Any) -> Any:
        base, rises = self.base.law(), self.bijector.direction > 0
        ends = [self.bijector.forward(as_value_beside(y, end)) for end in (base.support.low, base.support.high)]
        below, above = y < minimum(*ends), y >= maximum(*ends)
        inside = astype(as_value_beside(y, self._image_inside(base)), spec_of(y).dtype)
        found = self.base.cdf(self.bijector.inverse(where(below | above, inside, y)))
        return where(below, 0.0, where(above, 1.0, where(rises, found, 1.0 - found)))

    def _icdf(self, p: Any) -> Any:
        return self.bijector.forward(self.base.icdf(where(self.bijector.direction > 0, p, 1.0 - p)))

    def _safe(self, base: Law, x: Any) -> Any:
        shell = Independent(self.base, len(base.event_shape) - len(self.base.event_shape))
        return shell.log_prob(x)

    def _support(self, base: Law, event_shape: Any) -> Constraint:
        """Where the inverse is a finite number and lies in the support of the base."""
        rank, onto_base = len(event_shape), base.support.make_bijector
        is_thin = math.prod(event_shape) != math.prod(base.event_shape)

        def outside(y: Any) -> Any:
            x = self.bijector.inverse(y)
            # the inverse is NaN outside of the image, infinite at its ends; a NaN that is given goes through
            broken = _any_of_point(x - x != 0, len(base.event_shape)) & logical_not(_any_of_point(y != y, rank))
            if is_thin:  # a surface in a larger space, which the inverse does not see
                gap = magnitude(self.bijector.forward(x) - y)
                broken = broken | _any_of_point(gap > 1e4 * np.finfo(spec_of(gap).dtype).eps * (1.0 + gap), rank)
            return broken if base.support.outside is None else broken | base.support.outside(x)

        onto = None if onto_base is None else lambda: Chain((onto_base(), self.bijector))
        return Constraint("the image of the support of the base", outside, rank, onto)


def _any_of_point(x: Any, rank: int) -> Any:
    return any_of(x, axis=tuple(range(-rank, 0))) if rank else x


@final
@value_object
class CumulativeDistribution(Bijector):
    """The distribution function of a distribution of numbers: onto the numbers between 0 and 1, and by `Inverse` from
    them onto its support.

    >>> import pullback as pb
    >>> D = pb.distributions
    >>> float(D.CumulativeDistribution(D.Exponential(1.0)).inverse(0.0))
    0.0
    """

    distribution: Any

    def __post_init__(self) -> None:
        check_distribution("CumulativeDistribution", self.distribution)

    def forward(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_det(self, x: Any) -> Any:
        return self.distribution.log_prob(x)

    def forward_shape(self, shape: Any) -> Any:
        return np.broadcast_shapes(shape, self.distribution.batch_shape)

    inverse_shape = forward_shape

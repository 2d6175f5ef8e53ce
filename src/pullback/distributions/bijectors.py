"""Bijectors: smooth invertible maps with the logarithm of their determinant, as values that are trees.

>>> import pullback as pb
>>> from pullback.distributions import Exp
>>> y = Exp().forward(2.0)
>>> float(Exp().inverse(y)), float(Exp().log_det(2.0))
(2.0, 2.0)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, final

from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import exp, expm1, log, sigmoid, softplus, tanh
from ..ops.elementwise.transcendental import atanh
from ..ops.reduce.reductions import sum as total
from ..ops.special.entropy import logit
from .value_objects import as_parameter, set_fields, value_object

Shape = tuple[int, ...]


class Bijector(ABC):
    """An invertible map y = forward(x). `rank` is how many of the last axes are one point: 0 for a map of numbers."""

    rank: int = 0

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The image of x."""

    @abstractmethod
    def inverse(self, y: Any) -> Any:
        """The point whose image is y."""

    @abstractmethod
    def log_det(self, x: Any) -> Any:
        """log |det dy/dx| at x, one number for each point."""

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of the image of an array of this shape."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of what is mapped to an array of this shape."""
        return shape


@final
@value_object
class Identity(Bijector):
    """y = x.

    >>> from pullback.distributions import Identity
    >>> Identity().forward(2.0)
    2.0
    """

    def forward(self, x: Any) -> Any:
        return x

    def inverse(self, y: Any) -> Any:
        return y

    def log_det(self, x: Any) -> Any:
        return as_value(x) * 0.0


@final
@value_object
class Affine(Bijector):
    """y = loc + scale x, element by element; the scale may be negative, not zero.

    >>> from pullback.distributions import Affine
    >>> float(Affine(1.0, 2.0).forward(3.0))
    7.0
    """

    loc: Any
    scale: Any = 1.0

    def __post_init__(self) -> None:
        set_fields(self, {"loc": as_parameter(self.loc), "scale": as_parameter(self.scale)})

    def forward(self, x: Any) -> Any:
        return self.loc + self.scale * as_value(x)

    def inverse(self, y: Any) -> Any:
        return (as_value(y) - self.loc) / self.scale

    def log_det(self, x: Any) -> Any:
        return log(magnitude(self.scale)) + as_value(x) * 0.0


@final
@value_object
class Exp(Bijector):
    """y = exp(x), onto the positive numbers.

    >>> from pullback.distributions import Exp
    >>> float(Exp().inverse(1.0))
    0.0
    """

    def forward(self, x: Any) -> Any:
        return exp(x)

    def inverse(self, y: Any) -> Any:
        return log(y)

    def log_det(self, x: Any) -> Any:
        return as_value(x)


@final
@value_object
class Softplus(Bijector):
    """y = log(1 + exp(x)), onto the positive numbers; far out it is x itself.

    >>> from pullback.distributions import Softplus
    >>> round(float(Softplus().inverse(Softplus().forward(0.3))), 12)
    0.3
    """

    def forward(self, x: Any) -> Any:
        return softplus(x)

    def inverse(self, y: Any) -> Any:
        # log(exp(y) - 1), without the overflow
        return y + log(-expm1(-as_value(y)))

    def log_det(self, x: Any) -> Any:
        return -softplus(-as_value(x))


@final
@value_object
class Sigmoid(Bijector):
    """y = 1 / (1 + exp(-x)), onto the numbers between 0 and 1.

    >>> from pullback.distributions import Sigmoid
    >>> float(Sigmoid().forward(0.0))
    0.5
    """

    def forward(self, x: Any) -> Any:
        return sigmoid(x)

    def inverse(self, y: Any) -> Any:
        return logit(y)

    def log_det(self, x: Any) -> Any:
        return -softplus(x) - softplus(-as_value(x))


@final
@value_object
class Tanh(Bijector):
    """y = tanh(x), onto the numbers between -1 and 1.

    >>> from pullback.distributions import Tanh
    >>> float(Tanh().forward(0.0))
    0.0
    """

    def forward(self, x: Any) -> Any:
        return tanh(x)

    def inverse(self, y: Any) -> Any:
        return atanh(y)

    def log_det(self, x: Any) -> Any:
        # log(1 - tanh^2 x) = 2 (log 2 - x - softplus(-2 x)), which keeps its digits where tanh is 1
        return 2.0 * (math.log(2.0) - as_value(x) - softplus(-2.0 * as_value(x)))


@final
@value_object
class Power(Bijector):
    """y = x ** exponent on the positive numbers; the exponent is not zero.

    >>> from pullback.distributions import Power
    >>> round(float(Power(2.0).inverse(9.0)), 12)
    3.0
    """

    exponent: Any

    def __post_init__(self) -> None:
        set_fields(self, {"exponent": as_parameter(self.exponent)})

    def forward(self, x: Any) -> Any:
        return exp(self.exponent * log(x))

    def inverse(self, y: Any) -> Any:
        return exp(log(y) / self.exponent)

    def log_det(self, x: Any) -> Any:
        return log(magnitude(self.exponent)) + (self.exponent - 1.0) * log(x)


@final
@value_object
class Inverse(Bijector):
    """A bijector run the other way.

    >>> from pullback.distributions import Exp, Inverse
    >>> float(Inverse(Exp()).forward(1.0))
    0.0
    """

    bijector: Any

    @property
    def rank(self) -> int:  # type: ignore[override]
        return int(self.bijector.rank)

    def forward(self, x: Any) -> Any:
        return self.bijector.inverse(x)

    def inverse(self, y: Any) -> Any:
        return self.bijector.forward(y)

    def log_det(self, x: Any) -> Any:
        return -self.bijector.log_det(self.bijector.inverse(x))

    def forward_shape(self, shape: Shape) -> Shape:
        found: Shape = self.bijector.inverse_shape(shape)
        return found

    def inverse_shape(self, shape: Shape) -> Shape:
        found: Shape = self.bijector.forward_shape(shape)
        return found


@final
@value_object
class Chain(Bijector):
    """Bijectors one after the other, the first of them first.

    >>> from pullback.distributions import Affine, Chain, Exp
    >>> float(Chain((Exp(), Affine(1.0, 2.0))).forward(0.0))
    3.0
    """

    bijectors: Any

    def __post_init__(self) -> None:
        if not all(isinstance(b, Bijector) for b in self.bijectors):
            raise ArgumentError(f"Chain: wants a sequence of bijectors, got {self.bijectors!r}.")
        set_fields(self, {"bijectors": tuple(self.bijectors)})

    @property
    def rank(self) -> int:  # type: ignore[override]
        return max((b.rank for b in self.bijectors), default=0)

    def forward(self, x: Any) -> Any:
        for bijector in self.bijectors:
            x = bijector.forward(x)
        return x

    def inverse(self, y: Any) -> Any:
        for bijector in reversed(self.bijectors):
            y = bijector.inverse(y)
        return y

    def log_det(self, x: Any) -> Any:
        found: Any = None
        for bijector in self.bijectors:
            share = sum_last(bijector.log_det(x), self.rank - bijector.rank)
            found, x = share if found is None else found + share, bijector.forward(x)
        return as_value(x) * 0.0 if found is None else found

    def forward_shape(self, shape: Shape) -> Shape:
        for bijector in self.bijectors:
            shape = bijector.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for bijector in reversed(self.bijectors):
            shape = bijector.inverse_shape(shape)
        return shape


def sum_last(x: Any, count: int) -> Any:
    """x summed over its last axes, as many as are asked for."""
    rank = len(spec_of(x).shape)
    return total(x, axis=tuple(range(rank - count, rank))) if count else x

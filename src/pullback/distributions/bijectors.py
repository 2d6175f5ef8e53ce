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
from collections.abc import Iterable
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import short_repr
from ..arrays.spec import spec_of
from ..errors import ArgumentError, ShapeError
from ..ops.axes import as_shape
from ..ops.concrete import strip_derivatives
from ..ops.dispatch import as_value
from ..ops.dispatch import shape as shape_of
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import exp, expm1, log, sigmoid, sign, softplus, tanh
from ..ops.elementwise.transcendental import atanh
from ..ops.reduce.reductions import sum as total
from ..ops.shape.reshaping import astype, broadcast_to, reshape
from ..ops.value_objects import as_parameter, set_fields, static, value_object
from ..public_names import explain_missing_attributes
from .ratios import logit

Shape = tuple[int, ...]


class Bijector(ABC):
    """An invertible map y = forward(x). `rank` is how many of the last axes are one point: 0 for a map of numbers;
    `image_rank` is that of the image, where it differs.
    """

    rank: int = 0

    @property
    def image_rank(self) -> int:
        """How many of the last axes are one point of the image."""
        return self.rank

    @property
    def direction(self) -> Any:
        """1 where a map of numbers rises, -1 where it falls; None for a map of vectors."""
        return None if self.rank else 1.0

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


explain_missing_attributes(Bijector, "Bijector", "inv log_abs_det_jacobian with_cache")


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
        return everywhere(0.0, x)


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
        _check_nonzero("Affine", "scale", self.scale)

    def forward(self, x: Any) -> Any:
        return self.loc + self.scale * as_value(x)

    def inverse(self, y: Any) -> Any:
        return (as_value(y) - self.loc) / self.scale

    def log_det(self, x: Any) -> Any:
        return everywhere(_log_magnitude(self.scale), x)

    @property
    def direction(self) -> Any:
        return sign(self.scale)

    def forward_shape(self, shape: Shape) -> Shape:
        return np.broadcast_shapes(shape, shape_of(self.loc), shape_of(self.scale))

    inverse_shape = forward_shape


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
        _check_nonzero("Power", "exponent", self.exponent)

    def forward(self, x: Any) -> Any:
        return exp(self.exponent * log(x))

    def inverse(self, y: Any) -> Any:
        return exp(log(y) / self.exponent)

    def log_det(self, x: Any) -> Any:
        return _log_magnitude(self.exponent) + (self.exponent - 1.0) * log(x)

    @property
    def direction(self) -> Any:
        return sign(self.exponent)

    def forward_shape(self, shape: Shape) -> Shape:
        return np.broadcast_shapes(shape, shape_of(self.exponent))

    inverse_shape = forward_shape


@final
@value_object
class Reshape(Bijector):
    """Points of one shape as points of another, of as many numbers.

    >>> import numpy as np
    >>> from pullback.distributions import Reshape
    >>> Reshape((4,), (2, 2)).forward(np.arange(4.0)).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """

    in_shape: Any = static()
    out_shape: Any = static()

    def __post_init__(self) -> None:
        shapes = {name: as_shape(getattr(self, name), "Reshape") for name in ("in_shape", "out_shape")}
        set_fields(self, shapes)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(f"Reshape: shapes {self.in_shape} and {self.out_shape} have different sizes.")

    @property
    def rank(self) -> int:  # type: ignore[override]
        return len(self.in_shape)

    @property
    def image_rank(self) -> int:
        return len(self.out_shape)

    def forward(self, x: Any) -> Any:
        return reshape(as_value(x), self.forward_shape(shape_of(x)))

    def inverse(self, y: Any) -> Any:
        return reshape(as_value(y), self.inverse_shape(shape_of(y)))

    def log_det(self, x: Any) -> Any:
        return sum_last(everywhere(0.0, x), self.rank)

    def forward_shape(self, shape: Shape) -> Shape:
        return _replace_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return _replace_end(shape, self.out_shape, self.in_shape)


def _replace_end(shape: Shape, old: Shape, new: Shape) -> Shape:
    cut = len(shape) - len(old)
    if cut < 0 or shape[cut:] != old:
        raise ShapeError(f"Reshape: wants arrays whose shape ends in {old}, got {shape}.")
    return (*shape[:cut], *new)


@final
@value_object
class Inverse(Bijector):
    """A bijector run the other way.

    >>> from pullback.distributions import Exp, Inverse
    >>> float(Inverse(Exp()).forward(1.0))
    0.0
    """

    bijector: Any

    def __post_init__(self) -> None:
        check_bijectors("Inverse", self.bijector)

    @property
    def rank(self) -> int:  # type: ignore[override]
        return int(self.bijector.image_rank)

    @property
    def image_rank(self) -> int:
        return int(self.bijector.rank)

    @property
    def direction(self) -> Any:
        return self.bijector.direction

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
        if not isinstance(self.bijectors, Iterable):
            raise ArgumentError(f"Chain: wants a sequence of bijectors, got {short_repr(self.bijectors)}.")
        set_fields(self, {"bijectors": tuple(self.bijectors)})
        check_bijectors("Chain", *self.bijectors)

    @property
    def rank(self) -> int:  # type: ignore[override]
        # what goes in is a point of each bijector, and so is what it makes of it
        rank = 0
        for b in reversed(self.bijectors):
            rank = max(rank + b.rank - b.image_rank, b.rank)
        return rank

    @property
    def image_rank(self) -> int:
        return self.rank + sum(int(b.image_rank) - int(b.rank) for b in self.bijectors)

    @property
    def direction(self) -> Any:
        return None if self.rank else math.prod(b.direction for b in self.bijectors)

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
        rank = self.rank
        for bijector in self.bijectors:
            share = sum_last(bijector.log_det(x), rank - bijector.rank)
            found, x = share if found is None else found + share, bijector.forward(x)
            rank += bijector.image_rank - bijector.rank
        return everywhere(0.0, x) if found is None else found

    def forward_shape(self, shape: Shape) -> Shape:
        for bijector in self.bijectors:
            shape = bijector.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for bijector in reversed(self.bijectors):
            shape = bijector.inverse_shape(shape)
        return shape


def check_bijectors(what: str, *candidates: Any) -> None:
    """Refuse what is no bijector."""
    for candidate in candidates:
        if not isinstance(candidate, Bijector):
            raise ArgumentError(f"{what}: wants a bijector, got {short_repr(candidate)}.")


def _check_nonzero(what: str, name: str, value: Any) -> None:
    """Refuse a zero, where the elements are known: the map would have no inverse."""
    known = strip_derivatives(value)
    if isinstance(known, np.ndarray | int | float) and not np.all(known):
        raise ArgumentError(f"{what}: {name} must not be 0: the map would have no inverse.")


def everywhere(constant: Any, x: Any) -> Any:
    """A constant at each point, in the dtype of the points if it is a Python number."""
    found = spec_of(as_value(x))
    wide = broadcast_to(constant, np.broadcast_shapes(shape_of(constant), found.shape))
    return astype(wide, found.dtype) if isinstance(constant, float) and found.inexact else wide


def _log_magnitude(scale: Any) -> Any:
    """log |scale|; of a Python number it is one too, so that it does not widen a dtype."""
    return math.log(abs(scale)) if isinstance(scale, int | float) else log(magnitude(scale))


def sum_last(x: Any, count: int) -> Any:
    """x summed over its last axes, as many as are asked for."""
    rank = len(spec_of(x).shape)
    return total(x, axis=tuple(range(rank - count, rank))) if count else x

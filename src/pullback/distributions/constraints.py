"""Constraints: what a parameter may be and where a distribution lives, and the bijector from all real numbers to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.argument_checks import short_repr
from ..arrays.spec import spec_of
from ..errors import ArgumentError, UnsupportedFunction
from ..ops.dispatch import as_value
from ..ops.elementwise.pointwise import abs as magnitude
from ..ops.elementwise.pointwise import logical_not, logical_or
from ..ops.elementwise.rounding import rint
from ..ops.reduce.reductions import all as all_of
from ..ops.reduce.reductions import any as any_of
from ..ops.reduce.reductions import sum as total
from ..ops.shape.arrange import diagonal, triu
from ..ops.shape.reshaping import matrix_transpose
from ..public_names import explain_missing_names
from .bijectors import Affine, Bijector, Chain, Exp, Identity, Sigmoid
from .matrix_bijectors import CholeskyProduct, CorrelationCholesky
from .vector_bijectors import FillTriangular, StickBreaking


@final
@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """A set of numbers, vectors or matrices. `outside(x)` is true where x is certainly not in it; a NaN is not
    outside, so that it goes on through a density. `rank` is how many of the last axes are one point.
    """

    name: str
    outside: Callable[[Any], Any] | None
    rank: int = 0
    make_bijector: Callable[[], Bijector] | None = None
    low: Any = -math.inf
    high: Any = math.inf

    def check(self, x: Any) -> Any:
        """Whether x lies in the set, one truth value for each point; a NaN does not.

        >>> from pullback.distributions import constraints
        >>> bool(constraints.positive.check(2.0)), bool(constraints.simplex.check([0.5, 0.6]))
        (True, False)
        """
        x = as_value(x)
        broken = x != x
        if self.rank:
            broken = any_of(broken, axis=tuple(range(-self.rank, 0)))
        return logical_not(broken if self.outside is None else logical_or(broken, self.outside(x)))


def biject_to(constraint: Constraint) -> Bijector:
    """The bijector from all real numbers (or vectors of them) onto the set.

    >>> from pullback.distributions import biject_to, constraints
    >>> float(biject_to(constraints.positive).forward(0.0))
    1.0
    """
    if not isinstance(constraint, Constraint):
        raise ArgumentError(
            f"biject_to: wants a constraint, got {short_repr(constraint)}.\n"
            "  Those known are in pb.distributions.constraints; d.support is that of a distribution d."
        )
    if constraint.make_bijector is None:
        raise UnsupportedFunction(f"biject_to: no smooth map of the real numbers goes onto {constraint.name}.")
    return constraint.make_bijector()


def interval(low: Any = -math.inf, high: Any = math.inf, is_open: bool = False, name: str = "") -> Constraint:
    """The numbers from low to high, each of them a number or an array; `is_open` leaves the ends out.

    >>> from pullback.distributions import constraints
    >>> constraints.interval(0.0, 2.0).check([1.0, 2.0, 3.0]).tolist()
    [True, True, False]
    """
    bounded = [_is_finite(low), _is_finite(high)]

    def outside(x: Any) -> Any:
        below = (x <= low if is_open else x < low) if bounded[0] else None
        above = (x >= high if is_open else x > high) if bounded[1] else None
        if below is None or above is None:
            return above if below is None else below
        return logical_or(below, above)

    return Constraint(
        name or f"an interval from {low} to {high}",
        outside if any(bounded) else None,
        make_bijector=lambda: _onto_interval(low, high, *bounded),
        low=low,
        high=high,
    )


def _is_finite(bound: Any) -> bool:
    """Whether there is a bound: infinite ones are Python numbers."""
    return not (isinstance(bound, float) and math.isinf(bound))


def _onto_interval(low: Any, high: Any, from_low: bool, to_high: bool) -> Bijector:
    if from_low and to_high:
        is_unit = all(isinstance(end, int | float) for end in (low, high)) and (low, high) == (0, 1)
        return Sigmoid() if is_unit else Chain((Sigmoid(), Affine(low, high - low)))
    if from_low:
        return Exp() if isinstance(low, float) and low == 0.0 else Chain((Exp(), Affine(low, 1.0)))
    return Chain((Exp(), Affine(high, -1.0))) if to_high else Identity()


def integer_interval(low: Any = 0, high: Any = math.inf, name: str = "") -> Constraint:
    """The integers from low to high."""
    numbers = interval(low, high)

    def outside(x: Any) -> Any:
        broken = magnitude(x - rint(x)) > 0
        return broken if numbers.outside is None else logical_or(broken, numbers.outside(x))

    return Constraint(name or f"integers from {low} to {high}", outside, low=low, high=high)


real = interval(name="real numbers")
positive = interval(0.0, is_open=True, name="positive numbers")
nonnegative = interval(0.0, name="numbers not below 0")
unit_interval = interval(0.0, 1.0, name="numbers from 0 to 1")
boolean = integer_interval(0, 1, "0 or 1")
nonnegative_integer = integer_interval(0, name="integers not below 0")
real_vector = Constraint("vectors of real numbers", None, 1, Identity)


def _tolerance(x: Any) -> float:
    found = spec_of(x)
    return 64.0 * float(np.finfo(found.dtype if found.inexact else np.float64).eps) * max(found.shape[-1], 1)


def _outside_simplex(x: Any) -> Any:
    return logical_or(any_of(x < 0, axis=-1), magnitude(total(x, axis=-1) - 1.0) > _tolerance(x))


def _outside_one_hot(x: Any) -> Any:
    entries = any_of(logical_not(logical_or(x == 0, x == 1)), axis=-1)
    return logical_or(entries, total(x, axis=-1) != 1)


def _outside_lower_cholesky(x: Any) -> Any:
    upper = any_of(triu(x, 1) != 0, axis=(-2, -1))
    return logical_or(upper, logical_not(all_of(diagonal(x, axis1=-2, axis2=-1) > 0, axis=-1)))


def _outside_correlation_cholesky(x: Any) -> Any:
    gap = magnitude(total(x * x, axis=-1) - 1.0) > _tolerance(x)
    return logical_or(_outside_lower_cholesky(x), any_of(gap, axis=-1))


def _outside_symmetric(x: Any) -> Any:
    """Only symmetry is judged here, as far as rounding goes: the Cholesky factor says whether x is definite."""
    gap = magnitude(x - matrix_transpose(x))
    return any_of(gap > 1e3 * _tolerance(x) * (magnitude(x) + magnitude(matrix_transpose(x))), axis=(-2, -1))


simplex = Constraint("vectors of shares that sum to 1", _outside_simplex, 1, StickBreaking)
interior_simplex = Constraint(
    "vectors of positive shares that sum to 1",
    lambda x: logical_or(_outside_simplex(x), any_of(x == 0, axis=-1)),
    1,
    StickBreaking,
)
one_hot = Constraint("one-hot vectors", _outside_one_hot, 1)
lower_cholesky = Constraint("lower triangles with a positive diagonal", _outside_lower_cholesky, 2, FillTriangular)
positive_definite = Constraint(
    "symmetric positive definite matrices", _outside_symmetric, 2, lambda: Chain((FillTriangular(), CholeskyProduct()))
)
correlation_cholesky = Constraint(
    "Cholesky factors of correlation matrices", _outside_correlation_cholesky, 2, CorrelationCholesky
)
real_matrix = Constraint("matrices of real numbers", None, 2)


def count_vectors(count: Any) -> Constraint:
    """Vectors of integers not below 0 that sum to a count."""

    def outside(x: Any) -> Any:
        broken = logical_or(x < 0, magnitude(x - rint(x)) > 0)
        return logical_or(any_of(broken, axis=-1), total(x, axis=-1) != count)

    return Constraint(f"counts that sum to {count}", outside, 1)


def stack_of(constraint: Constraint, count: int) -> Constraint:
    """Arrays whose last axes, in addition, are part of one point: all of it must lie in the set."""
    if not count:
        return constraint
    axes = tuple(range(-count, 0))
    outside = constraint.outside
    moved = None if outside is None else lambda x: any_of(outside(x), axis=axes)
    return Constraint(constraint.name, moved, constraint.rank + count, constraint.make_bijector)


explain_missing_names(__name__, "distributions.constraints")

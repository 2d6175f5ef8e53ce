"""Step sizes as objects: adapted to the error by a PID controller, or fixed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..arrays.spec import spec_of
from ..errors import ArgumentError
from ..implicit.option_checks import check_positive_count, check_share, check_tolerance
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions
from .methods import Attempt, Slope, Tolerance

#: Errors below this share of the tolerance count as this much: the next step grows as far as it may anyway.
_LEAST_RATIO = 1e-10


class StepControl(ABC):
    """How long steps are."""

    @abstractmethod
    def first_step(self, f: Slope, t: Any, y: Any, slope: Any, span: Any, order: int, tolerance: Tolerance) -> Any:
        """The first step to try; it has the sign of the span."""

    @abstractmethod
    def is_last(self, steps: Any, h: Any, left: Any) -> Any:
        """Whether a step of h reaches the end, which is `left` away."""

    @abstractmethod
    def measure(self, attempt: Attempt, y: Any, tolerance: Tolerance) -> Any:
        """The error of a step in units of the tolerance: above 1 it is rejected. Not finite if the state is not."""

    @abstractmethod
    def adapt(self, ratios: tuple[Any, Any, Any], order: int) -> Any:
        """The factor from this step to the next one, from the errors of this one and the last two accepted ones."""


@final
@dataclass(frozen=True)
class PID(StepControl):
    """The step is multiplied by `safety` times a product of powers of the last errors, within [`shrink`, `grow`]. The
    defaults are a PI controller (Hairer and Wanner's for a pair of order 5); `PID(0.0, 1.0)` looks at the last error
    alone.

    >>> import pullback as pb
    >>> solution = pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 10.0), control=pb.ode.PID(0.0, 1.0, safety=0.8))
    >>> bool(abs(solution.y - 4.539993e-5) < 1e-8)
    True
    """

    proportional: float = 0.2
    integral: float = 0.65
    derivative: float = 0.0
    safety: float = 0.9
    shrink: float = 0.2
    grow: float = 10.0
    first: float | None = None

    def __post_init__(self) -> None:
        check_share(self.safety, "PID: safety")
        check_share(self.shrink, "PID: shrink")
        if self.first is not None:
            check_tolerance(self.first, "PID: first")
        if check_tolerance(self.grow, "PID: grow") < 1:
            raise ArgumentError(f"PID: grow must be at least 1, got {self.grow!r}.")
        if not self.proportional + self.integral + self.derivative > 0:
            raise ArgumentError("PID: the coefficients must have a positive sum, or steps would grow with their error.")

    def first_step(self, f: Slope, t: Any, y: Any, slope: Any, span: Any, order: int, tolerance: Tolerance) -> Any:
        """As Hairer, Norsett and Wanner do (II.4): so long that an explicit Euler step errs by about the tolerance."""
        sign, longest = pointwise.sign(span), pointwise.abs(span)
        if self.first is not None:
            return sign * pointwise.minimum(longest, self.first)
        size, speed = tolerance.measure(y, y, y), tolerance.measure(slope, y, y)
        is_tiny = pointwise.logical_or(pointwise.less(size, 1e-5), pointwise.less(speed, 1e-5))
        guess = pointwise.where(is_tiny, 1e-6, size / pointwise.where(is_tiny, 1.0, speed) * 0.01)
        guess = pointwise.minimum(guess, longest)
        bend = tolerance.measure(f(t + sign * guess, y + slope * (sign * guess)) - slope, y, y)
        curved = pointwise.maximum(speed, bend / pointwise.where(pointwise.greater(guess, 0), guess, 1.0))
        is_flat = pointwise.less_equal(curved, 1e-15)
        power = (0.01 / pointwise.where(is_flat, 1.0, curved)) ** (1.0 / order)
        found = pointwise.where(is_flat, pointwise.maximum(guess * 1e-3, 1e-6), power)
        found = pointwise.minimum(pointwise.minimum(guess * 100.0, found), longest)
        # where the slope is not finite at once, the loop finds out with a step of any length
        return sign * pointwise.where(pointwise.isfinite(found), found, guess)

    def is_last(self, steps: Any, h: Any, left: Any) -> Any:
        slack = 1 - 64 * float(np.finfo(spec_of(h).dtype).eps)
        return pointwise.greater_equal(pointwise.abs(h), pointwise.abs(left) * slack)

    def measure(self, attempt: Attempt, y: Any, tolerance: Tolerance) -> Any:
        return tolerance.measure(attempt.error, y, attempt.y)

    def adapt(self, ratios: tuple[Any, Any, Any], order: int) -> Any:
        # factor = safety e_n^-b1 e_(n-1)^-b2 e_(n-2)^-b3 for accepted steps; after a rejection e_n^(-1/order) alone
        now, before, older = (pointwise.maximum(ratio, _LEAST_RATIO) for ratio in ratios)
        p, i, d = self.proportional, self.integral, self.derivative
        factor = now ** (-(p + i + d) / order) * before ** ((p + 2 * d) / order)
        if d:
            factor = factor * older ** (-d / order)
        is_rejected = pointwise.greater(now, 1)
        factor = pointwise.where(is_rejected, now ** (-1.0 / order), factor) * self.safety
        return pointwise.minimum(pointwise.maximum(factor, self.shrink), pointwise.where(is_rejected, 1.0, self.grow))


@final
@dataclass(frozen=True)
class FixedSteps(StepControl):
    """So many steps of one length, whatever their error.

    >>> import pullback as pb
    >>> solution = pb.ode.solve(lambda t, y: -y, 1.0, (0.0, 1.0), control=pb.ode.FixedSteps(20))
    >>> solution.report.steps, round(float(solution.y), 7)
    (20, 0.3678794)
    """

    count: int

    def __post_init__(self) -> None:
        check_positive_count(self.count, "FixedSteps: count")

    def first_step(self, f: Slope, t: Any, y: Any, slope: Any, span: Any, order: int, tolerance: Tolerance) -> Any:
        return span / self.count

    def is_last(self, steps: Any, h: Any, left: Any) -> Any:
        return pointwise.greater_equal(steps + 1, self.count)

    def measure(self, attempt: Attempt, y: Any, tolerance: Tolerance) -> Any:
        return pointwise.where(reductions.all(pointwise.isfinite(attempt.y)), 1.0, np.nan)

    def adapt(self, ratios: tuple[Any, Any, Any], order: int) -> Any:
        return 1.0

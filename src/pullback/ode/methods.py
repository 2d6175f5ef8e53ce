"""Methods of one step: what a method of integration must be able to do, on vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arrays.spec import spec_of
from ..implicit.vector_layout import VectorLayout
from ..ops.elementwise import pointwise
from ..ops.reduce import reductions

#: dy/dt at (t, y), both without their parameters.
Slope = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Tolerance:
    """Errors are measured as a root mean square, relative to atol + rtol |y|."""

    rtol: float
    atol: float

    def measure(self, error: Any, y: Any, other: Any) -> Any:
        """An error near two states, in units of the tolerance."""
        # without an atol, numbers that stay zero have no error in no units
        least = max(self.atol, float(np.finfo(spec_of(y).dtype).tiny) ** 0.5)
        scale = pointwise.maximum(pointwise.abs(y), pointwise.abs(other)) * self.rtol + least
        # of no numbers there is no mean, and no error
        return pointwise.sqrt(reductions.sum(pointwise.square(error / scale)) / max(spec_of(y).size, 1))


class Outlook(NamedTuple):
    """What a method of variable order says of the next step: the error that this one would have had at the order to
    come, the powers of the step that the errors of this and of the next one go with, and how much it may grow.
    """

    error: Any
    exponent: Any
    next_exponent: Any
    growth: Any


class Attempt(NamedTuple):
    """A step that may yet be rejected: the state at its end, the slope there, and an estimate of the error made."""

    y: Any
    slope: Any
    error: Any
    outlook: Outlook | None = None


class Method(ABC):
    """How one step is taken. `order` is that of the solution, `error_order` that of the solution it is compared with;
    None for a method without an estimate of its error, which takes fixed steps. `evaluations` are those of one step.

    A method of several steps remembers the last ones: what it moves is a vector of more numbers than the state, which
    `begin` makes and `state` reads. `choice` is what an attempt decided besides (its order), and `recall` sets it.
    """

    order: int
    error_order: int | None
    evaluations: int

    def check_state(self, layout: VectorLayout) -> None:
        """Raise unless states of this kind can be moved by the method: most methods take any."""
        return

    #: Whether it solves further equations along with the state as well.
    solves_any = True
    #: Whether there are choices to recall.
    has_choices: bool = False

    def count_numbers(self, size: int) -> int:
        """How many numbers are moved for a state of so many."""
        return size

    def begin(self, t: Any, y: Any) -> Any:
        """What is moved, at the start."""
        return y

    def state(self, y: Any) -> Any:
        """The state in what is moved."""
        return y

    def choice(self, y: Any) -> Any:
        """What was decided for the step from here, an integer."""
        raise NotImplementedError  # only where there are choices

    def recall(self, y: Any, choice: Any) -> Any:
        """The same with a decision made before."""
        return y

    @abstractmethod
    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any, tolerance: Tolerance) -> Attempt:
        """A step from (t, y), where the slope is known, with its error."""

    @abstractmethod
    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        """The same step alone, as it is differentiated."""

    def interpolate(self, f: Slope, t: Any, y: Any, t_next: Any, at: Any) -> Any:
        """The state at a time within the step: by default, that of a step of its own, which has the full order. The
        step may have no length, where a batch goes on for other elements.
        """
        return self.state(self.advance(f, t, y, at))


def combine(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    """The weighted sum of slopes, without those of weight zero; None for no slopes."""
    total = None
    for weight, slope in zip(weights, slopes, strict=False):
        if weight:
            total = slope * weight if total is None else total + slope * weight
    return total


def find_share(at: Any, t: Any, h: Any) -> Any:
    """How far a time lies from t, in units of a step; of 1, for a step of no length."""
    return (at - t) / pointwise.where(pointwise.equal(h, 0), 1.0, h)


def interpolate_cubic(y: Any, slope: Any, y_next: Any, slope_next: Any, h: Any, share: Any) -> Any:
    """Hermite's cubic through both ends of a step, at a share of it in [0, 1]."""
    # y + s h m0 + s^2 (3 d - 2 h m0 - h m1) + s^3 (h m0 + h m1 - 2 d), d = y_next - y
    rise, start, end = y_next - y, slope * h, slope_next * h
    return y + share * (start + share * (3 * rise - 2 * start - end + share * (start + end - 2 * rise)))

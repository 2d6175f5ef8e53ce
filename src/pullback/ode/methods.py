"""Methods of one step: what a method of integration must be able to do, on vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..implicit.vector_layout import VectorLayout

#: dy/dt at (t, y), both without their parameters.
Slope = Callable[[Any, Any], Any]


class Attempt(NamedTuple):
    """A step that may yet be rejected: the state at its end, the slope there, and an estimate of the error made."""

    y: Any
    slope: Any
    error: Any


class Method(ABC):
    """How one step is taken. `order` is that of the solution, `error_order` that of the solution it is compared with;
    None for a method without an estimate of its error, which takes fixed steps. `evaluations` are those of one step.
    """

    order: int
    error_order: int | None
    evaluations: int

    def check_state(self, layout: VectorLayout) -> None:
        """Raise unless states of this kind can be moved by the method: most methods take any."""
        return

    @abstractmethod
    def attempt(self, f: Slope, t: Any, y: Any, slope: Any, t_next: Any) -> Attempt:
        """A step from (t, y), where the slope is known, with its error."""

    @abstractmethod
    def advance(self, f: Slope, t: Any, y: Any, t_next: Any) -> Any:
        """The same step alone, as it is differentiated."""

    def interpolate(self, f: Slope, t: Any, y: Any, t_next: Any, at: Any) -> Any:
        """The state at a time within the step: by default, that of a step of its own, which has the full order."""
        return self.advance(f, t, y, at)


def combine(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    """The weighted sum of slopes, without those of weight zero; None for no slopes."""
    total = None
    for weight, slope in zip(weights, slopes, strict=False):
        if weight:
            total = slope * weight if total is None else total + slope * weight
    return total


def interpolate_cubic(y: Any, slope: Any, y_next: Any, slope_next: Any, h: Any, share: Any) -> Any:
    """Hermite's cubic through both ends of a step, at a share of it in [0, 1]."""
    # y + s h m0 + s^2 (3 d - 2 h m0 - h m1) + s^3 (h m0 + h m1 - 2 d), d = y_next - y
    rise, start, end = y_next - y, slope * h, slope_next * h
    return y + share * (start + share * (3 * rise - 2 * start - end + share * (start + end - 2 * rise)))

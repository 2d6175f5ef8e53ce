"""A problem on vectors: the function, the method and the options that all its derivatives share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from .methods import Method, Slope
from .step_control import StepControl, Tolerance


class Status(IntEnum):
    """Why a solve stopped."""

    DONE = 0
    TOO_MANY_STEPS = 1
    STEP_UNDERFLOW = 2
    NOT_FINITE = 3
    OUTSIDE = 4


class Outcome(NamedTuple):
    """What the loop leaves: the state at the end, or one row for each time to save, and how it came about. The first
    `counts[0] + 1` entries of `grid` are the times of accepted steps; `states`, where they are saved, the states there;
    `places` says in which step each saved time lies. `counts` are steps, rejected steps and the `Status`, `numbers` the
    time reached and the largest error of an accepted step, in units of the tolerance.
    """

    y: Any
    grid: Any
    states: Any
    places: Any
    counts: Any
    numbers: Any


@dataclass(frozen=True, eq=False)
class Problem:
    """dy/dt = function(t, y, *arguments) on vectors of a dtype, and how it is solved. With `has_times` the states at
    given times are wanted, not that at the end; with `saves_states` those of all accepted steps are kept.
    """

    function: Callable[..., Any]
    method: Method
    control: StepControl
    tolerance: Tolerance
    max_steps: int
    has_times: bool
    saves_states: bool
    strict: bool
    size: int
    dtype: np.dtype[Any]

    def slope(self, arguments: tuple[Any, ...]) -> Slope:
        """The function with its arguments filled in."""
        return lambda t, y: self.function(t, y, *arguments)

    @property
    def error_exponent(self) -> int:
        """The power of the step that the estimated error of a step goes with."""
        return (self.method.order if self.method.error_order is None else self.method.error_order) + 1

"""A problem on vectors: the function, the method and the options that all its derivatives share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ..arrays.trees import map_tree
from ..ops.placement import move
from .events import Condition
from .methods import Method, Slope, Tolerance
from .step_control import StepControl


def integers_as_floats(state: Any) -> Any:
    """A tree whose integers are numbers like 1.0, as they are in a span."""

    def convert(x: Any) -> Any:
        if isinstance(x, (np.ndarray, np.integer)) and x.dtype.kind in "iu":
            return x.astype(float)
        return float(x) if type(x) is int else x

    return map_tree(convert, state)


class Status(IntEnum):
    """Why a solve stopped."""

    DONE = 0
    TOO_MANY_STEPS = 1
    STEP_UNDERFLOW = 2
    NOT_FINITE = 3
    OUTSIDE = 4
    STOPPED = 5
    NO_CONDITION = 6
    LOST = 7


class Outcome(NamedTuple):
    """What the loop leaves: the state at the end, or one row for each time to save, and how it came about. The first
    `counts[0] + 1` entries of `grid` are the times of accepted steps; `states`, where they are saved, the states there,
    or those before the steps in `held`; `places` says in which step each saved time lies, -1 for one that
    was not reached, whose row is the start. `counts` are steps, rejected
    steps and the `Status`, `choices` what the method decided for each step, if anything, `numbers` the time reached and
    the largest error of an accepted step, in units of the tolerance.

    Where there are events, `found` are the times of their crossings, those that were not met being that of the end, and
    after them the time of the end; `hits` how often each was met. y has rows for the times to save, and then for these.
    """

    y: Any
    grid: Any
    states: Any
    places: Any
    counts: Any
    choices: Any
    held: Any
    numbers: Any
    found: Any
    hits: Any


@dataclass(frozen=True, eq=False)
class Problem:
    """dy/dt = function(t, y, *arguments) on vectors of a dtype on a device, and how it is solved. With `has_times` the
    states at given times are wanted, not that at the end; with `saves_states` those of all accepted steps are kept,
    else so many `snapshots`, none if a backward pass needs none. `purpose` says what further equations are solved for.
    With `knows_end` the last argument is what the state at the end begins with, and the solve fails if it is not.
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
    device: str
    events: tuple[Condition, ...] = ()
    snapshots: int = 0
    purpose: str = ""
    knows_end: bool = False

    def slope(self, arguments: tuple[Any, ...]) -> Slope:
        """The function with its arguments filled in."""
        return lambda t, y: self.function(t, y, *arguments)

    def further(self, function: Callable[..., Any], size: int, purpose: str, **changes: Any) -> Problem:
        """Equations that are solved for a derivative of this problem."""
        changes = {"saves_states": False, "knows_end": False} | changes
        return replace(self, function=function, size=size, purpose=purpose, **changes)

    def place(self, constant: Any) -> Any:
        """A constant made on the host, where the state lies."""
        return constant if self.device == "cpu" else move(constant, self.device)

    @property
    def error_exponent(self) -> int:
        """The power of the step that the estimated error of a step goes with."""
        return (self.method.order if self.method.error_order is None else self.method.error_order) + 1

    @property
    def kept_states(self) -> int:
        """How many states the loop keeps."""
        return self.max_steps if self.saves_states else self.snapshots

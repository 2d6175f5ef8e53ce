"""Events: conditions on a solution, the times at which they cross zero, and what is known of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from ..arrays.argument_checks import check_functions, short_repr
from ..errors import ArgumentError
from ..implicit.option_checks import check_positive_count


@final
@dataclass(frozen=True)
class Event:
    """The times at which condition(t, y, *params), one number, crosses zero: upward if `direction` is 1, downward if it
    is -1, either way if it is 0. A `terminal` event ends the solve; of any other, the first `most` crossings are
    recorded. The sign is looked at after each step, so two crossings within one step are not seen.

    >>> import pullback as pb
    >>> landing = pb.ode.Event(lambda t, y: y[0], direction=-1)
    >>> fall = lambda height: pb.ode.solve(lambda t, y: (y[1], -9.81), (height, 0.0), (0.0, 9.0), events=landing).t
    >>> round(float(fall(20.0)), 6), round(float(pb.grad(fall)(20.0)), 6)  # sqrt(2 h / g), 1 / sqrt(2 g h)
    (2.019275, 0.050482)
    """

    condition: Callable[..., Any]
    terminal: bool = True
    direction: int = 0
    most: int = 1

    def __post_init__(self) -> None:
        check_functions("ode.Event", self.condition)
        if isinstance(self.direction, bool) or self.direction not in (-1, 0, 1):
            raise ArgumentError(f"ode.Event: direction must be -1, 0 or 1, got {short_repr(self.direction)}.")
        if not isinstance(self.terminal, bool):
            raise ArgumentError(f"ode.Event: terminal must be True or False, got {short_repr(self.terminal)}.")
        check_positive_count(self.most, "ode.Event: most")
        if self.terminal and self.most != 1:
            raise ArgumentError(f"ode.Event: a terminal event is met once, got most={self.most}.")


class EventRecord(NamedTuple):
    """What was found of an event: how often it was met (`count`), the times `t` and the states `y`, one along the first
    axis for each of the `most` that are recorded; NaN where there were fewer.
    """

    count: Any
    t: Any
    y: Any


@dataclass(frozen=True, eq=False)
class Condition:
    """An event on vectors: its condition as a function of (t, y, *arguments), those of the whole problem."""

    function: Callable[..., Any]
    terminal: bool
    direction: int
    most: int


def parse_events(given: Any) -> tuple[Event, ...]:
    """The events of a solve, from one, several or None."""
    if given is None:
        return ()
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for event in found:
        if not isinstance(event, Event):
            raise ArgumentError(
                f"ode.solve: events must be objects such as pb.ode.Event(condition), got {short_repr(event)}."
            )
    return found


def slots_of(conditions: Sequence[Condition]) -> list[range]:
    """The places of each event among all recorded crossings."""
    found, at = [], 0
    for condition in conditions:
        found.append(range(at, at + condition.most))
        at += condition.most
    return found


def count_slots(conditions: Sequence[Condition]) -> int:
    """How many crossings may be recorded."""
    return sum(condition.most for condition in conditions)
